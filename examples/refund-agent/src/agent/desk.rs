//! What is under way in the agent's process: requests that begin, threads that wait, answers that
//! come in.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use deedbook::{Deedbook, Error, ErrorKind, Filter, Status, ThreadId, ThreadInfo};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::task::JoinSet;

use super::holds::{Holds, Point};
use super::note::{Decision, Note, say};
use super::process::Options;
use super::{APPROVAL_REQUEST, Asked, Outcome, RefundAgent, SETTLE};
use crate::requests::{Entry, Request};

/// How often the agent looks which threads wait. Nothing depends on it but how soon a person is
/// asked.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Threads listed at once.
const PAGE: usize = 1_000;

/// Everything that is under way in this process.
pub(super) struct Desk {
    book: Deedbook,
    holds: Arc<Holds>,
    options: Options,
    /// What an earlier process left at work or asleep, and is not past it yet.
    interrupted: HashSet<ThreadId>,
    ended_before: HashSet<ThreadId>,
    /// Requests whose threads have not begun.
    queue: VecDeque<Request>,
    under_way: JoinSet<(ThreadId, Result<Outcome, Error>)>,
    /// Threads that wait for a person, as listed last.
    waiting: HashSet<ThreadId>,
    /// Threads that the agent has said to be waiting.
    asked: HashSet<ThreadId>,
    seen_at: HashMap<Point, HashSet<ThreadId>>,
}

impl Desk {
    pub(super) async fn open(
        book: Deedbook,
        holds: Arc<Holds>,
        options: Options,
    ) -> Result<Self, Error> {
        let mut desk = Self {
            book,
            holds,
            options,
            interrupted: HashSet::new(),
            ended_before: HashSet::new(),
            queue: VecDeque::new(),
            under_way: JoinSet::new(),
            waiting: HashSet::new(),
            asked: HashSet::new(),
            seen_at: HashMap::new(),
        };
        let (mut waiting, mut in_doubt) = (0, 0);
        let threads = desk.list(&[]).await?;
        for info in &threads {
            match info.row.status {
                Status::Running | Status::Sleeping => {
                    desk.interrupted.insert(info.id.clone());
                }
                Status::Waiting => waiting += 1,
                Status::InDoubt => in_doubt += 1,
                status if status.is_ended() => {
                    desk.ended_before.insert(info.id.clone());
                }
                _ => {}
            }
        }
        desk.holds.arm(desk.interrupted.clone());
        say(&Note::Opened {
            threads: threads.len(),
            interrupted: desk.interrupted.len(),
            waiting,
            in_doubt,
        });
        Ok(desk)
    }

    pub(super) async fn work(&mut self, entries: Vec<Entry>) -> Result<(), Error> {
        for entry in entries {
            if let Entry::Request(request) = entry {
                self.take(request).await?;
            }
        }
        let mut answers = Some(BufReader::new(tokio::io::stdin()).lines());
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            self.begin_more();
            if self.queue.is_empty() && self.under_way.is_empty() {
                return Ok(());
            }
            tokio::select! {
                // In order: ends first, so that a request that is over is not looked at.
                biased;
                Some(end) = self.under_way.join_next() => {
                    if let Ok((thread, end)) = end {
                        self.say_end(thread, end);
                    }
                }
                line = next_line(&mut answers) => match line {
                    Some(line) => self.hand_in(&line).await?,
                    None if self.options.until_stdin_ends => return Ok(()),
                    None => answers = None,
                },
                _ = looks.tick() => self.look().await?,
            }
        }
    }

    /// Joins the thread of a request at once if there is one, and else puts it into the queue.
    async fn take(&mut self, request: Request) -> Result<(), Error> {
        match ThreadId::new(&request.refund.id) {
            Err(error) => {
                say(&Note::Stopped {
                    thread: request.refund.id,
                    in_doubt: false,
                    why: error.to_string(),
                });
            }
            Ok(thread) if self.book.status(thread.as_str()).await?.is_some() => {
                self.run(thread, &request);
            }
            Ok(_) => self.queue.push_back(request),
        }
        Ok(())
    }

    /// Begins as many as may be at work at once, and none before what was interrupted is done.
    fn begin_more(&mut self) {
        while self.interrupted.is_empty() {
            let waiting = self.waiting.len().min(self.under_way.len());
            if self.under_way.len() - waiting >= self.options.at_once.max(1) {
                return;
            }
            let Some(request) = self.queue.pop_front() else {
                return;
            };
            if let Ok(thread) = ThreadId::new(&request.refund.id) {
                say(&Note::Begun { thread: thread.to_string() });
                self.run(thread, &request);
            }
        }
    }

    fn run(&mut self, thread: ThreadId, request: &Request) {
        let book = self.book.clone();
        let asked = Asked {
            refund: request.refund.clone(),
            order_seen_before: request.order_seen_at.is_some(),
        };
        self.under_way.spawn(async move {
            let end = book.run::<RefundAgent>(thread.as_str(), asked).await;
            (thread, end)
        });
    }

    fn say_end(&mut self, thread: ThreadId, end: Result<Outcome, Error>) {
        self.waiting.remove(&thread);
        let before = self.ended_before.contains(&thread);
        let thread = thread.to_string();
        say(&match end {
            Ok(outcome) => Note::Ended { thread, outcome, before },
            Err(error) => Note::Stopped {
                thread,
                in_doubt: error.kind() == ErrorKind::InDoubt,
                why: error.to_string(),
            },
        });
    }

    /// Hands a person's answer in. One that comes twice, as after a kill, is refused, not obeyed.
    async fn hand_in(&mut self, line: &str) -> Result<(), Error> {
        let decision: Decision = match serde_json::from_str(line) {
            Ok(decision) => decision,
            Err(error) => {
                say(&Note::Decided {
                    thread: String::new(),
                    refused: Some(format!("this is not a decision: {error}")),
                });
                return Ok(());
            }
        };
        let Decision { thread, granted, by, reason } = decision;
        let decided = self.book.decide(&thread, APPROVAL_REQUEST, granted, &by, &reason).await;
        let refused = match decided {
            Ok(()) => None,
            Err(error) if is_harmless(error.kind()) => Some(error.to_string()),
            Err(error) => return Err(error),
        };
        say(&Note::Decided { thread, refused });
        Ok(())
    }

    /// Looks which threads wait, and whether what was interrupted is done.
    async fn look(&mut self) -> Result<(), Error> {
        let parked = self.list(&[Status::Waiting, Status::Sleeping]).await?;
        self.waiting.clear();
        for info in &parked {
            if info.row.status == Status::Waiting {
                self.waiting.insert(info.id.clone());
                if self.asked.insert(info.id.clone()) {
                    let thread = info.id.to_string();
                    say(&Note::Asked { thread });
                }
            }
        }
        if !self.interrupted.is_empty() {
            let at_work = self.list(&[Status::Running, Status::Sleeping]).await?;
            let at_work: HashSet<_> = at_work.into_iter().map(|info| info.id).collect();
            self.interrupted.retain(|thread| at_work.contains(thread));
        }
        if self.interrupted.is_empty() {
            self.holds.recovered();
            self.hold_while_parked(&parked).await;
        }
        Ok(())
    }

    /// The points at which nothing runs are seen from outside.
    async fn hold_while_parked(&mut self, parked: &[ThreadInfo]) {
        let timer = format!("timer {SETTLE}#");
        for info in parked {
            let sleeps = info.row.detail.as_deref().is_some_and(|d| d.starts_with(&timer));
            let point = match info.row.status {
                Status::Waiting => Point::AwaitingApproval,
                Status::Sleeping if sleeps => Point::Settling,
                _ => continue,
            };
            if self.seen_at.entry(point).or_default().insert(info.id.clone()) {
                self.holds.reach(point, &info.id).await;
            }
        }
    }

    async fn list(&self, statuses: &[Status]) -> Result<Vec<ThreadInfo>, Error> {
        let filter = Filter { statuses: statuses.to_vec(), ..Filter::default() };
        threads(&self.book, &filter).await
    }
}

/// All threads that pass a filter.
///
/// # Errors
/// The journal failed.
pub async fn threads(book: &Deedbook, filter: &Filter) -> Result<Vec<ThreadInfo>, Error> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = book.threads(filter, after.as_ref(), PAGE).await?;
        found.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(found);
        }
    }
}

fn is_harmless(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotFound | ErrorKind::Refused | ErrorKind::Invalid)
}

/// The next line of an input, `None` at its end; waits for ever once it is no longer read.
async fn next_line(input: &mut Option<Lines<BufReader<Stdin>>>) -> Option<String> {
    match input {
        Some(lines) => lines.next_line().await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}
