//! The header: everything about a record but its payloads, and the input of its hash.

use std::sync::Arc;

use super::{
    Payload, RecordHash,
    kind::{Kind, Role},
};
use crate::{
    id::{
        Branch, Epoch, Identity, IdentityKind, MessageId, Name, Position, StepId, StoreTime,
        ThreadId,
    },
    policy::Policy,
};

/// The format version that this code writes.
pub(super) const VERSION: u64 = 1;

/// A header that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the header cannot be read: {0}")]
pub struct HeaderError(pub(super) String);

/// What a record says of one payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commitment {
    /// What the payload is to the record.
    pub role: Role,
    /// Its length in bytes.
    pub length: u64,
    /// [`Payload::commitment`].
    pub hash: [u8; 32],
}

impl Commitment {
    /// Commits to a payload.
    #[must_use]
    pub fn to(payload: &Payload) -> Self {
        Self { role: payload.role, length: payload.bytes.len() as u64, hash: payload.commitment() }
    }
}

/// Which call a record opens: a [`crate::id::StepId`] without the fingerprint, which never
/// stands in a header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The episode (`ep`).
    pub episode: u32,
    /// The branch (`br`).
    pub branch: Branch,
    /// The name (`step`).
    pub name: Name,
    /// The kind of identity (`idk`).
    pub kind: IdentityKind,
    /// The occurrence (`occ`).
    pub occurrence: u32,
    /// The business key (`bkey`), where the kind is [`IdentityKind::Key`].
    pub business_key: Option<Arc<str>>,
}

impl Place {
    /// The place of this call.
    #[must_use]
    pub fn of(id: &StepId) -> Self {
        let (occurrence, business_key) = match &id.identity {
            Identity::Positional { occurrence } | Identity::Arguments { occurrence, .. } => {
                (*occurrence, None)
            }
            Identity::Key(key) => (0, Some(key.clone())),
        };
        Self {
            episode: id.episode,
            branch: id.branch.clone(),
            name: id.name.clone(),
            kind: id.identity.kind(),
            occurrence,
            business_key,
        }
    }
}

/// A record of this or of another thread that a record stands on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    /// The thread (`ref`); this record's own where absent.
    pub thread: Option<ThreadId>,
    /// The position there (`ref_n`).
    pub n: Option<Position>,
    /// The hash of the record there (`ref_hash`), which makes a changed one visible.
    pub hash: Option<RecordHash>,
}

/// What a record says of the whole log: on evidence records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogState {
    /// How many leaves the Merkle log has (`size`).
    pub size: u64,
    /// Its root (`root`).
    pub root: [u8; 32],
    /// The root over the heads of all threads (`heads`).
    pub heads: Option<[u8; 32]>,
}

/// The fields of a header. Absent ones are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// `th`: the thread.
    pub thread: ThreadId,
    /// `n`: the position in the thread.
    pub n: Position,
    /// `e`: the epoch of the writer.
    pub epoch: Epoch,
    /// `k`: what happened.
    pub kind: Kind,
    /// `t`: when, by the store's clock.
    pub time: StoreTime,
    /// `run`: the position of the thread's last `thread.start` or `thread.resume`.
    pub run: Position,
    /// `br ep idk bkey occ step`: which call, on records that open one.
    pub place: Option<Place>,
    /// `att`: the attempt, from 1.
    pub attempt: Option<u32>,
    /// `att_max`: how many attempts there may be.
    pub attempts_max: Option<u32>,
    /// `call`: the position of the record that opened what this one is about.
    pub call: Option<Position>,
    /// `key`: the operation key sent downstream.
    pub key: Option<Arc<str>>,
    /// `gen`: the generation of the operation key, above 0 after a fresh key.
    pub generation: u64,
    /// `pol`: the policy.
    pub policy: Option<Policy>,
    /// `timeout_ms`: how long an attempt may take.
    pub timeout_ms: Option<u64>,
    /// `window_ms`: how long the downstream honours the key.
    pub window_ms: Option<u64>,
    /// `quiet_ms`: how long after the last send a probe's "no" counts.
    pub quiet_ms: Option<u64>,
    /// `abandon`: the thread may end while this step is in doubt.
    pub abandon: bool,
    /// `appr`: the position of the `approval.decide` that allowed this step.
    pub allowed_by: Option<Position>,
    /// `rule`: the rule, with its version, that allowed or denied this step.
    pub rule: Option<Arc<str>>,
    /// `role`: the payload that was erased.
    pub role: Option<Role>,
    /// `ref ref_n ref_hash`: a record that this one stands on.
    pub link: Option<Box<Link>>,
    /// `carry`: positions of the signals that the next episode takes over, ascending.
    pub carry: Vec<Position>,
    /// `size root heads`: the log, on evidence records.
    pub log: Option<Box<LogState>>,
    /// `due`: when a timer fires, or when the next attempt may start.
    pub due: Option<StoreTime>,
    /// `why`: the reason, a word of the format.
    pub why: Option<Arc<str>>,
    /// `verdict`: what was decided, a word of the format.
    pub verdict: Option<Arc<str>>,
    /// `msg`: the message that this record gave a position to.
    pub message: Option<MessageId>,
    /// `by`: who, where it is not the run itself.
    pub by: Option<Arc<str>>,
    /// `wf`: the workflow's name.
    pub workflow: Option<Arc<str>>,
    /// `build`: the version of the user's code.
    pub build: Option<Arc<str>>,
    /// `proc`: the position of this process's `run.start` in the system thread.
    pub process: Option<Position>,
    /// `doubts`: open doubts left at the end.
    pub doubts: Option<u32>,
    /// `pay`: the commitments to the payloads, in the order of their roles.
    pub payloads: Vec<Commitment>,
}

impl Header {
    /// A header with only what every record has.
    #[must_use]
    pub fn new(
        thread: ThreadId,
        n: Position,
        epoch: Epoch,
        kind: Kind,
        time: StoreTime,
        run: Position,
    ) -> Self {
        Self {
            thread,
            n,
            epoch,
            kind,
            time,
            run,
            place: None,
            attempt: None,
            attempts_max: None,
            call: None,
            key: None,
            generation: 0,
            policy: None,
            timeout_ms: None,
            window_ms: None,
            quiet_ms: None,
            abandon: false,
            allowed_by: None,
            rule: None,
            role: None,
            link: None,
            carry: Vec::new(),
            log: None,
            due: None,
            why: None,
            verdict: None,
            message: None,
            by: None,
            workflow: None,
            build: None,
            process: None,
            doubts: None,
            payloads: Vec::new(),
        }
    }
}
