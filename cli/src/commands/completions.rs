//! `completions`: a script for a shell.

use clap::CommandFactory;

use crate::{
    args::{Cli, Completions},
    failure::{Outcome, code},
    out::Out,
};

pub(crate) fn run(args: &Completions, out: &mut Out<'_>) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "deedbook", &mut script);
    out.raw(&script)?;
    Ok(code::OK)
}
