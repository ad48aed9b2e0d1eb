//! `forget`: erasing what settled steps were given and what they brought.

use deedbook_journal::{
    checkpointer::Checkpointer,
    guard::{self, Forgotten, GuardError, Seen, Stands, may_be_forgotten, seen},
    id::StoreTime,
};

use super::{act, reset::of_guard, steps};
use crate::{
    args::Forget,
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out},
    progress::Teller,
    read::{self, List},
    text::{bytes, count, time},
};

/// What was found of the steps that are meant.
#[derive(Default)]
struct Sum {
    gone: Forgotten,
    /// Settled too lately, open, under way or in doubt.
    left: u64,
}

pub(crate) async fn run(args: &Forget, home: &dyn Checkpointer, out: &mut Out<'_>) -> Outcome {
    let (by, reason) = match &args.reason {
        Some(reason) if !args.dry_run => (act::by(&args.who)?, reason.as_str()),
        // Nothing is erased.
        _ => (String::new(), ""),
    };
    let before = home.now().await?.before(args.older_than);
    let mut list = List::new(home, guard::listed(args.name.as_deref()));
    let mut teller = Teller::new(&args.watch);
    let mut sum = Sum::default();
    while let Some(info) = list.next().await? {
        // Whether it was forgotten already is told by its row; who has it comes back to it.
        let old = may_be_forgotten(&info, before) && info.holder.is_none();
        if !old && args.name.is_none() && args.thread.is_none() {
            sum.left += u64::from(!guard::is_forgotten(&info));
            continue;
        }
        let Some(step) = seen(home, &info).await? else { continue };
        if !meant(args, &step) {
            continue;
        }
        if !old || !settled_before(&step, before) {
            sum.left += u64::from(!guard::is_forgotten(&info));
            continue;
        }
        if args.dry_run {
            sum.gone.steps += 1;
            steps::one(&step, out)?;
            continue;
        }
        let seed = act::seed()?;
        match guard::forget(home, &info.id, before, &by, reason, seed).await {
            Ok(gone) => sum.gone += gone,
            // Somebody has come for it meanwhile.
            Err(GuardError::Refused { .. }) => sum.left += 1,
            Err(error) => return Err(interrupted(&sum, read::about(&info.id, of_guard(error)))),
        }
        teller.count("forgetting", sum.gone.steps, "step");
    }
    drop(teller);
    told(args, before, &sum, out)
}

/// Whether the command is about this step.
fn meant(args: &Forget, step: &Seen) -> bool {
    steps::is_named(args.name.as_deref(), step) && steps::is_within(args.thread.as_deref(), step)
}

fn settled_before(step: &Seen, before: StoreTime) -> bool {
    matches!(step.stands, Stands::Done | Stands::Failed) && step.since < before
}

/// What was erased is erased, also if the rest failed.
fn interrupted(sum: &Sum, failure: Failure) -> Failure {
    match sum.gone.steps {
        0 => failure,
        steps => failure.after(&format!(
            "{} forgotten; the same command goes on with the rest",
            count(steps, "step")
        )),
    }
}

fn told(args: &Forget, before: StoreTime, sum: &Sum, out: &mut Out<'_>) -> Outcome {
    let Forgotten { steps, payloads, bytes: size } = sum.gone;
    if out.json {
        if args.dry_run {
            // The steps themselves were told.
            return Ok(code::OK);
        }
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "settled_before": before.to_string(),
            "steps": steps,
            "payloads": payloads,
            "bytes": size,
            "left": sum.left,
        }))?;
        return Ok(code::OK);
    }
    let left = match sum.left {
        0 => String::new(),
        left => format!("; {left} left, which are younger or not settled"),
    };
    let before = time(before);
    let steps = count(steps, "step");
    if args.dry_run {
        out.line(&format!("{steps} settled before {before} would be forgotten{left}"))?;
        return Ok(code::OK);
    }
    let payloads = count(payloads, "payload");
    out.line(&format!(
        "{steps} settled before {before} forgotten: {payloads}, {}{left}",
        bytes(size)
    ))?;
    if size > 0 {
        out.line("the file's free pages keep them until `deedbook compact`, and backups as long as they exist")?;
    }
    Ok(code::OK)
}
