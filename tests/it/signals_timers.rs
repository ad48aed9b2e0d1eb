//! Signals, approvals and timers: queues that lose nothing, answers that stay with their question,
//! waits that survive restarts and are never short (G12); and a parked thread is a row.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use deedbook::{
    Checkpointer, Clock, Deedbook, ErrorKind, Filter, Status, StoreTime, TimeSource, VirtualClock,
    WorkflowErrorKind,
};
use deedbook_journal::{checkpointer::BoxFuture, record::Kind};
use deedbook_memory::{MemoryHome, MemoryOptions};
use harness::{
    code::{Code, life},
    outside::{Life, Outside, settle},
};

const SECOND: Duration = Duration::from_secs(1);

async fn again(life: Life, code: &Code) -> Life {
    let clock = life.clock.clone();
    let code = code.clone();
    let life = Life::after(life.crash(), &clock, |b| b.host(code)).await;
    life.settle().await;
    life
}

#[tokio::test]
async fn signals_may_come_before_they_are_awaited_and_keep_their_order() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (mut life, code) = life(&clock, &outside, |ctx, _| async move {
        ctx.sleep("later", 10 * SECOND).await?;
        let mut got = Vec::new();
        for _ in 0..3 {
            got.push(ctx.signal::<u32>("n").await?);
        }
        got.push(ctx.signal::<u32>("other").await?);
        Ok(got)
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.book.signal("t", "n", &1).await.unwrap();
    life.book.signal("t", "other", &9).await.unwrap();
    life.book.signal("t", "n", &2).await.unwrap();
    life = again(life, &code).await;
    life.pass(12 * SECOND).await;
    assert_eq!(life.row("t").await.detail.as_deref(), Some("signal n"));
    life = again(life, &code).await;
    life.book.signal("t", "n", &3).await.unwrap();
    assert_eq!(life.ended::<Code>("t").await.unwrap(), [1, 2, 3, 9]);
    let late = life.book.signal("t", "n", &4).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Refused);
}

#[tokio::test]
async fn a_loop_that_selects_between_a_signal_and_a_timer_loses_nothing() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (mut life, code) = life(&clock, &outside, |ctx, _| async move {
        let mut got = Vec::new();
        while got.iter().filter(|n| **n > 0).count() < 30 {
            tokio::select! {
                n = ctx.signal::<u32>("n") => got.push(n?),
                slept = ctx.sleep("tick", SECOND) => { slept?; got.push(0); }
            }
        }
        Ok(got)
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    for n in 1..=30_u32 {
        life.book.signal("t", "n", &n).await.unwrap();
        if n % 3 == 0 {
            life.pass(SECOND + SECOND / 2).await;
        }
        if n % 7 == 0 {
            life = again(life, &code).await;
        }
    }
    let got = life.ended::<Code>("t").await.unwrap();
    assert!(got.contains(&0), "no timer ever won: {got:?}");
    let numbers: Vec<_> = got.into_iter().filter(|n| *n > 0).collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_bounded_wait_ends_in_time_and_never_early() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (mut life, code) = life(&clock, &outside, |ctx, _| async move {
        let first = ctx.signal::<u32>("n").within(10 * SECOND).await;
        let kind = first.unwrap_err().kind();
        assert_eq!(kind, WorkflowErrorKind::TimedOut);
        let second = ctx.signal::<u32>("n").within(10 * SECOND).await?;
        let asked = ctx.approval("ok", &1).within(10 * SECOND).await;
        Ok(vec![second, u32::from(asked.is_err())])
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    clock.advance(10 * SECOND - Duration::from_nanos(1));
    life.settle().await;
    // Awake for another reason, it looks at its timer, and finds that it is early.
    life.book.signal("t", "other", &0).await.unwrap();
    life.settle().await;
    assert_eq!(life.count("t", Kind::TimerFired).await, 0);
    life = again(life, &code).await;
    clock.advance(SECOND);
    life.settle().await;
    assert_eq!(life.count("t", Kind::TimerFired).await, 1);
    life.book.signal("t", "n", &5).await.unwrap();
    life.settle().await;
    life.pass(12 * SECOND).await;
    assert_eq!(life.ended::<Code>("t").await.unwrap(), [5, 1]);
}

#[tokio::test]
async fn s55_every_answer_goes_to_its_own_question() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (mut life, code) = life(&clock, &outside, |ctx, _| async move {
        let granted = ctx
            .map("each", 1..=3_u32, |ctx, n| async move {
                let decided = ctx.approval("pay", &n).await?;
                Ok(if decided.granted { n } else { n * 10 })
            })
            .await?;
        Ok(granted)
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    let unnamed = life.book.decide("t", "pay#0", true, "user:a", "").await.unwrap_err();
    assert_eq!(unnamed.kind(), ErrorKind::NotFound);
    for open in ["each/0/pay#0", "each/1/pay#0", "each/2/pay#0"] {
        assert!(unnamed.to_string().contains(open), "{unnamed}");
    }
    life.book.decide("t", "each/2/pay#0", false, "user:a", "too much").await.unwrap();
    life = again(life, &code).await;
    life.book.decide("t", "each/0/pay#0", true, "user:b", "").await.unwrap();
    life = again(life, &code).await;
    // The first answer counts; whoever comes later is told so.
    let second = life.book.decide("t", "each/0/pay#0", false, "user:c", "").await.unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Refused, "{second}");
    life.book.decide("t", "each/1/pay#0", true, "user:a", "").await.unwrap();
    assert_eq!(life.ended::<Code>("t").await.unwrap(), [1, 2, 30]);
}

#[tokio::test]
async fn of_two_answers_at_once_the_first_wins_and_the_other_is_kept_as_refused() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (life, _) = life(&clock, &outside, |ctx, _| async move {
        let decided = ctx.approval("pay", &1).await?;
        assert_eq!(decided.by, "user:a");
        assert_eq!(decided.reason, "fine");
        ctx.signal::<u32>("go").await?;
        Ok(vec![u32::from(decided.granted)])
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    let first = life.book.decide("t", "pay#0", true, "user:a", "fine");
    let second = life.book.decide("t", "pay#0", false, "user:b", "no");
    let (first, second) = tokio::join!(first, second);
    first.unwrap();
    // Both were posted before either had its place.
    second.unwrap();
    life.settle().await;
    assert_eq!(life.count("t", Kind::ApprovalDecide).await, 1);
    assert_eq!(life.count("t", Kind::MessageRefused).await, 1);
    life.book.signal("t", "go", &0).await.unwrap();
    assert_eq!(life.ended::<Code>("t").await.unwrap(), [1]);
}

#[tokio::test]
async fn s77_a_sleep_goes_on_over_restarts() {
    // Died at 4 s; up again at 6 s, at 20 s, or twice before 10 s.
    for restarts in [vec![6], vec![20], vec![6, 8]] {
        let (clock, outside) = (VirtualClock::new(), Outside::default());
        let (mut life, code) = life(&clock, &outside, |ctx, _| async move {
            ctx.sleep("nap", 10 * SECOND).await?;
            Ok(vec![1])
        })
        .await;
        let began = clock.now();
        life.book.spawn::<Code>("t", ()).await.unwrap();
        life.settle().await;
        clock.advance(4 * SECOND);
        for at in restarts.clone() {
            let passed = clock.now().since(began);
            clock.advance(at * SECOND - passed);
            life = again(life, &code).await;
        }
        let fires = Duration::from_secs(10).max(clock.now().since(began));
        while life.row("t").await.status != Status::Done {
            assert!(clock.now().since(began) <= fires + SECOND);
            clock.advance(SECOND / 4);
        }
        let records = life.records("t").await;
        let of = |kind| records.iter().filter(move |(h, _)| h.kind == kind);
        assert_eq!(of(Kind::TimerSet).count(), 1, "{restarts:?}");
        assert_eq!(of(Kind::TimerFired).count(), 1);
        let (set, _) = of(Kind::TimerSet).next().unwrap();
        let (fired, _) = of(Kind::TimerFired).next().unwrap();
        assert!(fired.time >= set.due.unwrap());
        assert!(fired.time >= began.after(10 * SECOND));
    }
}

/// A clock that is set, forward and back, by whoever holds it.
#[derive(Debug, Clone, Default)]
struct Wall {
    time: Arc<AtomicU64>,
    set: Arc<tokio::sync::Notify>,
}

impl Wall {
    fn set(&self, seconds: u64) {
        self.time.store(seconds * 1_000_000_000, Ordering::SeqCst);
        self.set.notify_waiters();
    }
}

impl Clock for Wall {
    fn source(&self) -> Option<TimeSource> {
        let time = self.time.clone();
        Some(Arc::new(move || time.load(Ordering::SeqCst)))
    }

    fn sleep(&self, _: StoreTime, until: StoreTime) -> BoxFuture<'static, ()> {
        let wall = self.clone();
        Box::pin(async move {
            loop {
                let mut set = std::pin::pin!(wall.set.notified());
                set.as_mut().enable();
                if wall.time.load(Ordering::SeqCst) >= until.0 {
                    return;
                }
                set.await;
            }
        })
    }
}

#[tokio::test]
async fn s76_a_clock_that_jumps_neither_fires_early_nor_fails_what_runs() {
    let wall = Wall::default();
    wall.set(12 * 3600);
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx, outside| async move {
        for n in 0..2_u32 {
            let step = ctx.step("pay").idempotent();
            step.run(&n, async |op| outside.send(op).await).await?;
            ctx.sleep("minute", 60 * SECOND).await?;
        }
        Ok(vec![])
    });
    let home = Arc::new(MemoryHome::new(MemoryOptions::new().time(wall.source().unwrap())));
    let book = Deedbook::on(home.clone()).clock(wall.clone()).host(code);
    let book = book.start().await.unwrap();
    book.spawn::<Code>("t", ()).await.unwrap();
    settle().await;
    // An hour back: the store's clock stands still, and nothing fires.
    wall.set(11 * 3600);
    settle().await;
    wall.set(12 * 3600 + 59);
    settle().await;
    assert_eq!(outside.sent().len(), 1);
    // Hours forward: the sleep is over, and the next one is as long as it should be.
    wall.set(15 * 3600);
    settle().await;
    assert_eq!(outside.sent().len(), 2);
    wall.set(11 * 3600);
    settle().await;
    assert_eq!(book.status("t").await.unwrap().unwrap().row.status, Status::Sleeping);
    wall.set(15 * 3600 + 60);
    settle().await;
    book.wait::<Code>("t").await.unwrap();
    let id = deedbook::ThreadId::new("t").unwrap();
    let page = home.read(&id, 0, usize::MAX).await.unwrap();
    let times: Vec<_> = page
        .items
        .iter()
        .map(|(_, r)| deedbook_journal::record::Header::parse(&r.header).unwrap().time)
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[tokio::test]
async fn five_thousand_parked_threads_are_rows_and_all_wake() {
    const THREADS: usize = 5_000;
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (life, code) = life(&clock, &outside, |ctx, _| async move {
        ctx.sleep("nap", 3_600 * SECOND).await?;
        Ok(vec![1])
    })
    .await;
    for n in 0..THREADS {
        life.book.spawn::<Code>(format!("t-{n:04}"), ()).await.unwrap();
    }
    life.settle().await;
    let all = |statuses: Vec<Status>| Filter { statuses, ..Filter::default() };
    let sleeping = all(vec![Status::Sleeping]);
    let page = life.book.threads(&sleeping, None, 10_000).await.unwrap();
    assert_eq!(page.items.len(), THREADS);
    assert!(page.items.iter().all(|t| t.holder.is_none()), "a parked thread is held");
    // A new process takes none of them up before its time.
    let life = again(life, &code).await;
    let page = life.book.threads(&sleeping, None, 10_000).await.unwrap();
    assert!(page.items.iter().all(|t| t.holder.is_none()));
    // Only the process said that it begins.
    assert_eq!(life.home.counts().appends, 1);
    clock.advance(3_601 * SECOND);
    for _ in 0..200 {
        life.settle().await;
        clock.advance(SECOND);
    }
    let done = all(vec![Status::Done]);
    let page = life.book.threads(&done, None, 10_000).await.unwrap();
    assert_eq!(page.items.len(), THREADS);
}

#[tokio::test]
async fn a_shutdown_parks_everything_and_the_next_start_resumes_it() {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    outside.then([harness::outside::Does::Waits(1), harness::outside::Does::Hangs]);
    let code = Code::new(&outside, |ctx, outside| async move {
        let step = ctx.step("pay").idempotent();
        let paid = step.run(&1, async |op| outside.send(op).await).await?;
        let told = ctx.signal::<u32>("go").await?;
        Ok(vec![paid, told])
    });
    let path = tempfile::tempdir().unwrap();
    let file = path.path().join("t.redb");
    let book = |code: Code| {
        let builder = Deedbook::open_or_create(&file).clock(clock.clone());
        builder.host(code).start()
    };
    let first = book(code.clone()).await.unwrap();
    for thread in ["ends in time", "hangs", "waits"] {
        first.spawn::<Code>(thread, ()).await.unwrap();
        while outside.sent().is_empty() {
            tokio::task::yield_now().await;
        }
    }
    while outside.sent().len() < 3 {
        tokio::task::yield_now().await;
    }
    let mut down = std::pin::pin!(first.shutdown());
    // The body that can ends; the grace of the one that cannot runs out.
    outside.let_go();
    loop {
        tokio::select! {
            biased;
            closed = &mut down => { closed.unwrap(); break; }
            () = settle() => { clock.advance(SECOND / 10); }
        }
    }
    let second = book(code).await.unwrap();
    for thread in ["ends in time", "hangs", "waits"] {
        second.signal(thread, "go", &2).await.unwrap();
        let ended = second.wait::<Code>(thread).await.unwrap();
        assert_eq!(ended[1], 2);
    }
    // Only the one that hung was sent again, under its key.
    assert_eq!(outside.sent().len(), 4);
    assert_eq!(outside.keys(), 3);
    second.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_map_polls_the_items_that_were_woken_and_no_others() {
    const ITEMS: u32 = 200;
    let polls = Arc::new(AtomicU64::new(0));
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let counter = polls.clone();
    let (life, _) = life(&clock, &outside, move |ctx, _| {
        let polls = counter.clone();
        async move {
            ctx.map("each", 0..ITEMS, |ctx, n| {
                let mut wait = ctx.signal::<u32>(&format!("s{n}")).into_future();
                let polls = polls.clone();
                std::future::poll_fn(move |cx| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    wait.as_mut().poll(cx)
                })
            })
            .await
        }
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    life.settle().await;
    // All at once, so that the thread is loaded once.
    for n in (0..ITEMS).rev() {
        life.book.signal("t", &format!("s{n}"), &n).await.unwrap();
    }
    let got = life.ended::<Code>("t").await.unwrap();
    assert_eq!(got, (0..ITEMS).collect::<Vec<_>>());
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls < u64::from(ITEMS) * 8, "{polls} polls for {ITEMS} items");
}

/// A workflow that naps, parked by a process that is gone.
async fn napping(nap: Duration) -> (Life, Code, VirtualClock) {
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (life, code) = life(&clock, &outside, move |ctx, _| async move {
        ctx.sleep("nap", nap).await?;
        Ok(vec![ctx.signal("n").await?])
    })
    .await;
    life.book.spawn::<Code>("t", ()).await.unwrap();
    assert_eq!(life.row("t").await.status, Status::Sleeping);
    let hosted = code.clone();
    // It looks for what is due once an hour.
    let life =
        Life::after(life.crash(), &clock, |b| b.host(hosted).look_every(3600 * SECOND)).await;
    life.settle().await;
    (life, code, clock)
}

#[tokio::test]
async fn a_thread_that_an_earlier_process_parked_wakes_when_it_is_due() {
    let (life, _, clock) = napping(7 * SECOND).await;
    let begun = clock.now();
    // Nothing but a deadline that the book knows is slept for before this time.
    assert!(clock.advance_to_next());
    assert_eq!(clock.now().since(begun), 7 * SECOND);
    assert_eq!(life.row("t").await.status, Status::Waiting);
}

#[tokio::test]
async fn more_deadlines_than_a_book_keeps_are_learnt_in_turn() {
    const THREADS: u32 = 5_000;
    let (clock, outside) = (VirtualClock::new(), Outside::default());
    let (life, code) = life(&clock, &outside, |ctx, _| async move {
        let thread = ctx.thread_id();
        let number: u32 = thread.as_str().trim_start_matches('t').parse().unwrap();
        // Each at a time of its own.
        ctx.sleep("nap", 10 * SECOND + number * (SECOND / 1000)).await?;
        Ok(vec![])
    })
    .await;
    for n in 0..THREADS {
        life.book.spawn::<Code>(format!("t{n}"), ()).await.unwrap();
    }
    life.settle().await;
    let hosted = code.clone();
    let life =
        Life::after(life.crash(), &clock, |b| b.host(hosted).look_every(36_000 * SECOND)).await;
    life.settle().await;
    // Beyond the last of the 4096 that are known at first.
    clock.advance(14 * SECOND + SECOND / 5);
    for _ in 0..100 {
        life.settle().await;
    }
    // The next ones are known by now.
    let begun = clock.now();
    assert!(clock.advance_to_next());
    assert!(clock.now().since(begun) <= SECOND / 500, "{:?}", clock.now().since(begun));
}

#[tokio::test]
async fn who_waits_for_a_parked_thread_takes_up_what_was_said_to_it() {
    for nap in [0, 7] {
        let (life, _, clock) = napping(nap * SECOND + SECOND / 10).await;
        clock.advance(nap * SECOND + SECOND / 2);
        life.settle().await;
        assert_eq!(life.row("t").await.status, Status::Waiting);
        // Another process says it, whom this one does not hear.
        let body = deedbook_journal::value::encode(&5_u32, &deedbook::ValueLimits::new()).unwrap();
        let said = deedbook_journal::checkpointer::Message {
            id: deedbook_journal::id::MessageId([1; 16]),
            kind: deedbook_journal::message::SIGNAL,
            name: "n".into(),
            by: "another".into(),
            body: body.into(),
        };
        let id = deedbook::ThreadId::new("t").unwrap();
        life.home.post(&id, said).await.unwrap();
        life.settle().await;
        assert_eq!(life.row("t").await.status, Status::Waiting, "nobody has looked");
        assert_eq!(life.ended::<Code>("t").await.unwrap(), [5]);
    }
}
