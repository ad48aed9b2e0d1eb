//! Batches: what a run makes durable at once is bounded, whatever its code does, and others get
//! their turn beside it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use deedbook::{Clock, Deedbook, VirtualClock};
use deedbook_journal::{checkpointer::BoxFuture, limits::BATCH_RECORDS_MAX};
use deedbook_memory::{LastAppend, MemoryHome, MemoryOptions};
use harness::{
    code::{Code, life},
    outside::{Life, Outside},
    watched::{Hook, Place, Watched},
};

/// Keeps the largest number of records that came at once.
#[derive(Debug, Default)]
struct Largest(AtomicUsize);

impl Hook for Largest {
    fn at<'a>(&'a self, place: Place<'a>) -> BoxFuture<'a, ()> {
        if let Place::Append(group) = place {
            let most = group.iter().map(|append| append.records.len()).max().unwrap_or(0);
            self.0.fetch_max(most, Ordering::Relaxed);
        }
        Box::pin(std::future::ready(()))
    }
}

/// Runs this code on a watched home: its largest batch.
async fn largest_batch(code: Code) -> usize {
    let largest = Arc::new(Largest::default());
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let watched = Watched::new(home.clone(), largest.clone());
    let book = Deedbook::on(watched).host(code).start().await.unwrap();
    let got = book.run::<Code>("t", ()).await.unwrap();
    assert_eq!(got, (0..got.len() as u32).collect::<Vec<_>>());
    assert!(got.len() > 2 * BATCH_RECORDS_MAX);
    largest.0.load(Ordering::Relaxed)
}

const MANY: u32 = 2 * BATCH_RECORDS_MAX as u32 + 100;

#[tokio::test]
async fn code_that_never_rests_makes_durable_what_it_has() {
    let code = Code::new(&Outside::default(), |ctx, _| async move {
        let mut got = Vec::new();
        for n in 0..MANY {
            got.push(ctx.step("look").read().run(&n, async |_| Ok(n)).await?);
        }
        Ok(got)
    });
    assert_eq!(largest_batch(code).await, BATCH_RECORDS_MAX);
}

#[tokio::test]
async fn calls_made_at_once_become_several_batches() {
    let code = Code::new(&Outside::default(), |ctx, _| async move {
        ctx.map("all", 0..MANY, |ctx, n| async move {
            ctx.step("pay").idempotent().run(&n, async |_| Ok(n)).await
        })
        .await
    });
    assert_eq!(largest_batch(code).await, BATCH_RECORDS_MAX);
}

#[tokio::test]
async fn others_get_their_turn_beside_code_that_never_rests() {
    let told = Arc::new(AtomicBool::new(false));
    let code = Code::new(&Outside::default(), move |ctx, _| {
        let told = told.clone();
        async move {
            if ctx.thread_id().as_str() == "b" {
                told.store(true, Ordering::SeqCst);
                return Ok(Vec::new());
            }
            let mut n = 0;
            while !told.load(Ordering::SeqCst) {
                n = ctx.step("look").read().run(&n, async |_| Ok(n + 1)).await?;
                assert!(n < 100_000, "nobody else was given a turn");
            }
            Ok(vec![n])
        }
    });
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let book = Deedbook::on(home).host(code).start().await.unwrap();
    let (a, b) = tokio::join!(book.run::<Code>("a", ()), book.run::<Code>("b", ()));
    assert!(a.unwrap()[0] > 0 && b.unwrap().is_empty());
}

#[tokio::test]
async fn messages_go_with_the_batch_that_gives_them_their_places() {
    const SIGNALS: u32 = BATCH_RECORDS_MAX as u32 + 500;
    let clock = VirtualClock::new();
    let (first, code) = life(&clock, &Outside::default(), |ctx, _| async move {
        let mut got = Vec::new();
        for _ in 0..SIGNALS {
            got.push(ctx.signal::<u32>("n").await?);
        }
        Ok(got)
    })
    .await;
    first.book.spawn::<Code>("t", ()).await.unwrap();
    first.settle().await;
    let parked = first.crash();
    let home = Arc::new(MemoryHome::from_snapshot(parked, clock.source()));
    let stranger = Deedbook::on(home.clone()).clock(clock.clone()).start().await.unwrap();
    for n in 0..SIGNALS {
        stranger.signal("t", "n", &n).await.unwrap();
    }
    let signalled = home.snapshot();
    for appends in 1..8 {
        let home = MemoryHome::from_snapshot(signalled.clone(), clock.source());
        home.stop_after_appends(appends, LastAppend::Lost);
        let home = Arc::new(home);
        let started = Deedbook::on(home.clone()).clock(clock.clone()).host(code.clone()).start();
        let _book = started.await;
        harness::outside::settle().await;
        let crash = home.snapshot();
        let hosted = code.clone();
        let last = Life::after(crash, &clock, |b| b.host(hosted)).await;
        last.pass(Duration::from_secs(100)).await;
        let got = last.ended::<Code>("t").await.unwrap();
        assert_eq!(got, (0..SIGNALS).collect::<Vec<_>>(), "after {appends} appends");
    }
}
