//! Examining a journal beside those who write to it.

use std::sync::Arc;

use redb::{ReadTransaction, ReadableDatabase, ReadableTableMetadata};
use tokio::sync::oneshot;

use super::{Examination, Verdict, of_anchor, of_file, of_log, of_records, say_space};
use crate::{
    checkpointer::StoreError,
    embedded::{
        Embedded, check,
        core::{Core, guarded},
        progress::{Progress, Watch},
        spawn,
    },
    limits::{EMBEDDED_DAMAGE_TOLD_MAX, EMBEDDED_SPACE_LOOK_BYTES_MAX},
};

impl Embedded {
    /// Says how it stands with this journal while it is open and written to: the findings of
    /// [`Embedded::examine`] in the same order, and nothing is changed. Everything that was
    /// acknowledged before this call is read, as the journal itself reads it: what is in its log
    /// only, or in its cache, from memory. What it cannot do beside writers is a note: the
    /// checksums of pages without a record, and in a large file how much of it is free.
    ///
    /// `watch` is told how far it has come. Appends go on meanwhile. It takes a thread of its own;
    /// one examination of a journal is made at a time, and others wait.
    ///
    /// # Errors
    /// [`StoreError::Closed`] if the journal is closed before it is done, and
    /// [`StoreError::Failed`] if there is no thread for it. Everything else is a finding.
    ///
    /// **Cancel safety.** Dropped, it stops.
    ///
    /// ```
    /// use deedbook_journal::embedded::{CreateOptions, Embedded, Verdict};
    /// # let folder = std::env::temp_dir().join(format!("deedbook-examine-{}", std::process::id()));
    /// # std::fs::create_dir_all(&folder)?;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// let book = Embedded::create(folder.join("book.redb"), CreateOptions::new())?;
    /// let seen = book.examine_open(|_| {}).await?;
    /// assert!(seen.worst() <= Verdict::Note);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # std::fs::remove_dir_all(&folder)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn examine_open(
        &self,
        watch: impl FnMut(Progress) + Send + 'static,
    ) -> Result<Examination, StoreError> {
        let core = Arc::clone(&self.core);
        // It is never closed.
        let turn = Arc::clone(&core.examining).acquire_owned().await;
        let (reply, answer) = oneshot::channel();
        let work = move || {
            let mut told = watch;
            let mut watch = |progress| {
                told(progress);
                !reply.is_closed()
            };
            let seen = examine(&core, &mut watch);
            // Whoever waits hears of it when there is nothing more to tell.
            drop((told, turn));
            drop(reply.send(seen));
        };
        spawn("deedbook-doctor", work).map_err(|error| StoreError::Failed {
            why: format!("a thread to examine the journal cannot be started: {error}").into(),
        })?;
        answer.await.unwrap_or(Err(StoreError::Closed))
    }
}

fn examine(core: &Core, watch: &mut Watch<'_>) -> Result<Examination, StoreError> {
    let mut seen = Examination::default();
    {
        let opened = core.opened();
        let opened = opened.as_ref().ok_or(StoreError::Closed)?;
        of_file(&mut seen, &core.path, opened.gate.file(), &**core.segments.disk());
    }
    match core.alive() {
        Ok(()) => of_being_open(&mut seen, core),
        Err(StoreError::Closed) => return Err(StoreError::Closed),
        Err(error) => {
            let next = "end the process that holds it; the next one brings it in order";
            seen.say("opening", Verdict::Fault, format!("it takes no more: {error}"), next);
            return Ok(seen);
        }
    }
    of_log(&mut seen, core, core.state().segment.is_some());
    of_anchor(&mut seen, core);
    let Ok(sum) = check::check(core, EMBEDDED_DAMAGE_TOLD_MAX, watch) else {
        seen.say("records", Verdict::Note, "not all of them were read", "");
        return Ok(seen);
    };
    if sum.damage.contains(&StoreError::Closed) {
        return Err(StoreError::Closed);
    }
    of_records(&mut seen, &sum);
    let said = "what was read of them has its checksums; the others are looked at when nobody has \
                the journal open";
    seen.say("pages", Verdict::Note, said, "");
    of_space(&mut seen, core);
    Ok(seen)
}

/// Who has it open, and what its log has.
fn of_being_open(seen: &mut Examination, core: &Core) {
    let (entries, records) = {
        let state = core.state();
        (state.unsettled.0, state.next.leaf - state.settled.leaf)
    };
    let pid = std::process::id();
    let mut said = format!("it is open: process {pid} is at work");
    if core.read_only {
        said.push_str(", and only reads");
    }
    if entries > 0 {
        said.push_str(&format!(
            "; its log has {entries} entries with {records} records behind the tables"
        ));
    }
    seen.say("opening", Verdict::Good, said, "");
}

/// How much of the file is in use, where that is found in a moment: pages that are freed during a
/// transaction that reads are used again only after it.
fn of_space(seen: &mut Examination, core: &Core) {
    let opened = core.opened();
    let Some(opened) = opened.as_ref() else {
        return say_space(seen, Ok(0), None);
    };
    match opened.gate.file_len() {
        Ok(length) if length > EMBEDDED_SPACE_LOOK_BYTES_MAX => {
            let said =
                format!("{length} bytes; how much of them is free is told when nobody has it open");
            seen.say("space", Verdict::Note, said, "");
        }
        length => {
            let used = guarded(|| bytes_in_use(&opened.db.begin_read()?));
            say_space(seen, length, used.ok());
        }
    }
}

/// The bytes of the pages of all tables.
fn bytes_in_use(transaction: &ReadTransaction) -> Result<u64, redb::Error> {
    let mut bytes = 0;
    for table in transaction.list_tables()? {
        let stats = transaction.open_untyped_table(table)?.stats()?;
        bytes += stats.stored_bytes() + stats.metadata_bytes() + stats.fragmented_bytes();
    }
    Ok(bytes)
}
