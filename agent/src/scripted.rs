//! A model that plays a script: for tests, and for trying things out without one.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use crate::{Message, Model, ModelError, Request, Response};

/// A model that answers from a script.
///
/// Which line is next is told by the conversation itself: by how often the model has spoken in
/// it. So a script goes on after a crash where the conversation is.
#[derive(Debug, Clone)]
pub struct Scripted {
    lines: Arc<[Response]>,
    asked: Arc<AtomicU32>,
}

impl Scripted {
    /// Plays these answers, one for each call of the model in a conversation.
    pub fn new(lines: impl IntoIterator<Item = Response>) -> Self {
        Self { lines: lines.into_iter().collect(), asked: Arc::default() }
    }

    /// How often it was asked.
    #[must_use]
    pub fn asked(&self) -> u32 {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Model for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    async fn respond(&self, request: Request) -> Result<Response, ModelError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let spoken = |message: &&Message| matches!(message, Message::Assistant { .. });
        let line = request.messages.iter().filter(spoken).count();
        let response = self.lines.get(line).cloned();
        let response = response
            .ok_or_else(|| ModelError::Rejected(format!("the script has no line {line}")))?;
        request.pieces.say(&response.text);
        Ok(response)
    }
}
