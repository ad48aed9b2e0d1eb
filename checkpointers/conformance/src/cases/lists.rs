//! Lists of threads.

use deedbook_journal::{
    checkpointer::{Checkpointer, Filter, Posted},
    id::StoreTime,
    row::Status,
};

use crate::{
    desk::{
        Said, claim, equal, good, holds, message, posts, put, read_all, release, row, thread,
        written,
    },
    subject::Subject,
};

async fn ids(home: &dyn Checkpointer, filter: &Filter, page: usize) -> Said<Vec<String>> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let found = good("listing", home.list(filter, after.as_ref(), page).await)?;
        holds("at most as many as asked for", found.items.len() <= page)?;
        ids.extend(found.items.iter().map(|t| t.id.as_str().to_owned()));
        match found.next {
            Some(next) => after = Some(next),
            None => return Ok(ids),
        }
    }
}

fn statuses(statuses: &[Status]) -> Filter {
    Filter { statuses: statuses.to_vec(), ..Filter::default() }
}

pub(super) async fn filter(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let home = &*made.home;
    for (k, status) in (0_u64..).zip(Status::ALL) {
        let mut pen = claim(home, &format!("order/{k}")).await?;
        pen.row = row(status);
        pen.row.workflow = if k < 4 { "refund" } else { "invoice" }.into();
        pen.row.open_doubts = u32::from(k == 2 || k == 6);
        pen.row.created_at = StoreTime(1000 + k);
        good("appending", put(home, pen.write(1, b"\x01")).await)?;
    }
    let expect = async |what: &str, filter: Filter, expected: &[u64]| {
        let expected: Vec<_> = expected.iter().map(|k| format!("order/{k}")).collect();
        for page in [1, 2, 100] {
            equal(what, &ids(home, &filter, page).await?, &expected)?;
        }
        Said::Ok(())
    };
    let all: Vec<u64> = (0..10).collect();
    expect("everything", Filter::default(), &all).await?;
    expect("running", statuses(&[Status::Running]), &[0]).await?;
    expect("done or asleep", statuses(&[Status::Done, Status::Sleeping]), &[3, 4]).await?;
    let mut by = Filter { workflow: Some("refund".into()), ..Filter::default() };
    expect("refunds", by.clone(), &[0, 1, 2, 3]).await?;
    by.doubts_only = true;
    expect("refunds in doubt", by.clone(), &[2]).await?;
    by.workflow = None;
    expect("in doubt", by, &[2, 6]).await?;
    let times = Filter {
        created_from: Some(StoreTime(1003)),
        created_before: Some(StoreTime(1005)),
        ..Filter::default()
    };
    expect("by time", times, &[3, 4]).await?;
    let prefix = |p: &str| Filter { prefix: Some(p.into()), ..Filter::default() };
    expect("by prefix", prefix("order/"), &all).await?;
    expect("by whole id", prefix("order/7"), &[7]).await?;
    expect("by another prefix", prefix("orders"), &[]).await?;
    expect("by an empty prefix", prefix(""), &all).await
}

pub(super) async fn page_in_byte_order(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let home = &*made.home;
    let mut expected = Vec::new();
    for k in 0..57_u32 {
        // Neither made in order nor of one length; some ended.
        let id = format!("{}-{}", "x".repeat((k as usize * 7) % 5), (k * 37) % 57);
        let mut pen = claim(home, &id).await?;
        pen.row = row(if k % 3 == 0 { Status::Done } else { Status::Waiting });
        good("appending", put(home, pen.write(1, b"\x01")).await)?;
        release(home, &pen).await?;
        expected.push(id);
    }
    expected.sort_unstable();
    for page in [1, 2, 7, 56, 57, 58, 1000] {
        equal("the ids", &ids(home, &Filter::default(), page).await?, &expected)?;
    }
    let ended = ids(home, &statuses(&[Status::Done]), 5).await?;
    equal("ended ones", &ended.len(), &19)
}

pub(super) async fn hide_reserved_threads(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    written(&*made.home, "deedbook:system", 1).await?;
    written(&*made.home, "mine", 1).await?;
    equal("shown", &ids(&*made.home, &Filter::default(), 9).await?, &vec!["mine".to_owned()])?;
    let reserved = Filter { reserved: true, ..Filter::default() };
    let all = vec!["deedbook:system".to_owned(), "mine".to_owned()];
    equal("shown when asked for", &ids(&*made.home, &reserved, 9).await?, &all)
}

pub(super) async fn show_inbox_and_holder(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let pen = written(&*made.home, "t", 3).await?;
    posts(&*made.home, &pen.thread, message(1), Posted::Stored).await?;
    posts(&*made.home, &pen.thread, message(2), Posted::Stored).await?;
    let page = good("listing", made.home.list(&Filter::default(), None, 9).await)?;
    let shown: Vec<_> = page
        .items
        .iter()
        .map(|t| (t.next, t.head, t.epoch, t.inbox, t.holder.as_deref()))
        .collect();
    equal("the thread", &shown, &vec![(3, pen.head, pen.epoch, 2, Some("first"))])?;
    release(&*made.home, &pen).await?;
    let page = good("listing", made.home.list(&Filter::default(), None, 9).await)?;
    holds("nobody holds it", page.items.iter().all(|t| t.holder.is_none()))
}

pub(super) async fn take_any_thread_id(subject: &dyn Subject) -> Said {
    let made = subject.make().await;
    let long = "x".repeat(512);
    let odd = [
        "../../x",
        "/etc/passwd",
        "..",
        "con",
        "a\nb",
        "\u{202e}",
        "🙂",
        "%2e%2e",
        " ",
        "a",
        "a\0",
        "a\0b",
        "ab",
        "A",
        "á",
        "a\u{301}",
        "\"",
        "'; drop table threads; --",
        "\u{7f}",
        "x",
        &long,
    ];
    let mut expected = Vec::new();
    for (k, id) in (1..).zip(odd) {
        written(&*made.home, id, k).await?;
        expected.push(id.to_owned());
    }
    for (k, id) in (1..).zip(odd) {
        let id = thread(id)?;
        let records = read_all(&made.home, &id, 300).await?;
        equal("the records of this thread alone", &(records.len() as u64), &k)?;
        posts(&*made.home, &id, message(1), Posted::Stored).await?;
        let inbox = good("the inbox", made.home.inbox(&id).await)?;
        equal("the inbox of this thread alone", &inbox.len(), &1)?;
    }
    expected.sort_unstable();
    equal("the ids", &ids(&*made.home, &Filter::default(), 4).await?, &expected)
}
