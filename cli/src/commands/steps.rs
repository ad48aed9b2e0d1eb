//! `steps`: guarded steps, and where they stand.

use deedbook_journal::{
    checkpointer::{Checkpointer, ThreadInfo},
    guard::{self, Seen, Within, seen},
    id::{Identity, StoreTime},
    value::view,
};

use crate::{
    args::Steps,
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out},
    read::List,
    text::{cut, safe, shown, time},
};

/// How much of the arguments stands in a line.
const ARGS_CHARS_MAX: usize = 60;

pub(crate) async fn run(args: &Steps, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let mut found = all(args, home).await?;
    let left_out = found.len().saturating_sub(args.limit.unwrap_or(usize::MAX));
    found.drain(..left_out);
    for (_, info) in &found {
        // Read again: what all of them were given and brought need not be in memory at once.
        if let Some(step) = seen(home, info).await? {
            one(&step, out)?;
        }
    }
    if !found.is_empty() {
        return Ok(code::OK);
    }
    let all = args.name.is_none() && args.thread.is_none() && args.key.is_none();
    out.note(match all && args.state.is_empty() {
        true => "no guarded steps: nothing was called on this journal",
        false => "no guarded steps that are as asked",
    });
    Ok(code::FAILURE)
}

/// A step's thread, and since when the step stands as it does.
type Dated = (StoreTime, ThreadInfo);

/// Every step that passes, the one that changed last at the end.
async fn all(args: &Steps, home: &dyn Checkpointer) -> Result<Vec<Dated>, Failure> {
    let mut found = Vec::new();
    let mut list = List::new(home, guard::listed(args.name.as_deref()));
    while let Some(info) = list.next().await? {
        if let Some(step) = seen(home, &info).await?
            && passes(args, &step)
        {
            found.push((step.since, info));
        }
    }
    // Those of one time stay in the order of their ids.
    found.sort_by_key(|(since, _)| *since);
    Ok(found)
}

fn passes(args: &Steps, step: &Seen) -> bool {
    let call = step.call();
    let state = args.state.is_empty()
        || args.state.iter().any(|state| state.replace(['-', '_'], " ") == step.stands.as_str());
    let within = is_within(args.thread.as_deref(), step);
    let key = args.key.as_deref().is_none_or(|key| {
        call.is_some_and(|call| {
            call.key.as_deref() == Some(key)
                || matches!(&call.id.identity, Identity::Key(business) if **business == *key)
        })
    });
    state && is_named(args.name.as_deref(), step) && within && key
}

/// Whether a step has this name; without one, all do. They are listed by what is shown of names in
/// ids, which is cut, and alike for some.
pub(super) fn is_named(name: Option<&str>, step: &Seen) -> bool {
    name.is_none_or(|name| step.call().is_some_and(|call| call.id.name.as_str() == name))
}

/// Whether a step happens once in this thread; without one, all do.
pub(super) fn is_within(thread: Option<&str>, step: &Seen) -> bool {
    thread.is_none_or(|thread| match &step.within {
        Some(Within::Thread(id)) => id.as_str() == thread,
        _ => false,
    })
}

fn json(bytes: &[u8]) -> Result<serde_json::Value, Failure> {
    let mut text = String::new();
    view::to_json(bytes, &mut text)?;
    Ok(serde_json::from_str(&text)?)
}

pub(super) fn one(step: &Seen, out: &mut Out<'_>) -> Result<(), Failure> {
    let Some(call) = step.call() else { return Ok(()) };
    let within = match &step.within {
        Some(Within::Thread(id)) => Some(id.as_str().to_owned()),
        _ => None,
    };
    if out.json {
        return out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "step": call.id.to_string(),
            "name": call.id.name.as_str(),
            "is": step.stands.as_str(),
            "since": step.since.to_string(),
            "within": within,
            "key": call.key.as_deref(),
            "args": call.args.as_deref().map(json).transpose()?,
            "policy": call.terms.map(|terms| terms.policy.as_str()),
            "attempts": call.attempts.len(),
            "thread": step.thread.as_str(),
        }));
    }
    let scope = within.map_or_else(|| "the journal".to_owned(), |id| safe(&id));
    let args = call.args.as_deref().map_or_else(|| "erased".to_owned(), shown);
    out.line(&format!(
        "{}  {}  {}  in {scope}  {}",
        step.stands.as_str(),
        time(step.since),
        safe(&call.id.to_string()),
        cut(&args, ARGS_CHARS_MAX),
    ))?;
    out.line(&format!("  {}", safe(step.thread.as_str())))?;
    Ok(())
}
