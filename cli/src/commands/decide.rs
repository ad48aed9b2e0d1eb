//! `approve` and `deny`: a person decides on what they were shown.

use deedbook_journal::{
    checkpointer::Checkpointer,
    hex,
    history::{Call, CallKind, History},
    id::ThreadId,
    operator,
    record::Role,
};

use super::act;
use crate::{
    args::Decide,
    failure::{Failure, Outcome},
    open::Opened,
    out::Out,
    read,
    text::{cut, safe, shown, time},
};

/// How much of what a person is to decide on is printed, in characters.
pub(crate) const SHOWN_CHARS_MAX: usize = 64 * 1024;

pub(crate) async fn run(args: &Decide, granted: bool, book: &Opened, out: &mut Out<'_>) -> Outcome {
    let home = book.home();
    let thread = read::thread_id(&args.thread)?;
    let by = act::by(&args.who)?;
    let found = read::found(home, &thread).await?;
    let request = request(&found.history, args);
    let request = request.map_err(|e| read::about(&thread, e))?;
    let id = safe(&request.id.to_string());
    let digest = request.shown.map(|c| hex::encode(&c)).unwrap_or_default();
    if let Some(seen) = &args.shown
        && *seen != digest
    {
        return Err(Failure::new(format!(
            "request {id} shows {digest}, not {}; look at it again with `deedbook show`",
            safe(seen)
        )));
    }
    let content = content(home, &thread, request).await?;
    if granted && content.is_none() {
        return Err(Failure::new(format!(
            "what request {id} shows was erased, so nobody can see what they grant; deny it"
        )));
    }
    let id_bytes = act::message_id()?;
    let message = operator::decide(id_bytes, request, granted, &args.reason, &by)?;
    let word = if granted { "granted" } else { "denied" };
    if !out.json {
        let content = content.as_deref().unwrap_or("(erased)");
        let shown = out.line(&format!("shown       {}", cut(content, SHOWN_CHARS_MAX)));
        let shown = shown.and_then(|()| out.line(&format!("commitment  {digest}")));
        shown.and_then(|()| out.flush()).map_err(|error| act::not_shown(&error))?;
    }
    let said = format!("request {id} {word} by {}", safe(&by));
    act::carry_out(book, &thread, &message, &said, out).await
}

/// What a request shows, if it was not erased.
pub(crate) async fn content(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    request: &Call,
) -> Result<Option<String>, Failure> {
    let record = read::record(home, thread, request.opened).await?;
    Ok(record.payload(Role::Shown).map(|p| shown(&p.bytes)))
}

/// The approval requests that nobody has decided.
pub(crate) fn open(history: &History) -> impl Iterator<Item = &Call> {
    let calls = history.calls().iter();
    calls.filter(|c| c.kind == CallKind::Approval && c.outcome.is_none())
}

fn request<'a>(history: &'a History, args: &Decide) -> Result<&'a Call, Failure> {
    if let Some(name) = &args.request {
        return act::call(history, CallKind::Approval, name);
    }
    let mut requests = open(history);
    match (requests.next(), requests.next()) {
        (None, _) => Err(Failure::new("no approval request is open")),
        (Some(request), None) => Ok(request),
        _ => {
            let list: String = open(history)
                .map(|c| format!("\n  {}  since {}", safe(&c.id.to_string()), time(c.opened_time)))
                .collect();
            Err(Failure::new(format!("several approval requests are open; name one:{list}")))
        }
    }
}
