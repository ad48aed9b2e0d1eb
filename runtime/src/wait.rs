//! Calls without a body: the future that waits for a timer, a signal, an approval or a reading
//! of the clock.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context as Cx, Poll},
};

use deedbook_journal::history::Answer;

use crate::desk::{Making, Shared, Told};

/// A call that waits. Resolves to its answer, or never if the run cannot go on.
#[derive(Debug)]
pub(crate) struct Waiting {
    shared: Arc<Shared>,
    number: Option<u64>,
}

impl Waiting {
    /// Makes the call.
    pub(crate) fn new(shared: Arc<Shared>, making: Making) -> Self {
        let number = shared.lock().make(making);
        Self { shared, number }
    }
}

impl Future for Waiting {
    type Output = Answer;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<Answer> {
        let Some(number) = self.number else {
            return Poll::Pending;
        };
        let told = self.shared.lock().ask(number, cx.waker());
        match told {
            Told::Outcome(answer) => {
                self.number = None;
                Poll::Ready(answer)
            }
            _ => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.shared.lock().dropped(number);
        }
    }
}
