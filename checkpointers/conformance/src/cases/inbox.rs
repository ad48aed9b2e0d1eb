//! What others say to a thread: once per id, in order, consumed with the records.

use deedbook_journal::{
    checkpointer::{Posted, StoreError},
    row::Status,
};

use crate::{
    desk::{Said, bad, claim, equal, good, message, posts, put, row, thread, written},
    subject::Subject,
};

pub(super) async fn takes_each_id_once(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    let other = written(&*made.home, "u", 1).await?;
    posts(&*made.home, &pen.thread, message(1), Posted::Stored).await?;
    let mut changed = message(1);
    changed.body = b"other"[..].into();
    posts(&*made.home, &pen.thread, changed, Posted::AlreadyThere).await?;
    // The same id to another thread is another message.
    posts(&*made.home, &other.thread, message(1), Posted::Stored).await?;
    let inbox = good("the inbox", made.home.inbox(&pen.thread).await)?;
    equal("the inbox", &inbox, &vec![message(1)])?;
    let home = &made.home;
    let at_once = (0..8).map(|_| home.post(&pen.thread, message(2)));
    let answers = futures::future::join_all(at_once).await;
    let stored = answers.iter().filter(|a| **a == Ok(Posted::Stored)).count();
    let there = answers.iter().filter(|a| **a == Ok(Posted::AlreadyThere)).count();
    equal("stored and there already", &(stored, there), &(1, 7))
}

pub(super) async fn takes_each_id_once_after_consumption(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    posts(&*made.home, &pen.thread, message(1), Posted::Stored).await?;
    let mut append = pen.write(1, b"\x02");
    append.consumes = vec![message(1).id];
    good("consuming", put(&*made.home, append).await)?;
    // However much is written in between.
    for _ in 0..40 {
        good("appending", put(&*made.home, pen.write(50, b"\x03")).await)?;
    }
    posts(&*made.home, &pen.thread, message(1), Posted::AlreadyThere).await?;
    pen.row = row(Status::Done);
    good("ending", put(&*made.home, pen.write(1, b"\x02")).await)?;
    posts(&*made.home, &pen.thread, message(1), Posted::AlreadyThere).await?;
    equal("the inbox", &good("the inbox", made.home.inbox(&pen.thread).await)?, &Vec::new())
}

pub(super) async fn refuses_unknown_and_ended_threads(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    posts(&*made.home, &thread("t")?, message(1), Posted::NoSuchThread).await?;
    let error = bad("the inbox of nobody", made.home.inbox(&thread("t")?).await)?;
    equal("the error", &error, &StoreError::NoSuchThread)?;
    // Claimed and not yet written: others do not see it.
    let mut pen = claim(&*made.home, "t").await?;
    posts(&*made.home, &pen.thread, message(1), Posted::NoSuchThread).await?;
    for status in Status::ALL {
        pen.row = row(status);
        good("appending", put(&*made.home, pen.write(1, b"\x01")).await)?;
        let id = 10 + status.as_byte();
        let expected = if status.is_ended() { Posted::ThreadEnded } else { Posted::Stored };
        posts(&*made.home, &pen.thread, message(id), expected).await?;
    }
    Ok(())
}

pub(super) async fn keeps_order_and_content(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 1).await?;
    let mut sent = Vec::new();
    for k in [9, 3, 200, 1, 0] {
        let mut one = message(k);
        one.name = format!("signal\n{k}🙂").into();
        one.kind = k;
        posts(&*made.home, &pen.thread, one.clone(), Posted::Stored).await?;
        sent.push(one);
    }
    equal("the inbox", &good("the inbox", made.home.inbox(&pen.thread).await)?, &sent)
}

pub(super) async fn is_consumed_with_the_records(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    for k in 1..=3 {
        posts(&*made.home, &pen.thread, message(k), Posted::Stored).await?;
    }
    let mut append = pen.write(1, b"\x02");
    append.consumes = vec![message(2).id];
    good("consuming", put(&*made.home, append).await)?;
    let inbox = good("the inbox", made.home.inbox(&pen.thread).await)?;
    equal("the inbox", &inbox, &vec![message(1), message(3)])
}

pub(super) async fn consumption_is_all_or_nothing(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let mut pen = written(&*made.home, "t", 1).await?;
    posts(&*made.home, &pen.thread, message(1), Posted::Stored).await?;
    // One that is not there, and one twice.
    for consumes in [[1, 2], [1, 1]] {
        let mut append = pen.clone().write(1, b"\x02");
        append.consumes = consumes.map(|k| message(k).id).to_vec();
        let error = bad("consuming what is not there", put(&*made.home, append).await)?;
        equal("the error", &error, &StoreError::Moved { next: 1 })?;
    }
    let inbox = good("the inbox", made.home.inbox(&pen.thread).await)?;
    equal("the inbox", &inbox, &vec![message(1)])?;
    let mut append = pen.write(1, b"\x02");
    append.consumes = vec![message(1).id];
    good("consuming", put(&*made.home, append.clone()).await)?;
    // Again, at the right position: the message is gone.
    let mut again = pen.write(1, b"\x03");
    again.consumes = vec![message(1).id];
    let error = bad("consuming twice", put(&*made.home, again).await)?;
    equal("the error", &error, &StoreError::Moved { next: 2 })
}
