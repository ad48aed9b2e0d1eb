//! `explain`: why a step was executed, or was not.

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter},
    guard::{self, THREAD_PREFIX, Within, seen},
    history::{self, Answer, Attempt, AttemptEnd, Call, CallKind, History, Standing},
    id::{Identity, IdentityKind, StoreTime, ThreadId},
    value::{self, Difference},
};
use serde_json::json;

mod around;

use around::Around;

use super::act;
use crate::{
    args::Explain,
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out, Style},
    read::{self, List},
    text::{count, safe, time},
};

/// Calls that differ in more places than this are no near-misses.
const FIELDS_MAX: usize = 3;
/// How many near-misses are told.
const MISSES_MAX: usize = 5;
/// How many steps of their own are compared.
const STEPS_MAX: usize = 2000;

/// A call that is not the same operation, and nearly was.
struct Miss {
    thread: Option<ThreadId>,
    step: String,
    why: &'static str,
    fields: Vec<Difference>,
}

pub(crate) async fn run(args: &Explain, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let thread = read::thread_id(&args.thread)?;
    let found = read::found(home, &thread).await?;
    let history = &found.history;
    let around = Around::read(home, &thread).await?;
    let now = home.now().await?;
    let own = guard::is_guarded(history);
    let chosen: Vec<&Call> = match &args.step {
        Some(step) => {
            let call = act::call(history, CallKind::Step, step);
            vec![call.map_err(|e| read::about(&thread, e))?]
        }
        None => history.calls().iter().filter(|call| call.kind == CallKind::Step).collect(),
    };
    for call in chosen {
        let misses = match own {
            true => elsewhere(home, &thread, call).await?,
            false => beside(history, call),
        };
        let scope = scope(home, &thread, own, call, &around).await?;
        one(call, &scope, &misses, (history, &around, now), out)?;
    }
    if args.step.is_none() {
        refusals(&around, out)?;
    }
    Ok(code::OK)
}

/// Which scope applies to a call, in words.
async fn scope(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    own: bool,
    call: &Call,
    around: &Around,
) -> Result<String, Failure> {
    if around.copied(call).is_some() {
        return Ok("the whole journal".to_owned());
    }
    if !own {
        return Ok(format!("thread {}", thread.as_str()));
    }
    let info = read::info(home, thread).await?;
    let within = seen(home, &info).await?.and_then(|step| step.within);
    Ok(match within {
        Some(Within::Thread(id)) => format!("thread {}", id.as_str()),
        Some(Within::Journal) => "the whole journal".to_owned(),
        None => "unknown: it was erased".to_owned(),
    })
}

/// Near-misses in the same thread.
fn beside(history: &History, call: &Call) -> Vec<Miss> {
    let earlier = history.calls().iter().filter(|other| {
        other.kind == CallKind::Step && other.id.name == call.id.name && other.opened < call.opened
    });
    let misses = earlier.rev().filter_map(|other| miss(None, other, call));
    misses.take(MISSES_MAX).collect()
}

/// Near-misses among steps of their own.
async fn elsewhere(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    call: &Call,
) -> Result<Vec<Miss>, Failure> {
    let name = thread.as_str().strip_prefix(THREAD_PREFIX).and_then(|id| id.rsplit_once('/'));
    let Some((name, _)) = name else { return Ok(Vec::new()) };
    let prefix = format!("{THREAD_PREFIX}{name}/");
    let filter = Filter { prefix: Some(prefix.into()), reserved: true, ..Filter::default() };
    let mut list = List::new(home, filter);
    let mut misses = Vec::new();
    let mut looked = 0;
    while let Some(info) = list.next().await?.filter(|_| looked < STEPS_MAX) {
        looked += 1;
        let step = if info.id == *thread { None } else { seen(home, &info).await? };
        let other = step.as_ref().and_then(|step| step.call());
        let earlier = other.filter(|other| other.opened_time <= call.opened_time);
        misses.extend(earlier.and_then(|other| miss(Some(&info.id), other, call)));
        if misses.len() == MISSES_MAX {
            break;
        }
    }
    Ok(misses)
}

/// Whether `other` nearly was the same operation as `call`.
fn miss(thread: Option<&ThreadId>, other: &Call, call: &Call) -> Option<Miss> {
    let fields = value::diff(other.args.as_deref()?, call.args.as_deref()?, &[]);
    let why = match (&call.id.identity, fields.is_empty()) {
        (Identity::Positional { .. }, true) => {
            "the same arguments; steps are told apart by their place here (`.by_arguments()` \
             would make them one)"
        }
        (Identity::Positional { .. }, false) => return None,
        (Identity::Arguments { .. }, true) => {
            "the same arguments, in another scope or as a wanted repeat"
        }
        (Identity::Key(_), true) => "the same arguments, under another key or in another scope",
        // Other arguments under another key are another operation, as they should be.
        (Identity::Key(_), false) if other.id != call.id => return None,
        (Identity::Arguments { .. } | Identity::Key(_), false) => "other arguments",
    };
    let near = fields.len() <= FIELDS_MAX && !fields.iter().any(Difference::is_whole);
    let step = other.id.to_string();
    near.then(|| Miss { thread: thread.cloned(), step, why, fields })
}

/// What became of a call, in a word and in a sentence.
fn fate(
    call: &Call,
    (history, around, now): (&History, &Around, StoreTime),
) -> (&'static str, String) {
    let Some(outcome) = &call.outcome else {
        return match history.standing(call, now) {
            Standing::Doubt(doubt) => {
                ("in doubt", format!("nobody knows whether it happened: {doubt}"))
            }
            Standing::UnderWay => ("under way", "an attempt is under way".to_owned()),
            Standing::Ask | Standing::AskLater(_) => {
                ("to be asked", "its downstream is asked before anything else happens".to_owned())
            }
            Standing::Later(until) => ("open", format!("it is tried again at {}", time(until))),
            _ if call.generation > 0 && call.attempts.last().is_some_and(is_cleared) => {
                ("open", "the next call runs it anew, under a fresh key".to_owned())
            }
            _ => ("open", "it is tried again, under the same key".to_owned()),
        };
    };
    let given = match around.runs_behind(outcome.position) {
        // Whoever calls a guarded step again is told without a run.
        _ if guard::is_guarded(history) => String::new(),
        0 => String::new(),
        runs => {
            format!("; {} took it from the record, and executed nothing", count(runs, "later run"))
        }
    };
    let at = time(outcome.time);
    if let Some(of) = around.copied(call) {
        let said = format!("it was settled in thread {of}, and copied at {at}{given}");
        return ("reused", said);
    }
    let attempts = count(call.attempts.len() as u64, "attempt");
    if let Some(said) = around.said_at(outcome.position) {
        let what = erased(outcome, "what it came to");
        return ("resolved", format!("{} at {at}, after {attempts}{given}{what}", said.words));
    }
    match &outcome.answer {
        Answer::Failed(_) | Answer::Erased { failed: true } => {
            let what = erased(outcome, "what went wrong");
            ("failed", format!("it failed for good at {at}, after {attempts}{given}{what}"))
        }
        _ => {
            let what = erased(outcome, "its result");
            ("executed", format!("it was executed and settled at {at}, in {attempts}{given}{what}"))
        }
    }
}

fn erased(outcome: &history::Outcome, what: &str) -> String {
    match outcome.answer {
        Answer::Erased { .. } => format!("; {what} was erased since"),
        _ => String::new(),
    }
}

fn is_cleared(attempt: &Attempt) -> bool {
    matches!(attempt.end, AttemptEnd::Cleared { by_person: true, .. })
}

fn one(
    call: &Call,
    scope: &str,
    misses: &[Miss],
    told: (&History, &Around, StoreTime),
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let (is, why) = fate(call, told);
    let (_, around, _) = told;
    let identity = call.id.identity.kind();
    if out.json {
        let fields =
            |miss: &Miss| -> Vec<String> { miss.fields.iter().map(ToString::to_string).collect() };
        return out.object(&json!({
            "v": JSON_VERSION,
            "step": call.id.to_string(),
            "is": is,
            "why": why,
            "scope": scope,
            "identity": identity.as_str(),
            "policy": call.terms.map(|terms| terms.policy.as_str()),
            "key": call.key.as_deref(),
            "attempts": call.attempts.iter().map(|attempt| json!({
                "attempt": attempt.number,
                "started": attempt.started.to_string(),
                "end": around.end(call, attempt),
            })).collect::<Vec<_>>(),
            "near_misses": misses.iter().map(|miss| json!({
                "step": miss.step,
                "thread": miss.thread.as_ref().map(|id| id.as_str()),
                "why": miss.why,
                "fields": fields(miss),
            })).collect::<Vec<_>>(),
        }));
    }
    out.styled(Style::Strong, &call.id.to_string())?;
    out.end()?;
    out.line(&format!("  {is}: {}", safe(&why)))?;
    let what = match identity {
        IdentityKind::Positional => "its place in the code",
        IdentityKind::Key => "its key",
        IdentityKind::Arguments => "its arguments",
    };
    out.line(&format!("  once in {}, identified by {what}", safe(scope)))?;
    for attempt in call.attempts.iter() {
        let (number, end) = (attempt.number, safe(&around.end(call, attempt)));
        out.line(&format!("  attempt {number}, begun {}: {end}", time(attempt.started)))?;
    }
    for miss in misses {
        let of =
            miss.thread.as_ref().map_or_else(String::new, |id| format!(" ({})", safe(id.as_str())));
        let fields: Vec<_> = miss.fields.iter().map(|field| safe(&field.to_string())).collect();
        let fields =
            if fields.is_empty() { String::new() } else { format!(": {}", fields.join(", ")) };
        out.line(&format!("  near-miss {}{of}: {}{fields}", safe(&miss.step), miss.why))?;
    }
    Ok(())
}

fn refusals(around: &Around, out: &mut Out<'_>) -> Result<(), Failure> {
    for (n, why) in &around.refused {
        if out.json {
            out.object(&json!({
                "v": JSON_VERSION, "is": "refused", "record": n, "why": why,
            }))?;
        } else {
            out.line(&format!("a message was refused (record {n}): {}", safe(why)))?;
        }
    }
    Ok(())
}
