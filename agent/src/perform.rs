//! Doing what is wanted: the one path to the body of a tool.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use deedbook::{
    Attempt, Context, Operation, Probe, Result, Scope, StepError, ThreadId, WorkflowError,
    WorkflowErrorKind,
};
use serde::Serialize;
use serde_json::Value;

use crate::{
    Call, Check, Secrets,
    agent::{Inner, News, What},
    answer::{Answered, Outcome, Question, Replayed},
    effect::Class,
    known::{Before, Identity, JOURNAL, Known, THREAD},
    prepare::{Prepared, Verdict},
    tool::{DynTool, Stored, without_secrets},
    toolbox::ASK,
};

/// The step by which a question goes out.
pub(crate) const QUESTION: &str = "agent.question";
/// What stands before the code of a failure that had no effect.
const NOTHING_HAPPENED: &str = "nothing-happened";
/// A call of another thread, as it is told.
const ELSEWHERE: &str = "of another thread";
/// Longest identity that is a key as it stands.
const KEY_BYTES_MAX: usize = 900;

/// The signal by which a question is answered.
pub(crate) fn answer_signal(call: &str) -> String {
    format!("agent.answer {call}")
}

/// A call that was judged.
pub(crate) enum Judged {
    Ready(Prepared),
    Told(Answered),
}

/// How a call gets its answer.
enum Plan {
    /// It has it.
    Told(Outcome, Option<Replayed>),
    /// This job makes it.
    Lead(usize),
    /// The job of an identical call makes it.
    Follow(usize),
}

/// One execution.
#[derive(Clone)]
struct Job {
    call: Prepared,
    tool: DynTool,
    identity: Identity,
    occurrence: u32,
    ask: Option<String>,
}

/// Answers calls in order; those that are to be executed run side by side, at most `most` of them.
pub(crate) async fn all(
    agent: &Arc<Inner>,
    ctx: Context,
    known: &mut Known,
    judged: Vec<Judged>,
    most: usize,
) -> Result<Vec<Answered>> {
    let mut jobs: Vec<Job> = Vec::new();
    let mut leads: BTreeMap<Identity, usize> = BTreeMap::new();
    let mut plans = Vec::new();
    for (n, judged) in judged.into_iter().enumerate() {
        let call = match judged {
            Judged::Told(answered) => {
                plans.push((answered.clone(), Plan::Told(answered.outcome, None)));
                continue;
            }
            Judged::Ready(call) => call,
        };
        let plan = if n < most {
            plan(agent, known, &mut leads, &mut jobs, &call)
        } else {
            let why = "the budget of tool calls is used up".to_owned();
            Plan::Told(Outcome::NotRun { why }, None)
        };
        plans.push((slot(&call), plan));
    }
    let each = |ctx: Context, job: Job| {
        let agent = agent.clone();
        Box::pin(async move { Ok(one(&agent, ctx, job).await) })
    };
    // Beside each other, and none is dropped: what one of them finishes is recorded while another
    // waits for a person.
    let outcomes = ctx.map("call", jobs.clone(), each).await?;
    for (job, outcome) in jobs.iter().zip(&outcomes) {
        if job.tool.effect.is_once() {
            let content = job.call.recorded();
            let shared = job.tool.terms.scope == Scope::Journal;
            known.settle(job.identity.clone(), &job.call.call, &content, &outcome.0, shared);
        }
    }
    let outcome_of = |n: usize| outcomes.get(n).cloned();
    let lost = || (Outcome::NotRun { why: "it has no outcome".to_owned() }, None);
    let finish = |(mut answered, plan): (Answered, Plan)| {
        (answered.outcome, answered.replayed) = match plan {
            Plan::Told(outcome, replayed) => (outcome, replayed),
            Plan::Lead(n) => outcome_of(n).unwrap_or_else(lost),
            Plan::Follow(n) => {
                let first = jobs.get(n).map(|job| job.call.call.clone()).unwrap_or_default();
                let replayed = Replayed { first, scope: THREAD.to_owned() };
                (outcome_of(n).unwrap_or_else(lost).0, Some(replayed))
            }
        };
        answered
    };
    Ok(plans.into_iter().map(finish).collect())
}

fn slot(call: &Prepared) -> Answered {
    Answered {
        call: call.call.clone(),
        model_id: call.model_id.clone(),
        tool: call.tool.clone(),
        emitted: call.emitted.clone(),
        arguments: call.arguments.clone(),
        outcome: Outcome::NotRun { why: String::new() },
        replayed: None,
    }
}

fn plan(
    agent: &Inner,
    known: &mut Known,
    leads: &mut BTreeMap<Identity, usize>,
    jobs: &mut Vec<Job>,
    call: &Prepared,
) -> Plan {
    let told = |outcome| Plan::Told(outcome, None);
    let ask = match &call.verdict {
        Verdict::Run => None,
        Verdict::Ask { why } => Some(why.clone()),
        Verdict::Denied { why } => {
            return told(Outcome::Denied { by: "a rule".to_owned(), reason: why.clone() });
        }
        Verdict::Malformed { why } => return told(Outcome::Malformed { why: why.clone() }),
        Verdict::Unknown { known } => return told(Outcome::Unknown { known: known.clone() }),
    };
    let Some(tool) = agent.toolbox.find(&call.tool) else {
        return told(Outcome::Unknown { known: agent.toolbox.names() });
    };
    let identity = Identity::of(&tool, call);
    let mut occurrence = 0;
    if tool.effect.minting {
        occurrence = known.mint(identity.clone());
    } else {
        let lead = leads.get(&identity).and_then(|n| Some((*n, jobs.get(*n)?)));
        if let Some((n, lead)) = lead {
            let differing = crate::json::differences(&lead.call.recorded(), &call.recorded());
            if differing.is_empty() {
                return Plan::Follow(n);
            }
            let first = lead.call.call.clone();
            return told(Outcome::Conflict { first, differing });
        }
        if tool.effect.is_once() {
            match known.before(&identity, &call.recorded()) {
                Before::New(n) => occurrence = n,
                Before::Answer(outcome, replayed) => return Plan::Told(outcome, Some(replayed)),
                Before::Other(outcome) => return told(outcome),
            }
        }
        leads.insert(identity.clone(), jobs.len());
    }
    jobs.push(Job { call: call.clone(), tool, identity, occurrence, ask });
    Plan::Lead(jobs.len() - 1)
}

/// What a person is shown: the answer is bound to exactly this.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    call: &'a str,
    tool: &'a str,
    arguments: &'a Value,
    why: &'a str,
}

/// What a job comes to, and from where, if that is somebody else's call.
type Came = (Outcome, Option<Replayed>);

async fn one(agent: &Arc<Inner>, ctx: Context, job: Job) -> Came {
    if job.call.tool == ASK {
        return (ask_user(agent, ctx, &job.call).await, None);
    }
    let recorded = job.call.recorded();
    if let Some(why) = &job.ask {
        let (call, tool) = (job.call.call.as_str(), job.call.tool.as_str());
        let request = ctx.approval(tool, &Shown { call, tool, arguments: &recorded, why });
        let request = match agent.approve_within {
            Some(time) => request.within(time),
            None => request,
        };
        match request.await {
            Ok(decided) if decided.granted => {}
            Ok(decided) => {
                return (Outcome::Denied { by: decided.by, reason: decided.reason }, None);
            }
            Err(error) => return (unanswered("nobody approved it", &error), None),
        }
    }
    let shared = job.tool.terms.scope == Scope::Journal;
    let ran = Arc::new(AtomicBool::new(false));
    let outcome = match execute(agent, ctx.clone(), &job, &recorded, &ran).await {
        Ok(Stored(Ok(result))) => Outcome::Done { result },
        Ok(Stored(Err(why))) => Outcome::Unstored { why },
        // Somebody else's content is not told.
        Err(error) if shared && error.code() == "conflict" => {
            let differing = vec!["argument".to_owned()];
            Outcome::Conflict { first: ELSEWHERE.to_owned(), differing }
        }
        Err(error) => failed(&error),
    };
    if !shared {
        return (outcome, None);
    }
    // Whose call it was is nobody's to compute again: it is recorded. A process that dies just
    // here says afterwards that it was somebody else's.
    let ours = ctx.step("agent.source").read();
    let ours = ours.run(&job.call.call, async move |_| Ok(ran.load(Ordering::SeqCst))).await;
    let other = || Replayed { first: ELSEWHERE.to_owned(), scope: JOURNAL.to_owned() };
    let replayed = (outcome.is_final() && ours == Ok(false)).then(other);
    (outcome, replayed)
}

fn unanswered(what: &str, error: &WorkflowError) -> Outcome {
    match error.kind() {
        WorkflowErrorKind::TimedOut => Outcome::Unanswered { why: format!("{what} in time") },
        _ => failed(error),
    }
}

fn failed(error: &WorkflowError) -> Outcome {
    let message = error.failure().to_string();
    if error.kind() == WorkflowErrorKind::ResultNotStored {
        return Outcome::Unstored { why: message };
    }
    let code = error.code();
    let nothing_happened =
        code.starts_with(NOTHING_HAPPENED) || error.kind() == WorkflowErrorKind::NotRecordable;
    let code = code.strip_prefix(NOTHING_HAPPENED).unwrap_or(code).trim_start_matches('/');
    Outcome::Failed { code: code.to_owned(), message, nothing_happened }
}

/// Runs the body as a step, under the policy and the identity of its tool.
async fn execute(
    agent: &Arc<Inner>,
    ctx: Context,
    job: &Job,
    recorded: &Value,
    ran: &Arc<AtomicBool>,
) -> Result<Stored> {
    let Job { call, tool, .. } = job;
    let step = ctx.step(&call.tool).timeout(tool.terms.timeout).retry(tool.terms.retry);
    let step = step.scope(tool.terms.scope);
    let hands = Hands {
        agent: agent.clone(),
        tool: tool.clone(),
        thread: ctx.thread_id(),
        id: call.call.as_str().into(),
        arguments: call.arguments.clone(),
        ran: ran.clone(),
    };
    let step = match (&tool.effect.policy, &tool.terms.identity) {
        (Class::Read, _) => step,
        (_, None) => step.by_arguments().occurrence(job.occurrence),
        (_, Some(_)) => step.key(key(&job.identity.text, job.occurrence)),
    };
    match tool.effect.policy {
        Class::Read => {
            let body = async move |op: Attempt| hands.body(op.number(), None).await;
            step.read().run(recorded, body).await
        }
        Class::Idempotent => {
            let step = step.idempotent();
            let step = match tool.effect.window {
                Some(window) => step.honoured_for(window),
                None => step,
            };
            step.run(recorded, async move |op| hands.effect(op).await).await
        }
        Class::Reconcile => {
            let asked = hands.clone();
            let step = step.reconcile(async move |op| asked.probe(op).await);
            let step = match tool.effect.quiet {
                Some(quiet) => step.quiet(quiet),
                None => step,
            };
            step.run(recorded, async move |op| hands.effect(op).await).await
        }
        Class::AtMostOnce => {
            step.at_most_once().run(recorded, async move |op| hands.effect(op).await).await
        }
    }
}

/// The business key of a call that is identified by some of its arguments.
fn key(identity: &str, occurrence: u32) -> String {
    let text = if identity.len() <= KEY_BYTES_MAX {
        identity.to_owned()
    } else {
        blake3::hash(identity.as_bytes()).to_string()
    };
    if occurrence == 0 { text } else { format!("{text}#{occurrence}") }
}

/// What a body needs: nothing of it is recorded.
#[derive(Clone)]
struct Hands {
    agent: Arc<Inner>,
    tool: DynTool,
    thread: ThreadId,
    id: Arc<str>,
    arguments: Value,
    /// Whether this process has run it.
    ran: Arc<AtomicBool>,
}

impl Hands {
    async fn call(&self, attempt: u32, operation: Option<Operation>) -> Result<Call, StepError> {
        let mut call = Call {
            name: self.tool.declaration.name.as_str().into(),
            id: self.id.clone(),
            thread: self.thread.clone(),
            attempt,
            operation,
            secrets: Secrets::new(),
        };
        let mut secrets = Secrets::new();
        for hook in &self.agent.hooks {
            secrets.0.extend(hook.secrets(&call).await.map_err(StepError::not_applied)?.0);
        }
        call.secrets = secrets;
        Ok(call)
    }

    async fn effect(&self, operation: Operation) -> Result<Stored, StepError> {
        self.body(operation.attempt(), Some(operation)).await
    }

    async fn body(&self, attempt: u32, operation: Option<Operation>) -> Result<Stored, StepError> {
        self.ran.store(true, Ordering::SeqCst);
        let call = self.call(attempt, operation).await.map_err(marked)?;
        let secrets = call.secrets.clone();
        let body = async {
            let stored = self.tool.body.call(call.clone(), self.arguments.clone()).await?;
            if let Ok(result) = &stored.0 {
                self.checked(&call, result).await?;
            }
            Ok(stored)
        };
        match without_secrets(&secrets, body).await {
            Ok(Stored(result)) => {
                let hidden = result.map(|value| secrets.hide_in(value));
                Ok(Stored(hidden.map_err(|why| secrets.hide(&why))))
            }
            Err(error) => Err(marked(hidden(&secrets, error))),
        }
    }

    /// What hooks think of the result, the last one first.
    async fn checked(&self, call: &Call, result: &Value) -> Result<(), StepError> {
        for hook in self.agent.hooks.iter().rev() {
            match hook.check(call, result).await? {
                Check::Accept => {}
                Check::Retry(why) => return Err(StepError::new(why).code("retry")),
                Check::NothingHappened(why) => {
                    return Err(StepError::new(why).code("retry").not_applied());
                }
            }
        }
        Ok(())
    }

    async fn probe(&self, operation: Operation) -> Result<Probe<Stored>, StepError> {
        let call = self.call(operation.attempt(), Some(operation)).await?;
        let secrets = call.secrets.clone();
        let asked = self.tool.body.probe(call, self.arguments.clone());
        let answer = without_secrets(&secrets, asked).await;
        Ok(match answer.map_err(|error| hidden(&secrets, error))? {
            Probe::Happened(Stored(result)) => {
                let hidden = result.map(|value| secrets.hide_in(value));
                Probe::Happened(Stored(hidden.map_err(|why| secrets.hide(&why))))
            }
            other => other,
        })
    }
}

/// A failure without an effect is told apart from one for good when it is read again.
fn marked(error: StepError) -> StepError {
    if !error.is_not_applied() {
        return error;
    }
    let code = format!("{NOTHING_HAPPENED}/{}", error.failure().code);
    error.code(code.trim_end_matches('/'))
}

fn hidden(secrets: &Secrets, error: StepError) -> StepError {
    if secrets.is_empty() {
        return error;
    }
    error.map_texts(|text| secrets.hide(text))
}

/// Asks the user, and waits.
async fn ask_user(agent: &Arc<Inner>, ctx: Context, call: &Prepared) -> Outcome {
    let text = call.arguments.get("question").and_then(Value::as_str).unwrap_or_default();
    let question = Question { call: call.call.clone(), question: text.to_owned() };
    let (news, thread) = (agent.news.clone(), ctx.thread_id());
    let what = What::Question(question.clone());
    let asked = ctx.step(QUESTION).idempotent();
    let asked = asked.run(&question, async move |_| {
        // Whoever does not listen now reads the record.
        let _ = news.send(News { thread, what });
        Ok(())
    });
    if let Err(error) = asked.await {
        return failed(&error);
    }
    let answer = ctx.signal::<String>(&answer_signal(&call.call));
    let answer = match agent.answer_within {
        Some(time) => answer.within(time),
        None => answer,
    };
    match answer.await {
        Ok(text) => Outcome::Done { result: Value::String(text) },
        Err(error) => unanswered("the user did not answer", &error),
    }
}
