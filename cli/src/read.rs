//! Reading a journal, for every command.

use std::{
    collections::{HashMap, VecDeque},
    fs::File,
    io::{self, Read},
};

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, LogEntry, StoreError, ThreadInfo, thread_info},
    id::{LogIndex, Position, ThreadId},
    limits::ValueLimits,
    operator::Found,
    record::{Header, Record},
    value::view,
};

use crate::{failure::Failure, text::safe};

/// How many bytes of records are read at once.
const READ_BYTES: usize = 4 * 1024 * 1024;
/// How many bytes of a thread are read ahead while the log is followed.
const AHEAD_BYTES: usize = 256 * 1024;
/// Beyond how many bytes what was read ahead is let go, of all threads together.
const AHEAD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How many threads are listed at once.
const LIST_MAX: usize = 1000;
/// How many places of the log are read at once.
const LOG_MAX: usize = 4096;

/// Any thread id, Deedbook's own included.
pub(crate) fn thread_id(text: &str) -> Result<ThreadId, Failure> {
    ThreadId::any(text).map_err(|e| Failure::usage(safe(&e.to_string())))
}

/// Says which thread there is none of.
pub(crate) fn about(thread: &ThreadId, error: impl Into<Failure>) -> Failure {
    let none = StoreError::NoSuchThread.to_string();
    match error.into() {
        Failure::Said { message, .. } if message == none => Failure::new(format!(
            "there is no thread {}; `deedbook threads` lists them",
            safe(thread.as_str())
        )),
        // A record that is named together with its thread already.
        Failure::Said { code, message }
            if message.starts_with("record ") && message.contains(" of thread ") =>
        {
            Failure::of(code, message)
        }
        other => other.about(&format!("thread {}", safe(thread.as_str()))),
    }
}

/// What a thread's records add up to.
pub(crate) async fn found(home: &dyn Checkpointer, thread: &ThreadId) -> Result<Found, Failure> {
    let found = Found::load(home, thread).await;
    found.map_err(|e| about(thread, e))
}

/// A thread as listed.
pub(crate) async fn info(
    home: &dyn Checkpointer,
    thread: &ThreadId,
) -> Result<ThreadInfo, Failure> {
    let info = thread_info(home, thread).await?;
    info.ok_or_else(|| about(thread, StoreError::NoSuchThread))
}

/// All threads that pass, page by page.
pub(crate) struct List<'a> {
    home: &'a dyn Checkpointer,
    filter: Filter,
    after: Option<ThreadId>,
    page: VecDeque<ThreadInfo>,
    over: bool,
}

impl<'a> List<'a> {
    pub(crate) fn new(home: &'a dyn Checkpointer, filter: Filter) -> Self {
        Self { home, filter, after: None, page: VecDeque::new(), over: false }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<ThreadInfo>, Failure> {
        while self.page.is_empty() && !self.over {
            let after = self.after.as_ref();
            let page = self.home.list(&self.filter, after, LIST_MAX).await?;
            self.over = page.next.is_none();
            self.after = page.next;
            self.page = page.items.into();
        }
        Ok(self.page.pop_front())
    }
}

/// The records of one thread, page by page.
pub(crate) struct Records<'a> {
    home: &'a dyn Checkpointer,
    thread: ThreadId,
    next: Option<Position>,
    page: VecDeque<(Position, Record)>,
}

impl<'a> Records<'a> {
    pub(crate) fn new(home: &'a dyn Checkpointer, thread: ThreadId) -> Self {
        Self::from(home, thread, 0)
    }

    /// Those from this one on.
    pub(crate) fn from(home: &'a dyn Checkpointer, thread: ThreadId, from: Position) -> Self {
        Self { home, thread, next: Some(from), page: VecDeque::new() }
    }

    pub(crate) async fn next(&mut self) -> Result<Option<(Position, Record)>, StoreError> {
        while let (true, Some(from)) = (self.page.is_empty(), self.next) {
            let page = self.home.read(&self.thread, from, READ_BYTES).await?;
            self.next = page.next;
            self.page = page.items.into();
        }
        Ok(self.page.pop_front())
    }
}

/// One record, by its position.
pub(crate) async fn record(
    home: &dyn Checkpointer,
    thread: &ThreadId,
    n: Position,
) -> Result<Record, Failure> {
    let page = home.read(thread, n, 0).await.map_err(|e| about(thread, e))?;
    let first = page.items.into_iter().next().map(|(_, record)| record);
    first.ok_or_else(|| about(thread, Failure::new(format!("there is no record {n}"))))
}

/// The journal in the order of its log, with the records.
pub(crate) struct Log<'a> {
    home: &'a dyn Checkpointer,
    next: Option<LogIndex>,
    page: VecDeque<LogEntry>,
    ahead: HashMap<ThreadId, VecDeque<(Position, Record)>>,
    ahead_bytes: usize,
}

impl<'a> Log<'a> {
    pub(crate) fn new(home: &'a dyn Checkpointer) -> Self {
        Self { home, next: Some(0), page: VecDeque::new(), ahead: HashMap::new(), ahead_bytes: 0 }
    }

    /// Reads on from this place: others may have written behind what was the end.
    pub(crate) fn go_on(&mut self, from: LogIndex) {
        self.next = Some(from);
        // What was read ahead may have been erased since.
        self.ahead.clear();
        self.ahead_bytes = 0;
    }

    /// The next place of the log, and the record that stands there, or why it cannot be read.
    pub(crate) async fn next(
        &mut self,
    ) -> Result<Option<(LogEntry, Result<Record, StoreError>)>, StoreError> {
        while let (true, Some(from)) = (self.page.is_empty(), self.next) {
            let page = self.home.log(from, LOG_MAX).await?;
            self.next = page.next;
            self.page = page.items.into();
        }
        let Some(entry) = self.page.pop_front() else {
            return Ok(None);
        };
        let record = self.record(&entry).await;
        Ok(Some((entry, record)))
    }

    async fn record(&mut self, entry: &LogEntry) -> Result<Record, StoreError> {
        if let Some(ahead) = self.ahead.get_mut(&entry.thread)
            && let Some((n, record)) = ahead.pop_front()
        {
            self.ahead_bytes = self.ahead_bytes.saturating_sub(record.size());
            if n == entry.n {
                return Ok(record);
            }
            let rest: usize = ahead.drain(..).map(|(_, r)| r.size()).sum();
            self.ahead_bytes = self.ahead_bytes.saturating_sub(rest);
        }
        let page = match self.home.read(&entry.thread, entry.n, AHEAD_BYTES).await {
            // What is read ahead may be damaged where this record is not.
            Err(StoreError::Damaged { n, .. }) if n != entry.n => {
                self.home.read(&entry.thread, entry.n, 0).await?
            }
            page => page?,
        };
        let mut items: VecDeque<_> = page.items.into();
        let (_, record) = items.pop_front().ok_or_else(|| StoreError::Damaged {
            thread: entry.thread.clone(),
            n: entry.n,
            why: "the log has it, and the thread does not".into(),
        })?;
        if self.ahead_bytes > AHEAD_BYTES_MAX {
            self.ahead.clear();
            self.ahead_bytes = 0;
        }
        self.ahead_bytes += items.iter().map(|(_, r)| r.size()).sum::<usize>();
        // Most threads are short: what is used up is not kept.
        if items.is_empty() {
            self.ahead.remove(&entry.thread);
        } else {
            self.ahead.insert(entry.thread.clone(), items);
        }
        Ok(record)
    }
}

/// The header of a stored record, which the home has verified.
pub(crate) fn header(record: &Record) -> Result<Header, Failure> {
    Header::parse(&record.header).map_err(|e| Failure::new(safe(&e.to_string())))
}

/// A value from the command line as MessagePack: JSON, `@` and a file's name, or `-`.
pub(crate) fn value(text: &str) -> Result<Vec<u8>, Failure> {
    let limits = ValueLimits::new();
    let read;
    let (json, from) = match text.strip_prefix('@') {
        Some(path) => {
            let file = File::open(path);
            let file =
                file.map_err(|e| Failure::new(format!("cannot open {}: {e}", safe(path))))?;
            read = whole(file, &limits).map_err(|e| e.about(&safe(path)))?;
            (read.as_str(), safe(path))
        }
        None if text == "-" => {
            read = whole(io::stdin().lock(), &limits).map_err(|e| e.about("standard input"))?;
            (read.as_str(), "standard input".to_owned())
        }
        None => (text, "the value".to_owned()),
    };
    view::from_json(json, &limits).map_err(|e| {
        let text = json.trim_start().starts_with(|c: char| c.is_alphabetic());
        let hint = if text { r#"; text is written with quotes: '"text"'"# } else { "" };
        Failure::new(format!("{}{hint}", safe(&e.of(&format!("{from} cannot be taken")))))
    })
}

fn whole(from: impl Read, limits: &ValueLimits) -> Result<String, Failure> {
    // JSON is at most a few times as long as the value that it stands for.
    let most = limits.bytes_max.saturating_mul(8);
    let mut text = String::new();
    let mut from = from.take(u64::try_from(most).unwrap_or(u64::MAX));
    from.read_to_string(&mut text).map_err(|e| Failure::new(format!("cannot be read: {e}")))?;
    if text.len() == most {
        return Err(Failure::new(format!("it has more than {most} bytes")));
    }
    Ok(text)
}
