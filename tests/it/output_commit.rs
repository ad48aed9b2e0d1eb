//! Output commit: what the world sees waits for what is durable, and no longer. Shown by counting
//! and by holding appends back, never by timing.

use std::sync::Arc;

use deedbook::{Deedbook, Filter, Status};
use deedbook_journal::embedded::{CountingDisk, CreateOptions, Embedded, OpenOptions, RealDisk};
use deedbook_memory::{MemoryHome, MemoryOptions};
use harness::{
    code::Code,
    outside::{Outside, settle},
    watched::{Gate, Watched},
};

/// A workflow of so many steps with an effect, one after the other.
fn sequence(outside: &Outside, steps: u32) -> Code {
    Code::new(outside, move |ctx, outside| async move {
        let mut results = Vec::new();
        for n in 0..steps {
            let step = ctx.step("pay").idempotent();
            let result = step.run(&n, async |op| outside.send(op).await).await?;
            results.push(result);
        }
        Ok(results)
    })
}

#[tokio::test]
async fn n_sequential_effects_cost_n_and_one_groups() {
    for steps in [0, 1, 5, 40] {
        let outside = Outside::default();
        let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
        let code = sequence(&outside, steps);
        let book = Deedbook::on(home.clone()).host(code).start().await.unwrap();
        let before = home.counts();
        let results = book.run::<Code>("t", ()).await.unwrap();
        assert_eq!(results.len(), steps as usize);
        let groups = home.counts().groups - before.groups;
        assert_eq!(groups, u64::from(steps) + 1, "{steps} steps");
    }
}

#[tokio::test]
async fn n_sequential_effects_cost_n_and_one_commits_of_one_sync_on_disk() {
    let disk = Arc::new(CountingDisk::new(Arc::new(RealDisk)));
    let folder = tempfile::tempdir().unwrap();
    let open = OpenOptions::new().disk(disk.clone());
    let options = CreateOptions::new().open(open);
    let home = Embedded::create(folder.path().join("t.redb"), options).unwrap();
    // As many steps as the thread's id says.
    let code = Code::new(&Outside::default(), |ctx, outside| async move {
        let steps: u32 = ctx.thread_id().as_str().parse()?;
        for n in 0..steps {
            let step = ctx.step("pay").idempotent();
            step.run(&n, async |op| outside.send(op).await).await?;
        }
        Ok(Vec::new())
    });
    let book = Deedbook::on(Arc::new(home)).host(code).start().await.unwrap();
    // The file grows now and then, which costs a sync of its own: here, not below.
    book.run::<Code>("100", ()).await.unwrap();
    for steps in [1, 5, 20] {
        let before = disk.counts().syncs;
        book.run::<Code>(steps.to_string(), ()).await.unwrap();
        let syncs = disk.counts().syncs - before;
        // The keeper fills the log ahead, and marks it if this thread was held up.
        assert!((steps + 1..=steps + 4).contains(&syncs), "{steps} steps: {syncs} syncs");
    }
    book.shutdown().await.unwrap();
}

#[tokio::test]
async fn effects_side_by_side_share_their_groups() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx, outside| async move {
        ctx.map("all", 0..20_u32, |ctx, n| {
            let outside = outside.clone();
            async move {
                let step = ctx.step("pay").idempotent();
                step.run(&n, async |op| outside.send(op).await).await
            }
        })
        .await
    });
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let book = Deedbook::on(home.clone()).host(code).start().await.unwrap();
    let before = home.counts();
    book.run::<Code>("t", ()).await.unwrap();
    assert_eq!(home.counts().groups - before.groups, 2);
    assert_eq!(outside.keys(), 20);
}

/// A book whose appends a test can hold back.
async fn gated(code: Code) -> (Deedbook, Arc<Gate>, Arc<MemoryHome>) {
    let home = Arc::new(MemoryHome::new(MemoryOptions::new()));
    let gate = Gate::new();
    let store = Watched::new(home.clone(), gate.clone());
    let book = Deedbook::on(store).host(code).start().await.unwrap();
    (book, gate, home)
}

#[tokio::test]
async fn a_body_with_an_effect_waits_for_its_intent() {
    let outside = Outside::default();
    let (book, gate, home) = gated(sequence(&outside, 2)).await;
    gate.shut();
    let mut running = std::pin::pin!(book.run::<Code>("t", ()));
    for sent in 0..2 {
        tokio::select! {
            biased;
            early = &mut running => panic!("an answer from nowhere: {early:?}"),
            () = settle() => {}
        }
        assert_eq!(outside.sent().len(), sent, "a body ran before its intent was durable");
        // One more than the groups of the thread: the process said that it begins.
        assert_eq!(home.counts().appends, 1 + sent as u64);
        // The body runs as soon as the group is durable; what it brings waits again.
        gate.let_one_through();
        tokio::select! {
            biased;
            _ = &mut running => panic!("an answer before the end is durable"),
            () = settle() => {}
        }
        assert_eq!(outside.sent().len(), sent + 1);
    }
    gate.open();
    assert_eq!(running.await.unwrap(), [7, 7]);
}

#[tokio::test]
async fn a_read_waits_for_nothing() {
    let outside = Outside::default();
    let code = Code::new(&outside, |ctx, outside| async move {
        let mut results = Vec::new();
        for n in 0..3_u32 {
            let step = ctx.step("look").read();
            results.push(step.run(&n, async |a| outside.look(a).await).await?);
        }
        let step = ctx.step("pay").idempotent();
        results.push(step.run(&1, async |op| outside.send(op).await).await?);
        Ok(results)
    });
    let (book, gate, home) = gated(code).await;
    gate.shut();
    let mut running = std::pin::pin!(book.run::<Code>("t", ()));
    tokio::select! {
        biased;
        _ = &mut running => panic!("an answer from nowhere"),
        () = settle() => {}
    }
    // All three reads have run, one after the other, and the effect behind them has not.
    assert_eq!(outside.sent().len(), 3);
    // Only the process said that it begins.
    assert_eq!(home.counts().appends, 1);
    // Observers are served what is durable: nothing.
    assert!(book.status("t").await.unwrap().is_none());
    let listed = book.threads(&Filter::default(), None, 10).await.unwrap();
    assert!(listed.items.is_empty());
    gate.open();
    assert_eq!(running.await.unwrap(), [7; 4]);
    // The process, then everything up to the intent, then everything up to the end.
    assert_eq!(home.counts().groups, 3);
}

#[tokio::test]
async fn an_answer_waits_for_the_end_and_observers_see_what_is_durable() {
    let outside = Outside::default();
    let code = Code::new(&outside, |_, _| async move { Ok(vec![1]) });
    let (book, gate, _) = gated(code).await;
    gate.shut();
    let mut running = std::pin::pin!(book.run::<Code>("t", ()));
    tokio::select! {
        biased;
        _ = &mut running => panic!("an answer before the end is durable"),
        () = settle() => {}
    }
    assert!(book.status("t").await.unwrap().is_none());
    gate.open();
    assert_eq!(running.await.unwrap(), [1]);
    let info = book.status("t").await.unwrap().unwrap();
    assert_eq!(info.row.status, Status::Done);
}

#[tokio::test]
async fn a_probe_waits_for_everything_before_it() {
    let outside = Outside::that([harness::outside::Does::Fails]);
    let code = Code::new(&outside, |ctx, outside| async move {
        let step = ctx.step("pay").reconcile(async |op| outside.ask(op).await);
        let step = step.quiet(std::time::Duration::ZERO);
        Ok(vec![step.run(&1, async |op| outside.send(op).await).await?])
    });
    let (book, gate, _) = gated(code).await;
    gate.shut();
    let mut running = std::pin::pin!(book.run::<Code>("t", ()));
    for (sent, asked) in [(0, 0), (1, 0), (1, 1)] {
        tokio::select! {
            biased;
            _ = &mut running => panic!("an answer from nowhere"),
            () = settle() => {}
        }
        assert_eq!((outside.sent().len(), outside.asked().len()), (sent, asked));
        gate.let_one_through();
    }
    gate.open();
    assert_eq!(running.await.unwrap(), [7]);
}
