//! What a caller of the guard wants.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{GuardError, Settled, THREAD_PREFIX, step};
use crate::{
    checkpointer::StoreIdentity,
    hex,
    history::History,
    id::{Identity, InvalidName, Name, StepId, StoreTime, ThreadId},
    key::{KeyIdentity, KeyScope, Namespace, OperationKey},
    limits::ValueLimits,
    policy::{Policy, Terms},
    value::{self, Fingerprint, ValueError, canonical},
};

/// How much of a step's name stands in its thread's id.
const NAME_SHOWN_BYTES_MAX: usize = 128;

/// Where a guarded step happens once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Within {
    /// In everything that names this id: an order, a conversation, a tenant.
    Thread(ThreadId),
    /// In the whole journal.
    Journal,
}

impl Within {
    /// As recorded in the input of the step's thread.
    pub(super) fn recorded(&self) -> Recorded {
        match self {
            Self::Thread(thread) => Recorded { within: Some(thread.as_str().to_owned()) },
            Self::Journal => Recorded { within: None },
        }
    }
}

/// The input of a guarded step's thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recorded {
    /// The scope's id; absent for the whole journal.
    pub(super) within: Option<String>,
}

/// A guarded step as its caller wants it: a name, a scope, an identity, arguments, terms.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub(super) within: Within,
    pub(super) name: Name,
    pub(super) identity: Identified,
    /// In MessagePack.
    pub(super) args: Vec<u8>,
    pub(super) terms: Terms,
    pub(super) valid_for: Option<Duration>,
    pub(super) compares: bool,
    pub(super) redact: Vec<String>,
}

/// What makes two calls the same operation.
#[derive(Debug, Clone)]
pub(super) enum Identified {
    /// All arguments.
    Arguments { occurrence: u32 },
    /// These arguments, in their canonical form.
    Chosen { canonical: Vec<u8>, occurrence: u32 },
    /// A business key.
    Key(String),
}

impl Wanted {
    /// A step of this name under this policy, identified by its arguments, which are none.
    ///
    /// Attempts are not limited, unless [`terms`](Self::terms) say so: each claim is a decision
    /// of its caller.
    ///
    /// # Errors
    /// The name is empty or longer than 512 bytes.
    pub fn new(within: Within, name: &str, policy: Policy) -> Result<Self, InvalidName> {
        Ok(Self {
            within,
            name: Name::new(name)?,
            identity: Identified::Arguments { occurrence: 0 },
            // Nil.
            args: vec![0xc0],
            terms: Terms { attempts_max: u32::MAX, ..Terms::of(policy) },
            valid_for: None,
            compares: true,
            redact: Vec::new(),
        })
    }

    /// Gives the arguments. They are recorded, and compared with those of an earlier call.
    ///
    /// # Errors
    /// They cannot be recorded.
    pub fn arguments<A: Serialize + ?Sized>(mut self, args: &A) -> Result<Self, ValueError> {
        self.args = value::encode(args, &ValueLimits::new())?;
        Ok(self)
    }

    /// Gives the arguments in MessagePack.
    ///
    /// # Errors
    /// They are no value within the limits.
    pub fn encoded(mut self, args: Vec<u8>) -> Result<Self, ValueError> {
        value::check(&args, &ValueLimits::new())?;
        self.args = args;
        Ok(self)
    }

    /// Identifies the step by a business key, namespaced by the step's name: 1 to 1024 bytes.
    /// Other arguments under the same key are a [`super::Conflict`].
    ///
    /// # Errors
    /// The key is empty or too long.
    pub fn key(mut self, key: impl Into<String>) -> Result<Self, InvalidName> {
        let key = key.into();
        Identity::key(&key)?;
        self.identity = Identified::Key(key);
        Ok(self)
    }

    /// Identifies the step by part of its arguments: the others are its content, which is compared
    /// and is no part of the identity.
    ///
    /// # Errors
    /// The chosen part has no canonical form.
    pub fn identified_by<I: Serialize + ?Sized>(mut self, chosen: &I) -> Result<Self, ValueError> {
        let canonical = canonical::of(chosen, &ValueLimits::new())?;
        self.identity = Identified::Chosen { canonical, occurrence: 0 };
        Ok(self)
    }

    /// The same, with the canonical form of that part.
    #[must_use]
    pub fn identified_by_canonical(mut self, canonical: Vec<u8>) -> Self {
        self.identity = Identified::Chosen { canonical, occurrence: 0 };
        self
    }

    /// With an identity by arguments: a repeat that is wanted, counted from 0.
    #[must_use]
    pub fn occurrence(mut self, nth: u32) -> Self {
        match &mut self.identity {
            Identified::Arguments { occurrence } | Identified::Chosen { occurrence, .. } => {
                *occurrence = nth;
            }
            Identified::Key(_) => {}
        }
        self
    }

    /// Declares the terms: they are recorded with the first attempt, and hold from then on.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// The declared terms.
    #[must_use]
    pub fn declared(&self) -> &Terms {
        &self.terms
    }

    /// How old an outcome may be that this caller is given, counted from when it was recorded; an
    /// older one has the step happen anew, under a fresh key. What is in doubt never runs out.
    /// Default: for ever.
    #[must_use]
    pub fn valid_for(mut self, time: Duration) -> Self {
        self.valid_for = Some(time);
        self
    }

    /// Under a key, or part of the arguments, as identity: lets other arguments pass.
    #[must_use]
    pub fn any_content(mut self) -> Self {
        self.compares = false;
        self
    }

    /// Names a place in the arguments of which a conflict does not tell.
    #[must_use]
    pub fn redact(mut self, pointer: impl Into<String>) -> Self {
        self.redact.push(pointer.into());
        self
    }

    /// The same under an identity that nobody else has: what happens while guards are off. `seed`
    /// is 32 fresh random bytes.
    #[must_use]
    pub fn unguarded(mut self, seed: [u8; 32]) -> Self {
        self.identity = Identified::Key(format!("unguarded:{}", hex::encode(&seed)));
        self
    }

    /// Whether a caller who wants this is given an outcome that a caller with the same identity was
    /// given: the arguments are the same bytes, where they are compared, and it is still valid.
    #[must_use]
    pub fn takes(&self, before: &Self, settled: &Settled, now: StoreTime) -> bool {
        let same = !self.compares || self.args == before.args;
        same && self.valid_for.is_none_or(|time| now < settled.at.after(time))
    }

    /// The step's name.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The identity as its thread records it.
    pub(super) fn step_id(&self, store: &StoreIdentity) -> Result<StepId, GuardError> {
        let identity = match &self.identity {
            Identified::Arguments { occurrence } => {
                let fingerprint = Fingerprint::of(&store.secret, &self.canonical()?);
                Identity::Arguments { fingerprint, occurrence: *occurrence }
            }
            Identified::Chosen { canonical, occurrence } => {
                Identity::key(chosen(store, canonical, *occurrence))?
            }
            Identified::Key(key) => Identity::key(key)?,
        };
        Ok(StepId::scoped(self.name.clone(), identity))
    }

    /// The operation key; 0 is the generation until a fresh one is granted.
    pub(super) fn operation_key(
        &self,
        store: &StoreIdentity,
        generation: u64,
    ) -> Result<OperationKey, GuardError> {
        let scope = match &self.within {
            Within::Thread(thread) => KeyScope::Thread(thread),
            Within::Journal => KeyScope::Journal,
        };
        let (all, key);
        let identity = match &self.identity {
            Identified::Arguments { occurrence } => {
                all = self.canonical()?;
                KeyIdentity::Arguments { canonical: &all, occurrence: *occurrence }
            }
            Identified::Chosen { canonical, occurrence } => {
                key = chosen(store, canonical, *occurrence);
                KeyIdentity::Key(&key)
            }
            Identified::Key(key) => KeyIdentity::Key(key),
        };
        let namespace = Namespace(store.namespace);
        Ok(OperationKey::derive(&namespace, scope, self.name.as_str(), identity, generation))
    }

    /// The thread that everybody who wants this step meets in.
    ///
    /// # Errors
    /// The arguments have no canonical form.
    pub fn thread(&self, store: &StoreIdentity) -> Result<ThreadId, GuardError> {
        let key = self.operation_key(store, 0)?;
        let name = shown(self.name.as_str());
        // The digits of the key tell scopes, names and identities apart.
        let digits = key.as_str().rsplit('_').next().unwrap_or_default();
        Ok(ThreadId::any(format!("{THREAD_PREFIX}{name}/{digits}"))?)
    }

    fn canonical(&self) -> Result<Vec<u8>, ValueError> {
        canonical::of_msgpack(&self.args, &ValueLimits::new())
    }
}

/// The operation key of a recorded step, of this generation.
///
/// # Errors
/// What it is derived from was erased.
pub(super) fn recorded_key(
    history: &History,
    store: &StoreIdentity,
    generation: u64,
) -> Result<OperationKey, GuardError> {
    let erased = || GuardError::Refused {
        why: "what its key is derived from was erased; a call that does not take its outcome any \
              more (`valid_for`) has it happen anew"
            .to_owned(),
    };
    let call = step(history).ok_or_else(erased)?;
    let limits = ValueLimits::new();
    let input = history.input().ok_or_else(erased)?;
    let within = value::decode::<Recorded>(input, &limits)?.within;
    let thread = within.map(ThreadId::any).transpose()?;
    let scope = thread.as_ref().map_or(KeyScope::Journal, KeyScope::Thread);
    let canonical;
    let identity = match &call.id.identity {
        Identity::Arguments { occurrence, .. } => {
            let args = call.args.as_deref().ok_or_else(erased)?;
            canonical = canonical::of_msgpack(args, &limits)?;
            KeyIdentity::Arguments { canonical: &canonical, occurrence: *occurrence }
        }
        Identity::Key(key) => KeyIdentity::Key(key),
        Identity::Positional { .. } => return Err(erased()),
    };
    let (namespace, name) = (Namespace(store.namespace), call.id.name.as_str());
    Ok(OperationKey::derive(&namespace, scope, name, identity, generation))
}

/// What stands for part of the arguments: without the journal's secret nobody finds it by trying.
fn chosen(store: &StoreIdentity, canonical: &[u8], occurrence: u32) -> String {
    format!("arguments:{}:{occurrence}", Fingerprint::of(&store.secret, canonical))
}

/// A step's name as it stands in its thread's id, where it is for people.
pub(super) fn shown(name: &str) -> String {
    let mut name: String = name.chars().map(plain).collect();
    while name.len() > NAME_SHOWN_BYTES_MAX {
        name.pop();
    }
    name
}

/// What could be taken for the id's own parts is left out.
fn plain(c: char) -> char {
    if c == '/' || c.is_control() { '_' } else { c }
}
