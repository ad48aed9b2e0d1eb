//! A book that others can reach: what they say to a thread is taken up at once.

use std::time::{Duration, Instant};

use deedbook::{Context, Deedbook, Result, Workflow};
use deedbook_control::{Remote, serve};
use deedbook_journal::{
    checkpointer::{Checkpointer, Posted},
    id::{MessageId, ThreadId},
    limits::ValueLimits,
    operator,
    value::view,
};

struct Waits;

impl Workflow for Waits {
    const NAME: &'static str = "waits";
    type Input = u64;
    type Output = String;

    async fn run(&self, ctx: Context, _: &u64) -> Result<String> {
        let days = Duration::from_secs(30 * 24 * 3600);
        let first: String = ctx.signal("first").within(days).await?;
        let second: String = ctx.signal("second").within(days).await?;
        Ok(format!("{first} {second}"))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_thread_takes_a_signal_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("refunds.redb");
    // It does not look by itself for as long as this test lasts.
    let hour = Duration::from_secs(3600);
    let book = Deedbook::create(&path).host(Waits).look_every(hour).start().await.unwrap();
    let _control = serve(&book).unwrap();
    book.spawn::<Waits>("t", 1).await.unwrap();
    let remote = Remote::connect(&path).await.unwrap();
    assert!(remote.owner().runs);
    let thread = ThreadId::new("t").unwrap();
    let value = |text: &str| view::from_json(text, &ValueLimits::new()).unwrap();
    let since = Instant::now();
    for (n, name) in [(1, "first"), (2, "second")] {
        // Parked, it is nobody's.
        let parked = async || book.status("t").await.unwrap().unwrap().holder.is_none();
        while !parked().await {
            tokio::task::yield_now().await;
        }
        let message = operator::signal(MessageId([n; 16]), name, value(r#""hello""#), "test");
        let posted = remote.post(&thread, message).await.unwrap();
        assert_eq!(posted, Posted::Stored);
        let admitted = async || remote.inbox(&thread).await.unwrap().is_empty();
        while !admitted().await {
            assert!(since.elapsed() < Duration::from_secs(20), "nobody takes it up");
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(book.wait::<Waits>("t").await.unwrap(), "hello hello");
    drop(_control);
    book.shutdown().await.unwrap();
}
