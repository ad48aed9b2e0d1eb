//! The process around the agent: says what happens on its output, does what its input says.

use std::{env, error::Error, io::Write, path::PathBuf, sync::Arc, time::Duration};

use deedbook::{Deedbook, Waits};
use deedbook_agent::Chat;
use deedbook_openai::OpenAi;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

use crate::{
    agent::{Support, support},
    holds::Holds,
    ledger::Ledger,
    tools::Desk,
};

/// The variable that names the folder of journal and ledger.
pub const FOLDER: &str = "SUPPORT_AGENT_FOLDER";
/// The conversation.
pub const THREAD: &str = "conversation-17";

/// What the process is told, one line each.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    /// The customer says something.
    Say {
        /// The message's id.
        id: String,
        /// The text.
        text: String,
    },
    /// The customer answers a question.
    Answer {
        /// The call that asks.
        call: String,
        /// The text.
        text: String,
    },
    /// A person approves.
    Approve {
        /// The request.
        request: String,
    },
}

fn tell(what: &Value) {
    // Nobody reads any more: then nobody needs to know.
    let _ = writeln!(std::io::stdout(), "{what}");
    let _ = std::io::stdout().flush();
}

/// Hosts the agent until its input ends.
///
/// # Errors
/// The journal cannot be opened, or the model's address is none.
pub async fn run() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var(FOLDER)?);
    let ledger = Ledger::at(&folder.join("ledger.jsonl"));
    let desk = Desk { ledger, holds: Holds::from_env() };
    let support = support(OpenAi::from_env()?, &desk)?;
    let journal = folder.join("support.redb");
    let book = Deedbook::open_or_create(journal).host(support.clone()).start().await?;
    let chat = Arc::new(Chat::<Support>::new(&book, &support.0, THREAD)?);
    tell(&json!({"ready": std::process::id()}));

    let watch = watch(book.clone(), chat.clone());
    tokio::select! {
        () = watch => {}
        done = listen(&book, chat) => done?,
    }
    Ok(book.shutdown().await?)
}

/// Tells of what waits for somebody. After a restart that is what waited before it.
#[expect(clippy::disallowed_methods, reason = "an example lives in real time")]
async fn watch(book: Deedbook, chat: Arc<Chat<Support>>) {
    let mut told = Vec::new();
    loop {
        let status = book.status(THREAD).await.ok().flatten();
        if let Some(Waits::Approval { request }) = status.and_then(|info| info.row.waits_for()) {
            let what = json!({"approval": &*request});
            if !told.contains(&what) {
                tell(&what);
                told.push(what);
            }
        }
        for question in chat.questions().await.unwrap_or_default() {
            let what = json!({"question": question});
            if !told.contains(&what) {
                tell(&what);
                told.push(what);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn listen(book: &Deedbook, chat: Arc<Chat<Support>>) -> Result<(), Box<dyn Error>> {
    let mut lines = BufReader::new(stdin()).lines();
    let mut saying = tokio::task::JoinSet::new();
    while let Some(line) = lines.next_line().await? {
        match serde_json::from_str(&line)? {
            Told::Say { id, text } => {
                let chat = chat.clone();
                saying.spawn(async move {
                    match chat.say(&id, &text).await {
                        Ok(reply) => tell(&json!({"reply": reply})),
                        Err(error) => tell(&json!({"error": error.to_string()})),
                    }
                });
            }
            Told::Answer { call, text } => chat.answer(&call, &text).await?,
            Told::Approve { request } => {
                let by = "user:ada";
                book.decide(THREAD, &request, true, by, "the photos show it").await?;
            }
        }
    }
    Ok(())
}
