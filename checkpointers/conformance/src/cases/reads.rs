//! Records as they are served, and erased.

use std::sync::Arc;

use deedbook_journal::{
    checkpointer::{Checkpointer, StoreError},
    id::{LogIndex, Position},
    record::Role,
};

use crate::{
    desk::{Pen, Said, bad, claim, equal, good, holds, put, read_all, thread, written},
    subject::Subject,
};

pub(super) async fn page_by_bytes(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 40).await?;
    let first = good("reading", made.home.read(&pen.thread, 0, 0).await)?;
    equal("at least one record", &first.items.len(), &1)?;
    equal("where to go on", &first.next, &Some(1))?;
    for bytes in [0, 1, 500, 1000, 5000, usize::MAX] {
        equal("all records", &read_all(&made.home, &pen.thread, bytes).await?.len(), &40)?;
    }
    let size = first.items.iter().map(|(_, r)| r.size()).sum::<usize>();
    let page = good("reading", made.home.read(&pen.thread, 0, size * 4).await)?;
    let bytes = page.items.iter().map(|(_, r)| r.size()).sum::<usize>();
    holds("a page within its limit", bytes <= size * 4 && page.items.len() > 1)
}

pub(super) async fn begin_anywhere(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = claim(&*made.home, "t").await?;
    for count in [1, 3, 1, 7, 2] {
        good("appending", put(&*made.home, pen.write(count, b"\x01")).await)?;
        written(&*made.home, &format!("between {count} {}", pen.next), 1).await?;
    }
    for from in 0..14 {
        let page = good("reading", made.home.read(&pen.thread, from, usize::MAX).await)?;
        let found: Vec<Position> = page.items.iter().map(|(n, _)| *n).collect();
        equal("the positions", &found, &(from..14).collect())?;
    }
    for from in [14, 15, u64::MAX] {
        let page = good("reading", made.home.read(&pen.thread, from, usize::MAX).await)?;
        equal("beyond the end", &(page.items.len(), page.next), &(0, None))?;
    }
    Ok(())
}

pub(super) async fn of_an_unknown_thread_are_errors(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    written(&*made.home, "t", 1).await?;
    for id in ["t0", "T", "t\0"] {
        let error = bad("reading", made.home.read(&thread(id)?, 0, 100).await)?;
        equal("the error", &error, &StoreError::NoSuchThread)?;
    }
    Ok(())
}

pub(super) async fn take_large_payloads(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = claim(&*made.home, "t").await?;
    let mut sizes = vec![0, 1, 4095, 4096, 65_536, 1 << 20];
    sizes.push(16 << 20);
    for size in &sizes {
        let bytes: Vec<u8> = (0..*size).map(|k| (k % 251) as u8).collect();
        good("appending", put(&*made.home, pen.write(1, &bytes)).await)?;
    }
    let records = read_all(&made.home, &pen.thread, 1 << 20).await?;
    let found: Vec<_> = records.iter().filter_map(|r| r.payload(Role::Value)).collect();
    let lengths: Vec<_> = found.iter().map(|p| p.bytes.len()).collect();
    equal("the sizes", &lengths, &sizes)?;
    let whole = found.iter().all(|p| (0..).zip(p.bytes.iter()).all(|(k, b)| *b == (k % 251) as u8));
    holds("the same bytes", whole)
}

pub(super) async fn take_many_records(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = claim(&*made.home, "long").await?;
    let mut other = claim(&*made.home, "beside").await?;
    for _ in 0..150 {
        let group = vec![pen.write(20, b"\x01"), other.write(1, b"\x02")];
        for result in made.home.append(group).await {
            good("appending", result)?;
        }
    }
    equal("all records", &read_all(&made.home, &pen.thread, 100_000).await?.len(), &3000)?;
    equal("beside them", &read_all(&made.home, &other.thread, 100).await?.len(), &150)
}

/// The whole log, in pages.
async fn leaves(
    home: &Arc<dyn Checkpointer>,
    page: usize,
) -> Said<Vec<(LogIndex, String, Position, [u8; 32])>> {
    let (mut leaves, mut from) = (Vec::new(), 0);
    loop {
        let found = good("the log", home.log(from, page).await)?;
        holds("at most as many as asked for", found.items.len() <= page)?;
        for leaf in found.items {
            leaves.push((leaf.index, leaf.thread.as_str().to_owned(), leaf.n, leaf.hash.0));
        }
        match found.next {
            Some(next) => {
                equal("where to go on", &next, &(leaves.len() as LogIndex))?;
                from = next;
            }
            None => return Ok(leaves),
        }
    }
}

pub(super) async fn of_the_log_are_contiguous(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let empty = good("the log", made.home.log(0, 9).await)?;
    equal("an empty log", &(empty.items.len(), empty.next), &(0, None))?;
    let mut pens: Vec<Pen> = Vec::new();
    for id in ["a", "b", "c"] {
        pens.push(claim(&*made.home, id).await?);
    }
    for round in 0..6 {
        let group = pens.iter_mut().map(|pen| pen.write(round % 3, b"\x01")).collect();
        for result in made.home.append(group).await {
            good("appending", result)?;
        }
        for pen in &pens {
            let id = round as u8 + 1;
            good("posting", made.home.post(&pen.thread, crate::desk::message(id)).await)?;
        }
    }
    let all = leaves(&made.home, 1000).await?;
    equal("leaves", &all.len(), &18)?;
    for page in [1, 2, 5, 18, 19] {
        equal("the same in pages", &leaves(&made.home, page).await?, &all)?;
    }
    for (k, (index, ..)) in (0..).zip(&all) {
        equal("a leaf number", index, &k)?;
    }
    for pen in &pens {
        let records = read_all(&made.home, &pen.thread, 1 << 20).await?;
        let mine: Vec<_> = all.iter().filter(|(_, t, ..)| t == pen.thread.as_str()).collect();
        let found: Vec<_> = mine.iter().map(|(_, _, n, hash)| (*n, *hash)).collect();
        let expected: Vec<_> = (0..).zip(records.iter().map(|r| r.hash.0)).collect();
        equal("the thread's leaves in its order", &found, &expected)?;
    }
    let past = good("the log", made.home.log(99, 9).await)?;
    equal("beyond the end", &(past.items.len(), past.next), &(0, None))
}

pub(super) async fn of_erased_payloads_keep_the_chain(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let home = &made.home;
    let mut pen = written(&**home, "t", 5).await?;
    let before = leaves(home, 100).await?;
    let note = pen.write(1, b"\x02");
    let next = good("erasing", home.erase(&pen.thread, 2, Role::Value, note).await)?;
    equal("the next position", &next, &6)?;
    let records = read_all(home, &pen.thread, 100).await?;
    let there: Vec<_> = records.iter().map(|r| r.payloads.len()).collect();
    equal("payloads", &there, &vec![1, 1, 0, 1, 1, 1])?;
    let after = leaves(home, 100).await?;
    equal("the leaves before it", &after.iter().take(5).cloned().collect(), &before)?;
    good("going on", put(&**home, pen.write(1, b"\x03")).await).map(drop)
}

pub(super) async fn refuse_impossible_erasures(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let home = &made.home;
    let mut pen = written(&**home, "t", 2).await?;
    let mut tries = Vec::new();
    tries.push(home.erase(&pen.thread, 2, Role::Value, pen.clone().write(1, b"\x02")).await);
    tries.push(home.erase(&pen.thread, 9, Role::Value, pen.clone().write(1, b"\x02")).await);
    tries.push(home.erase(&pen.thread, 1, Role::Args, pen.clone().write(1, b"\x02")).await);
    let other = thread("u")?;
    tries.push(home.erase(&other, 1, Role::Value, pen.clone().write(1, b"\x02")).await);
    for tried in tries {
        let error = bad("erasing what is not there", tried)?;
        holds("refused", matches!(error, StoreError::Refused { .. }))?;
    }
    let mut zombie = pen.clone();
    zombie.epoch.0 += 1;
    let fenced = home.erase(&pen.thread, 1, Role::Value, zombie.write(1, b"\x02")).await;
    equal("the error", &bad("erasing", fenced)?, &StoreError::Fenced { held: pen.epoch })?;
    let records = read_all(home, &pen.thread, 100).await?;
    equal(
        "records and payloads",
        &(records.len(), records.iter().map(|r| r.payloads.len()).sum::<usize>()),
        &(2, 2),
    )?;
    let note = pen.write(1, b"\x02");
    good("erasing", home.erase(&pen.thread, 1, Role::Value, note).await)?;
    let note = pen.write(1, b"\x02");
    let twice = home.erase(&pen.thread, 1, Role::Value, note).await;
    holds("refused", matches!(bad("erasing twice", twice)?, StoreError::Refused { .. }))
}
