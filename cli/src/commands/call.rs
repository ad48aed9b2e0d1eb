//! `call`: any program in any language as a guarded step.
//!
//! The operation key, the attempt and the arguments go to the program; its standard output is the
//! result, and its exit status says what became of it. What is recorded is given again without
//! running anything.

mod child;

use std::{
    io::{self, Write},
    path::Path,
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Checkpointer, Message, StoreError},
    failure::Failure as Recorded,
    guard::{
        After, Answered, Claimed, Conflict, GuardError, InDoubt, InFlight, Operation, Settled,
        Switch, Ticket, Wanted, Within, claim, take_over,
    },
    history::{Answer, Doubt},
    id::ThreadId,
    limits::ValueLimits,
    message::{self, Bytes, Late},
    policy::Policy,
    value::{self, view},
};

use super::act;
use crate::{
    args::{Call, PolicyArg, ScopeArg},
    failure::{Failure, Outcome, code},
    open,
    out::{JSON_VERSION, Out},
    progress::now,
    reach::reach,
    read,
    text::{safe, shell, span},
};
use child::{Ended, Ran};

/// How often somebody who is at it is asked for again.
const AGAIN: Duration = Duration::from_millis(100);

/// Reaches the journal through whoever holds it, or through a process that is started to hold it:
/// any number of calls run side by side, and none keeps the journal from the others.
pub(crate) async fn begin(args: &Call, journal: Option<&Path>, out: &mut Out<'_>) -> Outcome {
    let path = open::path(journal)?;
    let home = reach(path).await?;
    let outcome = run(args, path, &home, out).await;
    // What was recorded is durable; whoever holds the journal closes it.
    let _ = home.close().await;
    outcome
}

async fn run(args: &Call, path: &Path, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    // Read once: a file may change, and standard input comes once.
    let arguments = args.args.as_deref().map(read::value).transpose()?;
    let mut wanted = wanted(args, arguments.as_deref())?;
    let arguments = arguments.as_deref();
    if let Some(off) = Switch::default().look(home).await? {
        let said = format!("deedbook: guards are off, by {}: the program runs\n", safe(&off.by));
        // Without a standard error there is nobody to tell.
        let _ = io::stderr().write_all(said.as_bytes());
        wanted = wanted.unguarded(act::seed()?);
    }
    let holder = format!("call:{}", std::process::id());
    let since = now();
    loop {
        let claimed =
            claim(home, &wanted, &holder, args.lease, act::seed()?).await.map_err(of_guard)?;
        match claimed {
            Claimed::Settled(settled) => return given(&settled, true, out),
            Claimed::Conflict(conflict) => return conflicts(&conflict, out),
            Claimed::Fresh(ticket) => {
                return attempt(args, arguments, (path, home), *ticket, out).await;
            }
            Claimed::Ask(ticket) => match ask(args, arguments, home, *ticket).await? {
                Claimed::Fresh(ticket) => {
                    return attempt(args, arguments, (path, home), *ticket, out).await;
                }
                Claimed::Settled(settled) => return given(&settled, true, out),
                Claimed::InDoubt(doubt) if !waits(args, since.elapsed()) => {
                    return in_doubt(&doubt, None, out);
                }
                _ => {}
            },
            Claimed::InFlight(flight) if args.take_over => {
                take_over(home, &flight).await.map_err(of_guard)?;
                continue;
            }
            Claimed::InFlight(flight) => {
                if !waits(args, since.elapsed()) {
                    return in_flight(&flight, out);
                }
            }
            Claimed::InDoubt(doubt) => {
                if doubt.retry_after.is_none() || !waits(args, since.elapsed()) {
                    return in_doubt(&doubt, None, out);
                }
            }
        }
        child::pause(AGAIN).await;
    }
}

fn program_of(args: &Call) -> &str {
    args.command.first().map_or("the program", String::as_str)
}

fn waits(args: &Call, waited: Duration) -> bool {
    args.wait.is_some_and(|time| waited < time)
}

/// The step as its caller wants it.
fn wanted(args: &Call, arguments: Option<&[u8]>) -> Result<Wanted, Failure> {
    let usage = |error: &dyn std::fmt::Display| Failure::usage(safe(&error.to_string()));
    let policy = policy(args);
    let within = match (args.scope, &args.thread) {
        (ScopeArg::Journal, Some(_)) => {
            return Err(Failure::usage(
                "say either within which thread the call happens once (`--thread`), or that it does \
                 so in the journal (`--scope journal`)",
            ));
        }
        (ScopeArg::Journal, None) => Within::Journal,
        (ScopeArg::Thread, Some(id)) => Within::Thread(ThreadId::new(id).map_err(|e| usage(&e))?),
        (ScopeArg::Thread, None) => {
            let scope = "name the thread within which the call happens once with `--thread`, or \
                         say `--scope journal`";
            // Whoever says neither is told both.
            return Err(match policy {
                Err(Failure::Said { message, .. }) => {
                    Failure::usage(format!("{scope}; and {message}"))
                }
                _ => Failure::usage(scope),
            });
        }
    };
    let policy = policy?;
    if args.take_over && policy == Policy::AtMostOnce {
        return Err(Failure::usage(
            "a call under at-most-once cannot be taken over: what its owner may have done could \
             not be told",
        ));
    }
    let mut wanted = Wanted::new(within, &args.name, policy).map_err(|e| usage(&e))?;
    if let Some(arguments) = arguments {
        wanted = wanted.encoded(arguments.to_vec())?;
    }
    if let Some(key) = &args.key {
        wanted = wanted.key(key).map_err(|e| usage(&e))?;
    }
    wanted = wanted.occurrence(args.occurrence);
    let mut terms = *wanted.declared();
    terms.timeout = args.timeout;
    terms.window = args.honoured_for;
    terms.quiet = args.quiet.unwrap_or_else(|| terms.usual_quiet());
    wanted = wanted.terms(terms);
    Ok(match args.valid_for {
        Some(time) => wanted.valid_for(time),
        None => wanted,
    })
}

fn policy(args: &Call) -> Result<Policy, Failure> {
    let policy = match (args.policy, &args.reconcile_cmd) {
        (None | Some(PolicyArg::Reconcile), Some(_)) => Policy::Reconcile,
        (Some(PolicyArg::Reconcile), None) => {
            return Err(Failure::usage("say how the other side is asked with `--reconcile-cmd`"));
        }
        (Some(_), Some(_)) => {
            return Err(Failure::usage("only `--policy reconcile` asks with `--reconcile-cmd`"));
        }
        (Some(PolicyArg::Read), None) => Policy::Read,
        (Some(PolicyArg::Idempotent), None) => Policy::Idempotent,
        (Some(PolicyArg::AtMostOnce), None) => Policy::AtMostOnce,
        (None, None) => {
            return Err(Failure::usage(
                "say what may happen after a crash with `--policy`: read (it has no effect), \
                 idempotent (the other side honours the operation key), reconcile (it can be \
                 asked, with `--reconcile-cmd`), at-most-once (neither)",
            ));
        }
    };
    if args.terminal_exit.contains(&0) || args.not_applied_exit.contains(&0) {
        return Err(Failure::usage("exit status 0 says that it is done, and nothing else"));
    }
    if args.honoured_for.is_some() && policy != Policy::Idempotent {
        return Err(Failure::usage("`--honoured-for` belongs to `--policy idempotent`"));
    }
    Ok(policy)
}

/// Runs the program once, and records what became of it.
async fn attempt(
    args: &Call,
    arguments: Option<&[u8]>,
    (path, home): (&Path, &dyn Checkpointer),
    mut ticket: Ticket,
    out: &mut Out<'_>,
) -> Outcome {
    let step = ticket.step();
    let (thread, operation) = (ticket.thread().clone(), ticket.operation());
    let program = child::Program::of(args, arguments, &operation, &args.command)?;
    let about = |what: &str| Recorded::new(format!("{}: {what}", program_of(args)));
    let (known, failure) = match child::run(program, home, &mut ticket, args.lease).await {
        Ran::NotStarted(why) => (Known::NoEffect, about(&why).code("not_started")),
        Ran::Ended { status: Ended::Exit(0), output } => {
            let result = output.result(args).map_err(|why| about(&why));
            let settled = match result.clone() {
                Ok(bytes) => ticket.complete(home, bytes).await,
                Err(why) => ticket.complete_without(home, &why).await,
            };
            return match settled {
                Ok(settled) => given(&settled, false, out),
                Err(GuardError::Store(error)) => {
                    let late = Late { attempt: operation.attempt, outcome: result.map(Bytes) };
                    Err(cut_off(path, &thread, &step, &late, &error).await)
                }
                Err(error) => Err(of_guard(error)),
            };
        }
        Ran::Ended { status: Ended::Exit(status), .. } => {
            let failure = about(&format!("exit status {status}")).code(format!("exit_{status}"));
            if args.terminal_exit.contains(&status) {
                (Known::Final, failure)
            } else if args.not_applied_exit.contains(&status) {
                (Known::NoEffect, failure)
            } else {
                (Known::Nothing(Doubt::Unlabelled), failure)
            }
        }
        Ran::Ended { status: Ended::Signal(signal), .. } => {
            let failure = about(&format!("killed by signal {signal}")).code("signal");
            (Known::Nothing(Doubt::Unlabelled), failure)
        }
        Ran::TimedOut => {
            let failure = about("it took longer than its timeout").code("timeout");
            (Known::Nothing(Doubt::Timeout), failure)
        }
    };
    let after = match known {
        Known::Final => ticket.fail(home, &failure, true).await,
        Known::NoEffect => ticket.fail(home, &failure, false).await,
        Known::Nothing(doubt) => ticket.unknown(home, doubt, &failure).await,
    };
    match after.map_err(of_guard)? {
        After::Settled(settled) => given(&settled, false, out),
        After::InDoubt(doubt) => in_doubt(&doubt, Some(&failure), out),
        After::Open => not_done(args, &Tried { thread, operation, failure }, out),
    }
}

/// Whoever held the journal went away while the program ran, and nobody knows whether they recorded
/// what it brought: whoever holds it next keeps that as evidence, for the person who settles it.
async fn cut_off(
    path: &Path,
    thread: &ThreadId,
    step: &str,
    late: &Late,
    error: &StoreError,
) -> Failure {
    let kept = async {
        let body = value::encode(late, &ValueLimits::new())?.into();
        let (name, by) = (step.into(), format!("call:{}", std::process::id()).into());
        let id = act::message_id()?;
        let message = Message { id, kind: message::LATE, name, by, body };
        let home = reach(path).await?;
        home.post(thread, message).await?;
        let _ = home.close().await;
        Ok::<_, Failure>(())
    };
    let kept = match kept.await {
        Ok(()) => "is kept as evidence with the step",
        Err(_) => "could not be kept",
    };
    Failure::new(format!(
        "{}; the program has ended well, and what it brought {kept} (`deedbook show --payloads {}`); \
         the next call says how the step stands",
        safe(&error.to_string()),
        shell(thread.as_str(), "THREAD"),
    ))
}

/// What is known of an attempt that brought no result.
enum Known {
    /// It has failed for good.
    Final,
    /// It certainly had no effect.
    NoEffect,
    /// It may have had its effect.
    Nothing(Doubt),
}

/// An attempt that came to nothing.
struct Tried {
    thread: ThreadId,
    operation: Operation,
    failure: Recorded,
}

/// Asks the downstream with the reconcile command.
async fn ask(
    args: &Call,
    arguments: Option<&[u8]>,
    home: &dyn Checkpointer,
    mut ticket: Ticket,
) -> Result<Claimed, Failure> {
    let Some(command) = &args.reconcile_cmd else {
        return Err(Failure::usage(
            "the step is recorded as one that can be asked about; say how with `--reconcile-cmd`",
        ));
    };
    let shell = ["/bin/sh".to_owned(), "-c".to_owned(), command.clone()];
    let program = child::Program::of(args, arguments, &ticket.operation(), &shell)?;
    let answer = match child::run(program, home, &mut ticket, args.lease).await {
        Ran::Ended { status: Ended::Exit(0), output } => match output.result(args) {
            Ok(bytes) => Answered::Happened(bytes),
            Err(_) => Answered::Inconclusive,
        },
        Ran::Ended { status: Ended::Exit(1), .. } => Answered::DidNotHappen,
        _ => Answered::Inconclusive,
    };
    ticket.answer(home, answer).await.map_err(of_guard)
}

/// Prints an outcome: what is recorded, for the first caller as for every later one.
fn given(settled: &Settled, replayed: bool, out: &mut Out<'_>) -> Outcome {
    let (is, exit) = match &settled.answer {
        Answer::Value(_) => ("done", code::OK),
        _ if settled.failed() => ("failed", code::FAILURE),
        _ => ("no result", code::FAILURE),
    };
    let failure = settled.failure();
    if out.json {
        let result = settled.result().map(shown).transpose()?;
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "is": is,
            "replayed": replayed,
            "thread": settled.thread.as_str(),
            "record": settled.position,
            "at": settled.at.to_string(),
            "key": settled.key.as_deref(),
            "attempts": settled.attempts,
            "result": result,
            "error": failure.map(|failure| failure.to_string()),
        }))?;
        return Ok(exit);
    }
    if let Some(bytes) = settled.result() {
        print(bytes, out)?;
        return Ok(exit);
    }
    let why = failure.map_or_else(|| "it cannot be read".to_owned(), |f| safe(&f.to_string()));
    let said = match is {
        "failed" => format!(
            "it has failed for good: {why}; `deedbook reset {} --reason WHY` lets it happen anew",
            shell(settled.thread.as_str(), "THREAD")
        ),
        _ => format!("it happened, and its result is not available: {why}"),
    };
    Err(Failure::new(said))
}

/// Text as it is, and everything else as JSON.
fn print(bytes: &[u8], out: &mut Out<'_>) -> Result<(), Failure> {
    let limits = ValueLimits::new();
    if let Ok(text) = value::decode::<String>(bytes, &limits) {
        out.raw(text.as_bytes())?;
        return Ok(());
    }
    let mut json = String::new();
    view::to_json(bytes, &mut json)?;
    out.raw(json.as_bytes())?;
    out.end()?;
    Ok(())
}

fn shown(bytes: &[u8]) -> Result<serde_json::Value, Failure> {
    let mut json = String::new();
    view::to_json(bytes, &mut json)?;
    Ok(serde_json::from_str(&json)?)
}

fn in_flight(flight: &InFlight, out: &mut Out<'_>) -> Outcome {
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "is": "in flight",
            "thread": flight.thread.as_str(),
            "owner": &*flight.owner,
            "since": flight.since.map(|time| time.to_string()),
            "age_seconds": flight.age.as_secs_f64(),
            "key": flight.key.as_deref(),
            "retry_after_seconds": flight.retry_after.as_secs_f64(),
        }))?;
        return Ok(code::LOCKED);
    }
    let key = flight.key.as_deref().map_or_else(String::new, |k| format!(" (operation key {k})"));
    Err(Failure::of(
        code::LOCKED,
        format!(
            "{} is at it, for {} by now{key}; ask again in {}, or wait with `--wait`",
            safe(&flight.owner),
            span(flight.age),
            span(flight.retry_after),
        ),
    ))
}

fn in_doubt(doubt: &InDoubt, why: Option<&Recorded>, out: &mut Out<'_>) -> Outcome {
    // As `steps` and `explain` say it: only what a person has to settle is in doubt.
    let is = match doubt.retry_after {
        Some(_) => "to be asked",
        None => "in doubt",
    };
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "is": is,
            "thread": doubt.thread.as_str(),
            "step": doubt.step,
            "why": doubt.doubt.as_str(),
            "since": doubt.since.map(|time| time.to_string()),
            "key": doubt.key.as_deref(),
            "attempts": doubt.attempts,
            "retry_after_seconds": doubt.retry_after.map(|time| time.as_secs_f64()),
            "error": why.map(ToString::to_string),
        }))?;
        return Ok(code::DOUBTS);
    }
    let key = doubt.key.as_deref().map_or_else(String::new, |k| format!(" (operation key {k})"));
    let next = match doubt.retry_after {
        Some(time) => format!("call again in {}, and the other side is asked", span(time)),
        None => "find out what happened, and settle it: `deedbook doubts` says how".to_owned(),
    };
    let step = safe(&doubt.step);
    let why = why.map_or_else(String::new, |why| format!(" ({})", safe(&why.to_string())));
    let said = format!("step {step} is {is}{key}: {}{why}; {next}", doubt.doubt);
    Err(Failure::of(code::DOUBTS, said))
}

fn conflicts(conflict: &Conflict, out: &mut Out<'_>) -> Outcome {
    let recorded = conflict.recorded.map(|print| print.to_string());
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "is": "conflict",
            "thread": conflict.thread.as_str(),
            "step": conflict.step,
            "recorded": recorded,
            "given": conflict.given.to_string(),
            "fields": conflict.fields,
        }))?;
        return Ok(code::CONFLICT);
    }
    let fields = match conflict.fields.is_empty() {
        true => String::new(),
        false => format!(" (at {})", safe(&conflict.fields.join(", "))),
    };
    Err(Failure::of(
        code::CONFLICT,
        format!(
            "step {} is recorded with other arguments{fields}: fingerprint {} there, {} here; \
             another operation needs another key",
            safe(&conflict.step),
            conflict.recorded.map_or_else(|| "erased".to_owned(), |print| print.short()),
            conflict.given.short(),
        ),
    ))
}

fn not_done(args: &Call, of: &Tried, out: &mut Out<'_>) -> Outcome {
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "is": "not done",
            "thread": of.thread.as_str(),
            "key": of.operation.key.as_deref(),
            "attempts": of.operation.attempt,
            "error": of.failure.to_string(),
        }))?;
        return Ok(code::FAILURE);
    }
    Err(Failure::new(format!(
        "{}; that is recorded, and the next call of {} tries again under the same key",
        safe(&of.failure.to_string()),
        safe(&args.name),
    )))
}

fn of_guard(error: GuardError) -> Failure {
    match error {
        GuardError::Store(error) => error.into(),
        error => Failure::new(safe(&error.to_string())),
    }
}
