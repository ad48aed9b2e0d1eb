//! The story: a customer, a person who approves, a model that repeats itself, and somebody who
//! kills the agent.

use std::{
    collections::BTreeMap, env, error::Error, fmt::Write as _, path::Path, process::Stdio,
    time::Duration,
};

use deedbook_agent::{Outcome, Question, Reply};
use deedbook_model_script::{Script, serve};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::{
    child::{FOLDER, Told},
    holds::HOLD,
    ledger::Ledger,
};

/// What the customer says.
const MESSAGES: &[(&str, &str)] = &[
    ("m1", "My order ORD-4821 arrived broken. I want my money back."),
    ("m2", "And the other one was too small."),
    ("m3", "Make that 130 for the first one."),
];

/// When the agent is killed, in this order, each time in a new process.
const KILLS: &[&str] = &[
    "in look_up_order",
    "after page_oncall",
    "waiting for approval",
    "before refund",
    "after refund",
    "after the reply",
    "waiting for an answer",
];

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a child tells.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Heard {
    Ready(serde::de::IgnoredAny),
    Held(String),
    Approval(String),
    Question(Question),
    Reply(Box<Reply>),
    Error(String),
}

struct Life {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Life {
    fn begin(program: &Path, folder: &Path, url: &str, hold: &str) -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(program)
            .arg("child")
            .env(FOLDER, folder)
            .env("OPENAI_BASE_URL", url)
            .env("OPENAI_MODEL", "script")
            .env_remove("OPENAI_API_KEY")
            .env(HOLD, hold)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("a child has an input")?;
        let output = child.stdout.take().ok_or("a child has an output")?;
        Ok(Self { child, input, output: BufReader::new(output).lines() })
    }

    async fn tell(&mut self, told: &Told) -> Result<(), Box<dyn Error>> {
        let line = serde_json::to_string(told)?;
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        Ok(self.input.flush().await?)
    }

    async fn hear(&mut self) -> Result<Heard, Box<dyn Error>> {
        let line = timeout(PATIENCE, self.output.next_line()).await??;
        Ok(serde_json::from_str(&line.ok_or("the agent's process has ended")?)?)
    }

    /// SIGKILL.
    async fn kill(mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.child.kill().await?)
    }

    async fn end(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.input);
        timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Story {
    /// Every reply, in order.
    pub replies: Vec<Reply>,
    /// When the agent was killed.
    pub kills: Vec<String>,
    /// How often each effect happened.
    pub effects: BTreeMap<String, usize>,
    /// The story, to be read.
    pub text: String,
}

/// Plays the story with this program as the agent's process.
///
/// # Errors
/// Something did not come to its end.
pub async fn play(program: &Path, folder: &Path) -> Result<Story, Box<dyn Error>> {
    let script: Script = serde_json::from_str(include_str!("../script.json"))?;
    let server = serve(script, 0).await?;
    let mut story = Story::default();
    let mut kills = KILLS.iter().copied();
    let mut next = kills.next();
    let mut life = Life::begin(program, folder, &server.url(), next.unwrap_or_default())?;
    for (id, text) in MESSAGES {
        writeln!(story.text, "customer  {text}")?;
        let say = Told::Say { id: (*id).to_owned(), text: (*text).to_owned() };
        life.tell(&say).await?;
        loop {
            let heard = life.hear().await?;
            let now = match &heard {
                Heard::Held(instant) => Some(instant.as_str()),
                Heard::Approval(_) => Some("waiting for approval"),
                Heard::Question(_) => Some("waiting for an answer"),
                Heard::Reply(_) => Some("after the reply"),
                Heard::Ready(_) | Heard::Error(_) => None,
            };
            if next.is_some() && now == next {
                let instant = next.unwrap_or_default();
                writeln!(story.text, "SIGKILL   {instant}")?;
                story.kills.push(instant.to_owned());
                life.kill().await?;
                next = kills.next();
                life = Life::begin(program, folder, &server.url(), next.unwrap_or_default())?;
                // Whoever has heard no reply says it again: it is the same message.
                life.tell(&say).await?;
                continue;
            }
            match heard {
                Heard::Ready(_) | Heard::Held(_) => {}
                Heard::Error(error) => return Err(error.into()),
                Heard::Approval(request) => {
                    writeln!(story.text, "person    approves {request}")?;
                    life.tell(&Told::Approve { request }).await?;
                }
                Heard::Question(question) => {
                    writeln!(story.text, "agent     {}", question.question)?;
                    let text = "ORD-4822".to_owned();
                    writeln!(story.text, "customer  {text}")?;
                    life.tell(&Told::Answer { call: question.call, text }).await?;
                }
                Heard::Reply(reply) if reply.id == *id => {
                    answered(&mut story.text, &reply)?;
                    story.replies.push(*reply);
                    break;
                }
                Heard::Reply(_) => {}
            }
        }
    }
    life.end().await?;
    for entry in Ledger::at(&folder.join("ledger.jsonl")).entries()? {
        *story.effects.entry(format!("{} {}", entry.kind, entry.what)).or_default() += 1;
    }
    Ok(story)
}

fn answered(text: &mut String, reply: &Reply) -> std::fmt::Result {
    for call in &reply.calls {
        let what = match (&call.outcome, &call.replayed) {
            (_, Some(replayed)) => format!("replayed from {}", replayed.first),
            (Outcome::Done { .. }, None) => "done".to_owned(),
            (Outcome::Conflict { first, differing }, None) => {
                format!("not executed: {} is not what {first} said", differing.join(", "))
            }
            (other, None) => format!("{other:?}"),
        };
        writeln!(text, "  {:<7} {:<14} {what}", call.call, call.tool)?;
    }
    writeln!(text, "agent     {}", reply.text)
}

/// Plays the story in a folder of its own and prints it.
///
/// # Errors
/// Something did not come to its end, or an effect did not happen once.
pub async fn tell() -> Result<String, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut story = play(&env::current_exe()?, folder.path()).await?;
    writeln!(story.text, "\n{} times killed; the ledger of the other side:", story.kills.len())?;
    for (effect, times) in &story.effects {
        writeln!(story.text, "  {times} x {effect}")?;
    }
    if story.effects.values().any(|times| *times != 1) {
        return Err(format!("{}\nan effect did not happen once", story.text).into());
    }
    Ok(story.text)
}
