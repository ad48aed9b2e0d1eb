//! Situations, each with what came of it.

use std::{error::Error, path::Path};

use deedbook::{Context, Deedbook, Scope, StepError, Workflow};
use deedbook_agent::{
    Agent, Answered, Chat, Decision, DynTool, Ended, Hook, Opening, Outcome, Response, Scripted,
    Terms, ToolCall, Toolbox, Wanted,
};
use serde_json::{Value, json};

use crate::{
    billing::Billing,
    tools::{issue_refund, look_up_order, mint_case_id, page_oncall},
};

type Done<T = ()> = Result<T, Box<dyn Error>>;

/// One line of the table: a situation, and what was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The situation.
    pub situation: &'static str,
    /// What the other side counted, and what else there is to say.
    pub seen: String,
    /// Whether it is as it should be.
    pub fine: bool,
}

fn refund(arguments: &str) -> ToolCall {
    let (id, name) = ("call".to_owned(), "issue_refund".to_owned());
    ToolCall { id, name, arguments: arguments.to_owned() }
}

fn again() -> ToolCall {
    refund(r#"{"order": "ORD-4821", "amount": 120}"#)
}

/// A model that wants these calls, one list after the other.
fn wants(lines: Vec<Vec<ToolCall>>) -> Scripted {
    let lines = lines.into_iter().map(Response::calls);
    Scripted::new(lines.chain([Response::text("done"), Response::text("done")]))
}

fn toolbox(billing: &Billing) -> Toolbox {
    Toolbox::new()
        .with(look_up_order())
        .with(issue_refund(billing.clone()))
        .with(page_oncall(billing.clone()))
        .with(mint_case_id(billing.clone()))
        .with_ask()
}

async fn run(agent: &Agent) -> Done<Vec<Answered>> {
    let book = Deedbook::memory().host(agent.clone()).start().await?;
    let ended = book.run::<Agent>("conversation", Opening::once("go")).await?;
    book.shutdown().await?;
    Ok(ended.last.map(|reply| reply.calls).unwrap_or_default())
}

fn replays(calls: &[Answered]) -> usize {
    calls.iter().filter(|call| call.replayed.is_some()).count()
}

/// The model repeats itself later, and side by side, and writes numbers and arguments in every way.
async fn repeats() -> Done<Seen> {
    let billing = Billing::default();
    let model = wants(vec![
        vec![again(), refund(r#"{"amount": 120.0, "order": "ORD-4821"}"#)],
        vec![refund(r#"{"order": "ORD-4821", "amount": "120", "reason": "damaged"}"#)],
        vec![refund(r#"{"order": "ORD-4821", "amount": 1.2e2, "reason": null}"#)],
    ]);
    let agent = Agent::builder(model).tools(toolbox(&billing)).build()?;
    let calls = run(&agent).await?;
    Ok(Seen {
        situation: "the same call four times, in four spellings",
        seen: format!("{} refund, {} replayed", billing.refunds(), replays(&calls)),
        fine: (billing.refunds(), replays(&calls)) == (1, 3),
    })
}

/// A look-up is fresh each time, and a new case is a new case.
async fn kinds() -> Done<Seen> {
    let billing = Billing::default();
    let call = |name: &str, arguments: Value| ToolCall::new("call", name, &arguments);
    let look = || call("look_up_order", json!({"order": "ORD-4821"}));
    let page = || call("page_oncall", json!({"case": "C-1", "summary": "broken"}));
    let mint = || call("mint_case_id", json!({}));
    let all = || vec![look(), page(), mint()];
    let agent = Agent::builder(wants(vec![all(), all()])).tools(toolbox(&billing)).build()?;
    let calls = run(&agent).await?;
    Ok(Seen {
        situation: "look up, page and mint, twice each",
        seen: format!("1 page and 2 cases: {} in all", billing.pages()),
        fine: (billing.pages(), replays(&calls)) == (3, 1),
    })
}

/// The process ends, the thread is loaded again, and the model repeats itself.
async fn reloaded(folder: &Path) -> Done<Seen> {
    let billing = Billing::default();
    let model = Scripted::new([
        Response::calls([again()]),
        Response::text("It is on its way."),
        Response::calls([again()]),
        Response::text("It was on its way already."),
    ]);
    let agent = Agent::builder(model).tools(toolbox(&billing)).build()?;
    let path = folder.join("reloaded.redb");

    let book = Deedbook::open_or_create(&path).host(agent.clone()).start().await?;
    let chat = Chat::<Agent>::new(&book, &agent, "order-4821")?;
    chat.say("message-1", "My parcel is broken.").await?;
    book.shutdown().await?;

    let book = Deedbook::open(&path).host(agent.clone()).start().await?;
    let chat = Chat::<Agent>::new(&book, &agent, "order-4821")?;
    let reply = chat.say("message-2", "Did you refund it?").await?;
    book.shutdown().await?;

    Ok(Seen {
        situation: "a thread that is loaded again, in a new turn",
        seen: format!("{} refund; {}", billing.refunds(), reply.text),
        fine: (billing.refunds(), replays(&reply.calls)) == (1, 1),
    })
}

/// The refund is made, and the process dies before it hears so.
async fn crash_window(folder: &Path) -> Done<Seen> {
    let billing = Billing::default();
    let model = wants(vec![vec![again()], vec![again()]]);
    let agent = Agent::builder(model).tools(toolbox(&billing)).build()?;
    let path = folder.join("crashed.redb");
    billing.lose_the_next_answer();
    let book = Deedbook::open_or_create(&path).host(agent.clone()).start().await?;
    book.spawn::<Agent>("order-4821", Opening::once("My parcel is broken.")).await?;
    until(|| billing.refunds() == 1).await;
    // A book that is dropped is a process that dies.
    drop(book);

    let book = reopened(&path, &agent).await?;
    let ended = book.wait::<Agent>("order-4821").await?;
    book.shutdown().await?;
    let calls = ended.last.map(|reply| reply.calls).unwrap_or_default();
    Ok(Seen {
        situation: "a crash between the refund and its receipt",
        seen: format!("{} refund: the same key was sent again", billing.refunds()),
        fine: (billing.refunds(), replays(&calls)) == (1, 1),
    })
}

/// A question holds the turn, the refund beside it does not wait, and the model repeats it.
async fn interrupted() -> Done<Seen> {
    let billing = Billing::default();
    let ask = ToolCall::new("ask", "ask_user", &json!({"question": "Are you sure?"}));
    let model = wants(vec![vec![ask, again()], vec![again(), again()]]);
    let agent = Agent::builder(model).tools(toolbox(&billing)).build()?;
    let book = Deedbook::memory().host(agent.clone()).start().await?;
    let chat = Chat::<Agent>::new(&book, &agent, "order-4821")?;
    chat.post("message-1", "My parcel is broken.").await?;
    if let Some(question) = chat.question().await? {
        chat.answer(&question.call, "yes").await?;
    }
    let reply = chat.reply("message-1").await?;
    book.shutdown().await?;
    Ok(Seen {
        situation: "a question beside a refund, and the refund again after the answer",
        seen: format!("{} refund, {} replayed", billing.refunds(), replays(&reply.calls)),
        fine: (billing.refunds(), replays(&reply.calls)) == (1, 2),
    })
}

/// Two refunds wait for a person, who allows the second and denies the first.
async fn held() -> Done<Seen> {
    let billing = Billing::default();
    let held = DynTool::of(issue_refund(billing.clone()));
    let held = held.with_terms(Terms::new().approval("money moves"));
    let line = vec![again(), refund(r#"{"order": "ORD-4822", "amount": 7}"#)];
    let model = wants(vec![line, vec![refund(r#"{"order": "ORD-4822", "amount": 7}"#)]]);
    let agent = Agent::builder(model).tools(Toolbox::new().with_dyn(held)).build()?;
    let book = Deedbook::memory().host(agent.clone()).start().await?;
    book.spawn::<Agent>("t", Opening::once("go")).await?;
    let request = |n: u32| format!("t1/tools-0/call/{n}/issue_refund#0");
    decide(&book, &request(1), true).await;
    decide(&book, &request(0), false).await;
    let ended = book.wait::<Agent>("t").await?;
    book.shutdown().await?;
    let calls = ended.last.map(|reply| reply.calls).unwrap_or_default();
    let denied = matches!(calls.first().map(|call| &call.outcome), Some(Outcome::Denied { .. }));
    Ok(Seen {
        situation: "two held calls, answered in the other order, one denied",
        seen: format!("{} refund, one denial, {} replayed", billing.refunds(), replays(&calls)),
        fine: denied && (billing.refunds(), replays(&calls)) == (1, 1),
    })
}

/// Denies the first call that it sees.
struct NotBeforeNoon(std::sync::atomic::AtomicBool);

impl Hook for NotBeforeNoon {
    async fn before(&self, _: &mut Wanted) -> Result<Decision, StepError> {
        Ok(match self.0.swap(false, std::sync::atomic::Ordering::SeqCst) {
            true => Decision::Deny("not before noon".to_owned()),
            false => Decision::Proceed,
        })
    }
}

async fn denied_then_allowed() -> Done<Seen> {
    let billing = Billing::default();
    let hook = NotBeforeNoon(true.into());
    let model = wants(vec![vec![again()], vec![again()]]);
    let agent = Agent::builder(model).tools(toolbox(&billing)).hook(hook).build()?;
    let calls = run(&agent).await?;
    let done = calls.last().is_some_and(|call| call.outcome.result().is_some());
    Ok(Seen {
        situation: "a call that a hook denies, and the same call when it is allowed",
        seen: format!("{} refund; the denial was not its answer", billing.refunds()),
        fine: done && billing.refunds() == 1,
    })
}

/// A second agent, in the same book.
struct Auditor(Agent);

impl Workflow for Auditor {
    const NAME: &'static str = "auditor";
    type Input = Opening;
    type Output = Ended;

    async fn run(&self, ctx: Context, opening: &Opening) -> deedbook::Result<Ended> {
        self.0.converse(ctx, opening).await
    }
}

/// Two agents want one refund.
async fn two_agents() -> Done<Seen> {
    let billing = Billing::default();
    let shared = DynTool::of(issue_refund(billing.clone()));
    let shared = shared.with_terms(Terms::new().scope(Scope::Journal));
    let tools = Toolbox::new().with_dyn(shared);
    let one = Agent::builder(wants(vec![vec![again()]])).tools(tools.clone()).build()?;
    let two = Agent::builder(wants(vec![vec![again()]])).tools(tools).build()?;
    let book = Deedbook::memory().host(one).host(Auditor(two)).start().await?;
    book.run::<Agent>("one", Opening::once("go")).await?;
    let ended = book.run::<Auditor>("two", Opening::once("go")).await?;
    book.shutdown().await?;
    let calls = ended.last.map(|reply| reply.calls).unwrap_or_default();
    Ok(Seen {
        situation: "two agents that want one refund",
        seen: format!(
            "{} refund, {} replayed from the journal",
            billing.refunds(),
            replays(&calls)
        ),
        fine: (billing.refunds(), replays(&calls)) == (1, 1),
    })
}

/// All of them, in a folder for journals.
///
/// # Errors
/// A book or an agent could not be made.
pub async fn all(folder: &Path) -> Done<Vec<Seen>> {
    Ok(vec![
        repeats().await?,
        kinds().await?,
        reloaded(folder).await?,
        crash_window(folder).await?,
        interrupted().await?,
        held().await?,
        denied_then_allowed().await?,
        two_agents().await?,
    ])
}

/// Opens a journal whose last process has just died: it may take a moment to let go of the file.
#[expect(clippy::disallowed_methods, reason = "an example lives in real time")]
async fn reopened(path: &Path, agent: &Agent) -> Done<Deedbook> {
    let mut tries = 0;
    loop {
        match Deedbook::open(path).host(agent.clone()).start().await {
            Ok(book) => return Ok(book),
            Err(error) if tries > 500 => return Err(error.into()),
            Err(_) => tries += 1,
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

/// Decides once the request is there.
#[expect(clippy::disallowed_methods, reason = "an example lives in real time")]
async fn decide(book: &Deedbook, request: &str, granted: bool) {
    while book.decide("t", request, granted, "user:ada", "seen").await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "an example lives in real time")]
async fn until(what: impl Fn() -> bool) {
    while !what() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
