//! G5: a workflow that something unknown to Deedbook drives is reported, each time alike, and
//! executes nothing on its account.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context as Cx, Poll, Wake, Waker},
    time::Duration,
};

use deedbook::{Context, Deedbook, ErrorKind, Result, Status, Workflow};
use tokio::sync::oneshot;

/// What drives the workflow, that Deedbook does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Channel,
    ChannelAtFirst,
    RealSleep,
    RealSleepBesideAStep,
    RealSleepThatEndsIt,
    Task,
    ContextInATask,
    ContextInATaskNobodyWaitsFor,
    ContextOnAnotherThread,
    StepPolledByATask,
    StepInABody,
    NowInABody,
    UuidInABody,
    RandomInABody,
    PatchedInABody,
    Spins,
    PatchedWithoutAName,
    PatchedByALongName,
    RetiredWithoutAName,
    RetiredByALongName,
}

#[derive(Clone)]
struct Driven {
    way: Way,
    /// Effects that must not happen.
    wrong: Arc<AtomicU32>,
}

impl Driven {
    fn effect(
        &self,
        ctx: &Context,
        name: &str,
    ) -> impl Future<Output = Result<()>> + Send + 'static {
        let wrong = self.wrong.clone();
        ctx.step(name).idempotent().run(&(), async move |_| {
            wrong.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    }

    async fn hang(&self, ctx: Context) -> Result<()> {
        ctx.step("hang").read().run(&(), async |_| std::future::pending().await).await
    }

    async fn beside_a_step(&self, ctx: Context) -> Result<()> {
        let slept = tokio::select! {
            () = real_sleep() => true,
            _ = self.hang(ctx.clone()) => false,
        };
        assert!(slept);
        if self.way == Way::RealSleepBesideAStep {
            self.effect(&ctx, "wrong").await?;
        }
        Ok(())
    }

    async fn in_a_task(&self, ctx: Context) -> Result<()> {
        let step = match self.way {
            Way::StepPolledByATask => Some(self.effect(&ctx, "wrong")),
            _ => None,
        };
        let (this, inner) = (self.clone(), ctx.clone());
        let task = spawn(async move {
            match (this.way, step) {
                (Way::Task, _) => {}
                (_, Some(step)) => step.await.unwrap(),
                (_, None) => this.effect(&inner, "wrong").await.unwrap(),
            }
        });
        if self.way == Way::ContextInATaskNobodyWaitsFor {
            return self.hang(ctx).await;
        }
        task.await?;
        Ok(())
    }

    async fn in_a_body(&self, ctx: Context) -> Result<()> {
        let (this, inner) = (self.clone(), ctx.clone());
        let body = async move |_| {
            match this.way {
                Way::StepInABody => this.effect(&inner, "wrong").await.unwrap(),
                Way::NowInABody => drop(inner.now().await.unwrap()),
                Way::UuidInABody => drop(inner.uuid()),
                Way::RandomInABody => drop(inner.random()),
                _ => drop(inner.patched("wrong")),
            }
            Ok(())
        };
        ctx.step("outer").read().run(&(), body).await?;
        self.effect(&ctx, "wrong").await
    }
}

impl Workflow for Driven {
    const NAME: &'static str = "driven";
    type Input = ();
    type Output = ();

    async fn run(&self, ctx: Context, (): &()) -> Result<()> {
        let (keep, channel) = oneshot::channel::<()>();
        if self.way == Way::ChannelAtFirst {
            channel.await?;
        } else {
            ctx.step("first").read().run(&(), async |_| Ok(())).await?;
            match self.way {
                Way::Channel => channel.await?,
                Way::RealSleep => real_sleep().await,
                Way::RealSleepBesideAStep | Way::RealSleepThatEndsIt => {
                    self.beside_a_step(ctx.clone()).await?;
                    return Ok(());
                }
                Way::ContextOnAnotherThread => {
                    // While the workflow is being polled, so that only the thread tells.
                    let (this, inner) = (self.clone(), ctx.clone());
                    std::thread::scope(|scope| {
                        scope.spawn(move || drop(this.effect(&inner, "wrong")));
                    });
                }
                Way::PatchedWithoutAName => drop(ctx.patched("")),
                Way::PatchedByALongName => drop(ctx.patched(&"p".repeat(513))),
                Way::RetiredWithoutAName => ctx.retired(""),
                Way::RetiredByALongName => ctx.retired(&"r".repeat(513)),
                Way::Spins => {
                    std::future::poll_fn(|cx| {
                        cx.waker().wake_by_ref();
                        Poll::<()>::Pending
                    })
                    .await;
                }
                Way::Task
                | Way::ContextInATask
                | Way::ContextInATaskNobodyWaitsFor
                | Way::StepPolledByATask => self.in_a_task(ctx.clone()).await?,
                _ => self.in_a_body(ctx.clone()).await?,
            }
        }
        drop(keep);
        self.effect(&ctx, "wrong").await
    }
}

#[expect(clippy::disallowed_methods, reason = "a real sleep is what is tested")]
async fn real_sleep() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

#[expect(clippy::disallowed_methods, reason = "a spawned task is what is tested")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(task)
}

/// Runs the workflow three times in fresh books and once more in the same one: it is reported
/// alike each time, names `named`, and executes nothing.
async fn stalls(way: Way, named: &[&str]) {
    let mut told: Option<String> = None;
    for _ in 0..3 {
        let wrong = Arc::new(AtomicU32::new(0));
        let driven = Driven { way, wrong: wrong.clone() };
        let book = Deedbook::memory().host(driven).start().await.unwrap();
        for _ in 0..2 {
            let run = book.run::<Driven>("t", ());
            let result = tokio::time::timeout(Duration::from_secs(20), run).await;
            let error = result.unwrap_or_else(|_| panic!("{way:?} hangs")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Stalled, "{way:?}: {error}");
            let error = error.to_string();
            for part in named {
                assert!(error.contains(part), "{way:?}: {part} in {error}");
            }
            // Where nothing is named, a race decides what is noticed first.
            if !named.is_empty() {
                assert_eq!(*told.get_or_insert_with(|| error.clone()), error, "{way:?}");
            }
        }
        let row = book.status("t").await.unwrap().unwrap().row;
        assert_eq!(row.status, Status::Stalled);
        assert_eq!(wrong.load(Ordering::SeqCst), 0, "{way:?} executed something");
        book.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_channel_is_reported_with_the_step_before_it() {
    stalls(Way::Channel, &["after first#0", "ctx.signal"]).await;
    stalls(Way::ChannelAtFirst, &["before its first outcome", "ctx.signal"]).await;
}

#[tokio::test]
async fn a_real_sleep_is_reported_with_the_step_before_it() {
    stalls(Way::RealSleep, &["after first#0", "ctx.sleep"]).await;
}

#[tokio::test]
async fn a_real_sleep_that_wins_against_a_step_is_reported_with_the_step_it_led_to() {
    stalls(Way::RealSleepBesideAStep, &["went on to wrong#0", "ctx.sleep"]).await;
    stalls(Way::RealSleepThatEndsIt, &["the workflow ended", "ctx.sleep"]).await;
}

#[tokio::test]
async fn a_spawned_task_is_reported() {
    stalls(Way::Task, &["after first#0", "a task"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_in_a_spawned_task_is_reported() {
    let named = ["the durable call \"wrong\"", "spawned task"];
    stalls(Way::ContextInATaskNobodyWaitsFor, &named).await;
    stalls(Way::ContextOnAnotherThread, &named).await;
    stalls(Way::ContextInATask, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_a_spawned_task_polls_is_reported() {
    stalls(Way::StepPolledByATask, &[]).await;
}

#[tokio::test]
async fn a_durable_call_in_a_body_is_reported_with_both_names() {
    stalls(Way::StepInABody, &["the body of outer#0", "\"wrong\""]).await;
    stalls(Way::NowInABody, &["the body of outer#0", "\"now\""]).await;
}

#[tokio::test]
async fn what_replay_would_not_repeat_is_refused_in_a_body() {
    stalls(Way::UuidInABody, &["the body of outer#0", "`uuid()`"]).await;
    stalls(Way::RandomInABody, &["the body of outer#0", "`random()`"]).await;
    stalls(Way::PatchedInABody, &["the body of outer#0", "`patched(\"wrong\")`"]).await;
}

#[tokio::test]
async fn a_workflow_that_wakes_itself_for_ever_is_reported() {
    stalls(Way::Spins, &["keeps waking itself"]).await;
}

#[tokio::test]
async fn names_of_changes_have_the_limits_of_step_names() {
    stalls(Way::PatchedWithoutAName, &["`patched(..)`", "it is empty"]).await;
    stalls(Way::PatchedByALongName, &["`patched(..)`", "it has 513 bytes"]).await;
    stalls(Way::RetiredWithoutAName, &["`retired(..)`", "it is empty"]).await;
    stalls(Way::RetiredByALongName, &["`retired(..)`", "it has 513 bytes"]).await;
}

/// A future that is polled with a waker of its own, which says to a channel that it was woken.
struct Telltale<F> {
    future: F,
    woken: Arc<Woken>,
}

struct Woken {
    says: Mutex<Option<oneshot::Sender<()>>>,
    whole: Mutex<Option<Waker>>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        if let Some(says) = self.says.lock().unwrap().take() {
            says.send(()).unwrap();
        }
        if let Some(whole) = self.whole.lock().unwrap().as_ref() {
            whole.wake_by_ref();
        }
    }
}

impl<F: Future + Unpin> Future for Telltale<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Cx<'_>) -> Poll<F::Output> {
        *self.woken.whole.lock().unwrap() = Some(cx.waker().clone());
        let waker = Waker::from(self.woken.clone());
        Pin::new(&mut self.future).poll(&mut Cx::from_waker(&waker))
    }
}

/// A workflow that a channel drives, which speaks between a poll of the workflow and the offer of
/// an outcome: when a body is granted.
struct Between(Arc<AtomicU32>);

impl Workflow for Between {
    const NAME: &'static str = "between";
    type Input = ();
    type Output = ();

    async fn run(&self, ctx: Context, (): &()) -> Result<()> {
        let (says, channel) = oneshot::channel();
        let woken = Woken { says: Mutex::new(Some(says)), whole: Mutex::default() };
        let look = ctx.step("look").read();
        let look = look.run(&(), async |_| std::future::pending::<Result<(), _>>().await);
        let look = Telltale { future: Box::pin(look), woken: Arc::new(woken) };
        let wrong = self.0.clone();
        let driven = ctx.clone();
        let driven = async move {
            channel.await?;
            let step = driven.step("wrong").idempotent();
            step.run(&(), async move |_| {
                wrong.fetch_add(1, Ordering::SeqCst);
                Ok(())
            })
            .await
        };
        // The clock is read at once: its outcome is there when the body of the step is granted.
        let (looked, driven, now) = tokio::join!(look, driven, ctx.now());
        looked?;
        driven?;
        now.map(drop)
    }
}

#[tokio::test]
async fn a_channel_that_speaks_just_before_an_offer_does_not_hide_behind_it() {
    let wrong = Arc::new(AtomicU32::new(0));
    let book = Deedbook::memory().host(Between(wrong.clone())).start().await.unwrap();
    let run = book.run::<Between>("t", ());
    let result = tokio::time::timeout(Duration::from_secs(20), run).await;
    let error = result.expect("it is reported").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stalled, "{error}");
    assert!(error.to_string().contains("went on to wrong#0"), "{error}");
    assert_eq!(wrong.load(Ordering::SeqCst), 0);
}
