//! Several layers stand against running a body twice, and one that is lost could hide behind the
//! others. Each is tested alone here: the others are switched off, and it must hold; then it is
//! switched off too, and the body must run twice, or the test would test nothing.
//!
//! The downstream is the last layer: it is given one key for both, so that it can tell.

use std::{sync::Arc, time::Duration};

use deedbook::{
    Clock as _, Deedbook, Status, VirtualClock,
    planted::{Broken, plant},
};
use deedbook_memory::{MemoryHome, MemoryOptions};
use harness::{
    code::{self, Code},
    outside::{Does, Life, Outside, settle},
    watched::{Gate, Watched},
};

const T: &str = "order-4821";

/// Faults that are planted on this OS thread, until this is dropped.
struct Off;

impl Off {
    fn these(faults: &[Broken]) -> Self {
        plant(faults);
        Self
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        plant(&[]);
    }
}

/// A thread whose one step is done, and that waits for a signal; then its process dies, and another
/// one replays it. How often the body ran, and under how many keys.
async fn replayed(broken: &[Broken]) -> (usize, usize) {
    let clock = VirtualClock::new();
    let outside = Outside::that([Does::Returns(1), Does::Returns(1), Does::Returns(1)]);
    let (life, code) = code::life(&clock, &outside, |ctx, outside| async move {
        let pay = ctx.step("pay").idempotent();
        let paid = pay.run(&1, async move |op| outside.send(op).await).await?;
        let more: u32 = ctx.signal("more").await?;
        Ok(vec![paid, more])
    })
    .await;
    life.book.spawn::<Code>(T, ()).await.unwrap();
    life.until(T, Status::Waiting).await;
    let _off = Off::these(broken);
    let life = Life::after(life.crash(), &clock, |b| b.host(code)).await;
    life.book.signal(T, "more", &2_u32).await.unwrap();
    life.until(T, Status::Done).await;
    (outside.sent().len(), outside.keys())
}

#[tokio::test]
async fn a_replay_alone_keeps_a_settled_step_from_running_again() {
    assert_eq!(replayed(&[Broken::WriteUnchecked]).await, (1, 1));
    let both = [Broken::WriteUnchecked, Broken::RunSettledAgain];
    assert_eq!(replayed(&both).await, (2, 1), "the downstream can tell");
}

/// A step that may run once was under way when its process died. How often the body ran, and under
/// how many keys.
async fn died_in_the_window(broken: &[Broken]) -> (usize, usize) {
    let clock = VirtualClock::new();
    let outside = Outside::that([Does::Hangs, Does::Returns(1)]);
    let (life, code) = code::life(&clock, &outside, |ctx, outside| async move {
        let pay = ctx.step("pay").at_most_once();
        Ok(vec![pay.run(&1, async move |op| outside.send(op).await).await?])
    })
    .await;
    life.book.spawn::<Code>(T, ()).await.unwrap();
    life.settle().await;
    assert_eq!(outside.sent().len(), 1);
    let _off = Off::these(broken);
    let life = Life::after(life.crash(), &clock, |b| b.host(code)).await;
    life.pass(Duration::from_secs(120)).await;
    (outside.sent().len(), outside.keys())
}

#[tokio::test]
async fn a_doubt_alone_keeps_a_step_from_running_again() {
    let others = [Broken::WriteUnchecked, Broken::IgnoreFence];
    assert_eq!(died_in_the_window(&others).await, (1, 1));
    let all = [Broken::WriteUnchecked, Broken::IgnoreFence, Broken::RerunInDoubt];
    assert_eq!(died_in_the_window(&all).await, (2, 1), "the downstream can tell");
}

/// A process is about to commit the intent of a second step when its hold runs out, and another
/// one takes the thread over. How often bodies ran, and under how many keys.
async fn taken_over(broken: &[Broken]) -> (usize, usize) {
    let _off = Off::these(broken);
    let clock = VirtualClock::new();
    let outside = Outside::that(std::iter::repeat_n(Does::Returns(1), 4));
    let code = Code::new(&outside, |ctx, outside| async move {
        let other = outside.clone();
        let pay = ctx.step("pay").idempotent();
        let paid = pay.run(&1, async move |op| outside.send(op).await).await?;
        let more: u32 = ctx.signal("more").await?;
        let ship = ctx.step("ship").idempotent();
        let shipped = ship.run(&more, async move |op| other.send(op).await).await?;
        Ok(vec![paid, shipped])
    });
    let home = Arc::new(MemoryHome::new(MemoryOptions::new().time(clock.source().unwrap())));
    let gate = Gate::new();
    // The first one's own clock stands still: it is asleep, and does not renew its hold.
    let slow = Deedbook::on(Watched::new(home.clone(), gate.clone())).clock(VirtualClock::new());
    let first = slow.host(code.clone()).start().await.unwrap();
    first.spawn::<Code>(T, ()).await.unwrap();
    settle().await;
    gate.shut();
    first.signal(T, "more", &2_u32).await.unwrap();
    settle().await;
    assert_eq!(outside.sent().len(), 1);
    clock.advance(Duration::from_secs(61));
    let second = Deedbook::on(home).clock(clock).host(code).start().await.unwrap();
    assert_eq!(second.run::<Code>(T, ()).await.unwrap(), [1, 1]);
    gate.open();
    settle().await;
    (outside.sent().len(), outside.keys())
}

#[tokio::test]
async fn a_fence_alone_keeps_a_body_from_running_in_two_processes() {
    assert_eq!(taken_over(&[Broken::WriteUnchecked]).await, (2, 2));
    let all = [Broken::WriteUnchecked, Broken::IgnoreFence];
    assert_eq!(taken_over(&all).await, (3, 2), "the downstream can tell");
}
