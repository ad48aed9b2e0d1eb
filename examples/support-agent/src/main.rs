//! Tells the story; or, with `chat`, lets you talk to the agent.

use std::{env, error::Error, io::Write};

use support_agent::{child, story, terminal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    match env::args().nth(1).as_deref() {
        None => Ok(write!(std::io::stdout(), "{}", story::tell().await?)?),
        Some("child") => child::run().await,
        Some("chat") => terminal::chat().await,
        Some(other) => Err(format!("{other:?} is not known; there is `chat`").into()),
    }
}
