//! `doubts`: what only a person can settle, and how.

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter},
    history::{Call, Doubt},
    id::{StoreTime, ThreadId},
    row::Status,
};

use crate::{
    args::Doubts,
    failure::{Failure, Outcome, code},
    out::{JSON_VERSION, Out, Style},
    read::{self, List},
    text::{count, safe, shell, span, time},
};

pub(crate) async fn run(
    args: &Doubts,
    home: &dyn Checkpointer,
    prefix: &str,
    out: &mut Out<'_>,
) -> Outcome {
    let now = home.now().await?;
    // Nothing of a thread at rest is in doubt; steps of their own are Deedbook's threads.
    let statuses = Status::ALL.into_iter().filter(|s| !s.is_at_rest()).collect();
    let prefix_wanted = args.prefix.as_deref().map(Into::into);
    let filter = Filter { statuses, prefix: prefix_wanted, reserved: true, ..Filter::default() };
    let mut list = List::new(home, filter);
    let mut any = false;
    let mut unread = None;
    while let Some(info) = list.next().await? {
        // Rows are not enough: a run that has died could not count its doubts.
        let found = match read::found(home, &info.id).await {
            Ok(found) => found,
            Err(failure) => {
                // One thread that cannot be read must not hide the doubts of the others.
                unread.get_or_insert(failure);
                continue;
            }
        };
        for (call, doubt) in found.history.doubts(now) {
            any = true;
            one(&info.id, call, doubt, now, prefix, out)?;
        }
    }
    match unread {
        Some(failure) => Err(failure),
        None if any => Ok(code::DOUBTS),
        None => {
            out.note("no open doubts");
            Ok(code::OK)
        }
    }
}

fn one(
    thread: &ThreadId,
    call: &Call,
    doubt: Doubt,
    now: StoreTime,
    prefix: &str,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    if out.json {
        return out.object(&object(thread, call, doubt, prefix));
    }
    out.styled(Style::Alert, &format!("{}  {}", safe(thread.as_str()), call.id))?;
    out.end()?;
    describe(thread, call, doubt, now, prefix, out)
}

/// A doubt in words, below a line that names it.
pub(crate) fn describe(
    thread: &ThreadId,
    call: &Call,
    doubt: Doubt,
    now: StoreTime,
    prefix: &str,
    out: &mut Out<'_>,
) -> Result<(), Failure> {
    let since = since(call);
    let policy = call.terms.map_or("unknown", |t| t.policy.as_str());
    out.line(&format!("  why       {doubt}"))?;
    out.line(&format!("  since     {} ({} ago)", time(since), span(now.since(since))))?;
    out.line(&format!("  policy    {policy}, {}", count(call.attempts.len() as u64, "attempt")))?;
    let key = call.key.as_deref().map_or_else(|| "none".to_owned(), safe);
    out.line(&format!("  key       {key}"))?;
    for (number, command) in commands(thread, call, prefix).iter().enumerate() {
        let label = if number == 0 { "settle" } else { "or" };
        out.line(&format!("  {label:<8}  {command}"))?;
    }
    Ok(())
}

/// A doubt as JSON.
pub(crate) fn object(
    thread: &ThreadId,
    call: &Call,
    doubt: Doubt,
    prefix: &str,
) -> serde_json::Value {
    serde_json::json!({
        "v": JSON_VERSION,
        "thread": thread.as_str(),
        "step": call.id.to_string(),
        "why": doubt.as_str(),
        "since": since(call).to_string(),
        "policy": call.terms.map(|t| t.policy.as_str()),
        "attempts": call.attempts.len(),
        "key": call.key.as_deref(),
        "settle": commands(thread, call, prefix),
    })
}

/// Since when: the start of the first attempt that may have had its effect.
fn since(call: &Call) -> StoreTime {
    call.first_started().unwrap_or(call.opened_time)
}

/// The commands that settle a doubt, to be pasted once the words in capitals are replaced.
fn commands(thread: &ThreadId, call: &Call, prefix: &str) -> [String; 3] {
    let thread = shell(thread.as_str(), "THREAD");
    let (step, by) = (shell(call.id.to_string(), "STEP"), super::by_whom());
    // A thread or step that begins with `-` must not be read as an option.
    let line =
        |verdict: &str| format!("{prefix} resolve{by} {verdict} --reason WHY -- {thread} {step}");
    [line("--happened JSON"), line("--did-not-happen"), line("--failed MESSAGE")]
}
