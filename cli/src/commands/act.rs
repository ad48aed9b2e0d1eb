//! What the commands share that act on a thread.

use deedbook_journal::{
    checkpointer::{Checkpointer, Message},
    history::{Call, CallKind, History},
    id::{MessageId, ThreadId},
    operator::{self, Acted},
};

use crate::{
    args::Who,
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out},
    read,
    text::safe,
};

/// Who acts: as said, or the system's user.
pub(crate) fn by(who: &Who) -> Result<String, Failure> {
    if let Some(by) = &who.by {
        return Ok(by.clone());
    }
    match std::env::var("USER") {
        Ok(user) if !user.is_empty() => Ok(format!("user:{user}")),
        _ => Err(Failure::usage("who does this is not known; say it with `--by`")),
    }
}

/// A fresh id for a message.
pub(crate) fn message_id() -> Result<MessageId, Failure> {
    Ok(MessageId(random()?))
}

/// The one place of the tool that takes randomness.
#[expect(clippy::disallowed_methods, reason = "this is the module that owns it in the tool")]
fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::new(format!("the system gives no randomness: {e}")))?;
    Ok(bytes)
}

/// Carries out `message` and says what came of it.
pub(crate) async fn carry_out(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    message: &Message,
    said: &str,
    out: &mut Out<'_>,
) -> Outcome {
    let holder = format!("cli:{}", std::process::id());
    let acted = operator::act(home, thread, message, &holder, random()?).await;
    let acted = acted.map_err(|e| read::about(thread, e))?;
    report(thread, &acted, said, out)
}

fn report(thread: &ThreadId, acted: &Acted, said: &str, out: &mut Out<'_>) -> Outcome {
    let row = &acted.row;
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "thread": thread.as_str(),
            "record": acted.position,
            "status": row.status.as_str(),
            "detail": row.detail.as_deref(),
            "open_doubts": row.open_doubts,
            "admitted_before": acted.admitted_before,
        }))?;
        return Ok(code::OK);
    }
    out.line(&format!("{said} (record {} of {})", acted.position, safe(thread.as_str())))?;
    if acted.admitted_before > 0 {
        let count = acted.admitted_before;
        out.line(&format!("{count} earlier message(s) of its inbox were taken in before"))?;
    }
    let detail = row.detail.as_deref().map(|d| format!(": {}", safe(d)));
    let next = match row.status.is_ended() {
        true => "",
        false => "; its program takes it up at its next start",
    };
    out.line(&format!("the thread is {}{}{next}", row.status, detail.unwrap_or_default()))?;
    Ok(code::OK)
}

/// The call of this kind that `text` names: its id as it is, or as it was printed.
pub(crate) fn call<'a>(
    history: &'a History,
    kind: CallKind,
    text: &str,
) -> Result<&'a Call, Failure> {
    if let Some(call) = history.find(kind, text) {
        return Ok(call);
    }
    let of_kind = || history.calls().iter().filter(|c| c.kind == kind);
    let mut printed = of_kind().filter(|c| safe(&c.id.to_string()) == text);
    match (printed.next(), printed.next()) {
        (Some(call), None) => Ok(call),
        (Some(_), Some(_)) => Err(Failure::new(format!(
            "several calls are printed as {}; give the id as it is",
            safe(text)
        ))),
        (None, _) => {
            let what = match kind {
                CallKind::Approval => "approval request",
                _ => kind.as_str(),
            };
            let known: Vec<String> = of_kind().take(20).map(|c| safe(&c.id.to_string())).collect();
            let known = match known.is_empty() {
                true => "there is none".to_owned(),
                false => format!("there are {}", known.join(", ")),
            };
            Err(Failure::new(format!("there is no {what} {}; {known}", safe(text))))
        }
    }
}
