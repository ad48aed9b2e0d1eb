//! What outlives a crash, and the clock.

use deedbook_journal::{
    checkpointer::{Claim, Filter, Posted, StoreError},
    id::StoreTime,
    row::Status,
};

use crate::{
    desk::{
        LONG, Said, bad, claim, claim_for, equal, good, holds, message, posts, put, read_all,
        release, row, written,
    },
    report::Outcome,
    subject::{Made, Subject},
};

async fn again(subject: &dyn Subject, made: Made) -> Said<Made> {
    let reopened = subject.reopen(made).await;
    reopened.ok_or(Outcome::Skipped("it cannot be opened again"))
}

pub(super) async fn after_reopening(subject: &dyn Subject) -> Said {
    let mut made = subject.make().await;
    let mut pens = Vec::new();
    for round in 0..4_u64 {
        for k in 0..5 {
            let mut pen = claim(&*made.home, &format!("t{round}.{k}")).await?;
            pen.row = row(if k == 0 { Status::Done } else { Status::Waiting });
            pen.row.detail = Some(format!("round {round}").into());
            good("appending", put(&*made.home, pen.write(k + 1, &[k as u8])).await)?;
            good("appending", put(&*made.home, pen.write(k, b"\x01")).await)?;
            pens.push(pen);
        }
        let info = |home| async move {
            let found = good("listing", deedbook_list(home).await)?;
            let shown: Vec<_> = found.into_iter().map(|t| (t.id, t.next, t.head, t.row)).collect();
            Said::Ok(shown)
        };
        let before = info(made.home.clone()).await?;
        let log = good("the log", made.home.log(0, 1000).await)?.items;
        let identity = made.home.identity().clone();
        made = again(subject, made).await?;
        equal("the identity", made.home.identity(), &identity)?;
        equal("the threads", &info(made.home.clone()).await?, &before)?;
        equal("the log", &good("the log", made.home.log(0, 1000).await)?.items, &log)?;
        for pen in &pens {
            let records = read_all(&made.home, &pen.thread, 700).await?;
            equal("the records", &(records.len() as u64), &pen.next)?;
        }
    }
    Ok(())
}

async fn deedbook_list(
    home: std::sync::Arc<dyn deedbook_journal::checkpointer::Checkpointer>,
) -> Result<Vec<deedbook_journal::checkpointer::ThreadInfo>, StoreError> {
    Ok(home.list(&Filter::default(), None, 1000).await?.items)
}

pub(super) async fn message_ids_after_reopening(subject: &dyn Subject) -> Said {
    let mut made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    for k in 1..=3 {
        posts(&*made.home, &pen.thread, message(k), Posted::Stored).await?;
    }
    let mut append = pen.write(1, b"\x02");
    append.consumes = vec![message(2).id];
    good("consuming", put(&*made.home, append).await)?;
    for _ in 0..2 {
        made = again(subject, made).await?;
        let inbox = good("the inbox", made.home.inbox(&pen.thread).await)?;
        equal("the inbox", &inbox, &vec![message(1), message(3)])?;
        for k in 1..=3 {
            posts(&*made.home, &pen.thread, message(k), Posted::AlreadyThere).await?;
        }
    }
    // What has something to do is found again.
    let workflows = vec![crate::desk::WORKFLOW.into()];
    let due = made.home.claim(Claim::Due { workflows, max: 9 }, "worker", LONG).await;
    equal("what is due", &good("claiming", due)?.len(), &1)
}

pub(super) async fn messages_of_ended_threads(subject: &dyn Subject) -> Said {
    let mut made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    posts(&*made.home, &pen.thread, message(1), Posted::Stored).await?;
    pen.row = row(Status::Done);
    good("ending", put(&*made.home, pen.write(1, b"\x02")).await)?;
    for _ in 0..2 {
        let inbox = good("the inbox", made.home.inbox(&pen.thread).await)?;
        equal("the inbox", &inbox, &vec![message(1)])?;
        made = again(subject, made).await?;
    }
    Ok(())
}

pub(super) async fn fences_after_reopening(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut zombie = written(&*made.home, "t", 1).await?;
    release(&*made.home, &zombie).await?;
    let lease = good("claiming", claim_for(&*made.home, "t", "second", LONG).await)?;
    let mut pen = crate::desk::Pen::of(&*made.home, &lease);
    good("appending", put(&*made.home, pen.write(1, b"\x02")).await)?;
    let made = again(subject, made).await?;
    let error = bad("a zombie's append", put(&*made.home, zombie.write(1, b"\x02")).await)?;
    equal("the error", &error, &StoreError::Fenced { held: lease.epoch })?;
    // Whether or not leases outlive a crash, the epoch goes up.
    made.home.renew(&[(pen.thread.clone(), pen.epoch)], std::time::Duration::ZERO).await.ok();
    let next = good("claiming", claim_for(&*made.home, "t", "third", LONG).await)?;
    holds("a higher epoch", next.epoch > lease.epoch)
}

pub(super) async fn clock_never_goes_back(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut last = StoreTime(0);
    let mut tick = async |home: &dyn deedbook_journal::checkpointer::Checkpointer| {
        let now = good("the clock", home.now().await)?;
        holds("a clock that does not go back", now >= last)?;
        last = now;
        Said::Ok(now)
    };
    for _ in 0..100 {
        tick(&*made.home).await?;
    }
    let Some(set_wall) = &made.set_wall else {
        return Ok(());
    };
    let base = tick(&*made.home).await?.0 + 1_000_000;
    set_wall(base);
    holds("following the wall clock", tick(&*made.home).await?.0 >= base)?;
    set_wall(base - 500_000);
    tick(&*made.home).await?;
    set_wall(0);
    tick(&*made.home).await?;
    set_wall(base + 1_000_000_000);
    holds("following again", tick(&*made.home).await?.0 >= base + 1_000_000_000)
}

pub(super) async fn clock_is_not_behind_the_records(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let Some(set_wall) = made.set_wall.clone() else {
        return Err(Outcome::Skipped("its clock cannot be turned"));
    };
    let pen = written(&*made.home, "t", 1).await?;
    let before = good("the clock", made.home.now().await)?;
    let ahead = before.after(LONG);
    set_wall(ahead.0);
    let mut append = pen.clone().write(0, b"");
    append.records = vec![pen.record(ahead, b"\x02")].into();
    good("appending", put(&*made.home, append).await)?;
    set_wall(before.0);
    holds("a clock not behind", good("the clock", made.home.now().await)? >= ahead)?;
    let made = again(subject, made).await?;
    holds("a clock not behind", good("the clock", made.home.now().await)? >= ahead)
}

pub(super) async fn observers_see_what_was_acknowledged(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = claim(&*made.home, "t").await?;
    for round in 1..50_u64 {
        let next = good("appending", put(&*made.home, pen.write(1, b"\x01")).await)?;
        equal("the next position", &next, &round)?;
        let page = good("reading", made.home.read(&pen.thread, round - 1, 1).await)?;
        equal("the record", &page.items.len(), &1)?;
        let page = good("listing", made.home.list(&Filter::default(), None, 1).await)?;
        let shown: Vec<_> = page.items.iter().map(|t| t.next).collect();
        equal("the list", &shown, &vec![round])?;
        let log = good("the log", made.home.log(round - 1, 9).await)?;
        equal("the log", &log.items.len(), &1)?;
    }
    Ok(())
}

pub(super) async fn nothing_after_close(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 2).await?;
    good("closing", made.home.close().await)?;
    let home = &*made.home;
    let closed = StoreError::Closed;
    equal("append", &bad("append", put(home, pen.write(1, b"\x01")).await)?, &closed)?;
    equal("read", &bad("read", home.read(&pen.thread, 0, 9).await)?, &closed)?;
    equal("post", &bad("post", home.post(&pen.thread, message(1)).await)?, &closed)?;
    equal("inbox", &bad("inbox", home.inbox(&pen.thread).await)?, &closed)?;
    equal("claim", &bad("claim", claim_for(home, "u", "x", LONG).await)?, &closed)?;
    let lease = [(pen.thread.clone(), pen.epoch)];
    equal("renew", &bad("renew", home.renew(&lease, LONG).await)?, &closed)?;
    equal("list", &bad("list", home.list(&Filter::default(), None, 9).await)?, &closed)?;
    equal("log", &bad("log", home.log(0, 9).await)?, &closed)?;
    equal("now", &bad("now", home.now().await)?, &closed)?;
    equal("close", &bad("close", home.close().await)?, &closed)?;
    match subject.reopen(made).await {
        Some(made) => {
            let records = read_all(&made.home, &pen.thread, 9).await?;
            equal("the records", &records.len(), &2)
        }
        None => Ok(()),
    }
}
