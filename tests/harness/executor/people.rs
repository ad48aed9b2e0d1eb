//! What people and programs outside say to threads.

use std::time::Duration;

use deedbook::{
    Deedbook, Doubt, Resolution,
    checkpointer::{Message, Posted},
};
use deedbook_journal::{history::CallKind, id::MessageId, limits::ValueLimits, message, value};

use super::life::{Life, Sent};
use crate::program::value_of;

/// How long what was said is not said again.
const SAID_FOR: Duration = Duration::from_secs(300);

impl Life {
    /// Somebody says something to a thread, if there is anything to say and a process that
    /// answers: says whether it was said.
    pub(super) async fn speak(&mut self, thread: usize) -> bool {
        let journal = self.threads[thread].journal;
        let here = self.processes.iter().filter(|p| p.journal == journal);
        let books: Vec<_> = here.filter_map(|p| p.answers().cloned()).collect();
        if books.is_empty() || self.ended(thread).is_some() {
            return false;
        }
        let book = &books[self.random.index(books.len())];
        if self.threads[thread].unwanted && self.random.once_in(4) {
            self.threads[thread].unwanted = false;
            let id = self.threads[thread].id.as_str().to_owned();
            if book.cancel(&id, "user:ada", "enough").await.is_ok() {
                self.count("cancellations");
                return true;
            }
        }
        self.signal(thread, book).await
            || self.decide(thread, book).await
            || self.settle(thread, book).await
    }

    /// Sends the next signal: at once, or as one does who is not sure that it arrived.
    async fn signal(&mut self, thread: usize, book: &Deedbook) -> bool {
        let Some((line, nth)) = self.threads[thread].unsent.last().copied() else {
            return false;
        };
        let (name, value) = (format!("signal{line}"), value_of(line, nth));
        let id = self.threads[thread].id.clone();
        let told = if self.random.once_in(2) {
            let body = value::encode(&value, &ValueLimits::new()).unwrap();
            let mut unique = [0; 16];
            unique[..8].copy_from_slice(&self.random.draw().to_le_bytes());
            let said = Message {
                id: MessageId(unique),
                kind: message::SIGNAL,
                name: name.as_str().into(),
                by: "program".into(),
                body: body.into(),
            };
            let home = book.checkpointer();
            let first = home.post(&id, said.clone()).await;
            // It is there once, however often it is sent.
            let again = home.post(&id, said).await;
            self.count("signals sent twice");
            matches!(first, Ok(Posted::Stored)) && matches!(again, Ok(Posted::AlreadyThere))
        } else {
            book.signal(id.as_str(), &name, &value).await.is_ok()
        };
        if told {
            self.threads[thread].unsent.pop();
            self.threads[thread].sent.push(Sent { name, value });
            self.count("signals");
        }
        told
    }

    /// Grants or denies the first request that is to be answered; sometimes twice.
    async fn decide(&mut self, thread: usize, book: &Deedbook) -> bool {
        let open = {
            let durable = self.threads[thread].durable.lock().unwrap();
            let calls = durable.history.calls().iter();
            let mut open = calls.filter(|call| {
                let asked = call.kind == CallKind::Approval && call.outcome.is_none();
                asked && !call.id.name.as_str().starts_with("unanswered")
            });
            open.next().map(|call| call.id.to_string())
        };
        let Some(request) = open else { return false };
        if !self.is_news(thread, &request) {
            return false;
        }
        let id = self.threads[thread].id.clone();
        let granted = self.random.once_in(2);
        let decided = book.decide(id.as_str(), &request, granted, "user:ada", "looks right").await;
        if self.random.once_in(3) {
            // The first word holds; this one is refused here or in the records.
            let _ = book.decide(id.as_str(), &request, !granted, "user:bob", "I think not").await;
        }
        self.count("decisions");
        decided.is_ok()
    }

    /// Settles the doubts of a thread as somebody does who finds out what happened.
    async fn settle(&mut self, thread: usize, book: &Deedbook) -> bool {
        let Ok(doubts) = book.doubts().await else { return false };
        let id = self.threads[thread].id.clone();
        let mut any = false;
        for open in doubts.into_iter().filter(|open| open.thread == id) {
            if !self.is_news(thread, &format!("{} {} {}", open.step, open.doubt, open.attempts)) {
                continue;
            }
            let key = open.operation_key.as_deref().unwrap_or_default();
            self.world.arrive_at_last(key);
            let answer = self.world.answer(key).filter(|_| self.world.landed(key) > 0);
            let misspeaks = open.doubt != Doubt::Unreadable && self.random.once_in(4);
            let resolution = match answer {
                Some(_) if misspeaks => {
                    self.count("words that cannot be read");
                    Resolution::happened("it did, trust me").expect("a text")
                }
                Some(answer) => Resolution::happened(&answer).expect("a number"),
                None => Resolution::did_not_happen(),
            };
            let said =
                book.resolve(id.as_str(), &open.step, resolution, "user:ada", "looked it up").await;
            if said.is_ok() {
                self.count("doubts settled");
                any = true;
            }
        }
        any
    }

    /// Whether this was not said a moment ago: it may take a while until it is heard.
    fn is_news(&mut self, thread: usize, what: &str) -> bool {
        let now = self.clock.now();
        let said = &mut self.threads[thread].said;
        let lately = said.get(what).is_some_and(|at| now.since(*at) < SAID_FOR);
        if !lately {
            said.insert(what.to_owned(), now);
        }
        !lately
    }
}
