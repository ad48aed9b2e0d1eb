//! `steps`: guarded steps, and where they stand.

use deedbook_journal::{
    checkpointer::Checkpointer,
    guard::{self, Seen, Within, seen},
    id::Identity,
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
    let mut list = List::new(home, guard::listed(args.name.as_deref()));
    let mut any = false;
    let mut left = args.limit.unwrap_or(usize::MAX);
    while let Some(info) = list.next().await? {
        if left == 0 {
            break;
        }
        let Some(step) = seen(home, &info).await? else { continue };
        if !passes(args, &step) {
            continue;
        }
        any = true;
        left -= 1;
        one(&step, out)?;
    }
    Ok(if any { code::OK } else { code::FAILURE })
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
