//! Settings of a book, by name.

use std::{sync::Arc, time::Duration};

use deedbook_journal::limits::ValueLimits;

/// Settings of a book. Set them on the [`Builder`](crate::Builder).
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Limits on every recorded value.
    pub(crate) values: ValueLimits,
    /// How long a shutdown waits for bodies that are under way.
    pub(crate) shutdown_grace: Duration,
    /// How long a cancellation waits for bodies that are under way.
    pub(crate) cancel_grace: Duration,
    /// How long a hold on a thread lasts without being renewed.
    pub(crate) lease: Duration,
    /// How often threads are looked for that became due without this process knowing.
    pub(crate) look_every: Duration,
    /// Most threads that are taken up at once when they are found due.
    pub(crate) loaded_max: usize,
    /// The version of the user's code, recorded with every run.
    pub(crate) build: Option<Arc<str>>,
    /// Who holds threads, for other processes and for people.
    pub(crate) holder: Arc<str>,
    /// How long another process is waited for that has the journal open.
    pub(crate) wait: Duration,
    /// How many outcomes of guarded steps are kept in memory.
    pub(crate) outcomes_kept: usize,
    /// Nothing begins that is not recorded: see [`Builder::replay`](crate::Builder::replay).
    pub(crate) replay_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            values: ValueLimits::new(),
            shutdown_grace: Duration::from_secs(5),
            cancel_grace: Duration::from_secs(30),
            lease: Duration::from_secs(60),
            look_every: Duration::from_secs(1),
            loaded_max: 10_000,
            build: None,
            holder: format!("deedbook:{}", std::process::id()).into(),
            wait: Duration::from_secs(3),
            outcomes_kept: 0,
            replay_only: false,
        }
    }
}
