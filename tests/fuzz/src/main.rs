//! `deedbook-fuzz`: tries inputs again, without the engine.

use std::{
    env, fs,
    io::{self, Write},
    process::ExitCode,
};

use deedbook_fuzz::{TARGETS, Target, corpus};

const USAGE: &str = "\
usage: deedbook-fuzz list
       deedbook-fuzz seeds TARGET          (the inputs that it begins with, as base64)
       deedbook-fuzz words TARGET          (what its inputs are made of)
       deedbook-fuzz TARGET FILE           (tries the input in a file)
       deedbook-fuzz TARGET --base64 TEXT  (tries an input)";

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(said) => ended(&said, ExitCode::SUCCESS),
        Err(said) => ended(&said, ExitCode::FAILURE),
    }
}

fn ended(said: &str, code: ExitCode) -> ExitCode {
    // Without a standard output there is nobody to tell.
    let _ = writeln!(io::stdout(), "{said}");
    code
}

fn run(words: &[&str]) -> Result<String, String> {
    let target = |name: &str| {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        Target::of(name).ok_or_else(|| format!("no target {name}; there are {}", names.join(" ")))
    };
    match words {
        ["list"] => {
            let line = |t: &Target| format!("{} {} {}", t.name, t.bytes_max, t.promise);
            Ok(TARGETS.iter().map(line).collect::<Vec<_>>().join("\n"))
        }
        ["seeds", name] => {
            let seeds = (target(name)?.seeds)();
            Ok(seeds.iter().map(|seed| corpus::line(seed)).collect::<Vec<_>>().join("\n"))
        }
        ["words", name] => Ok(target(name)?.words.join("\n")),
        [name, "--base64", text] => {
            let input = corpus::of_line(text).ok_or("that is no base64")?;
            tried(target(name)?, &input)
        }
        [name, file] => {
            let input = fs::read(file).map_err(|error| format!("{file}: {error}"))?;
            tried(target(name)?, &input)
        }
        _ => Err(USAGE.into()),
    }
}

fn tried(target: &Target, input: &[u8]) -> Result<String, String> {
    target.attempt(input)?;
    Ok(format!("{}: what is promised holds: {}", target.name, target.promise))
}
