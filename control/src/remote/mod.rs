//! Who asks: a checkpointer whose home is in another process.

mod error;
mod home;
mod link;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use deedbook_journal::{
    checkpointer::{StoreError, StoreIdentity},
    embedded::{Backup, Examination, Finding, Progress, Stage, Verdict},
    record::RecordHash,
};

pub use error::ConnectError;

use self::link::Link;
use crate::{
    limits::LINE_BYTES_MAX,
    wire::{self, Call, Fault, ProgressValue},
};

/// A journal that another process holds, reached through its control socket.
///
/// It is a [`Checkpointer`](deedbook_journal::checkpointer::Checkpointer) like the home behind it:
/// what it is told is done there, under the same epochs. When the connection is lost in the middle
/// of a write, the answer is [`StoreError::Unknown`], and this handle takes no more; connect again
/// to learn what became of it. Closing it closes the connection, not the journal.
///
/// It needs no async runtime, and takes a thread of its own.
pub struct Remote {
    identity: StoreIdentity,
    owner: Owner,
    link: Mutex<Option<Arc<Link>>>,
}

/// The process that holds the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Owner {
    /// Its process id.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// Whether it runs threads, and so takes up what is said to them.
    pub runs: bool,
    /// The socket.
    pub socket: PathBuf,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.program, self.pid)
    }
}

impl Remote {
    /// Connects to whoever holds the journal in this file.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect(journal: impl AsRef<Path>) -> Result<Self, ConnectError> {
        Self::over(link::Target::Journal(journal.as_ref().into())).await
    }

    /// Connects to this socket.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub async fn connect_to(socket: impl AsRef<Path>) -> Result<Self, ConnectError> {
        Self::over(link::Target::Socket(socket.as_ref().into())).await
    }

    async fn over(target: link::Target) -> Result<Self, ConnectError> {
        let (link, hello, socket) = link::open(target).await?;
        Ok(Self {
            identity: StoreIdentity {
                log_id: hello.log_id.0,
                namespace: hello.namespace.0,
                secret: hello.secret.0,
            },
            owner: Owner { pid: hello.pid, program: hello.program, runs: hello.runs, socket },
            link: Mutex::new(Some(Arc::new(link))),
        })
    }

    /// The process that holds the journal.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// Has the owner copy the journal into a new file, as
    /// [`Embedded::backup`](deedbook_journal::embedded::Embedded::backup) does.
    ///
    /// # Errors
    /// [`StoreError::Refused`] with the reason why there is no copy.
    ///
    /// **Cancel safety.** Dropped together with this handle, it is given up.
    pub async fn backup(
        &self,
        to: impl AsRef<Path>,
        mut watch: impl FnMut(Progress) + Send,
    ) -> Result<Backup, StoreError> {
        let refused = |why: String| StoreError::Refused { why: why.into() };
        let path = to.as_ref().to_path_buf();
        let whole =
            std::path::absolute(&path).map_err(|e| refused(format!("{}: {e}", path.display())))?;
        let Some(name) = whole.to_str().map(str::to_owned) else {
            return Err(refused(format!("{}: a name that is no text", path.display())));
        };
        let mut tell = |progress| watch(progress_of(&progress));
        let made = self.watched(&wire::Backup { to: name.clone() }, true, &mut tell).await;
        // The owner has another folder: it knows the file by its whole name only.
        let made = made.map_err(|error| match &error {
            StoreError::Refused { why } => match why.strip_prefix(&name) {
                Some(rest) => refused(format!("{}{rest}", path.display())),
                None => error,
            },
            _ => error,
        })?;
        Ok(Backup {
            path,
            log_id: made.log_id.0,
            threads: made.threads,
            records: made.records,
            head: made.head.map(|(leaf, hash)| (leaf, RecordHash(hash.0))),
            file_bytes: made.file_bytes,
        })
    }

    /// Has the owner examine the journal, as
    /// [`Embedded::examine_open`](deedbook_journal::embedded::Embedded::examine_open) does.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if the owner cannot: the home is no file.
    ///
    /// **Cancel safety.** Dropped together with this handle, it is given up.
    pub async fn examine(
        &self,
        mut watch: impl FnMut(Progress) + Send,
    ) -> Result<Examination, StoreError> {
        let mut tell = |progress| watch(progress_of(&progress));
        let said = self.watched(&wire::Examine {}, false, &mut tell).await?;
        let finding = |said: wire::FindingValue| {
            // What a later owner says that is not known here may be anything.
            let verdict = Verdict::of_word(&said.verdict).unwrap_or(Verdict::Fault);
            Finding::new(said.about, verdict, said.said, said.next)
        };
        let mut seen = Examination::default();
        seen.findings = said.findings.into_iter().map(finding).collect();
        (seen.records, seen.rolled_back_from) = (said.records, said.rolled_back_from);
        Ok(seen)
    }

    /// Asks the owner to leave, so that this process can have the journal for itself: whether it
    /// does. It goes once this handle is dropped; it stays, and this is false, while anybody else
    /// is connected.
    ///
    /// # Errors
    /// [`StoreError::Refused`] if it is none that leaves when asked: it holds the journal for
    /// something of its own.
    ///
    /// **Cancel safety.** Dropped, it may leave all the same.
    pub async fn ask_to_leave(&self) -> Result<bool, StoreError> {
        Ok(self.ask(&wire::Leave {}, false).await?.leaves)
    }

    fn link(&self) -> Result<Arc<Link>, StoreError> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner);
        link.clone().ok_or(StoreError::Closed)
    }

    /// Asks, and waits for the answer. `writes` says what an answer that never comes means.
    async fn ask<C: Call>(&self, call: &C, writes: bool) -> Result<C::Answer, StoreError> {
        self.watched(call, writes, &mut |_| {}).await
    }

    async fn watched<C: Call>(
        &self,
        call: &C,
        writes: bool,
        told: &mut (dyn FnMut(ProgressValue) + Send),
    ) -> Result<C::Answer, StoreError> {
        let link = self.link()?;
        let id = link.next_id();
        let asking = wire::Asking { id, op: C::OP, args: call };
        let line = serde_json::to_vec(&asking);
        let mut line = line.map_err(|e| StoreError::Refused { why: e.to_string().into() })?;
        line.push(b'\n');
        if line.len() > LINE_BYTES_MAX {
            let why = format!(
                "it takes {} bytes, and a line to the process that holds the journal has at most \
                 {LINE_BYTES_MAX}",
                line.len()
            );
            return Err(StoreError::Refused { why: why.into() });
        }
        let mut answers = link.ask(id, line).await?;
        loop {
            let Some(answer) = answers.recv().await else {
                return Err(link.lost(writes));
            };
            let answer = serde_json::from_str::<wire::Answer<C::Answer>>(&answer);
            let answer = answer.map_err(|e| {
                let why = format!("the answer cannot be understood: {e}").into();
                // It has happened, whatever it was.
                if writes { StoreError::Unknown { why } } else { StoreError::Failed { why } }
            })?;
            match answer {
                wire::Answer { progress: Some(progress), .. } => told(progress),
                wire::Answer { ok: Some(ok), .. } => return Ok(ok),
                wire::Answer { error, .. } => {
                    let none = || Fault::internal("an answer without an answer");
                    return Err(error.unwrap_or_else(none).into());
                }
            }
        }
    }
}

fn progress_of(told: &ProgressValue) -> Progress {
    Progress {
        stage: if told.stage == "verify" { Stage::Verify } else { Stage::Copy },
        records: told.records,
        of: told.of,
        bytes: told.bytes,
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("owner", &self.owner).finish_non_exhaustive()
    }
}
