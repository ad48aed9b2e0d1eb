//! Tool.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use refund_agent::bank;

/// An agent that refunds through a real bank, is killed, and resumes.
#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Run the bank
    Bank(bank::Options),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Bank(options) = Command::parse();
    match bank::serve(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without standard error there is nobody left to tell.
            let _untold = writeln!(std::io::stderr(), "refund-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
