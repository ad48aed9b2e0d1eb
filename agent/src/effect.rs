//! What calling a tool does to the world: said once, by whoever writes the tool.

use std::time::Duration;

use deedbook::{PolicyKind, Retry, Scope};
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

/// The effect class of a tool: mandatory, because nobody can guess it.
///
/// | class | an identical call later in the thread | after a crash in the body |
/// | --- | --- | --- |
/// | [`read`](Self::read) | runs again | runs again |
/// | [`idempotent`](Self::idempotent) | is answered from the record | is sent again, same key |
/// | [`reconcile`](Self::reconcile) | is answered from the record | the downstream is asked |
/// | [`at_most_once`](Self::at_most_once) | is answered from the record | a person decides |
/// | [`mint`](Self::mint) | is an operation of its own | a person decides |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Effect {
    pub(crate) policy: Class,
    pub(crate) minting: bool,
    pub(crate) window: Option<Duration>,
    pub(crate) quiet: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    Read,
    Idempotent,
    Reconcile,
    AtMostOnce,
}

impl Effect {
    const fn of(policy: Class) -> Self {
        Self { policy, minting: false, window: None, quiet: None }
    }

    /// No effect outside: a look-up.
    #[must_use]
    pub const fn read() -> Self {
        Self::of(Class::Read)
    }

    /// The other side honours the operation key ([`Call::key`](crate::Call::key)).
    #[must_use]
    pub const fn idempotent() -> Self {
        Self::of(Class::Idempotent)
    }

    /// The other side can be asked: the tool has a [`probe`](crate::Tool::probe).
    #[must_use]
    pub const fn reconcile() -> Self {
        Self::of(Class::Reconcile)
    }

    /// Neither: the body runs once, and if nobody knows what became of it a person decides.
    #[must_use]
    pub const fn at_most_once() -> Self {
        Self::of(Class::AtMostOnce)
    }

    /// Every call makes something new (a case id, a reminder): the second wanted call is an
    /// operation of its own, and the replay of the first is still the first. At most once each;
    /// [`minting`](Self::minting) gives the other classes the same.
    #[must_use]
    pub const fn mint() -> Self {
        Self::at_most_once().minting()
    }

    /// The same, where every wanted call is an operation of its own.
    #[must_use]
    pub const fn minting(mut self) -> Self {
        self.minting = true;
        self
    }

    /// For [`idempotent`](Self::idempotent): how long after the first send the key is honoured.
    #[must_use]
    pub const fn honoured_for(mut self, window: Duration) -> Self {
        self.window = Some(window);
        self
    }

    /// For [`reconcile`](Self::reconcile): how long after the last send the probe is asked.
    #[must_use]
    pub const fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = Some(quiet);
        self
    }

    /// The policy of its steps.
    #[must_use]
    pub const fn policy(&self) -> PolicyKind {
        match self.policy {
            Class::Read => PolicyKind::Read,
            Class::Idempotent => PolicyKind::Idempotent,
            Class::Reconcile => PolicyKind::Reconcile,
            Class::AtMostOnce => PolicyKind::AtMostOnce,
        }
    }

    /// Whether an identical later call is answered from the record.
    #[must_use]
    pub const fn is_once(&self) -> bool {
        !matches!(self.policy, Class::Read) && !self.minting
    }
}

/// What else is said of a tool.
#[derive(Debug, Clone)]
pub struct Terms {
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
    pub(crate) identity: Option<Vec<String>>,
    pub(crate) normalise: Vec<(String, Normalise)>,
    pub(crate) approval: Option<String>,
    pub(crate) scope: Scope,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            retry: Retry::attempts(3),
            identity: None,
            normalise: Vec::new(),
            approval: None,
            scope: Scope::Thread,
        }
    }
}

impl Terms {
    /// The defaults: a minute for an attempt, three attempts, identity by all arguments, no
    /// approval.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How long an attempt may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How often and how soon a call is tried again, where its class allows it.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Which arguments say *which* operation it is; the others are its content. The same identity
    /// with other content is a conflict: it is told to the model and recorded, and nothing is
    /// executed.
    #[must_use]
    pub fn identity<S: Into<String>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.identity = Some(arguments.into_iter().map(Into::into).collect());
        self
    }

    /// Brings an argument into one form before hooks and keys. More than one may be said of one
    /// argument; they apply in order.
    #[must_use]
    pub fn normalise(mut self, argument: impl Into<String>, how: Normalise) -> Self {
        self.normalise.push((argument.into(), how));
        self
    }

    /// Where a call happens once: in its conversation, which is the default, or in the whole
    /// journal, so that all agents, workflows and guards that want it share one operation.
    #[must_use]
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = scope;
        self
    }

    /// Every call needs a person's approval, who is shown the exact arguments and this reason.
    #[must_use]
    pub fn approval(mut self, reason: impl Into<String>) -> Self {
        self.approval = Some(reason.into());
        self
    }
}

/// One form for a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Normalise {
    /// No white space around it.
    Trim,
    /// In capitals.
    Upper,
    /// In small letters.
    Lower,
    /// In normalisation form C of Unicode: `é` is one code point.
    Nfc,
}

impl Normalise {
    pub(crate) fn apply(self, text: &str) -> String {
        match self {
            Self::Trim => text.trim().to_owned(),
            Self::Upper => text.to_uppercase(),
            Self::Lower => text.to_lowercase(),
            Self::Nfc => text.nfc().collect(),
        }
    }
}
