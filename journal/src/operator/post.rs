//! Acts on a thread that a run holds: they go through its inbox.

use super::{Found, OperatorError, READ_BYTES, prepare};
use crate::{
    checkpointer::{Checkpointer, Message, Posted, StoreError},
    id::{MessageId, Position, ThreadId},
    record::{Header, Kind},
};

/// An act that was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    /// The message.
    pub id: MessageId,
    /// Before this position there is no record of it.
    pub from: Position,
    /// How many messages waited in the inbox, and come first.
    pub before: usize,
}

/// A posted act that has its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    /// The position of its record.
    pub position: Position,
    /// Why the thread did not take it, if it did not: it had changed since that was looked at.
    pub refused: Option<String>,
}

/// Puts an act into the inbox of a thread, whoever holds that. What the thread would not take as it
/// stands is refused, and then nothing was posted.
///
/// # Errors
/// As [`super::act`], but for [`StoreError::Held`].
pub async fn post(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    message: &Message,
    holder: &str,
) -> Result<Post, OperatorError> {
    let found = Found::load(home, thread).await?;
    let waiting = home.inbox(thread).await?;
    let now = home.now().await?;
    let trial = found.as_lease(thread);
    prepare(&found, &trial, &waiting, message, holder, now, [0; 32])?;
    match home.post(thread, message.clone()).await? {
        Posted::Stored | Posted::AlreadyThere => {
            Ok(Post { id: message.id, from: found.history.next(), before: waiting.len() })
        }
        Posted::ThreadEnded => Err(OperatorError::Refused { why: "the thread has ended".into() }),
        Posted::NoSuchThread => Err(StoreError::NoSuchThread.into()),
    }
}

/// What became of a posted act; `None` while it waits in the inbox. Cancel-safe: it only reads.
///
/// # Errors
/// As [`Checkpointer::read`].
pub async fn admitted(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    post: &Post,
) -> Result<Option<Admitted>, StoreError> {
    if home.inbox(thread).await?.iter().any(|message| message.id == post.id) {
        return Ok(None);
    }
    let mut next = Some(post.from);
    while let Some(from) = next {
        let page = home.read(thread, from, READ_BYTES).await?;
        for (n, record) in &page.items {
            let header = Header::parse(&record.header).map_err(|e| StoreError::Damaged {
                thread: thread.clone(),
                n: *n,
                why: e.to_string().into(),
            })?;
            if header.message != Some(post.id) {
                continue;
            }
            let refused = header.kind == Kind::MessageRefused;
            let why = || header.why.as_deref().unwrap_or("no reason is given").to_owned();
            return Ok(Some(Admitted { position: *n, refused: refused.then(why) }));
        }
        next = page.next;
    }
    Ok(None)
}
