//! What a book tells of its threads without running any.

use std::sync::Arc;

use deedbook_journal::{
    checkpointer::{Filter, ThreadInfo},
    history::{Call, Doubt, End},
    id::{StoreTime, ThreadId},
    policy::Policy as PolicyKind,
    record::{Header, Kind, Role},
    row::Status,
    value::{self, text},
};

use crate::{
    book::{Deedbook, not_found},
    error::{Error, ErrorKind},
    notice::Watch,
    workflow::Workflow,
};

/// How many threads are listed at once.
const PAGE: usize = 1000;

/// A step that nobody knows of whether it had its effect, and what a person needs to settle it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenDoubt {
    /// The thread.
    pub thread: ThreadId,
    /// The step, as it is shown (`pay#0`) and as [`Deedbook::resolve`] takes it.
    pub step: Arc<str>,
    /// The operation key that was sent downstream: look for it there.
    pub operation_key: Option<Arc<str>>,
    /// The step's policy.
    pub policy: Option<PolicyKind>,
    /// How many attempts were made.
    pub attempts: usize,
    /// Since when: the start of the first attempt that nobody has accounted for.
    pub since: StoreTime,
    /// Why nobody knows.
    pub doubt: Doubt,
    /// For [`Doubt::Unreadable`], the type that the code expects, and what does not fit it.
    pub expected: Option<Arc<str>>,
}

impl OpenDoubt {
    fn of(thread: &ThreadId, call: &Call, doubt: Doubt, expected: Option<&Arc<str>>) -> Self {
        Self {
            thread: thread.clone(),
            step: call.id.to_string().into(),
            operation_key: call.key.clone(),
            policy: call.terms.map(|terms| terms.policy),
            attempts: call.attempts.len(),
            since: call.first_started().unwrap_or(call.opened_time),
            doubt,
            expected: expected.cloned(),
        }
    }

    /// The commands of the tool that settle it, one a line: that it happened, that it did not,
    /// that it has failed. They can be pasted into any POSIX shell, and printed, once the words in
    /// capitals are replaced. In a program, [`Deedbook::resolve`] does the same.
    #[must_use]
    pub fn how_to_settle(&self) -> String {
        let word = |text: &str, other: &str| {
            text::shell_word(text.as_bytes()).unwrap_or_else(|| other.to_owned())
        };
        let (thread, step) = (word(self.thread.as_str(), "THREAD"), word(&self.step, "STEP"));
        let verdicts = ["--happened JSON", "--did-not-happen", "--failed MESSAGE"];
        let commands = verdicts.map(|verdict| {
            format!("deedbook resolve --by YOU {verdict} --reason WHY -- {thread} {step}")
        });
        commands.join("\n")
    }
}

impl Deedbook {
    /// The result of a thread, if it has ended: durable state only. Nothing runs because of it,
    /// and the workflow needs not be hosted here. `None` while the thread goes on.
    ///
    /// # Errors
    /// As [`run`](Self::run) for a thread that failed or was cancelled; [`ErrorKind::NotFound`]
    /// if there is no such thread; [`ErrorKind::Conflict`] if it is one of another workflow.
    ///
    /// ```
    /// # use deedbook::{Context, Deedbook, Result, Workflow};
    /// struct Greet;
    ///
    /// impl Workflow for Greet {
    ///     const NAME: &'static str = "greet";
    ///     type Input = String;
    ///     type Output = String;
    ///
    ///     async fn run(&self, ctx: Context, name: &String) -> Result<String> {
    ///         let greeting: String = ctx.signal("greeting").await?;
    ///         Ok(format!("{greeting}, {name}"))
    ///     }
    /// }
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let book = Deedbook::memory().host(Greet).start().await?;
    /// book.spawn::<Greet>("greeting-1", "Ada".into()).await?;
    /// assert_eq!(book.outcome::<Greet>("greeting-1").await?, None);
    /// book.signal("greeting-1", "greeting", "hello").await?;
    /// book.wait::<Greet>("greeting-1").await?;
    /// assert_eq!(book.outcome::<Greet>("greeting-1").await?.as_deref(), Some("hello, Ada"));
    /// # book.shutdown().await?;
    /// # Ok::<(), deedbook::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn outcome<W: Workflow>(
        &self,
        thread: impl AsRef<str>,
    ) -> Result<Option<W::Output>, Error> {
        let thread = ThreadId::new(thread)?;
        let info = self.info(&thread).await?.ok_or_else(|| not_found(&thread))?;
        if *info.row.workflow != *W::NAME {
            let why = format!(
                "it is a thread of workflow {:?}, not of {:?}; ask for that one",
                info.row.workflow,
                W::NAME
            );
            return Err(Error::new(ErrorKind::Conflict, why).thread(&thread));
        }
        if !info.row.status.is_ended() {
            return Ok(None);
        }
        let end = self.end(&info).await?;
        self.ended::<W>(&thread, end).map(Some)
    }

    /// How a thread has ended. Behind the record of that there are facts at most, and few.
    async fn end(&self, info: &ThreadInfo) -> Result<End, Error> {
        let (store, thread) = (&self.worker.house.store, &info.id);
        let damaged = |why: &str| Error::new(ErrorKind::Damaged, why).thread(thread);
        for n in (0..info.next).rev() {
            let page = store.read(thread, n, 1).await.map_err(|e| Error::from(e).thread(thread))?;
            let (_, record) = page.items.first().ok_or_else(|| damaged("its end is missing"))?;
            let header = Header::parse(&record.header).map_err(|e| damaged(&e.to_string()))?;
            if header.kind != Kind::ThreadEnd {
                continue;
            }
            let limits = &self.worker.house.options.values;
            let error = record.payload(Role::Error);
            return Ok(End {
                status: info.row.status,
                position: n,
                result: record.payload(Role::Result).map(|p| p.bytes.clone()),
                failure: error.and_then(|p| value::decode(&p.bytes, limits).ok()),
            });
        }
        Err(damaged("its end is missing"))
    }

    /// Every open doubt, in the byte order of thread ids: durable state only.
    ///
    /// Threads that a run holds are told of as it last counted; those that nobody holds, as their
    /// records tell, which reads all of them.
    ///
    /// # Errors
    /// The journal failed, or a thread's records cannot be understood.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use deedbook::{Context, Deedbook, Resolution, Result, Retry, StepError, Workflow};
    /// struct Pay;
    ///
    /// impl Workflow for Pay {
    ///     const NAME: &'static str = "pay";
    ///     type Input = u64;
    ///     type Output = String;
    ///
    ///     async fn run(&self, ctx: Context, amount: &u64) -> Result<String> {
    ///         let pay = ctx.step("pay").at_most_once();
    ///         pay.run(amount, async |_| Err(StepError::new("connection reset"))).await
    ///     }
    /// }
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let book = Deedbook::memory().host(Pay).start().await?;
    /// // Nobody knows whether the payment was made.
    /// assert!(book.run::<Pay>("order-1", 4200).await.is_err());
    /// let doubts = book.doubts().await?;
    /// let [doubt] = doubts.as_slice() else { panic!("one doubt is open") };
    /// assert_eq!((doubt.thread.as_str(), &*doubt.step), ("order-1", "pay#0"));
    /// assert!(doubt.how_to_settle().contains("--did-not-happen"));
    ///
    /// // Somebody looks for the operation key at the bank, and finds the payment.
    /// let found = Resolution::happened("r_17")?;
    /// book.resolve("order-1", &doubt.step, found, "user:ada", "seen at the bank").await?;
    /// assert_eq!(book.wait::<Pay>("order-1").await?, "r_17");
    /// assert!(book.doubts().await?.is_empty());
    /// # book.shutdown().await?;
    /// # Ok::<(), deedbook::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn doubts(&self) -> Result<Vec<OpenDoubt>, Error> {
        let store = &self.worker.house.store;
        // Nothing of a thread at rest is in doubt; steps of their own are Deedbook's threads.
        let statuses = Status::ALL.into_iter().filter(|s| !s.is_at_rest()).collect();
        let filter = Filter { statuses, reserved: true, ..Filter::default() };
        let mut doubts = Vec::new();
        let mut after: Option<ThreadId> = None;
        loop {
            let page = store.list(&filter, after.as_ref(), PAGE).await?;
            for info in page.items.iter().filter(|info| may_doubt(info)) {
                let history = self.history(&info.id).await?;
                let now = store.now().await?;
                let open = history.doubts(now);
                doubts.extend(open.map(|(call, doubt)| {
                    OpenDoubt::of(&info.id, call, doubt, history.misread(call))
                }));
            }
            after = page.next;
            if after.is_none() {
                return Ok(doubts);
            }
        }
    }

    /// Tells of threads of this book that begin to wait for a person: for an approval, or for
    /// somebody who settles a doubt. Each is told once it is durable, whatever else the thread
    /// does meanwhile.
    ///
    /// It begins with what comes from now on, and what came while no process ran, or was there
    /// before, is not told: so begin to watch, then list ([`doubts`](Self::doubts), and
    /// [`threads`](Self::threads) with status `Waiting`). What a run was told of may be told
    /// again after a restart.
    ///
    /// ```
    /// # use deedbook::{Context, Deedbook, Noticed, Result, Waits, Workflow};
    /// struct Refund;
    ///
    /// impl Workflow for Refund {
    ///     const NAME: &'static str = "refund";
    ///     type Input = u64;
    ///     type Output = bool;
    ///
    ///     async fn run(&self, ctx: Context, amount: &u64) -> Result<bool> {
    ///         Ok(ctx.approval("refund", amount).await?.granted)
    ///     }
    /// }
    ///
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// let book = Deedbook::memory().host(Refund).start().await?;
    /// let mut watch = book.watch();
    /// book.spawn::<Refund>("order-1", 4200).await?;
    /// let Some(Noticed::Waits(notice)) = watch.next().await else { panic!("it waits") };
    /// assert_eq!(notice.thread.as_str(), "order-1");
    /// assert_eq!(notice.waits, Waits::Approval { request: "refund#0".into() });
    /// // Here an application would tell somebody, who then decides.
    /// book.decide("order-1", "refund#0", true, "user:ada", "looks right").await?;
    /// assert!(book.wait::<Refund>("order-1").await?);
    /// book.shutdown().await?;
    /// assert_eq!(watch.next().await, None);
    /// # Ok::<(), deedbook::Error>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch::new(&self.worker.house.notices)
    }
}

/// Whether there may be a doubt: the row counts one, or nobody was there to count. A run may have
/// died, and the window of a key may have ended since the thread was parked.
fn may_doubt(info: &ThreadInfo) -> bool {
    info.row.open_doubts > 0 || info.holder.is_none()
}
