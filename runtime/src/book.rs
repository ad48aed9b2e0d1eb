//! The book: what callers hold.

use std::{fmt, sync::Arc};

use deedbook_journal::{
    admit::is_due,
    checkpointer::{Checkpointer, Filter, Message, Page, Posted, ThreadInfo, thread_info},
    failure::Failure,
    guard, hex,
    history::{CallKind, End, History},
    id::ThreadId,
    limits::ValueLimits,
    message::{self, Cancel, Decide, Resolve, Verdict},
    record::{Header, Role},
    row::Status,
    value,
};
use serde::Serialize;

use crate::{
    builder::Builder,
    error::{Error, ErrorKind},
    executor::Begin,
    home::{Backup, File, Home, Progress},
    process,
    random::message_id,
    worker::{Settled, Worker},
    workflow::Workflow,
};

/// A journal at work: it runs threads, resumes them, and answers for them.
///
/// Cheap to clone. Dropping the last clone without [`shutdown`](Self::shutdown) equals a crash:
/// nothing acknowledged is lost, and what was running is resumed at the next start.
#[derive(Clone)]
pub struct Deedbook {
    pub(crate) worker: Arc<Worker>,
    /// Where it lives, if that is a file.
    pub(crate) file: Option<File>,
    _last: Arc<LastClone>,
}

/// Lets go of everything when the last clone of a book is dropped.
struct LastClone(Arc<Worker>);

impl Drop for LastClone {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

impl Deedbook {
    pub(crate) fn new(worker: Arc<Worker>, file: Option<File>) -> Self {
        Self { _last: Arc::new(LastClone(worker.clone())), worker, file }
    }

    /// Opens the journal in this file; it must exist.
    pub fn open(path: impl AsRef<std::path::Path>) -> Builder {
        Builder::new(Home::Open(path.as_ref().into()))
    }

    /// Creates a journal in this file; nothing may exist under that name.
    pub fn create(path: impl AsRef<std::path::Path>) -> Builder {
        Builder::new(Home::Create(path.as_ref().into()))
    }

    /// Opens the journal in this file, and creates it if there is no file.
    ///
    /// In production prefer [`open`](Self::open): a journal that has disappeared should stop the
    /// program, not begin an empty one.
    pub fn open_or_create(path: impl AsRef<std::path::Path>) -> Builder {
        Builder::new(Home::OpenOrCreate(path.as_ref().into()))
    }

    /// Keeps threads in memory: for tests and for trying things out.
    pub fn memory() -> Builder {
        Builder::new(Home::Memory)
    }

    /// Keeps threads in any home.
    pub fn on(checkpointer: Arc<dyn Checkpointer>) -> Builder {
        Builder::new(Home::Given(checkpointer))
    }

    /// Runs a thread to its end: begins it if there is none of this id, and else joins the one
    /// there is, so that calling it again after a crash, or twice at once, is safe.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`] if the workflow failed, [`ErrorKind::Cancelled`], and
    /// [`ErrorKind::InDoubt`], [`ErrorKind::Diverged`] or [`ErrorKind::Stalled`] when the thread
    /// cannot go on by itself. [`ErrorKind::Conflict`] if the id is taken by another workflow or
    /// another input.
    ///
    /// **Cancel safety.** Dropping the future does not stop the thread.
    pub async fn run<W: Workflow>(
        &self,
        thread: impl AsRef<str>,
        input: W::Input,
    ) -> Result<W::Output, Error> {
        let thread = ThreadId::new(thread)?;
        let settled = self.begin::<W>(&thread, &input).await?;
        self.output::<W>(&thread, settled.await).await
    }

    /// Begins a thread and returns once it is durable, without waiting for its end. Joins the
    /// thread of this id if there is one.
    ///
    /// # Errors
    /// As [`run`](Self::run), for what can go wrong before the end.
    pub async fn spawn<W: Workflow>(
        &self,
        thread: impl AsRef<str>,
        input: W::Input,
    ) -> Result<(), Error> {
        let thread = ThreadId::new(thread)?;
        let settled = self.begin::<W>(&thread, &input).await?;
        self.worker.durable(&thread).await;
        if self.info(&thread).await?.is_some() {
            return Ok(());
        }
        // It came to nothing before its first record: whoever settled it says why.
        match settled.await {
            Ok(Err(error)) => Err(error),
            _ => Err(Error::new(ErrorKind::Closed, "the book is gone").thread(&thread)),
        }
    }

    /// Waits for the end of a thread.
    ///
    /// # Errors
    /// As [`run`](Self::run); [`ErrorKind::NotFound`] if there is no such thread.
    ///
    /// **Cancel safety.** Dropping the future does not stop the thread.
    pub async fn wait<W: Workflow>(&self, thread: impl AsRef<str>) -> Result<W::Output, Error> {
        let thread = ThreadId::new(thread)?;
        let settled = self.worker.watch(&thread);
        let info = self.info(&thread).await?.ok_or_else(|| not_found(&thread))?;
        // A parked thread settles by itself, unless something was said to it, or came due, that
        // nobody has noticed yet; one that stopped or ended is asked again.
        let parked = matches!(info.row.status, Status::Waiting | Status::Sleeping);
        let now = self.worker.house.store.now().await?;
        if !parked || is_due(&info.row, info.inbox, now) {
            self.worker.reach(&thread, None);
        }
        self.output::<W>(&thread, settled.await).await
    }

    /// The thread as listed: durable state only. `None` if there is none. What a thread waits for
    /// is told by [`Row::waits_for`](crate::Row::waits_for).
    ///
    /// # Errors
    /// The journal failed.
    pub async fn status(&self, thread: impl AsRef<str>) -> Result<Option<ThreadInfo>, Error> {
        let thread = ThreadId::new(thread)?;
        self.info(&thread).await
    }

    /// Threads in the byte order of their ids: durable state only.
    ///
    /// # Errors
    /// The journal failed.
    pub async fn threads(
        &self,
        filter: &Filter,
        after: Option<&ThreadId>,
        max: usize,
    ) -> Result<Page<ThreadInfo, ThreadId>, Error> {
        Ok(self.worker.house.store.list(filter, after, max).await?)
    }

    /// Sends a value to a thread, under a name. It may come before the thread waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such thread, [`ErrorKind::Refused`] if it has ended,
    /// [`ErrorKind::Invalid`] if the value cannot be recorded.
    pub async fn signal<T: Serialize + ?Sized>(
        &self,
        thread: impl AsRef<str>,
        name: &str,
        value: &T,
    ) -> Result<(), Error> {
        let thread = ThreadId::new(thread)?;
        let body = value::encode(value, &self.worker.house.options.values)?;
        self.say(&thread, message::SIGNAL, name, "program", body).await
    }

    /// Grants or denies an approval request, bound to what it shows. `request` is the request's
    /// id as shown (`refund#0`).
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such thread or request, [`ErrorKind::Refused`] if it
    /// is decided already.
    pub async fn decide(
        &self,
        thread: impl AsRef<str>,
        request: &str,
        granted: bool,
        by: &str,
        reason: &str,
    ) -> Result<(), Error> {
        let thread = ThreadId::new(thread)?;
        let history = self.history(&thread).await?;
        let call = history.find(CallKind::Approval, request).ok_or_else(|| {
            let open = requests(&history);
            let why = format!("there is no approval request {request:?}; {open}");
            Error::new(ErrorKind::NotFound, why).thread(&thread)
        })?;
        if call.outcome.is_some() {
            let why = format!("approval request {request} is already decided");
            return Err(Error::new(ErrorKind::Refused, why).thread(&thread));
        }
        let shown = call.shown.map(|c| hex::encode(&c)).unwrap_or_default();
        let body = Decide { granted, reason: reason.to_owned(), shown };
        self.say_value(&thread, message::DECIDE, request, by, &body).await
    }

    /// Settles a doubt, as a person who found out what happened. As long as the workflow has not
    /// been given what was said, it can be said otherwise: the later word holds, and both are
    /// recorded.
    ///
    /// A result that is no value of the step's type leaves the step in doubt: the thread's
    /// status, and the error of those who wait for it, name the type.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such thread or step, [`ErrorKind::Refused`] if the
    /// step is not in doubt.
    pub async fn resolve(
        &self,
        thread: impl AsRef<str>,
        step: &str,
        resolution: Resolution,
        by: &str,
        reason: &str,
    ) -> Result<(), Error> {
        let thread = ThreadId::any(thread)?;
        if thread.as_str().starts_with(guard::THREAD_PREFIX) {
            return self.resolve_guarded(&thread, step, resolution, by, reason).await;
        }
        let mut history = self.history(&thread).await?;
        let opened = history.find(CallKind::Step, step).map(|call| call.opened);
        if let Some(opened) = opened.filter(|opened| self.worker.was_given(&thread, *opened)) {
            history.set_given(opened);
        }
        let now = self.worker.house.store.now().await?;
        let body = Resolve { verdict: resolution.0, reason: reason.to_owned() };
        let body = value::encode(&body, &self.worker.house.options.values)?;
        let said = self.message(message::RESOLVE, step, by, body);
        let draft = message::admit(&history, &said, now);
        if draft.header.kind == deedbook_journal::record::Kind::MessageRefused {
            let why = draft.header.why.as_deref().unwrap_or("refused").to_owned();
            let missing = history.find(CallKind::Step, step).is_none();
            let kind = if missing { ErrorKind::NotFound } else { ErrorKind::Refused };
            return Err(Error::new(kind, why).thread(&thread));
        }
        self.post(&thread, said).await
    }

    /// Cancels a thread: nothing new begins, bodies under way may come to their end for a while,
    /// and the thread ends as cancelled once no doubt is open.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such thread, [`ErrorKind::Refused`] if it has ended.
    pub async fn cancel(
        &self,
        thread: impl AsRef<str>,
        by: &str,
        reason: &str,
    ) -> Result<(), Error> {
        let thread = ThreadId::new(thread)?;
        let body = Cancel { reason: reason.to_owned() };
        self.say_value(&thread, message::CANCEL, "", by, &body).await
    }

    /// The home of the threads.
    #[must_use]
    pub fn checkpointer(&self) -> &Arc<dyn Checkpointer> {
        &self.worker.house.store
    }

    /// Copies the journal into a new file while threads run: everything that was durable before
    /// this call, and some of what comes meanwhile. The copy is one file, complete, verified
    /// before it gets its name, and a journal of its own, with the same operation keys.
    ///
    /// `watch` is told how far it has come. Threads run on meanwhile.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the book lives in no file, or the copy could not be made; nothing
    /// is left of it then. [`ErrorKind::Journal`] if the journal could not be read.
    ///
    /// **Cancel safety.** Dropped, it gives up and leaves nothing behind.
    ///
    /// ```
    /// use deedbook::Deedbook;
    /// # let folder = std::env::temp_dir().join(format!("deedbook-book-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// let book = Deedbook::create(folder.join("refunds.redb")).start().await?;
    /// let made = book.backup(folder.join("copy.redb"), |_| {}).await?;
    /// assert!(made.path.exists());
    /// # book.shutdown().await?;
    /// # Ok::<(), deedbook::Error>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn backup(
        &self,
        to: impl AsRef<std::path::Path>,
        watch: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Backup, Error> {
        let Some(file) = &self.file else {
            let why =
                "this book lives in no file of its own; back up its home as that is backed up";
            return Err(Error::new(ErrorKind::Refused, why));
        };
        file.backup(to.as_ref(), watch).await
    }

    /// Stops: takes no thread up any more, lets bodies come to their end for a while, parks
    /// everything, and closes the journal.
    ///
    /// # Errors
    /// The journal could not be closed cleanly; it is recovered at the next start.
    pub async fn shutdown(&self) -> Result<(), Error> {
        self.worker.shut_down().await;
        let house = &self.worker.house;
        if let Some(start) = house.process {
            process::end(&house.store, &house.options, start).await?;
        }
        Ok(house.store.close().await?)
    }

    async fn begin<W: Workflow>(
        &self,
        thread: &ThreadId,
        input: &W::Input,
    ) -> Result<tokio::sync::oneshot::Receiver<Settled>, Error> {
        if !self.worker.hosts(W::NAME) {
            let why =
                format!("workflow {:?} is not hosted here; host it with `.host(..)`", W::NAME);
            return Err(Error::new(ErrorKind::NotFound, why));
        }
        let (input, _) = value::encode_exact(input, &self.worker.house.options.values)?;
        let begin = Begin { workflow: W::NAME.into(), input: input.into() };
        let settled = self.worker.watch(thread);
        if let Some(there) = self.begun(thread).await? {
            same_thread(thread, &there, &begin)?;
        }
        self.worker.reach(thread, Some(begin));
        Ok(settled)
    }

    /// What the thread was begun with, if there is one.
    async fn begun(&self, thread: &ThreadId) -> Result<Option<Begin>, Error> {
        if let Some(begin) = self.worker.begun(thread) {
            return Ok(Some(begin));
        }
        let read = self.worker.house.store.read(thread, 0, 1).await;
        let page = match read {
            Ok(page) => page,
            Err(deedbook_journal::checkpointer::StoreError::NoSuchThread) => return Ok(None),
            Err(error) => return Err(Error::from(error).thread(thread)),
        };
        let Some((_, record)) = page.items.first() else {
            return Ok(None);
        };
        let header = Header::parse(&record.header)
            .map_err(|e| Error::new(ErrorKind::Damaged, e.to_string()).thread(thread))?;
        let input = record.payload(Role::Input).map(|p| p.bytes.clone());
        let workflow = header.workflow.unwrap_or_else(|| "".into());
        Ok(input.map(|input| Begin { workflow, input }))
    }

    pub(crate) async fn info(&self, thread: &ThreadId) -> Result<Option<ThreadInfo>, Error> {
        Ok(thread_info(&*self.worker.house.store, thread).await?)
    }

    pub(crate) async fn history(&self, thread: &ThreadId) -> Result<History, Error> {
        let store = &self.worker.house.store;
        let mut history = History::new(thread.clone(), store.identity().secret);
        // What is under way in the run that holds the thread is not in doubt; what earlier runs
        // left open is.
        let info = self.info(thread).await?;
        let held = info.as_ref().filter(|i| i.holder.is_some());
        let held = held.map(|i| i.epoch);
        let mut from = Some(0);
        while let Some(n) = from {
            let page =
                store.read(thread, n, 4 << 20).await.map_err(|e| Error::from(e).thread(thread))?;
            for (_, record) in &page.items {
                let damaged = |why: String| Error::new(ErrorKind::Damaged, why).thread(thread);
                let header = Header::parse(&record.header).map_err(|e| damaged(e.to_string()))?;
                history.apply(&header, &record.payloads).map_err(|e| damaged(e.to_string()))?;
                if held.is_none_or(|epoch| header.epoch < epoch) {
                    history.loaded();
                }
            }
            from = page.next;
        }
        if let Some(info) = info {
            history.believe(&info.row, store.now().await?);
        }
        Ok(history)
    }

    async fn say_value<T: Serialize>(
        &self,
        thread: &ThreadId,
        kind: u8,
        name: &str,
        by: &str,
        body: &T,
    ) -> Result<(), Error> {
        let body = value::encode(body, &ValueLimits::new())?;
        self.say(thread, kind, name, by, body).await
    }

    async fn say(
        &self,
        thread: &ThreadId,
        kind: u8,
        name: &str,
        by: &str,
        body: Vec<u8>,
    ) -> Result<(), Error> {
        let message = self.message(kind, name, by, body);
        self.post(thread, message).await
    }

    fn message(&self, kind: u8, name: &str, by: &str, body: Vec<u8>) -> Message {
        Message { id: message_id(), kind, name: name.into(), by: by.into(), body: body.into() }
    }

    async fn post(&self, thread: &ThreadId, message: Message) -> Result<(), Error> {
        let posted = self.worker.house.store.post(thread, message).await;
        match posted.map_err(|e| Error::from(e).thread(thread))? {
            Posted::Stored | Posted::AlreadyThere => {}
            Posted::NoSuchThread => return Err(not_found(thread)),
            Posted::ThreadEnded => {
                let why = "it has ended, and takes no messages any more";
                return Err(Error::new(ErrorKind::Refused, why).thread(thread));
            }
        }
        self.worker.reach(thread, None);
        Ok(())
    }

    async fn output<W: Workflow>(
        &self,
        thread: &ThreadId,
        settled: Result<Settled, tokio::sync::oneshot::error::RecvError>,
    ) -> Result<W::Output, Error> {
        let closed = |_| Error::new(ErrorKind::Closed, "the book is gone").thread(thread);
        self.ended::<W>(thread, settled.map_err(closed)??)
    }

    /// The result of a thread that has ended.
    pub(crate) fn ended<W: Workflow>(
        &self,
        thread: &ThreadId,
        end: End,
    ) -> Result<W::Output, Error> {
        match end.status {
            Status::Done => {
                let erased =
                    || Error::new(ErrorKind::Damaged, "the result was erased").thread(thread);
                let result = end.result.ok_or_else(erased)?;
                value::decode(&result, &self.worker.house.options.values)
                    .map_err(|e| Error::from(e).thread(thread))
            }
            Status::Cancelled => {
                Err(Error::new(ErrorKind::Cancelled, "it was cancelled").thread(thread))
            }
            _ => {
                let failure = end.failure.unwrap_or_else(|| Failure::new("the workflow failed"));
                let error = Error::new(ErrorKind::Failed, failure.to_string()).thread(thread);
                Err(error.with_failure(failure))
            }
        }
    }
}

impl fmt::Debug for Deedbook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deedbook").field("home", &self.worker.house.store).finish_non_exhaustive()
    }
}

/// What a person found out about a step in doubt.
#[derive(Debug, Clone)]
pub struct Resolution(pub(crate) Verdict);

impl Resolution {
    /// The effect happened, with this result.
    ///
    /// # Errors
    /// The result cannot be recorded.
    pub fn happened<T: Serialize + ?Sized>(result: &T) -> Result<Self, Error> {
        let bytes = value::encode(result, &ValueLimits::new())?;
        Ok(Self(Verdict::Happened(message::Bytes(bytes))))
    }

    /// The effect did not happen: the step runs again under the same key.
    #[must_use]
    pub fn did_not_happen() -> Self {
        Self(Verdict::DidNotHappen)
    }

    /// The step has failed for good.
    #[must_use]
    pub fn failed(message: &str) -> Self {
        Self(Verdict::Failed(Failure::new(message)))
    }
}

fn same_thread(thread: &ThreadId, there: &Begin, begin: &Begin) -> Result<(), Error> {
    if there.workflow != begin.workflow {
        let why = format!(
            "it exists as a thread of workflow {:?}; choose another id for {:?}",
            there.workflow, begin.workflow
        );
        return Err(Error::new(ErrorKind::Conflict, why).thread(thread));
    }
    let differences = value::diff(&there.input, &begin.input, &[]);
    if differences.is_empty() {
        return Ok(());
    }
    let fields: Vec<_> = differences.iter().map(ToString::to_string).collect();
    let why = format!(
        "it exists with another input: {}; choose another id, or give the recorded input",
        fields.join(", ")
    );
    Err(Error::new(ErrorKind::Conflict, why).thread(thread))
}

fn requests(history: &History) -> String {
    let open: Vec<_> = history
        .calls()
        .iter()
        .filter(|c| c.kind == CallKind::Approval && c.outcome.is_none())
        .map(|c| c.id.to_string())
        .collect();
    match open.as_slice() {
        [] => "no request is open".to_owned(),
        open => format!("open are {}", open.join(", ")),
    }
}

pub(crate) fn not_found(thread: &ThreadId) -> Error {
    Error::new(ErrorKind::NotFound, "there is no such thread").thread(thread)
}
