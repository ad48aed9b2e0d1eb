//! Where measured threads run: a book on a counted file, in an async runtime of its own.

use std::{path::Path, sync::Arc};

use deedbook::{Checkpointer, Deedbook, ThreadInfo};
use deedbook_journal::embedded::{CommitBy, CreateOptions, Embedded, OpenOptions};
use tokio::runtime::Runtime;

use crate::{
    Result,
    disk::{CountingDisk, Counts},
    store::CountingStore,
    watch::pause,
    work::{Plan, Work},
};

/// A book at work. Dropping it is a crash: its runtime, and with it every task of the book, is
/// gone at once, and nothing is written any more.
#[derive(Debug)]
pub struct Stage {
    // Dropped first: what it runs holds the rest.
    runtime: Runtime,
    book: Deedbook,
    /// What went through the disk.
    pub disk: Arc<Counts>,
    /// What was asked of the home.
    pub store: Arc<CountingStore>,
    /// The workflow.
    pub work: Work,
}

/// Threads on their way.
pub type Running = tokio::task::JoinSet<std::result::Result<(), deedbook::Error>>;

/// An async runtime as a program would make it.
///
/// # Errors
/// The system gives no threads.
pub fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_time().build()?)
}

/// An async runtime that is the thread which waits for something in it.
///
/// # Errors
/// The system gives no timer.
pub fn runtime_alone() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_time().build()?)
}

impl Stage {
    /// A book on a new journal at `path`.
    ///
    /// # Errors
    /// The journal cannot be made.
    pub fn create(path: &Path, disk: &CountingDisk, work: Work) -> Result<Self> {
        Self::create_with(path, disk, work, OpenOptions::new())
    }

    /// The same with these options.
    ///
    /// # Errors
    /// The journal cannot be made.
    pub fn create_with(
        path: &Path,
        disk: &CountingDisk,
        work: Work,
        options: OpenOptions,
    ) -> Result<Self> {
        let open = options.disk(Arc::new(disk.clone()));
        let home = Embedded::create(path, CreateOptions::new().open(open))?;
        Self::on(Arc::new(home), disk, work)
    }

    /// A book on a new journal, in an async runtime that is the calling thread, which also commits.
    ///
    /// # Errors
    /// The journal cannot be made.
    pub fn alone(path: &Path, disk: &CountingDisk, work: Work) -> Result<Self> {
        let open = OpenOptions::new().commit_by(CommitBy::Caller).disk(Arc::new(disk.clone()));
        let home = Embedded::create(path, CreateOptions::new().open(open))?;
        Self::within(runtime_alone()?, CountingStore::new(Arc::new(home)), disk, work)
    }

    /// A book on a home that is open already.
    ///
    /// # Errors
    /// The book cannot be started.
    pub fn on(home: Arc<dyn Checkpointer>, disk: &CountingDisk, work: Work) -> Result<Self> {
        Self::within(runtime()?, CountingStore::new(home), disk, work)
    }

    /// A book in this async runtime.
    ///
    /// # Errors
    /// The book cannot be started.
    pub fn within(
        runtime: Runtime,
        store: Arc<CountingStore>,
        disk: &CountingDisk,
        work: Work,
    ) -> Result<Self> {
        let book = Deedbook::on(store.clone()).host(work.clone());
        let book = runtime.block_on(book.start())?;
        Ok(Self { runtime, book, disk: disk.counts(), store, work })
    }

    /// Runs these threads at once, and waits for the end of all.
    ///
    /// # Errors
    /// One of them failed.
    pub fn run_all(&self, threads: impl IntoIterator<Item = (String, Plan)>) -> Result<()> {
        let mut running = self.set_off(threads);
        self.runtime.block_on(async {
            while let Some(done) = running.join_next().await {
                done??;
            }
            Ok(())
        })
    }

    /// Runs these threads at once, and does not wait.
    pub fn set_off(&self, threads: impl IntoIterator<Item = (String, Plan)>) -> Running {
        let mut set = Running::new();
        for (thread, plan) in threads {
            let book = self.book.clone();
            let run = async move { book.run::<Work>(thread, plan).await };
            set.spawn_on(run, self.runtime.handle());
        }
        set
    }

    /// Begins these threads, and waits until each is stored as `there` wants it.
    ///
    /// # Errors
    /// One of them failed.
    pub fn begin_all(
        &self,
        threads: impl IntoIterator<Item = (String, Plan)>,
        there: impl Fn(&ThreadInfo) -> bool,
    ) -> Result<()> {
        self.runtime.block_on(async {
            let mut begun = Vec::new();
            for (thread, plan) in threads {
                self.book.spawn::<Work>(&thread, plan).await?;
                begun.push(thread);
            }
            for thread in begun {
                loop {
                    let info = self.book.status(&thread).await?;
                    if info.is_some_and(|info| there(&info)) {
                        break;
                    }
                    pause().await;
                }
            }
            Ok(())
        })
    }

    /// The book.
    pub fn book(&self) -> &Deedbook {
        &self.book
    }

    /// Waits for something that is to be waited for in the runtime of the book.
    pub fn wait<F: Future>(&self, what: F) -> F::Output {
        self.runtime.block_on(what)
    }

    /// Closes the journal.
    ///
    /// # Errors
    /// It cannot be closed cleanly.
    pub fn close(self) -> Result<()> {
        Ok(self.runtime.block_on(self.book.shutdown())?)
    }

    /// Ends without closing anything, as a killed process does.
    pub fn crash(self) {
        drop(self);
    }
}
