//! Continue-as-new: a thread that goes on for ever replays only its last episode.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use deedbook::{Context, Deedbook, ErrorKind, Result, Status, Workflow};
use deedbook_memory::{MemoryHome, MemoryOptions};

#[derive(Clone, Default)]
struct Counts {
    effects: Arc<AtomicU32>,
    once: Arc<AtomicU32>,
}

impl Workflow for Counts {
    const NAME: &'static str = "counts";
    type Input = u32;
    type Output = u32;

    async fn run(&self, ctx: Context, left: &u32) -> Result<u32> {
        ctx.step("work")
            .idempotent()
            .run(left, async |_| {
                self.effects.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .await?;
        let once = async |_| {
            self.once.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        ctx.step("open-account").idempotent().key("account-7").run(&(), once).await?;
        if *left > 0 {
            return Err(ctx.continue_as_new(&(left - 1)).await);
        }
        ctx.signal::<u32>("first").await
    }
}

#[tokio::test]
async fn episodes_begin_anew_and_keep_signals_and_explicit_identities() {
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let counts = Counts::default();
    let book = Deedbook::on(home.clone()).host(counts.clone()).start().await.unwrap();
    book.spawn::<Counts>("c", 5).await.unwrap();
    book.signal("c", "first", &41u32).await.unwrap();
    book.signal("c", "first", &42u32).await.unwrap();
    assert_eq!(book.wait::<Counts>("c").await.unwrap(), 41);
    assert_eq!(counts.effects.load(Ordering::SeqCst), 6);
    assert_eq!(counts.once.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_restart_replays_only_the_last_episode() {
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let counts = Counts::default();
    let book = Deedbook::on(home.clone()).host(counts.clone()).start().await.unwrap();
    book.spawn::<Counts>("c", 3).await.unwrap();
    loop {
        let info = book.status("c").await.unwrap().unwrap();
        if info.row.status == Status::Waiting && info.holder.is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let snapshot = home.snapshot();
    let home = Arc::new(MemoryHome::from_snapshot(snapshot, None));
    let again = Deedbook::on(home).host(counts.clone()).start().await.unwrap();
    again.signal("c", "first", &7u32).await.unwrap();
    assert_eq!(again.wait::<Counts>("c").await.unwrap(), 7);
    assert_eq!(counts.effects.load(Ordering::SeqCst), 4);
    assert_eq!(counts.once.load(Ordering::SeqCst), 1);
}

struct Restless;

impl Workflow for Restless {
    const NAME: &'static str = "restless";
    type Input = u32;
    type Output = ();

    async fn run(&self, ctx: Context, _: &u32) -> Result<()> {
        let mut held = Box::pin(ctx.step("pay").idempotent().run(&1, async |_| {
            std::future::pending::<()>().await;
            Ok(())
        }));
        let poll = std::future::poll_fn(|cx| {
            let _ = held.as_mut().poll(cx);
            std::task::Poll::Ready(())
        });
        poll.await;
        // By now the step is made; two turns later its body is under way.
        ctx.step("look").read().run(&1, async |_| Ok(())).await?;
        std::future::poll_fn(|cx| {
            let _ = held.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
        Err(ctx.continue_as_new("not a number").await)
    }
}

#[tokio::test]
async fn a_wrong_next_input_or_an_open_body_is_refused() {
    let book = Deedbook::memory().host(Restless).start().await.unwrap();
    let error = book.run::<Restless>("r", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stalled, "{error}");
    assert!(error.to_string().contains("cannot continue as new"), "{error}");
}
