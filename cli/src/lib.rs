//! `deedbook`: look inside a journal, answer it, export it, verify it.
//!
//! The program is [`main`]; [`typed`] and [`verify_export`] are the parts of it that take what
//! anybody may write, for the tests that give them anything, made of what [`export_of`] writes.

mod args;
mod commands;
mod failure;
mod line;
mod open;
mod out;
mod progress;
mod reach;
mod read;
mod rules;
mod state;
mod story;
mod text;

use std::{
    env,
    ffi::OsString,
    io::{self, BufRead, BufWriter, IsTerminal, Write},
    process::ExitCode,
};

use args::{Cli, Command};
use clap::Parser;
use deedbook_journal::checkpointer::Checkpointer;
use failure::{Failure, Outcome, code};
use open::{Access, Opened};
use out::{JSON_VERSION, Out};
use text::safe;

/// The program.
#[must_use]
pub fn main() -> ExitCode {
    // The storage library panics at some damage. The journal catches that and says what is
    // damaged; the trace beside it would only hide the message, and break `--json`.
    if env::var_os("DEEDBOOK_BACKTRACE").is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    let ran = std::panic::catch_unwind(program);
    ran.unwrap_or_else(|_| {
        let said =
            "a fault of the tool itself; set DEEDBOOK_BACKTRACE=1 to see where, and report it";
        ExitCode::from(complain(Failure::new(said), env::args_os().any(|a| a == "--json")))
    })
}

/// Reads a command line, its own name first, as the program does, and derives the key where that
/// is asked and needs no journal: the exit code and what is said. Everything else, help included,
/// is 0 without a word.
pub fn typed(words: impl IntoIterator<Item = OsString>) -> (u8, String) {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return said(misunderstood(&error)),
        Err(_) => return (code::OK, String::new()),
    };
    let mut written = Vec::new();
    let mut out = Out::new(&mut written, cli.global.json, false);
    let ran = match &cli.command {
        Command::Key(args) if args.namespace.is_some() => commands::key::run(args, None, &mut out),
        _ => Ok(code::OK),
    };
    match ran {
        Ok(code) => (code, String::from_utf8_lossy(&written).into_owned()),
        Err(failure) => said(failure),
    }
}

/// Verifies an export as `verify --export` does: the exit code and what is said.
pub fn verify_export(lines: impl BufRead) -> (u8, String) {
    let mut written = Vec::new();
    let verified = commands::verify::read(lines, &mut Out::new(&mut written, false, false));
    match verified {
        Ok(code) => (code, String::from_utf8_lossy(&written).into_owned()),
        Err(failure) => said(failure),
    }
}

/// The export of a journal, or of one thread of it, as `export` writes it.
///
/// # Errors
/// Why there is none.
pub async fn export_of(home: &dyn Checkpointer, thread: Option<&str>) -> Result<String, String> {
    commands::export::text(home, thread).await.map_err(|failure| said(failure).1)
}

fn said(failure: Failure) -> (u8, String) {
    match failure {
        Failure::ReaderGone => (code::OK, String::new()),
        Failure::Said { code, message } => (code, message),
    }
}

fn program() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return ExitCode::from(not_parsed(&error)),
    };
    let json = cli.global.json;
    ExitCode::from(match run(cli) {
        Ok(code) => code,
        Err(failure) => complain(failure, json),
    })
}

/// `--help` and `--version` end here too.
fn not_parsed(error: &clap::Error) -> u8 {
    if error.use_stderr() {
        let json = env::args_os().any(|a| a == "--json");
        return complain(misunderstood(error), json);
    }
    match error.print().and_then(|()| io::stdout().flush()) {
        Ok(()) => code::OK,
        Err(error) => complain(error.into(), false),
    }
}

/// Why a command line is none.
fn misunderstood(error: &clap::Error) -> Failure {
    // What was typed may come from a journal, so it is made safe; colours go with that.
    let said = error.render().to_string();
    Failure::usage(said.strip_prefix("error: ").unwrap_or(&said).trim_end())
}

fn complain(failure: Failure, json: bool) -> u8 {
    let Failure::Said { code, message } = failure else {
        return code::OK;
    };
    let lines: Vec<String> = message.lines().map(safe).collect();
    let said = if json {
        let error = serde_json::json!({
            "v": JSON_VERSION,
            "error": { "exit": code, "message": lines.join("\n") },
        });
        format!("{error}\n")
    } else {
        format!("deedbook: {}\n", lines.join("\n"))
    };
    // Without a standard error there is nobody to tell.
    let _ = io::stderr().write_all(said.as_bytes());
    code
}

fn run(cli: Cli) -> Outcome {
    let stdout = io::stdout();
    let colour = stdout.is_terminal() && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let mut buffer = BufWriter::with_capacity(64 * 1024, stdout);
    let mut out = Out::new(&mut buffer, cli.global.json, colour);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(format!("cannot start: {e}")))?;
    let outcome = runtime.block_on(dispatch(cli, &mut out));
    match outcome {
        Ok(code) => buffer.flush().map(|()| code).map_err(Failure::from),
        Err(failure) => {
            // Why it failed says more than that its last words cannot be written.
            let _ = buffer.flush();
            Err(failure)
        }
    }
}

async fn dispatch(cli: Cli, out: &mut Out<'_>) -> Outcome {
    let journal = cli.global.journal.as_deref();
    // What needs no journal.
    let command = match cli.command {
        Command::Init(args) => return commands::init::run(&args, journal, out).await,
        // What opens it in its own way.
        Command::Doctor(args) => return commands::doctor::run(&args, journal, out).await,
        Command::Compact(args) => return commands::compact::run(&args, journal, out).await,
        Command::Own(args) => return commands::own::run(&args, journal, out).await,
        Command::Guard(args) => return commands::guard::run(&args, journal).await,
        Command::Call(args) => return commands::call::begin(&args, journal, out).await,
        Command::Completions(args) => return commands::completions::run(&args, out),
        Command::Key(args) if args.namespace.is_some() => {
            return commands::key::run(&args, None, out);
        }
        Command::Verify(args) if args.export.is_some() => {
            return commands::verify::export(&args, out);
        }
        command => command,
    };
    let book = match &command {
        // It takes its time, and others go on meanwhile.
        Command::Forget(args) if !args.dry_run => {
            Opened::There(reach::reach(open::path(journal)?).await?)
        }
        command => open::open(journal, access(command)).await?,
    };
    let looks = access(&command) == Access::WriteIfPossible;
    let outcome = on_journal(command, &book, journal, out).await;
    let closed = book.home().close().await;
    match (outcome?, closed) {
        // What was found stands, also where the file is too damaged to be closed in order.
        (found, _) if found != code::OK => Ok(found),
        // What was shown is durable, also where the disk is too full to close in order.
        (code, Err(error)) if looks => {
            let error = safe(&error.to_string());
            let _ = writeln!(
                io::stderr(),
                "deedbook: done; but the journal could not be brought in order ({error}): it is \
                 as it was, and the next command tries again"
            );
            Ok(code)
        }
        (code, closed) => {
            closed?;
            Ok(code)
        }
    }
}

/// What a command needs of a journal. Looking recovers one that was not closed, so that nothing is
/// shown that is not durable; where nothing can be written it is read as it is.
fn access(command: &Command) -> Access {
    use Command as C;
    match command {
        C::Reset(_) | C::Signal(_) | C::Approve(_) | C::Deny(_) | C::Resolve(_) | C::Cancel(_) => {
            Access::Write
        }
        C::Guards(args) if args.switch.is_some() => Access::Write,
        _ => Access::WriteIfPossible,
    }
}

async fn on_journal(
    command: Command,
    book: &Opened,
    journal: Option<&std::path::Path>,
    out: &mut Out<'_>,
) -> Outcome {
    use Command as C;
    let home = book.home();
    let prefix = commands::prefix(journal);
    match command {
        C::Threads(args) => commands::threads::run(&args, home, out).await,
        C::Show(args) => commands::show::run(&args, home, &prefix, out).await,
        C::Signal(args) => commands::signal::run(&args, book, out).await,
        C::Approve(args) => commands::decide::run(&args, true, book, out).await,
        C::Deny(args) => commands::decide::run(&args, false, book, out).await,
        C::Doubts(args) => commands::doubts::run(&args, home, &prefix, out).await,
        C::Resolve(args) => commands::resolve::run(&args, book, out).await,
        C::Cancel(args) => commands::cancel::run(&args, book, out).await,
        C::Explain(args) => commands::explain::run(&args, home, out).await,
        C::Steps(args) => commands::steps::run(&args, home, out).await,
        C::Reset(args) => commands::reset::run(&args, home, out).await,
        C::Forget(args) => commands::forget::run(&args, home, out).await,
        C::Guards(args) => commands::reset::guards(&args, home, out).await,
        C::Export(args) => commands::export::run(&args, home, journal, out).await,
        C::Verify(args) => commands::verify::run(&args, home, out).await,
        C::Key(args) => commands::key::run(&args, Some(home.identity().namespace), out),
        C::Backup(args) => commands::backup::run(&args, book, out).await,
        C::Init(_)
        | C::Call(_)
        | C::Completions(_)
        | C::Doctor(_)
        | C::Compact(_)
        | C::Own(_)
        | C::Guard(_) => Ok(code::OK),
    }
}
