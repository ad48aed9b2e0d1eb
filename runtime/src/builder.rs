//! A book being put together.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use deedbook_journal::limits::ValueLimits;

use crate::{
    book::Deedbook,
    clock::{Clock, SystemClock},
    error::{Error, ErrorKind},
    executor::House,
    guard::Gate,
    home::{Home, Opened},
    notice,
    options::Options,
    process,
    worker::Worker,
    workflow::{Hosted, Workflow},
};

/// A book being put together; see [`Deedbook::open`].
#[must_use = "a book does nothing until it is started"]
pub struct Builder {
    pub(crate) home: Home,
    pub(crate) hosted: HashMap<Arc<str>, Arc<dyn Hosted>>,
    twice: Option<&'static str>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) options: Options,
}

impl Builder {
    pub(crate) fn new(home: Home) -> Self {
        Self {
            home,
            hosted: HashMap::new(),
            twice: None,
            clock: Arc::new(SystemClock),
            options: Options::default(),
        }
    }

    /// Hosts a workflow: its threads run here.
    pub fn host<W: Workflow>(mut self, workflow: W) -> Self {
        if self.hosted.insert(W::NAME.into(), Arc::new(workflow)).is_some() {
            self.twice = Some(W::NAME);
        }
        self
    }

    /// Takes the time from this clock: for tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The version of your code, recorded with every run and shown with a divergence.
    pub fn build(mut self, version: impl Into<Arc<str>>) -> Self {
        self.options.build = Some(version.into());
        self
    }

    /// Who runs this book, recorded with every run (`svc:refunds`).
    pub fn holder(mut self, holder: impl Into<Arc<str>>) -> Self {
        self.options.holder = holder.into();
        self
    }

    /// Limits on every recorded value. Default: depth 64, 16 MiB.
    pub fn value_limits(mut self, limits: ValueLimits) -> Self {
        self.options.values = limits;
        self
    }

    /// How long a shutdown waits for bodies that are under way. Default 5 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.options.shutdown_grace = grace;
        self
    }

    /// How long a cancellation waits for bodies that are under way. Default 30 s.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.options.cancel_grace = grace;
        self
    }

    /// How often threads are looked for that became due without this process knowing. Default
    /// 1 s.
    pub fn look_every(mut self, time: Duration) -> Self {
        self.options.look_every = time;
        self
    }

    /// Keeps so many outcomes of guarded steps in memory, so that a repeat reads nothing. Default
    /// none. Whatever resets a step through this book is noticed; do not keep outcomes where others
    /// reset steps in the same home.
    pub fn outcomes_kept(mut self, count: usize) -> Self {
        self.options.outcomes_kept = count;
        self
    }

    /// How long to wait for another process that has the journal open. Default 3 s: an owner that
    /// the tool has started (`deedbook call`) leaves within that when nobody uses it any more.
    pub fn wait(mut self, time: Duration) -> Self {
        self.options.wait = time;
        self
    }

    /// Starts: opens the home, and resumes everything that was unfinished.
    ///
    /// # Errors
    /// [`ErrorKind::Open`] if the journal cannot be opened, [`ErrorKind::Conflict`] if two
    /// workflows have one name.
    pub async fn start(self) -> Result<Deedbook, Error> {
        self.refuse_twins()?;
        let Opened { store, file } = self.home.open(&*self.clock, self.options.wait).await?;
        let options = Arc::new(self.options);
        // A book that hosts nothing only looks, and leaves the journal as it was.
        let process = if self.hosted.is_empty() {
            None
        } else {
            let mut workflows: Vec<_> = self.hosted.keys().map(|name| &**name).collect();
            workflows.sort_unstable();
            Some(process::start(&store, &options, workflows).await?)
        };
        let notices = notice::channel();
        let (home, clock) = (store.clone(), self.clock.clone());
        let gate = Gate::new(home, clock, options.clone(), notices.clone());
        let house = House { store, clock: self.clock, options, process, notices, gate };
        let worker = Worker::new(house, self.hosted);
        worker.start().await?;
        Ok(Deedbook::new(worker, file))
    }

    pub(crate) fn refuse_twins(&self) -> Result<(), Error> {
        let Some(name) = self.twice else { return Ok(()) };
        let why = format!("two workflows named {name:?} are hosted; give one another NAME");
        Err(Error::new(ErrorKind::Conflict, why))
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("home", &self.home).finish_non_exhaustive()
    }
}
