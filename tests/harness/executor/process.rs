//! A process: a book, the way to its journal, and the calls that wait for its threads.

use std::{sync::Arc, time::Duration};

use deedbook::{Deedbook, Error, VirtualClock};
use futures::future::BoxFuture;

use crate::{home::GatedHome, program::Interpreter, simulation::poll_once, world::World};

/// How often a process looks for threads that became due without its knowing.
const LOOK_EVERY: Duration = Duration::from_secs(7);

type Starting = BoxFuture<'static, Result<Deedbook, Error>>;
type Ending = BoxFuture<'static, Result<(), Error>>;

/// Somebody waits for a thread's end.
pub(super) struct Call {
    pub(super) thread: usize,
    ends: BoxFuture<'static, Result<u64, Error>>,
}

pub(super) struct Process {
    pub(super) number: u64,
    pub(super) journal: usize,
    pub(super) home: Arc<GatedHome>,
    pub(super) book: Option<Deedbook>,
    starting: Option<Starting>,
    ending: Option<Ending>,
    calls: Vec<Call>,
}

impl Process {
    pub(super) fn start(
        number: u64,
        journal: usize,
        home: Arc<GatedHome>,
        world: World,
        clock: VirtualClock,
    ) -> Self {
        let builder = Deedbook::on(home.clone())
            .clock(clock)
            .holder(format!("p{number}"))
            .host(Interpreter::new(world))
            .look_every(LOOK_EVERY);
        let starting: Starting = Box::pin(builder.start());
        Self {
            number,
            journal,
            home,
            book: None,
            starting: Some(starting),
            ending: None,
            calls: Vec::new(),
        }
    }

    /// The book, if it answers.
    pub(super) fn answers(&self) -> Option<&Deedbook> {
        let gone = self.home.way.is_cut() || self.home.way.has_ended() || self.ending.is_some();
        self.book.as_ref().filter(|_| !gone)
    }

    /// Waits for the end of a thread, and begins it if there is none.
    pub(super) fn call(&mut self, thread: usize, id: &str, seed: u64) -> bool {
        let waits = self.calls.iter().any(|call| call.thread == thread);
        let Some(book) = self.answers().filter(|_| !waits).cloned() else {
            return false;
        };
        let id = id.to_owned();
        let ends = Box::pin(async move { book.run::<Interpreter>(id, seed).await });
        self.calls.push(Call { thread, ends });
        true
    }

    /// Stops in good order.
    pub(super) fn shut_down(&mut self) {
        if let Some(book) = self.answers().cloned() {
            self.ending = Some(Box::pin(async move { book.shutdown().await }));
        }
    }

    /// Goes on with what its callers wait for: what they are told, and whether it is over.
    pub(super) async fn go_on(&mut self) -> (Vec<(usize, Result<u64, Error>)>, bool) {
        let mut told = Vec::new();
        if let Some(starting) = &mut self.starting
            && let Some(started) = poll_once(starting).await
        {
            self.starting = None;
            match started {
                Ok(book) => self.book = Some(book),
                Err(_) => return (told, true),
            }
        }
        let mut at = 0;
        while let Some(call) = self.calls.get_mut(at) {
            match poll_once(&mut call.ends).await {
                Some(result) => told.push((self.calls.remove(at).thread, result)),
                None => at += 1,
            }
        }
        let over = match &mut self.ending {
            Some(ending) => poll_once(ending).await.is_some(),
            None => false,
        };
        (told, over)
    }
}
