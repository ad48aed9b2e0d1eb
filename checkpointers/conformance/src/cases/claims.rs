//! Holds on threads: epochs for safety, leases for speed.

use std::time::Duration;

use deedbook_journal::{
    checkpointer::{Checkpointer, Claim, Lease, Posted, StoreError},
    id::StoreTime,
    row::Status,
};

use crate::{
    desk::{
        LONG, Pen, Said, WORKFLOW, bad, claim, claim_for, equal, good, holds, message, posts, put,
        release, row, thread, written,
    },
    report::Outcome,
    subject::Subject,
};

const AT_ONCE: Duration = Duration::from_nanos(1);

pub(super) async fn raise_the_epoch(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    holds("an epoch above zero", pen.epoch.0 > 0)?;
    for _ in 0..3 {
        release(&*made.home, &pen).await?;
        let lease = good("claiming", claim_for(&*made.home, "t", "next", LONG).await)?;
        holds("a higher epoch", lease.epoch > pen.epoch)?;
        equal("next and head", &(lease.next, lease.head), &(pen.next, pen.head))?;
        pen = Pen::of(&*made.home, &lease);
        good("appending", put(&*made.home, pen.write(1, b"\x02")).await)?;
    }
    Ok(())
}

pub(super) async fn make_threads_that_nobody_sees_yet(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = claim(&*made.home, "t").await?;
    equal("next and head", &(pen.next, pen.head.0), &(0, [0; 32]))?;
    equal("the row", &pen.row, &row(Status::Running))?;
    let page = good("listing", made.home.list(&Default::default(), None, 9).await)?;
    equal("listed", &page.items.len(), &0)?;
    let error = bad("reading", made.home.read(&pen.thread, 0, 100).await)?;
    equal("the error", &error, &StoreError::NoSuchThread)?;
    good("appending", put(&*made.home, pen.write(1, b"\x01")).await)?;
    let page = good("listing", made.home.list(&Default::default(), None, 9).await)?;
    equal("listed", &page.items.len(), &1)
}

pub(super) async fn keep_others_out_until_they_expire(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    let error = bad("claiming a held thread", claim_for(&*made.home, "t", "second", LONG).await)?;
    equal("the error", &error, &StoreError::Held { by: "first".into() })?;
    // Not even its own holder takes it twice.
    let error = bad("claiming a held thread", claim_for(&*made.home, "t", "first", LONG).await)?;
    equal("the error", &error, &StoreError::Held { by: "first".into() })?;
    let renewed = made.home.renew(&[(pen.thread.clone(), pen.epoch)], AT_ONCE).await;
    good("renewing", renewed)?;
    if let Some(set_wall) = &made.set_wall {
        set_wall(good("the clock", made.home.now().await)?.0 + 1);
    }
    let lease = good("taking over", claim_for(&*made.home, "t", "second", LONG).await)?;
    holds("a higher epoch", lease.epoch > pen.epoch)
}

pub(super) async fn are_renewed_and_released(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    let lease = [(pen.thread.clone(), pen.epoch)];
    let before = good("the clock", made.home.now().await)?;
    let until = good("renewing", made.home.renew(&lease, LONG).await)?;
    let long_enough = until.iter().flatten().any(|t| *t >= before.after(LONG));
    holds("a lease of the asked length", until.len() == 1 && long_enough)?;
    release(&*made.home, &pen).await?;
    let again = good("renewing", made.home.renew(&lease, LONG).await)?;
    equal("what was released", &again, &vec![None])?;
    // Epochs are safety: without a lease, but unfenced, the holder may still write.
    let mut pen = pen;
    good("appending", put(&*made.home, pen.write(1, b"\x02")).await)?;
    good("claiming", claim_for(&*made.home, "t", "second", LONG).await).map(drop)
}

pub(super) async fn that_are_lost_are_not_renewed(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    let other = written(&*made.home, "u", 1).await?;
    release(&*made.home, &pen).await?;
    good("claiming", claim_for(&*made.home, "t", "second", LONG).await)?;
    let leases = [
        (pen.thread.clone(), pen.epoch),
        (other.thread.clone(), other.epoch),
        (thread("nobody")?, other.epoch),
    ];
    let renewed = good("renewing", made.home.renew(&leases, LONG).await)?;
    let kept: Vec<_> = renewed.iter().map(Option::is_some).collect();
    equal("which are kept", &kept, &vec![false, true, false])
}

async fn due(home: &dyn Checkpointer, max: usize) -> Said<Vec<Lease>> {
    let workflows = vec!["other".into(), WORKFLOW.into()];
    let leases = home.claim(Claim::Due { workflows, max }, "worker", LONG).await;
    good("claiming what is due", leases)
}

fn ids(leases: &[Lease]) -> Vec<&str> {
    let mut ids: Vec<_> = leases.iter().map(|l| l.thread.as_str()).collect();
    ids.sort_unstable();
    ids
}

/// A thread in this state, held by nobody.
async fn left(
    home: &dyn Checkpointer,
    id: &str,
    status: Status,
    wake_at: Option<u64>,
) -> Said<Pen> {
    let mut pen = claim(home, id).await?;
    pen.row = row(status);
    pen.row.wake_at = wake_at.map(StoreTime);
    good("appending", put(home, pen.write(1, b"\x01")).await)?;
    release(home, &pen).await?;
    Ok(pen)
}

pub(super) async fn of_due_threads_find_those_with_something_to_do(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let home = &*made.home;
    left(home, "woken", Status::Sleeping, Some(0)).await?;
    left(home, "later", Status::Sleeping, Some(u64::MAX)).await?;
    left(home, "waiting", Status::Waiting, None).await?;
    let spoken = left(home, "spoken to", Status::Waiting, None).await?;
    posts(home, &spoken.thread, message(1), Posted::Stored).await?;
    left(home, "ended", Status::Done, Some(0)).await?;
    let mut foreign = claim(home, "foreign").await?;
    foreign.row.workflow = "unheard of".into();
    foreign.row.wake_at = Some(StoreTime(0));
    good("appending", put(home, foreign.write(1, b"\x01")).await)?;
    release(home, &foreign).await?;
    let mut held = claim(home, "held").await?;
    held.row.wake_at = Some(StoreTime(0));
    good("appending", put(home, held.write(1, b"\x01")).await)?;
    let leases = due(home, 9).await?;
    equal("what is due", &ids(&leases), &vec!["spoken to", "woken"])?;
    equal("what is due after that", &due(home, 9).await?.len(), &0)?;
    for lease in leases {
        equal("next", &lease.next, &1)?;
        let mut pen = Pen::of(home, &lease);
        good("appending", put(home, pen.write(1, b"\x02")).await)?;
        let again = bad("claiming", claim_for(home, lease.thread.as_str(), "x", LONG).await)?;
        equal("the error", &again, &StoreError::Held { by: "worker".into() })?;
    }
    release(home, &held).await?;
    equal("what was let go", &ids(&due(home, 9).await?), &vec!["held"])
}

pub(super) async fn of_due_threads_wait_for_the_time(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let home = &*made.home;
    let Some(set_wall) = &made.set_wall else {
        return Err(Outcome::Skipped("its clock cannot be turned"));
    };
    let base = good("the clock", home.now().await)?.0 + 1_000_000_000;
    set_wall(base);
    left(home, "t", Status::Sleeping, Some(base + 100)).await?;
    equal("before its time", &due(home, 9).await?.len(), &0)?;
    set_wall(base + 99);
    equal("just before its time", &due(home, 9).await?.len(), &0)?;
    set_wall(base + 100);
    let leases = home
        .claim(
            Claim::Due { workflows: vec![WORKFLOW.into()], max: 9 },
            "worker",
            Duration::from_nanos(50),
        )
        .await;
    equal("at its time", &good("claiming", leases)?.len(), &1)?;
    set_wall(base + 149);
    equal("while it is held", &due(home, 9).await?.len(), &0)?;
    set_wall(base + 150);
    equal("when the lease has expired", &due(home, 9).await?.len(), &1)
}

pub(super) async fn of_due_threads_share_out(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let home = &*made.home;
    for k in 0..30 {
        left(home, &format!("t{k:02}"), Status::Running, Some(0)).await?;
    }
    let claims = futures::future::join_all((0..10).map(|_| due(home, 4))).await;
    let mut all = Vec::new();
    for leases in claims {
        let leases = leases?;
        holds("at most as many as asked for", leases.len() <= 4)?;
        all.extend(leases);
    }
    let mut found = ids(&all);
    found.dedup();
    equal("threads claimed, and claimed once", &(all.len(), found.len()), &(30, 30))
}

pub(super) async fn fence_a_zombie(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut zombie = written(&*made.home, "t", 1).await?;
    release(&*made.home, &zombie).await?;
    let lease = good("taking over", claim_for(&*made.home, "t", "second", LONG).await)?;
    // From the takeover on, before the new holder has written anything.
    let error = bad("a zombie's append", put(&*made.home, zombie.clone().write(1, b"\x02")).await)?;
    equal("the error", &error, &StoreError::Fenced { held: lease.epoch })?;
    let mut pen = Pen::of(&*made.home, &lease);
    good("appending", put(&*made.home, pen.write(1, b"\x02")).await)?;
    let error = bad("a zombie's append", put(&*made.home, zombie.write(1, b"\x02")).await)?;
    equal("the error", &error, &StoreError::Fenced { held: lease.epoch })
}

pub(super) async fn do_not_create_unasked(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let ask = |id| Claim::Thread { id, create: None };
    let error = bad("claiming", made.home.claim(ask(thread("t")?), "first", LONG).await)?;
    equal("the error", &error, &StoreError::NoSuchThread)?;
    // Made, let go and never written: still nobody's to find, and its epoch does not come back.
    let mut first = claim(&*made.home, "t").await?;
    release(&*made.home, &first).await?;
    let error = bad("claiming", made.home.claim(ask(thread("t")?), "first", LONG).await)?;
    equal("the error", &error, &StoreError::NoSuchThread)?;
    let mut second = claim(&*made.home, "t").await?;
    holds("a higher epoch", second.epoch > first.epoch)?;
    let error = bad("a zombie's append", put(&*made.home, first.write(1, b"\x01")).await)?;
    equal("the error", &error, &StoreError::Fenced { held: second.epoch })?;
    good("appending", put(&*made.home, second.write(1, b"\x01")).await)?;
    release(&*made.home, &second).await?;
    let leases = good("claiming", made.home.claim(ask(thread("t")?), "first", LONG).await)?;
    equal("leases", &leases.len(), &1)
}
