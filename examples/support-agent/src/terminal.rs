//! You are the customer, and the person who approves; the model is a real one.

use std::{env, error::Error, io::Write, path::PathBuf, time::Duration};

use deedbook::{Deedbook, Waits};
use deedbook_agent::Chat;
use deedbook_openai::OpenAi;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};

use crate::{
    agent::{Support, support},
    child::FOLDER,
    holds::Holds,
    ledger::Ledger,
    tools::Desk,
};

/// Talks until the input ends. Interrupt it whenever you like, and start it again.
///
/// # Errors
/// The journal cannot be opened, or the conversation cannot go on.
#[expect(clippy::disallowed_methods, reason = "an example lives in real time")]
pub async fn chat() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var(FOLDER).unwrap_or_else(|_| ".".to_owned()));
    let ledger = Ledger::at(&folder.join("ledger.jsonl"));
    let support = support(OpenAi::from_env()?, &Desk { ledger, holds: Holds::default() })?;
    let journal = folder.join("support.redb");
    let book = Deedbook::open_or_create(journal).host(support.clone()).start().await?;
    let chat = Chat::<Support>::new(&book, &support.0, "terminal")?;
    let mut lines = BufReader::new(stdin()).lines();
    let mut turn = chat.replies().await?.len();
    let mut answered: Vec<String> = Vec::new();
    while let Some(text) = ask(&mut lines, "you> ").await? {
        turn += 1;
        let id = format!("turn-{turn}");
        let reply = {
            let mut said = Box::pin(chat.say(&id, &text));
            let mut watch = book.watch();
            loop {
                tokio::select! {
                    reply = &mut said => break reply?,
                    noticed = watch.next() => {
                        if let Some(deedbook::Noticed::Waits(notice)) = noticed
                            && let Waits::Approval { request } = notice.waits
                        {
                            let prompt = format!("approve {request}? (yes/no) ");
                            let word = ask(&mut lines, &prompt).await?;
                            let granted = word.is_some_and(|word| word.trim() == "yes");
                            book.decide("terminal", &request, granted, "user:you", "").await?;
                        }
                    }
                    question = chat.question() => {
                        if let Some(question) = question? {
                            if answered.contains(&question.call) {
                                // The answer is on its way into the record.
                                tokio::time::sleep(Duration::from_millis(50)).await;
                                continue;
                            }
                            let prompt = format!("{}\nyou> ", question.question);
                            let answer = ask(&mut lines, &prompt).await?.unwrap_or_default();
                            chat.answer(&question.call, &answer).await?;
                            answered.push(question.call);
                        }
                    }
                }
            }
        };
        for call in &reply.calls {
            let replayed = if call.replayed.is_some() { " (replayed)" } else { "" };
            writeln!(std::io::stdout(), "  {} {}{replayed}", call.tool, call.arguments)?;
        }
        writeln!(std::io::stdout(), "agent> {}", reply.text)?;
    }
    Ok(book.shutdown().await?)
}

async fn ask(
    lines: &mut Lines<BufReader<Stdin>>,
    prompt: &str,
) -> Result<Option<String>, std::io::Error> {
    write!(std::io::stdout(), "{prompt}")?;
    std::io::stdout().flush()?;
    lines.next_line().await
}
