//! The child processes, and where their files are.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::{Options, REFUNDS, StoryError};
use crate::agent::holds::HoldAt;
use crate::agent::note::{Decision, Note};
use crate::bank::Mode;

/// How long the bank takes before a refund takes effect, and again before it answers, in
/// milliseconds.
const BANK_DELAY_MS: &str = "8";
/// How long a child may take to end once it was told to.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the files of a story are.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) journal: PathBuf,
    pub(super) ledger: PathBuf,
    pub(super) outbox: PathBuf,
    pub(super) refunds: PathBuf,
    /// The folder, if it was made for this story.
    folder: Option<PathBuf>,
}

impl Places {
    /// Makes the folder if there is to be one.
    pub(super) fn prepare(options: &Options) -> Result<Self, StoryError> {
        let (journal, folder) = match &options.journal {
            Some(journal) => (journal.clone(), None),
            None => {
                let made = tempfile::Builder::new().prefix("refund-agent-").tempdir();
                let folder = made.map_err(|source| StoryError::File {
                    what: "temporary folder",
                    path: std::env::temp_dir(),
                    source,
                })?;
                let folder = folder.keep();
                (folder.join("refunds.redb"), Some(folder))
            }
        };
        let refunds = match &options.refunds {
            Some(refunds) => refunds.clone(),
            None => {
                let path = beside(&journal, "requests.jsonl");
                std::fs::write(&path, REFUNDS).map_err(|source| StoryError::File {
                    what: "requests",
                    path: path.clone(),
                    source,
                })?;
                path
            }
        };
        Ok(Self {
            ledger: beside(&journal, "bank.jsonl"),
            outbox: beside(&journal, "outbox.jsonl"),
            journal,
            refunds,
            folder,
        })
    }

    pub(super) fn discard(&self) -> Result<(), StoryError> {
        let Some(folder) = &self.folder else {
            return Ok(());
        };
        std::fs::remove_dir_all(folder).map_err(|source| StoryError::File {
            what: "temporary folder",
            path: folder.clone(),
            source,
        })
    }
}

/// A file that belongs to this journal.
fn beside(journal: &Path, what: &str) -> PathBuf {
    let mut name = OsString::from(journal);
    name.push(".");
    name.push(what);
    name.into()
}

/// This program, as another process that ends with this one and is not reached by its Ctrl-C.
fn part(name: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args([name, "--until-stdin-ends"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    #[cfg(unix)]
    command.process_group(0);
    Ok(command)
}

/// The word for a mode on the command line.
pub(super) fn word(mode: Mode) -> &'static str {
    match mode {
        Mode::Keys => "keys",
        Mode::Lookup => "lookup",
        Mode::None => "none",
    }
}

/// A child and its two ends.
#[derive(Debug)]
struct Spoken {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Spoken {
    fn start(name: &'static str, command: io::Result<Command>) -> Result<Self, StoryError> {
        let fault = |source| StoryError::Child { child: name, source };
        let mut child = command.and_then(|mut c| c.spawn()).map_err(fault)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(fault(io::Error::other("it has no standard input or output")));
        };
        Ok(Self { name, child, input, output: BufReader::new(output).lines() })
    }

    fn fault(&self, source: io::Error) -> StoryError {
        StoryError::Child { child: self.name, source }
    }

    fn lost(&self, what: impl Into<String>) -> StoryError {
        StoryError::Lost { child: self.name, what: what.into() }
    }

    /// The next line; the end of the output is the end of the child, and unexpected.
    async fn line(&mut self) -> Result<String, StoryError> {
        match self.output.next_line().await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => {
                let ended = self.child.wait().await.map_err(|e| self.fault(e))?;
                Err(self.lost(format!("has ended by itself ({ended})")))
            }
            Err(error) => Err(self.fault(error)),
        }
    }

    /// Closes its input, and waits for it to end well.
    async fn end(self) -> Result<(), StoryError> {
        let Self { name, mut child, input, output: _output } = self;
        drop(input);
        let lost = |what| StoryError::Lost { child: name, what };
        match tokio::time::timeout(END_TIMEOUT, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(lost(format!("has failed at its end ({status})"))),
            Ok(Err(source)) => Err(StoryError::Child { child: name, source }),
            Err(_) => Err(lost("does not end".to_owned())),
        }
    }
}

/// A bank in its own process.
#[derive(Debug)]
pub(super) struct BankChild {
    spoken: Spoken,
    pub(super) url: String,
}

impl BankChild {
    pub(super) async fn start(options: &Options, places: &Places) -> Result<Self, StoryError> {
        let mode = if options.faithless_bank { Mode::None } else { options.bank_mode };
        let command = part("bank").map(|mut command| {
            command.arg("--ledger").arg(&places.ledger);
            command.args(["--mode", word(mode)]);
            command.args(["--delay-before-ms", BANK_DELAY_MS]);
            command.args(["--delay-after-ms", BANK_DELAY_MS]);
            for (flag, every) in [
                ("--lose-reply-every", options.lose_reply_every),
                ("--fail-every", options.fail_every),
            ] {
                if let Some(every) = every {
                    command.args([flag, &every.to_string()]);
                }
            }
            command
        });
        let mut spoken = Spoken::start("bank", command)?;
        let line = spoken.line().await?;
        let url = line.strip_prefix("bank listening on ").map(str::to_owned);
        let url = url.ok_or_else(|| spoken.lost("does not say where it listens"))?;
        Ok(Self { spoken, url })
    }

    pub(super) fn pid(&self) -> u32 {
        self.spoken.child.id().unwrap_or_default()
    }

    /// Ends it; its ledger can be read whole afterwards.
    pub(super) async fn stop(self) -> Result<(), StoryError> {
        self.spoken.end().await
    }
}

/// One life of the agent.
#[derive(Debug)]
pub(super) struct AgentChild {
    spoken: Spoken,
    pid: u32,
}

impl AgentChild {
    pub(super) fn start(
        options: &Options,
        places: &Places,
        bank: &BankChild,
        holds: &[HoldAt],
    ) -> Result<Self, StoryError> {
        let command = part("agent").map(|mut command| {
            command.arg("--journal").arg(&places.journal);
            command.arg("--refunds").arg(&places.refunds);
            command.arg("--outbox").arg(&places.outbox);
            command.args(["--bank", &bank.url, "--bank-mode", word(options.bank_mode)]);
            for hold in holds {
                command.args(["--crash-at", &hold.to_string()]);
            }
            command
        });
        let spoken = Spoken::start("agent", command)?;
        let pid = spoken.child.id().unwrap_or_default();
        Ok(Self { spoken, pid })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// What it says next.
    ///
    /// **Cancel safety.** Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Note, StoryError> {
        let line = self.spoken.line().await?;
        serde_json::from_str(&line)
            .map_err(|error| self.spoken.lost(format!("has said what is no note ({error})")))
    }

    /// Hands it a person's answer.
    pub(super) async fn tell(&mut self, decision: &Decision) -> Result<(), StoryError> {
        let mut line = serde_json::to_vec(decision).map_err(|e| self.spoken.fault(e.into()))?;
        line.push(b'\n');
        let input = &mut self.spoken.input;
        match input.write_all(&line).await {
            // It has ended; what it said last is still to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) => Err(self.spoken.fault(error)),
            Ok(()) => input.flush().await.map_err(|e| self.spoken.fault(e)),
        }
    }

    /// SIGKILL, and proof that it was one.
    pub(super) async fn kill(mut self) -> Result<(), StoryError> {
        let killed = self.spoken.child.kill().await;
        killed.map_err(|e| self.spoken.fault(e))?;
        let ended = self.spoken.child.wait().await;
        let ended = ended.map_err(|e| self.spoken.fault(e))?;
        #[cfg(unix)]
        if std::os::unix::process::ExitStatusExt::signal(&ended) != Some(9) {
            return Err(self
                .spoken
                .lost(format!("was to be killed, and ended by itself ({ended})")));
        }
        Ok(())
    }

    /// Waits for its end after its last note.
    pub(super) async fn finish(self) -> Result<(), StoryError> {
        self.spoken.end().await
    }

    pub(super) fn lost(&self, what: &str) -> StoryError {
        self.spoken.lost(what)
    }
}
