//! A program as the body of a step.

use std::{
    process::{ExitStatus, Stdio},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    guard::{Operation, Ticket},
    limits::ValueLimits,
    value::{self, view},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdout, Command},
};

use crate::{
    args::{Call, ResultArg},
    failure::Failure,
};

/// Arguments longer than this go to standard input only: the environment is limited.
const ENV_BYTES_MAX: usize = 64 * 1024;
/// How long the output of a program that has ended is waited for.
const OUTPUT_GRACE: Duration = Duration::from_millis(500);
/// How long a program that is to end is waited for.
const GRACE: Duration = Duration::from_secs(2);

/// A program, ready to run.
pub(super) struct Program {
    command: Command,
    input: Vec<u8>,
    output_max: usize,
}

/// What became of a program.
pub(super) enum Ran {
    /// It did not start: certainly nothing happened.
    NotStarted(String),
    /// It ended by itself.
    Ended {
        /// How.
        status: Ended,
        /// What it wrote.
        output: Output,
    },
    /// Its time was over, and it was ended.
    TimedOut,
}

/// How a program ended.
pub(super) enum Ended {
    /// With this status.
    Exit(u8),
    /// By this signal.
    Signal(i32),
}

/// What a program wrote to its standard output.
pub(super) struct Output {
    bytes: Vec<u8>,
    /// There was more than may be recorded.
    cut: bool,
}

impl Output {
    /// The result, in MessagePack.
    ///
    /// # Errors
    /// Why it cannot be recorded.
    pub(super) fn result(self, args: &Call) -> Result<Vec<u8>, String> {
        if self.cut {
            return Err(format!("its output is longer than {} bytes", args.result_max));
        }
        let limits = ValueLimits::new();
        let text = String::from_utf8(self.bytes);
        let json =
            |text: &str| view::from_json(text.trim(), &limits).map_err(|e| e.of("its output"));
        match (args.result, text) {
            (ResultArg::Json, Ok(text)) => json(&text),
            (ResultArg::Json, Err(_)) => Err("its output is no JSON: it is not UTF-8".to_owned()),
            (ResultArg::Auto, Ok(text)) => match json(&text) {
                Ok(value) => Ok(value),
                Err(_) => encoded(&text),
            },
            (ResultArg::Text, Ok(text)) => encoded(&text),
            (ResultArg::Auto | ResultArg::Text, Err(error)) => {
                encoded(&deedbook_journal::message::Bytes(error.into_bytes()))
            }
        }
    }
}

fn encoded<T: serde::Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, String> {
    value::encode(value, &ValueLimits::new()).map_err(|error| error.to_string())
}

impl Program {
    pub(super) fn of(
        args: &Call,
        arguments: Option<&[u8]>,
        operation: &Operation,
        words: &[String],
    ) -> Result<Self, Failure> {
        let (name, rest) =
            words.split_first().ok_or_else(|| Failure::usage("name the command behind `--`"))?;
        let mut input = String::new();
        match arguments {
            Some(arguments) => view::to_json(arguments, &mut input)?,
            None => input.push_str("null"),
        }
        let mut command = Command::new(name);
        command.args(rest).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("DEEDBOOK_STEP", &args.name);
        command.env("DEEDBOOK_ATTEMPT", operation.attempt.to_string());
        command.env("DEEDBOOK_FIRST_STARTED_AT", operation.first_started_at.to_string());
        match &operation.key {
            Some(key) => command.env("DEEDBOOK_OPERATION_KEY", &**key),
            None => command.env_remove("DEEDBOOK_OPERATION_KEY"),
        };
        match &args.thread {
            Some(thread) => command.env("DEEDBOOK_THREAD", thread),
            None => command.env_remove("DEEDBOOK_THREAD"),
        };
        if input.len() <= ENV_BYTES_MAX {
            command.env("DEEDBOOK_ARGS", &input);
        } else {
            command.env_remove("DEEDBOOK_ARGS");
        }
        let output_max = args.result_max;
        Ok(Self { command, input: input.into_bytes(), output_max })
    }
}

/// Runs a program, and holds the step meanwhile.
pub(super) async fn run(
    mut program: Program,
    home: &dyn Checkpointer,
    ticket: &mut Ticket,
    lease: Duration,
) -> Ran {
    let mut child = match program.command.spawn() {
        Ok(child) => child,
        Err(error) => return Ran::NotStarted(format!("it cannot be started: {error}")),
    };
    let timeout = ticket.timeout();
    let talking = talk(&mut child, program.input, program.output_max);
    let ended = tokio::time::timeout(timeout, beside(talking, home, ticket, lease)).await;
    match ended {
        Ok(Ok((status, output))) => Ran::Ended { status: how(status), output },
        Ok(Err(_)) | Err(_) => {
            end(&mut child).await;
            Ran::TimedOut
        }
    }
}

/// Does this, and renews the hold while it lasts. A hold that was lost takes no outcome; what the
/// program does is worth knowing all the same.
async fn beside<T>(
    work: impl Future<Output = T>,
    home: &dyn Checkpointer,
    ticket: &mut Ticket,
    lease: Duration,
) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        if let Ok(done) = tokio::time::timeout(lease / 3, work.as_mut()).await {
            return done;
        }
        let _ = ticket.renew(home, lease).await;
    }
}

/// Gives a program its input and takes its output, side by side, until it ends. What it left
/// running may keep its standard output open: that is waited for a moment only.
async fn talk(
    child: &mut Child,
    input: Vec<u8>,
    output_max: usize,
) -> std::io::Result<(ExitStatus, Output)> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let writing = async move {
        if let Some(mut stdin) = stdin {
            // A program need not read what it is told.
            let _ = stdin.write_all(&input).await;
        }
    };
    let mut output = Output { bytes: Vec::new(), cut: false };
    let reading = take(stdout, &mut output, output_max);
    let status = {
        let waiting = child.wait();
        let (mut writing, mut waiting) = (std::pin::pin!(writing), std::pin::pin!(waiting));
        let mut reading = std::pin::pin!(reading);
        let (mut written, mut read) = (false, false);
        let status = std::future::poll_fn(|cx| {
            written = written || writing.as_mut().poll(cx).is_ready();
            read = read || reading.as_mut().poll(cx).is_ready();
            waiting.as_mut().poll(cx)
        })
        .await?;
        if !read {
            let _ = tokio::time::timeout(OUTPUT_GRACE, reading).await;
        }
        status
    };
    Ok((status, output))
}

/// Takes what a program writes.
async fn take(stdout: Option<ChildStdout>, output: &mut Output, output_max: usize) {
    let Some(mut stdout) = stdout else { return };
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = stdout.read(&mut buffer).await {
        let room = output_max.saturating_sub(output.bytes.len());
        let part = buffer.get(..count).unwrap_or_default();
        output.cut |= count > room;
        // Beyond the limit it is read and let go, so that the program does not hang.
        output.bytes.extend_from_slice(part.get(..room).unwrap_or(part));
    }
}

/// Ends a program whose time is over.
async fn end(child: &mut Child) {
    let _ = child.start_kill();
    let _ = tokio::time::timeout(GRACE, child.wait()).await;
}

fn how(status: ExitStatus) -> Ended {
    use std::os::unix::process::ExitStatusExt;
    match status.code() {
        Some(code) => Ended::Exit(u8::try_from(code).unwrap_or(u8::MAX)),
        None => Ended::Signal(status.signal().unwrap_or_default()),
    }
}

#[expect(clippy::disallowed_methods, reason = "a tool runs in real time")]
pub(super) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
