//! What the commands share that act on a thread.

use std::{io, time::Duration};

use deedbook_control::Owner;
use deedbook_journal::{
    checkpointer::{Checkpointer, Message, StoreError},
    history::{Call, CallKind, History},
    id::{MessageId, ThreadId},
    operator::{self, Acted, OperatorError},
    row::Status,
};

use crate::{
    args::Who,
    failure::{Failure, Outcome, code},
    open::Opened,
    out::{JSON_VERSION, Out},
    progress::{now, pause},
    read,
    state::{READY, Seen},
    text::{count, safe},
};

/// Who acts: as said, or the system's user.
pub(crate) fn by(who: &Who) -> Result<String, Failure> {
    if let Some(by) = &who.by {
        return Ok(by.clone());
    }
    let user = user().map(|user| format!("user:{user}"));
    user.ok_or_else(|| {
        Failure::usage("who does this is not known, as USER is not set; say it with `--by NAME`")
    })
}

/// The system's user, if the environment tells.
pub(crate) fn user() -> Option<String> {
    std::env::var("USER").ok().filter(|user| !user.is_empty())
}

/// A fresh id for a message.
pub(crate) fn message_id() -> Result<MessageId, Failure> {
    Ok(MessageId(random()?))
}

/// 32 fresh random bytes.
pub(crate) fn seed() -> Result<[u8; 32], Failure> {
    random()
}

/// The one place of the tool that takes randomness.
#[expect(clippy::disallowed_methods, reason = "this is the module that owns it in the tool")]
fn random<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Failure::new(format!("the system gives no randomness: {e}")))?;
    Ok(bytes)
}

/// Why a decision is not recorded: what it is about could not be shown, and nobody decides on what
/// they have not seen.
pub(crate) fn not_shown(error: &io::Error) -> Failure {
    let why = match error.kind() {
        io::ErrorKind::BrokenPipe => "nobody reads the output".to_owned(),
        _ => format!("cannot write the output: {error}"),
    };
    Failure::new(format!("nothing was recorded: {why}"))
}

/// For how long the run that holds a thread is waited for.
const ADMITTED_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether it has taken a message.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Carries out `message` and says what came of it.
pub(crate) async fn carry_out(
    book: &Opened,
    thread: &ThreadId,
    message: &Message,
    said: &str,
    out: &mut Out<'_>,
) -> Outcome {
    let home = book.home();
    let holder = format!("cli:{}", std::process::id());
    let acted = match operator::act(home, thread, message, &holder, random()?).await {
        Err(OperatorError::Store(StoreError::Held { by })) => {
            hand_over(home, thread, message, &holder, &by).await
        }
        acted => acted.map_err(|e| read::about(thread, e)),
    }?;
    let told = report(thread, &acted, said, book.owner(), out).and_then(|code| {
        out.flush()?;
        Ok(code)
    });
    let record = format!("recorded as {} of thread {}", acted.position, safe(thread.as_str()));
    told.map_err(|failure| failure.after(&record))
}

/// Puts the act into the inbox of a thread that a run holds, and waits until that has given it its
/// place.
async fn hand_over(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    message: &Message,
    holder: &str,
    held_by: &str,
) -> Result<Acted, Failure> {
    let post = operator::post(home, thread, message, holder).await;
    let post = post.map_err(|e| read::about(thread, e))?;
    let posted = format!("posted to thread {} as {}", safe(thread.as_str()), post.id);
    let look = || operator::admitted(home, thread, &post);
    let since = now();
    let admitted = loop {
        if let Some(admitted) = look().await.map_err(|e| Failure::from(e).after(&posted))? {
            break admitted;
        }
        if since.elapsed() > ADMITTED_WITHIN {
            let seconds = ADMITTED_WITHIN.as_secs();
            return Err(Failure::of(
                code::LOCKED,
                format!(
                    "{posted}, and not admitted yet: {} holds the thread and has not taken it for \
                     {seconds} s. It stays in the inbox, so do not say it again; `deedbook show` \
                     tells what becomes of it",
                    safe(held_by)
                ),
            ));
        }
        pause(LOOK_EVERY);
    };
    let record = format!("recorded as {} of thread {}", admitted.position, safe(thread.as_str()));
    if let Some(why) = admitted.refused {
        let why = format!("refused, {record}: {}", safe(&why));
        return Err(Failure::new(why));
    }
    let info = read::info(home, thread).await.map_err(|failure| failure.after(&record))?;
    Ok(Acted { position: admitted.position, row: info.row, admitted_before: post.before })
}

fn report(
    thread: &ThreadId,
    acted: &Acted,
    said: &str,
    owner: Option<&Owner>,
    out: &mut Out<'_>,
) -> Outcome {
    let row = &acted.row;
    let status = Seen::unheld(row.status);
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "thread": thread.as_str(),
            "record": acted.position,
            "status": status.as_str(),
            "detail": row.detail.as_deref(),
            "open_doubts": row.open_doubts,
            "admitted_before": acted.admitted_before,
        }))?;
        return Ok(code::OK);
    }
    out.line(&format!("{said} (record {} of {})", acted.position, safe(thread.as_str())))?;
    if acted.admitted_before > 0 {
        let earlier = count(acted.admitted_before as u64, "earlier message");
        out.line(&format!("before it, {earlier} of the inbox got a place"))?;
    }
    let detail = row.detail.as_deref().map(|d| format!(": {}", safe(d))).unwrap_or_default();
    let taken = match owner.filter(|owner| owner.runs) {
        Some(owner) => format!("{} takes it up", safe(&owner.to_string())),
        None if status == Seen::Ready => READY.to_owned(),
        None => "its program takes it up at its next start".to_owned(),
    };
    let next = match status {
        Seen::Ready => format!(": {taken}"),
        ended if ended.is_ended() => detail,
        // Nobody runs a step of its own.
        Seen::Is(Status::Idle) => "; its next caller goes by what was said".to_owned(),
        _ => format!("{detail}; {taken}"),
    };
    out.line(&format!("the thread is {status}{next}"))?;
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
