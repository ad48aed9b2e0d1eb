//! The story of an agent that is killed and comes back; and, as subcommands, its processes.

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use refund_agent::agent::process as agent;
use refund_agent::{bank, story};
use tokio::io::AsyncReadExt;

/// The exit code after Ctrl-C, as shells count it.
const INTERRUPTED: u8 = 130;
/// Threads for tasks. More than cores on purpose: one of them can be held in a workflow's code.
const WORKERS: usize = 4;

/// An agent that refunds through a real bank, is killed, and resumes.
///
/// Without a subcommand: starts a bank and an agent, kills the agent at chosen instants, answers
/// for a person, and in the end lays the bank's ledger beside the journal. Exit code 0 if they
/// agree, 1 if not, 2 for wrong usage.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    story: story::Options,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// Run the bank alone
    Bank {
        #[command(flatten)]
        options: bank::Options,
        /// Stop when standard input ends
        #[arg(long)]
        until_stdin_ends: bool,
    },
    /// Run the agent alone, against a bank that runs already
    Agent(agent::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    let code = runtime.block_on(run(arguments));
    // A read of standard input cannot be called off: it must not keep the process.
    runtime.shutdown_background();
    code
}

async fn run(arguments: Arguments) -> ExitCode {
    match arguments.part {
        None => tokio::select! {
            told = story::tell(arguments.story) => match told {
                Ok(true) => ExitCode::SUCCESS,
                Ok(false) => ExitCode::FAILURE,
                Err(error) => failed(&error),
            },
            () = interrupted() => {
                let _untold = writeln!(
                    std::io::stderr(),
                    "refund-agent: interrupted; the agent and the bank are stopped, and the same \
                     --journal goes on where it was"
                );
                ExitCode::from(INTERRUPTED)
            }
        },
        Some(Part::Bank { options, until_stdin_ends }) => tokio::select! {
            served = bank::serve(options) => ended(served),
            () = stdin_end(), if until_stdin_ends => ExitCode::SUCCESS,
        },
        Some(Part::Agent(options)) => ended(agent::work(options).await),
    }
}

async fn interrupted() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}

async fn stdin_end() {
    let (mut input, mut skipped) = (tokio::io::stdin(), [0; 256]);
    while input.read(&mut skipped).await.is_ok_and(|read| read > 0) {}
}

fn ended<E: std::error::Error>(result: Result<(), E>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    // Without standard error there is nobody left to tell.
    let _untold = writeln!(std::io::stderr(), "refund-agent: {error}");
    ExitCode::FAILURE
}
