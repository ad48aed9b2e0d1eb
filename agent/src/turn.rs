//! The loop: messages in, model and tools by turns, replies out. There is no second one.

use std::{collections::BTreeSet, sync::Arc};

use deedbook::{Context, Result, StoreTime};
use serde::{Deserialize, Serialize};

use crate::{
    Ended, Limit, Message, ModelError, Opening, Reply, Request, Response, Spent, TurnEnd,
    agent::{Inner, News, What},
    answer::{Answered, Outcome},
    known::Known,
    perform,
    prepare::{Prepared, prepare, unique_ids},
};

/// The signal by which messages come.
pub(crate) const SAY: &str = "agent.say";
/// The step by which a reply goes out.
pub(crate) const REPLY: &str = "agent.reply";
/// How often the model may say nothing in one turn.
const EMPTY_MAX: u32 = 3;
/// What a model that said nothing is told.
const NOTHING_SAID: &str = "Your last answer was empty. Answer in words, or call a tool.";

/// What is said to a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(crate) enum Said {
    Message { id: String, text: String },
    End,
}

/// What holds for one turn, whatever the code says later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Setup {
    model: String,
    instructions: String,
    tools: Vec<String>,
}

/// What a call of the model is identified by.
#[derive(Debug, Serialize)]
struct Asked {
    turn: u32,
    call: u32,
    messages: usize,
}

/// What a model said, and to what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Spoken {
    response: Response,
    /// BLAKE3 of the messages that were sent.
    asked: String,
}

pub(crate) async fn converse(agent: Arc<Inner>, ctx: Context, opening: &Opening) -> Result<Ended> {
    let mut conversation = Conversation {
        agent,
        ctx,
        messages: Vec::new(),
        known: Known::default(),
        spent: Spent::default(),
        turns: 0,
    };
    let mut answered = BTreeSet::new();
    let mut last = None;
    let mut next = opening.prompt.clone().map(|text| ("opening".to_owned(), text));
    while opening.turns.is_none_or(|most| conversation.turns < most) {
        let (id, text) = match next.take() {
            Some(message) => message,
            None => match conversation.ctx.signal::<Said>(SAY).await? {
                Said::Message { id, text } => (id, text),
                Said::End => break,
            },
        };
        // A message that was sent twice is one message.
        if answered.insert(id.clone()) {
            last = Some(conversation.turn(id, text).await?);
        }
    }
    Ok(Ended { turns: conversation.turns, last, spent: conversation.spent })
}

struct Conversation {
    agent: Arc<Inner>,
    ctx: Context,
    messages: Vec<Message>,
    known: Known,
    spent: Spent,
    turns: u32,
}

/// One turn under way.
struct Turn {
    /// Its branch.
    ctx: Context,
    number: u32,
    setup: Setup,
    began: Option<StoreTime>,
    spent: Spent,
    calls: Vec<Answered>,
    empty: u32,
}

impl Conversation {
    async fn turn(&mut self, id: String, text: String) -> Result<Reply> {
        self.turns += 1;
        let number = self.turns;
        let ctx = self.ctx.branch(&format!("t{number}"));
        self.messages.push(Message::User { text });
        let setup = self.setup(ctx.clone()).await?;
        let began = match self.agent.budget.time {
            Some(_) => Some(ctx.now().await?),
            None => None,
        };
        let spent = Spent::default();
        let mut turn = Turn { ctx, number, setup, began, spent, calls: Vec::new(), empty: 0 };
        let (end, text) = loop {
            if let Some(end) = Box::pin(self.round(&mut turn)).await? {
                break end;
            }
        };
        self.spent.add(turn.spent);
        let reply = Reply { turn: number, id, end, text, calls: turn.calls, spent: turn.spent };
        self.publish(turn.ctx, &reply).await?;
        Ok(reply)
    }

    /// What holds in this turn is recorded, so that a new release may say something else.
    async fn setup(&mut self, ctx: Context) -> Result<Setup> {
        let agent = self.agent.clone();
        ctx.step("agent.setup")
            .read()
            .run(&(), async move |_| {
                Ok(Setup {
                    model: agent.model.name().to_owned(),
                    instructions: agent.instructions.clone(),
                    tools: agent.toolbox.names(),
                })
            })
            .await
    }

    /// The model is asked once, and what it wants is done.
    async fn round(&mut self, turn: &mut Turn) -> Result<Option<(TurnEnd, String)>> {
        if let Some(limit) = self.used_up(turn).await? {
            return Ok(Some((TurnEnd::Budget { limit }, String::new())));
        }
        let call = turn.spent.model_calls;
        let response = match self.ask(turn, call).await {
            Ok(spoken) => spoken.response,
            Err(error) => {
                let code = error.code().to_owned();
                let message = error.failure().to_string();
                return Ok(Some((TurnEnd::ModelFailed { code, message }, String::new())));
            }
        };
        turn.spent.model_calls += 1;
        turn.spent.tokens.input += response.usage.input;
        turn.spent.tokens.output += response.usage.output;
        if let Some(why) = response.refusal {
            self.say(if response.text.is_empty() { why.clone() } else { response.text.clone() });
            return Ok(Some((TurnEnd::Refused { why }, response.text)));
        }
        if !response.calls.is_empty() {
            self.call(turn, call, response).await?;
            let over = turn.spent.tool_calls > self.agent.budget.tool_calls;
            let end = TurnEnd::Budget { limit: Limit::ToolCalls };
            return Ok(over.then(|| (end, String::new())));
        }
        if response.text.trim().is_empty() {
            turn.empty += 1;
            self.say("(nothing)".to_owned());
            if turn.empty == EMPTY_MAX {
                return Ok(Some((TurnEnd::Empty, String::new())));
            }
            self.messages.push(Message::User { text: NOTHING_SAID.to_owned() });
            return Ok(None);
        }
        self.say(response.text.clone());
        let end = if response.cut { TurnEnd::Cut } else { TurnEnd::Answered };
        Ok(Some((end, response.text)))
    }

    async fn used_up(&mut self, turn: &mut Turn) -> Result<Option<Limit>> {
        let budget = &self.agent.budget;
        if let (Some(most), Some(began)) = (budget.time, turn.began) {
            let now = turn.ctx.now().await?;
            if now.since(began) >= most {
                return Ok(Some(Limit::Time));
            }
        }
        Ok(budget.reached(&turn.spent))
    }

    fn say(&mut self, text: String) {
        self.messages.push(Message::Assistant { text, calls: Vec::new() });
    }

    async fn ask(&mut self, turn: &mut Turn, call: u32) -> Result<Spoken> {
        let agent = self.agent.clone();
        let mut messages = Vec::new();
        if !turn.setup.instructions.is_empty() {
            messages.push(Message::System { text: turn.setup.instructions.clone() });
        }
        messages.extend(self.messages.iter().cloned());
        let messages = Arc::new(messages);
        let asked = Asked { turn: turn.number, call, messages: messages.len() };
        let step = turn.ctx.step("agent.model").read();
        step.timeout(agent.model_timeout)
            .retry(agent.model_retry)
            .run(&asked, async move |_| {
                let text = serde_json::to_vec(&*messages)?;
                let request = Request {
                    messages: (*messages).clone(),
                    tools: agent.toolbox.declarations(),
                    pieces: agent.pieces.clone(),
                };
                let response = agent.model.respond(request).await.map_err(ModelError::of_step)?;
                Ok(Spoken { response, asked: blake3::hash(&text).to_string() })
            })
            .await
    }

    /// Answers every call of one answer, each exactly once, in order.
    async fn call(&mut self, turn: &mut Turn, call: u32, response: Response) -> Result<()> {
        let place = format!("t{}.{call}", turn.number);
        let ids = unique_ids(&response.calls);
        let told = response.calls.iter().zip(&ids);
        let told = told.map(|(call, id)| crate::ToolCall { id: id.clone(), ..call.clone() });
        self.messages.push(Message::Assistant { text: response.text, calls: told.collect() });
        let wanted = response.calls.len();
        let prepared = self.prepare(turn, &place, response.calls).await;
        let most = self.agent.budget.tool_calls.saturating_sub(turn.spent.tool_calls);
        turn.spent.tool_calls += u32::try_from(wanted).unwrap_or(u32::MAX);
        let ctx = turn.ctx.branch(&format!("tools-{call}"));
        let answered =
            perform::all(&self.agent, ctx, &mut self.known, prepared, most as usize).await?;
        for answered in answered {
            let hooks = self.agent.hooks.iter().rev();
            let shown = hooks.filter_map(|hook| hook.show(&answered)).next();
            let text = shown.unwrap_or_else(|| {
                answered.told(self.agent.shown_chars_max, self.agent.tell_replays)
            });
            self.messages.push(Message::Tool { id: answered.model_id.clone(), text });
            turn.calls.push(answered.in_reply());
        }
        Ok(())
    }

    /// Reads the calls and asks the hooks, once. If the hooks cannot be asked, nothing is done.
    async fn prepare(
        &mut self,
        turn: &mut Turn,
        place: &str,
        calls: Vec<crate::ToolCall>,
    ) -> Vec<perform::Judged> {
        let (agent, thread) = (self.agent.clone(), self.ctx.thread_id());
        let (at, wanted) = (place.to_owned(), calls.clone());
        let prepared: Result<Vec<Prepared>> = turn
            .ctx
            .step("agent.prepare")
            .read()
            .run(&place, async move |_| prepare(agent, thread, at, wanted).await)
            .await;
        match prepared {
            Ok(prepared) => prepared.into_iter().map(perform::Judged::Ready).collect(),
            Err(error) => {
                let why = format!("the rules for it could not be asked: {}", error.failure());
                let ids = unique_ids(&calls);
                let refuse = |(n, (call, model_id)): (usize, (crate::ToolCall, String))| {
                    perform::Judged::Told(Answered {
                        call: format!("{place}.{n}"),
                        model_id,
                        tool: call.name,
                        emitted: serde_json::Value::String(call.arguments),
                        arguments: serde_json::Value::Null,
                        outcome: Outcome::NotRun { why: why.clone() },
                        replayed: None,
                    })
                };
                calls.into_iter().zip(ids).enumerate().map(refuse).collect()
            }
        }
    }

    /// Hands a reply out, once everything before it is durable.
    async fn publish(&mut self, ctx: Context, reply: &Reply) -> Result<()> {
        let (news, thread) = (self.agent.news.clone(), ctx.thread_id());
        let what = What::Reply(Box::new(reply.clone()));
        ctx.step(REPLY)
            .idempotent()
            .run(reply, async move |_| {
                // Whoever does not listen now reads the record.
                let _ = news.send(News { thread, what });
                Ok(())
            })
            .await
    }
}
