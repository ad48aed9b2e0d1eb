//! The whole story: a bank, an agent that is killed again and again, a person who answers, and
//! at the end the bank's ledger beside the journal.

mod audit;
mod children;
mod page;
mod person;
mod plan;
mod table;

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deedbook::ThreadId;

use crate::agent::holds::Point;
use crate::agent::note::Note;
use crate::agent::outbox::OutboxError;
use crate::bank::{Mode, ledger::LedgerError};
use crate::judge::RuleJudge;
use crate::requests::{self, Entry, Refund};

use audit::Audit;
use children::{AgentChild, BankChild, Places};
use page::Page;
use person::Person;
use plan::Plan;
use table::Told;

/// The requests that come with the story.
const REFUNDS: &str = include_str!("../refunds.jsonl");
/// How long the agent may say nothing before the story gives up.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How to tell the story.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The requests, one JSON object a line [default: 57 lines that come with the program]
    #[arg(long, value_name = "FILE")]
    pub refunds: Option<PathBuf>,
    /// The journal's file; an existing one goes on where it was, with the bank's ledger beside
    /// it [default: in a new folder among the system's temporary files]
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// What the bank promises, which decides the policy of the step that pays
    #[arg(long, value_enum, default_value = "keys")]
    pub bank_mode: Mode,
    /// How many times the agent is killed
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub kills: usize,
    /// Chooses the instants, the order, and the person's answers
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Tell the story without a kill
    #[arg(long, conflicts_with = "kills")]
    pub no_kill: bool,
    /// Delete the new folder at the end if everything agrees
    #[arg(long, conflicts_with = "journal")]
    pub discard: bool,
    /// The bank executes every Nth refund and then loses its answer
    #[arg(long, value_name = "N")]
    pub lose_reply_every: Option<NonZeroU64>,
    /// The bank answers 503 to every Nth refund, and does nothing
    #[arg(long, value_name = "N")]
    pub fail_every: Option<NonZeroU64>,
    /// The bank breaks its promise and executes every call, so that the check at the end has
    /// something to find
    #[arg(long)]
    pub faithless_bank: bool,
}

/// The story cannot be told to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoryError {
    /// A file or a folder cannot be used.
    #[error("{what} {}: {source}", path.display())]
    File {
        /// What it is for.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A child process cannot be started or spoken to.
    #[error("the {child} process: {source}")]
    Child {
        /// Which.
        child: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A child process ended, or fell silent, when it should not have.
    #[error("the {child} process {what}; its own message stands above")]
    Lost {
        /// Which.
        child: &'static str,
        /// What it did.
        what: String,
    },
    /// The journal cannot be read.
    #[error("journal {}: {source}", path.display())]
    Journal {
        /// Where it is.
        path: PathBuf,
        /// What is wrong.
        source: deedbook::Error,
    },
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The letters cannot be read.
    #[error(transparent)]
    Outbox(#[from] OutboxError),
}

/// A file of requests, read.
struct Read {
    entries: Vec<Entry>,
    refunds: Vec<Refund>,
    needs_person: bool,
}

/// How one life of the agent ended.
enum Life {
    Killed(Point),
    Finished,
}

/// Tells the story on standard output. `false` if ledger and journal disagree.
///
/// Dropping the future kills the children.
///
/// # Errors
/// [`StoryError`] when the story cannot be told to its end.
pub async fn tell(options: Options) -> Result<bool, StoryError> {
    let mut page = Page::new();
    let places = Places::prepare(&options)?;
    let read = read(&places.refunds)?;
    page.title(&options, &places, &read.entries);
    let bank = BankChild::start(&options, &places).await?;
    page.bank(&bank);
    let kills = if options.no_kill { 0 } else { options.kills };
    let plan = Plan::new(kills, options.seed, read.refunds.len(), read.needs_person);
    let mut teller = Teller {
        page,
        person: Person::new(options.seed),
        plan,
        killed: Vec::new(),
        in_doubt: HashSet::new(),
        stopped: BTreeMap::new(),
        options: &options,
        places: &places,
        bank: &bank,
    };
    while let Life::Killed(point) = teller.live().await? {
        teller.killed.push(point);
    }
    let Teller { mut page, killed, plan, stopped, .. } = teller;
    bank.stop().await?;
    let audit = Audit::of(&places, &read.refunds, options.bank_mode).await?;
    let told = Told {
        options: &options,
        places: &places,
        entries: &read.entries,
        audit: &audit,
        killed: &killed,
        spared: plan.left(),
        stopped: &stopped,
    };
    told.show(&mut page);
    let agrees = audit.agrees();
    if options.discard && agrees {
        places.discard()?;
    }
    Ok(agrees)
}

fn read(path: &Path) -> Result<Read, StoryError> {
    let entries = requests::read(path).map_err(|source| StoryError::File {
        what: "requests",
        path: path.to_owned(),
        source,
    })?;
    let judge = RuleJudge::new();
    let (mut refunds, mut needs_person) = (Vec::new(), false);
    for entry in &entries {
        if let Entry::Request(request) = entry {
            needs_person |= judge.decide(&request.refund).needs_human();
            refunds.push(request.refund.clone());
        }
    }
    Ok(Read { entries, refunds, needs_person })
}

/// What a request is called in the journal, if it can have a thread.
fn thread_of(refund: &Refund) -> Option<ThreadId> {
    ThreadId::new(&refund.id).ok()
}

/// Everything that outlives one life of the agent.
struct Teller<'a> {
    page: Page,
    person: Person,
    plan: Plan,
    killed: Vec<Point>,
    /// Threads that are known to be in doubt.
    in_doubt: HashSet<String>,
    /// Requests that were not obeyed, or not to their end, and why.
    stopped: BTreeMap<String, String>,
    options: &'a Options,
    places: &'a Places,
    bank: &'a BankChild,
}

impl Teller<'_> {
    /// Starts an agent, and follows it to its end or to the instant at which it is killed.
    async fn live(&mut self) -> Result<Life, StoryError> {
        let holds = self.plan.arm();
        let mut agent = AgentChild::start(self.options, self.places, self.bank, &holds)?;
        self.page.life(self.killed.len() + 1, agent.pid(), &holds);
        self.person.begin_life();
        let mut answers = tokio::time::interval(Person::ANSWERS_EVERY);
        loop {
            let may_answer = self.person.has_questions() && !self.plan.waits_for_question();
            let noted = tokio::select! {
                biased;
                noted = tokio::time::timeout(SILENCE_MAX, agent.next()) => noted,
                _ = answers.tick(), if may_answer => {
                    if let Some((decision, is_new)) = self.person.answer() {
                        if is_new {
                            self.page.decision(&decision);
                        }
                        agent.tell(&decision).await?;
                    }
                    continue;
                }
            };
            let Ok(noted) = noted else {
                return Err(agent.lost("has said nothing for a minute"));
            };
            match noted? {
                Note::Holding { point, thread } => {
                    self.page.kill(self.killed.len() + 1, agent.pid(), point, &thread);
                    agent.kill().await?;
                    self.plan.reached(point);
                    return Ok(Life::Killed(point));
                }
                Note::Finished => {
                    agent.finish().await?;
                    return Ok(Life::Finished);
                }
                Note::Asked { thread } => {
                    if self.person.ask(&thread) {
                        self.page.asked(&thread);
                    }
                }
                note => {
                    if self.is_news(&note) {
                        self.page.note(&note);
                    }
                }
            }
        }
    }
    /// Whether it was not told by an earlier agent; keeps in mind what stopped and why.
    fn is_news(&mut self, note: &Note) -> bool {
        let Note::Stopped { thread, in_doubt, why } = note else {
            return true;
        };
        if *in_doubt {
            self.in_doubt.insert(thread.clone())
        } else {
            self.stopped.insert(thread.clone(), why.clone()).is_none()
        }
    }
}
