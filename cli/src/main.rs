//! `deedbook`: look inside a journal, answer it, export it, verify it.

mod args;
mod commands;
mod failure;
mod line;
mod open;
mod out;
mod progress;
mod read;
mod rules;
mod state;
mod story;
mod text;

use std::{
    env,
    io::{self, BufWriter, IsTerminal, Write},
    process::ExitCode,
};

use args::{Cli, Command};
use clap::Parser;
use deedbook_journal::checkpointer::Checkpointer;
use failure::{Failure, Outcome, code};
use open::Access;
use out::{JSON_VERSION, Out};
use text::safe;

fn main() -> ExitCode {
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
        // What was typed may come from a journal, so it is made safe; colours go with that.
        let said = error.render().to_string();
        let said = said.strip_prefix("error: ").unwrap_or(&said).trim_end();
        return complain(Failure::usage(said), json);
    }
    match error.print().and_then(|()| io::stdout().flush()) {
        Ok(()) => code::OK,
        Err(error) => complain(error.into(), false),
    }
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
        Command::Doctor(args) => return commands::doctor::run(&args, journal, out),
        Command::Compact(args) => return commands::compact::run(&args, journal, out),
        Command::Completions(args) => return commands::completions::run(&args, out),
        Command::Key(args) if args.namespace.is_some() => {
            return commands::key::run(&args, None, out);
        }
        Command::Verify(args) if args.export.is_some() => {
            return commands::verify::export(&args, out);
        }
        command => command,
    };
    let home = open::open(journal, access(&command))?;
    let outcome = match command {
        Command::Backup(args) => commands::backup::run(&args, &home, out).await,
        command => on_journal(command, &home, journal, out).await,
    };
    let closed = home.close().await;
    match outcome? {
        // What was found stands, also where the file is too damaged to be closed in order.
        found if found != code::OK => Ok(found),
        code => {
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
        C::Signal(_) | C::Approve(_) | C::Deny(_) | C::Resolve(_) | C::Cancel(_) => Access::Write,
        _ => Access::WriteIfPossible,
    }
}

async fn on_journal(
    command: Command,
    home: &dyn Checkpointer,
    journal: Option<&std::path::Path>,
    out: &mut Out<'_>,
) -> Outcome {
    use Command as C;
    let prefix = commands::prefix(journal);
    match command {
        C::Threads(args) => commands::threads::run(&args, home, out).await,
        C::Show(args) => commands::show::run(&args, home, &prefix, out).await,
        C::Signal(args) => commands::signal::run(&args, home, out).await,
        C::Approve(args) => commands::decide::run(&args, true, home, out).await,
        C::Deny(args) => commands::decide::run(&args, false, home, out).await,
        C::Doubts(args) => commands::doubts::run(&args, home, &prefix, out).await,
        C::Resolve(args) => commands::resolve::run(&args, home, out).await,
        C::Cancel(args) => commands::cancel::run(&args, home, out).await,
        C::Export(args) => commands::export::run(&args, home, journal, out).await,
        C::Verify(args) => commands::verify::run(&args, home, out).await,
        C::Key(args) => commands::key::run(&args, Some(home.identity().namespace), out),
        C::Init(_) | C::Completions(_) | C::Backup(_) | C::Doctor(_) | C::Compact(_) => {
            Ok(code::OK)
        }
    }
}
