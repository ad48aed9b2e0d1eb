//! `resolve`: a person says what has happened to a step in doubt.

use deedbook_journal::{
    failure::Failure as Recorded,
    history::CallKind,
    message::{Bytes, Verdict},
    operator,
};

use super::act;
use crate::{
    args::Resolve,
    failure::{Failure, Outcome},
    open::Opened,
    out::Out,
    read,
    text::safe,
};

pub(crate) async fn run(args: &Resolve, book: &Opened, out: &mut Out<'_>) -> Outcome {
    let home = book.home();
    let thread = read::thread_id(&args.thread)?;
    let by = act::by(&args.who)?;
    let (verdict, word) = verdict(args)?;
    let found = read::found(home, &thread).await?;
    let step = act::call(&found.history, CallKind::Step, &args.step);
    let step = step.map_err(|e| read::about(&thread, e))?;
    let message = operator::resolve(act::message_id()?, &step.id, verdict, &args.reason, &by)?;
    let said = format!("step {}: {word}, by {}", safe(&step.id.to_string()), safe(&by));
    act::carry_out(book, &thread, &message, &said, out).await
}

fn verdict(args: &Resolve) -> Result<(Verdict, &'static str), Failure> {
    if let Some(value) = &args.happened {
        return Ok((Verdict::Happened(Bytes(read::value(value)?)), "it happened"));
    }
    if let Some(message) = &args.failed {
        return Ok((Verdict::Failed(Recorded::new(message)), "it has failed for good"));
    }
    Ok((Verdict::DidNotHappen, "it did not happen, and runs again under the same key"))
}
