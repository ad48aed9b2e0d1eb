//! `reset` and `guards`: letting what is settled happen anew, and turning guards off.

use deedbook_journal::{
    checkpointer::Checkpointer,
    guard::{self, GuardError, Switch, switch},
};

use super::act;
use crate::{
    args::{Guards, Reset, SwitchArg},
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out},
    read,
    text::{safe, time},
};

pub(crate) async fn run(args: &Reset, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let thread = read::thread_id(&args.thread)?;
    let by = act::by(&args.who)?;
    read::info(home, &thread).await?;
    let position = guard::reset(home, &thread, &by, &args.reason, act::seed()?).await;
    let position = position.map_err(|error| read::about(&thread, of_guard(error)))?;
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION, "thread": thread.as_str(), "record": position,
        }))?;
    } else {
        let (by, thread) = (safe(&by), safe(thread.as_str()));
        out.line(&format!(
            "reset by {by} (record {position} of {thread}); the next call runs its body, under a \
             fresh key"
        ))?;
    }
    Ok(code::OK)
}

pub(crate) async fn guards(args: &Guards, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    if let Some(to) = args.switch {
        let by = act::by(&args.who)?;
        let reason = args.reason.as_deref();
        let reason = reason.ok_or_else(|| Failure::usage("say why with `--reason`"))?;
        let switched = switch(home, to == SwitchArg::On, &by, reason, act::seed()?).await;
        switched.map_err(of_guard)?;
    }
    let mut known = Switch::default();
    let off = known.look(home).await?;
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "guards": if off.is_some() { "off" } else { "on" },
            "by": off.map(|off| &*off.by),
            "since": off.map(|off| off.since.to_string()),
            "reason": off.map(|off| &off.reason),
        }))?;
    } else {
        match off {
            None => out.line("guards are on")?,
            Some(off) => out.line(&format!(
                "guards are off since {}, by {} ({}): every call runs its body",
                time(off.since),
                safe(&off.by),
                safe(&off.reason),
            ))?,
        }
    }
    Ok(code::OK)
}

pub(super) fn of_guard(error: GuardError) -> Failure {
    match error {
        GuardError::Store(error) => error.into(),
        error => Failure::new(safe(&error.to_string())),
    }
}
