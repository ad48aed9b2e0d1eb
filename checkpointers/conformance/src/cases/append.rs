//! Conditional, atomic, ordered.

use std::time::Duration;

use deedbook_journal::{
    checkpointer::{Append, StoreError},
    id::{Epoch, StoreTime},
    row::Status,
};

use crate::{
    desk::{
        Said, bad, claim, equal, fail, good, holds, message, put, read_all, row, thread, written,
    },
    subject::Subject,
};

pub(super) async fn is_conditional_on_the_position(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 2).await?;
    let stale = pen.clone();
    good("appending", put(&*made.home, pen.write(1, b"\x02")).await)?;
    let error = bad(
        "appending at a taken position",
        put(&*made.home, stale.clone().write(1, b"\x03")).await,
    )?;
    equal("the error", &error, &StoreError::Moved { next: 3 })?;
    let mut ahead = pen.clone();
    ahead.next += 1;
    let error = bad("appending beyond the end", put(&*made.home, ahead.write(1, b"\x04")).await)?;
    equal("the error", &error, &StoreError::Moved { next: 3 })?;
    equal("the records", &read_all(&made.home, &pen.thread, 1 << 20).await?.len(), &3)
}

pub(super) async fn is_conditional_on_the_epoch(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    for epoch in [0, pen.epoch.0 + 1, u64::MAX / 4] {
        let mut other = pen.clone();
        other.epoch = Epoch(epoch);
        let error =
            bad("appending under another epoch", put(&*made.home, other.write(1, b"\x02")).await)?;
        equal("the error", &error, &StoreError::Fenced { held: pen.epoch })?;
        // A row alone is fenced like records are.
        let error =
            bad("a row under another epoch", put(&*made.home, other.clone().write(0, b"")).await)?;
        equal("the error", &error, &StoreError::Fenced { held: pen.epoch })?;
    }
    Ok(())
}

pub(super) async fn of_an_unknown_thread_is_refused(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    pen.thread = thread("another")?;
    (pen.next, pen.head) = (0, Default::default());
    let error =
        bad("appending to an unknown thread", put(&*made.home, pen.write(1, b"\x01")).await)?;
    equal("the error", &error, &StoreError::NoSuchThread)
}

pub(super) async fn stores_an_element_whole_or_not_at_all(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    // The third record is wrong, so the first two must not be there.
    let mut whole = pen.clone().write(3, b"\x02");
    whole.row = row(Status::Done);
    if let Some(last) = whole.records.change().last_mut() {
        last.hash.0 = [9; 32];
    }
    let error = bad("appending a broken element", put(&*made.home, whole).await)?;
    holds("refused", matches!(error, StoreError::Refused { .. }))?;
    equal("the records", &read_all(&made.home, &pen.thread, 1 << 20).await?.len(), &1)?;
    let page = good("listing", made.home.list(&Default::default(), None, 9).await)?;
    let statuses: Vec<_> = page.items.iter().map(|t| t.row.status).collect();
    equal("the status", &statuses, &vec![Status::Running])
}

pub(super) async fn answers_each_element_of_a_group(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut one = written(&*made.home, "one", 1).await?;
    let mut two = written(&*made.home, "two", 1).await?;
    let mut stale = one.clone();
    stale.epoch = Epoch(0);
    let mut moved = two.clone();
    moved.next = 7;
    let group = vec![
        stale.write(1, b"\x02"),
        one.write(2, b"\x03"),
        moved.write(1, b"\x04"),
        two.write(1, b"\x05"),
    ];
    let results = made.home.append(group).await;
    let expected = vec![
        Err(StoreError::Fenced { held: one.epoch }),
        Ok(3),
        Err(StoreError::Moved { next: 1 }),
        Ok(2),
    ];
    // The second `two` element comes after the refused one: its tail is still at 1.
    equal("the results", &results, &expected)?;
    equal("records of one", &read_all(&made.home, &one.thread, 1 << 20).await?.len(), &3)?;
    equal("records of two", &read_all(&made.home, &two.thread, 1 << 20).await?.len(), &2)?;
    let none: Vec<Append> = Vec::new();
    equal("results of an empty group", &made.home.append(none).await.len(), &0)
}

pub(super) async fn chains_elements_of_one_group(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    let group = vec![pen.write(1, b"\x02"), pen.write(2, b"\x03"), pen.write(1, b"\x04")];
    equal("the results", &made.home.append(group).await, &vec![Ok(2), Ok(4), Ok(5)])?;
    equal("the records", &read_all(&made.home, &pen.thread, 1 << 20).await?.len(), &5)
}

pub(super) async fn refuses_what_breaks_the_chain(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    let good_one = || pen.clone().write(1, b"\x02");
    let mut broken: Vec<(&str, Append)> = Vec::new();
    let mut other_head = pen.clone();
    other_head.head.0 = [1; 32];
    broken.push(("another head", other_head.write(1, b"\x02")));
    let mut other_thread = pen.clone();
    other_thread.thread = thread("u")?;
    let mut append = other_thread.write(1, b"\x02");
    append.thread = pen.thread.clone();
    broken.push(("another thread in the header", append));
    let mut other_epoch = pen.clone();
    other_epoch.epoch = Epoch(pen.epoch.0 + 5);
    let mut append = other_epoch.write(1, b"\x02");
    append.epoch = pen.epoch;
    broken.push(("another epoch in the header", append));
    let mut other_place = pen.clone();
    other_place.next += 1;
    let mut append = other_place.write(1, b"\x02");
    append.at = pen.next;
    broken.push(("another position in the header", append));
    let mut append = good_one();
    append.records = vec![pen.record(StoreTime(0), b"\x02")].into();
    broken.push(("an earlier time", append));
    let now = good("the time", made.home.now().await)?;
    for (what, time) in [
        ("a time that has not come", now.after(Duration::from_secs(3600))),
        ("the end of time", StoreTime(u64::MAX)),
    ] {
        let mut append = good_one();
        append.records = vec![pen.record(time, b"\x02")].into();
        broken.push((what, append));
    }
    let mut append = good_one();
    for record in append.records.change() {
        for payload in &mut record.payloads {
            payload.bytes = b"\x09"[..].into();
        }
    }
    broken.push(("another payload", append));
    for (what, append) in broken {
        let error = bad(what, put(&*made.home, append).await)?;
        if !matches!(error, StoreError::Refused { .. }) {
            return fail(format!("{what}: {error}"));
        }
    }
    equal("the next position", &good("appending", put(&*made.home, good_one()).await)?, &2)
}

pub(super) async fn without_records_replaces_the_row(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    pen.row = row(Status::Waiting);
    pen.row.detail = Some("for a nod".into());
    pen.row.wake_at = Some(StoreTime(u64::MAX));
    pen.row.open_doubts = 3;
    equal("the next position", &good("a row", put(&*made.home, pen.write(0, b"")).await)?, &1)?;
    let page = good("listing", made.home.list(&Default::default(), None, 9).await)?;
    let rows: Vec<_> = page.items.into_iter().map(|t| (t.next, t.head, t.row)).collect();
    equal("the row", &rows, &vec![(1, pen.head, pen.row.clone())])?;
    let log = good("the log", made.home.log(0, 9).await)?;
    equal("leaves", &log.items.len(), &1)?;
    good("going on", put(&*made.home, pen.write(1, b"\x01")).await).map(drop)
}

pub(super) async fn by_many_at_once_is_gapless(subject: &dyn Subject) -> Said {
    const WRITERS: usize = 64;
    const STEPS: u64 = 25;
    let made = subject.make().await;
    let home = &made.home;
    let write = |k: usize| async move {
        let mut pen = claim(&**home, &format!("order-{k}")).await?;
        for _ in 0..STEPS {
            good("appending", put(&**home, pen.write(1, &[1])).await)?;
        }
        Said::Ok(pen)
    };
    for written in futures::future::join_all((0..WRITERS).map(write)).await {
        let pen = written?;
        let records = read_all(home, &pen.thread, 1000).await?;
        equal("the records", &(records.len() as u64), &STEPS)?;
    }
    let log = good("the log", home.log(0, 10_000).await)?;
    equal("leaves", &log.items.len(), &(WRITERS * STEPS as usize))
}

pub(super) async fn of_one_position_by_many_succeeds_once(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    let home = &made.home;
    let attempts = (0..8_u8).map(|k| {
        let mut pen = pen.clone();
        async move { put(&**home, pen.write(1, &[k])).await }
    });
    let results = futures::future::join_all(attempts).await;
    let stored = results.iter().filter(|r| **r == Ok(2)).count();
    let moved = Err(StoreError::Moved { next: 2 });
    let refused = results.iter().filter(|r| **r == moved).count();
    equal("stored and moved", &(stored, refused), &(1, 7))?;
    good("a message", made.home.post(&pen.thread, message(1)).await).map(drop)?;
    equal("the records", &read_all(&made.home, &pen.thread, 1 << 20).await?.len(), &2)
}
