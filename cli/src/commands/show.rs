//! `show`: the story of a thread.

use deedbook_journal::{
    checkpointer::{Checkpointer, ThreadInfo},
    hex,
    history::{Answer, Attempt, AttemptEnd, Call, CallKind, History},
    id::{StoreTime, ThreadId},
    operator::Found,
    record::{Header, Record},
    row::Status,
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{decide, doubts, threads};
use crate::{
    args::Show,
    failure::{Failure, Outcome, code},
    line::Views,
    out::{Out, Style},
    read::{self, Records},
    state::{Seen, State},
    story::Story,
    text::{cut, safe, shell, shown, span, time},
};

pub(crate) async fn run(
    args: &Show,
    home: &dyn Checkpointer,
    prefix: &str,
    out: &mut Out<'_>,
) -> Outcome {
    let thread = read::thread_id(&args.thread)?;
    let info = read::info(home, &thread).await?;
    let now = home.now().await?;
    let found = read::found(home, &thread).await?;
    let show = Shown { state: State::of(&info, Some(&found), now), info, found, now, prefix };
    if out.json {
        show.object(args, home, out).await?;
    } else {
        show.text(args, home, out).await?;
    }
    Ok(code::OK)
}

struct Shown<'a> {
    info: ThreadInfo,
    state: State,
    found: Found,
    now: StoreTime,
    prefix: &'a str,
}

impl Shown<'_> {
    fn thread(&self) -> &ThreadId {
        &self.info.id
    }

    fn history(&self) -> &History {
        &self.found.history
    }

    async fn text(
        &self,
        args: &Show,
        home: &dyn Checkpointer,
        out: &mut Out<'_>,
    ) -> Result<(), Failure> {
        self.head(out)?;
        let mut story = Story::new(self.history());
        let mut records = Records::new(home, self.thread().clone());
        while let Some((n, record)) =
            records.next().await.map_err(|e| read::about(self.thread(), e))?
        {
            let header = read::header(&record)?;
            let sentence = story.tell(&header, &record);
            out.styled(Style::Faint, &format!("{}  {n:>4}  ", time(header.time)))?;
            out.line(&sentence)?;
            if args.payloads {
                payloads(&header, &record, out)?;
            }
        }
        self.open_ends(home, out).await
    }

    fn head(&self, out: &mut Out<'_>) -> Result<(), Failure> {
        let row = &self.info.row;
        out.line(&format!("thread    {}", safe(self.thread().as_str())))?;
        out.line(&format!("workflow  {}", safe(&row.workflow)))?;
        out.piece("status    ")?;
        out.styled(threads::style(self.state.status), self.state.status.as_str())?;
        out.piece(&format!(" since {}", time(self.state.since)))?;
        if !self.state.status.is_ended() {
            out.piece(&format!(" ({})", span(self.now.since(self.state.since))))?;
        }
        out.end()?;
        let told = self.state.told();
        if !told.is_empty() {
            let label = match self.state.status {
                Seen::Ready => "next",
                Seen::Is(Status::Waiting | Status::InDoubt | Status::Sleeping) => "waits",
                Seen::Is(_) => "detail",
            };
            out.line(&format!("{label:<8}  {}", safe(&told)))?;
        }
        let (records, epoch) = (self.info.next, self.info.epoch.0);
        out.line(&format!("created   {}", time(row.created_at)))?;
        out.line(&format!("records   {records}, epoch {epoch}, inbox {}", self.info.inbox))?;
        if let Some(holder) = &self.info.holder {
            out.line(&format!("held by   {}", safe(holder)))?;
        }
        out.end()?;
        Ok(())
    }

    /// What is asked of somebody: decisions, settlements.
    async fn open_ends(&self, home: &dyn Checkpointer, out: &mut Out<'_>) -> Result<(), Failure> {
        if self.state.status.is_ended() {
            return Ok(());
        }
        for request in decide::open(self.history()) {
            let id = request.id.to_string();
            let asked = request.opened_time;
            out.end()?;
            out.styled(Style::Strong, &format!("approval {} is open", safe(&id)))?;
            out.line(&format!(" since {} ({})", time(asked), span(self.now.since(asked))))?;
            let content = decide::content(home, self.thread(), request).await?;
            let content = content.as_deref().unwrap_or("(erased)");
            out.line(&format!("  shown       {}", cut(content, decide::SHOWN_CHARS_MAX)))?;
            out.line(&format!("  commitment  {}", digest(request)))?;
            for word in ["approve", "deny"] {
                let thread = shell(self.thread().as_str(), "THREAD");
                let (id, by) = (shell(&id, "REQUEST"), super::by_whom());
                out.line(&format!("  {} {word}{by} -- {thread} {id}", self.prefix))?;
            }
        }
        for (call, doubt) in self.history().doubts(self.now) {
            out.end()?;
            out.styled(Style::Alert, &format!("step {} is in doubt", safe(&call.id.to_string())))?;
            out.end()?;
            doubts::describe(self.thread(), call, doubt, self.now, self.prefix, out)?;
        }
        Ok(())
    }

    async fn object(
        &self,
        args: &Show,
        home: &dyn Checkpointer,
        out: &mut Out<'_>,
    ) -> Result<(), Failure> {
        let mut object = threads::object(&self.info, &self.state);
        let open = !self.state.status.is_ended();
        let history = self.history();
        let doubts: Vec<Value> = history
            .doubts(self.now)
            .filter(|_| open)
            .map(|(call, doubt)| doubts::object(self.thread(), call, doubt, self.prefix))
            .collect();
        let mut approvals = Vec::new();
        for request in decide::open(history).filter(|_| open) {
            let content = decide::content(home, self.thread(), request).await?;
            approvals.push(Approval {
                request: request.id.to_string(),
                since: request.opened_time.to_string(),
                commitment: digest(request),
                shown: content.and_then(|c| RawValue::from_string(c).ok()),
            });
        }
        let calls: Vec<Value> = history.calls().iter().map(call).collect();
        if let Value::Object(members) = &mut object {
            members.insert("calls".into(), calls.into());
            members.insert("doubts".into(), doubts.into());
        }
        let records = self.records(args, home).await?;
        let thread = object;
        out.object(&Object { thread, approvals, records })
    }

    async fn records(&self, args: &Show, home: &dyn Checkpointer) -> Result<Vec<Told>, Failure> {
        let mut story = Story::new(self.history());
        let mut told = Vec::new();
        let mut records = Records::new(home, self.thread().clone());
        while let Some((n, record)) =
            records.next().await.map_err(|e| read::about(self.thread(), e))?
        {
            let header = read::header(&record)?;
            let rec = String::from_utf8_lossy(&record.header).into_owned();
            let views = args.payloads.then(|| serde_json::to_string(&Views(&header, &record)));
            told.push(Told {
                n,
                time: header.time.to_string(),
                kind: header.kind.as_str().to_owned(),
                text: story.tell(&header, &record),
                hash: record.hash.to_string(),
                rec: RawValue::from_string(rec)?,
                payloads: views.transpose()?.map(RawValue::from_string).transpose()?,
            });
        }
        Ok(told)
    }
}

#[derive(Serialize)]
struct Object {
    #[serde(flatten)]
    thread: Value,
    approvals: Vec<Approval>,
    records: Vec<Told>,
}

#[derive(Serialize)]
struct Approval {
    request: String,
    since: String,
    commitment: String,
    shown: Option<Box<RawValue>>,
}

/// A record as told.
#[derive(Serialize)]
struct Told {
    n: u64,
    time: String,
    kind: String,
    text: String,
    hash: String,
    rec: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payloads: Option<Box<RawValue>>,
}

fn digest(request: &Call) -> String {
    request.shown.map(|c| hex::encode(&c)).unwrap_or_default()
}

fn payloads(header: &Header, record: &Record, out: &mut Out<'_>) -> Result<(), Failure> {
    for commitment in &header.payloads {
        let role = commitment.role.as_str();
        let value = record.payload(commitment.role).map(|p| shown(&p.bytes));
        out.line(&format!("{:>36}{role:<7} {}", "", value.as_deref().unwrap_or("(erased)")))?;
    }
    Ok(())
}

fn call(call: &Call) -> Value {
    let attempts: Vec<Value> = call.attempts.iter().map(attempt).collect();
    json!({
        "kind": call.kind.as_str(),
        "id": call.id.to_string(),
        "opened": call.opened,
        "time": call.opened_time.to_string(),
        "policy": call.terms.map(|t| t.policy.as_str()),
        "key": call.key.as_deref(),
        "due": call.due.map(|t| t.to_string()),
        "attempts": (call.kind == CallKind::Step).then_some(attempts),
        "late": call.late.len(),
        "outcome": call.outcome.as_ref().map(|o| json!({
            "record": o.position,
            "answer": answer(&o.answer),
        })),
    })
}

fn attempt(attempt: &Attempt) -> Value {
    let (end, why) = match &attempt.end {
        AttemptEnd::Open => ("open", None),
        AttemptEnd::NoEffect(_) => ("no_effect", None),
        AttemptEnd::Ambiguous(doubt, _) => ("unknown", Some(doubt.as_str())),
        AttemptEnd::NotStarted => ("not_started", None),
        AttemptEnd::Cleared { .. } => ("did_not_happen", None),
        AttemptEnd::Settled => ("settled", None),
    };
    json!({
        "n": attempt.number,
        "record": attempt.at,
        "started": attempt.started.to_string(),
        "end": end,
        "why": why,
    })
}

fn answer(answer: &Answer) -> &'static str {
    match answer {
        Answer::Value(_) => "value",
        Answer::Failed(_) => "failed",
        Answer::Unstored(_) => "result_not_stored",
        Answer::Fired => "fired",
        Answer::Time(_) => "time",
        Answer::Decided { granted: true, .. } => "granted",
        Answer::Decided { granted: false, .. } => "denied",
        Answer::Erased { .. } => "erased",
    }
}
