//! The kit finds what it is for, and nothing else.

#![allow(clippy::print_stdout, reason = "a matrix is there to be seen")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{Context, Error, Probe, Result, Workflow};
use deedbook_testkit::{CrashMatrix, Matrix, World};

type Body =
    dyn Fn(Context, World) -> Pin<Box<dyn Future<Output = Result<u32>> + Send>> + Send + Sync;

/// A workflow made of a closure.
#[derive(Clone)]
struct Code {
    world: World,
    body: Arc<Body>,
}

impl Workflow for Code {
    const NAME: &'static str = "code";
    type Input = ();
    type Output = u32;

    async fn run(&self, ctx: Context, (): &()) -> Result<u32> {
        (self.body)(ctx, self.world.clone()).await
    }
}

fn body<F, Fut>(run: F) -> Arc<Body>
where
    F: Fn(Context, World) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<u32>> + Send + 'static,
{
    Arc::new(move |ctx, world| Box::pin(run(ctx, world)))
}

/// Explores a workflow that somebody runs and waits for.
fn explore(matrix: CrashMatrix, body: Arc<Body>) -> Matrix {
    let matrix = matrix.explore(move |world| {
        let code = Code { world: world.clone(), body: body.clone() };
        async move {
            let book = world.book().host(code).start().await?;
            book.run::<Code>("t", ()).await
        }
    });
    println!("{matrix}");
    matrix
}

fn wrong(matrix: &Matrix, what: &str) {
    let wrongs = matrix.wrongs_as_text();
    assert!(wrongs.iter().any(|wrong| wrong.contains(what)), "no {what:?} in {wrongs:#?}");
}

#[test]
fn three_policies_keep_their_promises_and_the_fourth_is_in_doubt() {
    let matrix = explore(
        CrashMatrix::new(),
        body(|ctx, world| async move {
            let (bank, mail, desk) =
                (world.downstream("bank"), world.downstream("mail"), world.downstream("desk"));
            let look = ctx.step("look").read().run(&1, async |_| Ok(2)).await?;
            let pay = ctx.step("pay").idempotent();
            let paid = pay.run(&look, async |op| Ok(bank.perform(op.key(), 3).await?)).await?;
            let asks = mail.clone();
            let tell = ctx.step("tell").reconcile(async move |op| Ok(asks.find(op.key()).await?));
            let told = tell.run(&paid, async |op| Ok(mail.perform(op.key(), 4).await?)).await?;
            ctx.sleep("settle", Duration::from_secs(3 * 86_400)).await?;
            let once = ctx.step("call").at_most_once();
            let call = once.run(&told, async |op| Ok(desk.perform(op.key(), 5).await?)).await?;
            Ok(look + paid + told + call)
        }),
    );
    assert!(matrix.is_fine(), "{matrix}");
    // The window of the step that must not be asked twice, in each order: behind its intent, with
    // its outcome, and before, on the way to and behind its effect; or its answer is lost.
    assert_eq!((matrix.points(), matrix.doubts()), (4 * 24, 4 * 6), "{matrix}");
}

#[test]
fn keys_that_are_not_the_operations_are_found() {
    let count = Arc::new(AtomicU32::new(0));
    let matrix = explore(
        CrashMatrix::new(),
        body(move |ctx, world| {
            let count = count.clone();
            async move {
                let bank = world.downstream("bank");
                let pay = ctx.step("pay").idempotent();
                let own = async |_| {
                    let key = format!("attempt-{}", count.fetch_add(1, Ordering::Relaxed));
                    Ok(bank.perform(&key, 3).await?)
                };
                pay.run(&1, own).await
            }
        }),
    );
    wrong(&matrix, "no step of the journal has it");
}

#[test]
fn a_downstream_that_ignores_keys_is_found() {
    let matrix = explore(
        CrashMatrix::new().prepare(|world| {
            world.downstream("bank").without_keys();
        }),
        body(|ctx, world| async move {
            let bank = world.downstream("bank");
            let pay = ctx.step("pay").idempotent();
            pay.run(&1, async |op| Ok(bank.perform(op.key(), 3).await?)).await
        }),
    );
    wrong(&matrix, "pay#0 (idempotent) was done 2 times");
}

#[test]
fn a_read_with_an_effect_is_found() {
    let matrix = explore(
        CrashMatrix::new(),
        body(|ctx, world| async move {
            let bank = world.downstream("bank");
            let pay = ctx.step("pay").read();
            pay.run(&1, async |_| Ok(bank.perform("order-1", 3).await?)).await
        }),
    );
    wrong(&matrix, "under the key order-1");
}

#[test]
fn an_effect_outside_of_a_step_is_found() {
    let matrix = explore(
        CrashMatrix::new(),
        body(|ctx, world| async move {
            let bank = world.downstream("bank");
            let looked = ctx.step("look").read().run(&1, async |_| Ok(2)).await?;
            let inside = bank.perform("order-1", 3);
            Ok(looked + inside.await?)
        }),
    );
    assert!(!matrix.is_fine());
}

#[test]
fn code_that_decides_by_something_else_than_its_journal_is_found() {
    let starts = Arc::new(AtomicU32::new(0));
    let matrix = explore(
        CrashMatrix::new().orders(1),
        body(move |ctx, world| {
            let start = starts.fetch_add(1, Ordering::Relaxed);
            async move {
                let bank = world.downstream("bank");
                let name = if start.is_multiple_of(2) { "pay" } else { "refund" };
                let pay = ctx.step(name).idempotent();
                let paid = pay.run(&1, async |op| Ok(bank.perform(op.key(), 3).await?));
                let paid = paid.await?;
                ctx.step("note").idempotent().run(&paid, async |_| Ok(paid)).await
            }
        }),
    );
    wrong(&matrix, "record 1 has this call, and the code makes");
}

#[test]
fn a_window_that_is_longer_than_the_downstreams_memory_is_found() {
    let hours = |n: u64| Duration::from_secs(n * 3600);
    let with = move |window: Duration| {
        let prepare = move |world: &World| {
            world.downstream("bank").forgets_keys_after(hours(1)).silent_next(1);
        };
        explore(
            CrashMatrix::new().orders(1).prepare(prepare).may_doubt("pay"),
            body(move |ctx, world| async move {
                let bank = world.downstream("bank");
                let pay = ctx.step("pay").idempotent().honoured_for(window).timeout(hours(2));
                pay.run(&1, async |op| Ok(bank.perform(op.key(), 3).await?)).await
            }),
        )
    };
    wrong(&with(hours(24)), "was done 2 times");
    let fine = with(hours(1));
    assert!(fine.is_fine() && fine.doubts() > 0, "{fine}");
}

#[test]
fn a_person_decides_once_whatever_crashes() {
    let matrix = CrashMatrix::new().explore(async |world: World| {
        let code = Code {
            world: world.clone(),
            body: body(|ctx, world| async move {
                let bank = world.downstream("bank");
                let decided = ctx.approval("refund", &4200).await?;
                if !decided.granted {
                    return Ok(0);
                }
                let pay = ctx.step("pay").idempotent();
                pay.run(&1, async |op| Ok(bank.perform(op.key(), 3).await?)).await
            }),
        };
        let book = world.book().host(code).start().await?;
        book.spawn::<Code>("t", ()).await?;
        world.settled().await;
        let says = book.decide("t", "refund#0", true, "user:kim", "");
        world.once("decides", says).await.transpose()?;
        let result = book.wait::<Code>("t").await?;
        Ok::<_, Error>(result)
    });
    assert!(matrix.is_fine(), "{matrix}");
}

#[test]
fn a_race_is_told_and_is_no_fault() {
    let matrix = explore(
        CrashMatrix::new().orders(8),
        body(|ctx, world| async move {
            let (a, b) = (world.downstream("a"), world.downstream("b"));
            let left = ctx.step("left").idempotent();
            let left = left.run(&1, async |op| Ok(a.perform(op.key(), 1).await?));
            let right = ctx.step("right").idempotent();
            let right = right.run(&2, async |op| Ok(b.perform(op.key(), 2).await?));
            let (mut left, mut right) = (std::pin::pin!(left), std::pin::pin!(right));
            let first = tokio::select! { one = &mut left => one?, two = &mut right => two? };
            let _second = if first == 1 { right.await? } else { left.await? };
            Ok(first)
        }),
    );
    assert!(matrix.is_fine(), "{matrix}");
    assert!(matrix.to_string().contains("decides the result"), "{matrix}");
}

#[test]
fn a_probe_that_asks_too_early_is_found() {
    let with = |quiet: u64| {
        explore(
            CrashMatrix::new().orders(1).on_its_way(Duration::from_secs(30)).prepare(|world| {
                world.downstream("mail").without_keys();
            }),
            body(move |ctx, world| async move {
                let mail = world.downstream("mail");
                let asks = mail.clone();
                let tell =
                    ctx.step("tell").reconcile(async move |op| Ok(asks.find(op.key()).await?));
                let tell = tell.quiet(Duration::from_secs(quiet));
                tell.run(&1, async |op| Ok(mail.perform(op.key(), 4).await?)).await
            }),
        )
    };
    wrong(&with(10), "tell#0 (reconcile) was done 2 times");
    wrong(&with(10), "tell#0 was looked up while a request of it was still on its way to mail");
    assert!(with(60).is_fine());
}

/// Two steps with an effect and one that may be in doubt, run by somebody who waits.
async fn three_steps(world: World) -> Result<u32, Error> {
    let body = body(|ctx, world| async move {
        let (bank, mail, desk) =
            (world.downstream("bank"), world.downstream("mail"), world.downstream("desk"));
        let pay = ctx.step("pay").idempotent();
        let paid = pay.run(&1, async |op| Ok(bank.perform(op.key(), 3).await?)).await?;
        ctx.sleep("settle", Duration::from_secs(3 * 86_400)).await?;
        let asks = mail.clone();
        let tell = ctx.step("tell").reconcile(async move |op| Ok(asks.find(op.key()).await?));
        let told = tell.run(&paid, async |op| Ok(mail.perform(op.key(), 4).await?)).await?;
        let once = ctx.step("call").at_most_once();
        once.run(&told, async |op| Ok(desk.perform(op.key(), 5).await?)).await
    });
    let book = world.book().host(Code { world: world.clone(), body }).start().await?;
    book.run::<Code>("t", ()).await
}

#[test]
fn real_kills_end_as_crashes_in_one_process_do() {
    let prepare = |world: &World| {
        world.downstream("mail").without_keys();
    };
    let killed = CrashMatrix::new().prepare(prepare).explore_killing(three_steps).unwrap();
    println!("{killed}");
    let dropped = CrashMatrix::new().orders(1).prepare(prepare).explore(three_steps);
    assert!(killed.is_fine(), "{killed}");
    assert_eq!(killed.to_string(), dropped.to_string());
}

/// A workflow of one `idempotent` step with this body.
fn one_step<F, Fut>(run: F) -> Arc<Body>
where
    F: Fn(deedbook::Operation, World) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = std::result::Result<u32, deedbook::StepError>> + Send + 'static,
{
    body(move |ctx, world| {
        let run = run.clone();
        async move {
            let pay = ctx.step("pay").idempotent();
            pay.run(&1, async move |op| run(op, world.clone()).await).await
        }
    })
}

#[test]
fn a_doubt_that_no_policy_promises_is_found_and_nothing_is_measured_by_it() {
    let panics = one_step(|_, _| async { panic!("a bug in the body") });
    let matrix = explore(CrashMatrix::new().orders(1), panics);
    wrong(&matrix, "it ends in doubt without a crash: step pay#0");
    assert_eq!(matrix.points(), 0, "{matrix}");
    // One that fails only when it is done again, as bugs of a recovery do.
    let second = one_step(|op, world| async move {
        assert_eq!(op.attempt(), 1);
        Ok(world.downstream("bank").perform(op.key(), 3).await?)
    });
    wrong(&explore(CrashMatrix::new().orders(1), second), "it ends in doubt: step pay#0");
}

#[test]
fn a_probe_that_asks_under_another_key_is_found() {
    let matrix = explore(
        CrashMatrix::new().orders(1),
        body(|ctx, world| async move {
            let mail = world.downstream("mail");
            let asks = mail.clone();
            let tell = ctx.step("tell").reconcile(async move |_| Ok(asks.find("order-1").await?));
            tell.run(&1, async |op| Ok(mail.perform(op.key(), 4).await?)).await
        }),
    );
    wrong(&matrix, "mail was asked whether something happened under the key order-1");
}

#[test]
fn equal_faults_are_told_once() {
    let matrix = explore(
        CrashMatrix::new().orders(1).prepare(|world| {
            world.downstream("bank").without_keys();
        }),
        one_step(
            |op, world| async move { Ok(world.downstream("bank").perform(op.key(), 3).await?) },
        ),
    );
    let wrongs = matrix.wrongs_as_text();
    assert!(wrongs.len() == 1 && wrongs[0].contains("more: pay#0"), "{wrongs:#?}");
}

#[test]
fn two_matrices_of_one_test_kill_their_own_programs() {
    let with = |value: u32, keys: bool| {
        let matrix = CrashMatrix::new().prepare(move |world| {
            if !keys {
                world.downstream("bank").without_keys();
            }
        });
        let pay = one_step(move |op, world| async move {
            Ok(world.downstream("bank").perform(op.key(), value).await?)
        });
        matrix.explore_killing(move |world| {
            let code = Code { world: world.clone(), body: pay.clone() };
            async move {
                let book = world.book().host(code).start().await?;
                book.run::<Code>("t", ()).await
            }
        })
    };
    let first = with(3, true).unwrap();
    assert!(first.is_fine(), "{first}");
    wrong(&with(4, false).unwrap(), "pay#0 (idempotent) was done 2 times");
}

#[test]
fn a_test_with_an_async_runtime_is_told_what_to_do() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let matrix = runtime.block_on(async {
        explore(CrashMatrix::new().orders(1), one_step(|_, _| async { Ok(1) }))
    });
    wrong(&matrix, "plain `#[test]`");
}

#[test]
fn a_process_that_is_away_for_longer_than_the_downstreams_memory_is_found() {
    let hours = |n: u64| Duration::from_secs(n * 3600);
    let with = move |away: Duration, window: Duration| {
        let prepare = move |world: &World| {
            world.downstream("bank").forgets_keys_after(hours(24));
        };
        explore(
            CrashMatrix::new().orders(1).prepare(prepare).back_after(away).may_doubt("pay"),
            body(move |ctx, world| async move {
                let bank = world.downstream("bank");
                let pay = ctx.step("pay").idempotent().honoured_for(window);
                pay.run(&1, async |op| Ok(bank.perform(op.key(), 3).await?)).await
            }),
        )
    };
    let soon = with(hours(1), hours(72));
    assert!(soon.is_fine() && soon.doubts() == 0, "{soon}");
    wrong(&with(hours(48), hours(72)), "was done 2 times");
    let late = with(hours(48), hours(24));
    assert!(late.is_fine() && late.doubts() > 0, "{late}");
}

/// An answer that comes after the step has given up: what was asked for has happened.
#[test]
fn an_answer_that_is_slower_than_the_step_waits_is_a_second_effect_without_keys() {
    let seconds = Duration::from_secs;
    let with = move |keys: bool| {
        let prepare = move |world: &World| {
            let bank = world.downstream("bank");
            bank.answers_after(seconds(30));
            if !keys {
                bank.without_keys();
            }
        };
        explore(
            CrashMatrix::new().orders(1).prepare(prepare),
            body(move |ctx, world| async move {
                let bank = world.downstream("bank");
                let pay = ctx.step("pay").idempotent().timeout(seconds(10));
                let paid = pay.run(&1, async |op| {
                    // A patient second attempt.
                    if op.attempt() > 1 {
                        bank.answers_after(seconds(1));
                    }
                    Ok(bank.perform(op.key(), 3).await?)
                });
                paid.await
            }),
        )
    };
    let fine = with(true);
    assert!(fine.is_fine(), "{fine}");
    wrong(&with(false), "was done 2 times");
}

/// The bank never heard of it, and the probe says that it has.
#[test]
fn a_probe_that_says_happened_without_asking_is_found() {
    let with = |lies: bool| {
        explore(
            CrashMatrix::new().orders(1).back_after(Duration::MAX),
            body(move |ctx, world| async move {
                let (mail, asks) = (world.downstream("mail"), world.downstream("mail"));
                let tell = ctx.step("tell").reconcile(async move |op| {
                    if lies { Ok(Probe::Happened(4)) } else { Ok(asks.find(op.key()).await?) }
                });
                tell.run(&1, async |op| Ok(mail.perform(op.key(), 4).await?)).await
            }),
        )
    };
    assert!(with(false).is_fine());
    wrong(&with(true), "tell#0 is recorded as done and never happened");
}

/// A step comes before the approval, and one of its answers is lost.
#[test]
fn a_person_looks_again_until_there_is_something_to_decide() {
    let matrix = CrashMatrix::new().orders(1).explore(async |world: World| {
        let run = body(|ctx, world| async move {
            let bank = world.downstream("bank");
            let pay = ctx.step("pay").idempotent();
            let paid = pay.run(&1, async |op| Ok(bank.perform(op.key(), 3).await?)).await?;
            assert!(ctx.approval("large", &paid).await?.granted);
            Ok(paid)
        });
        let code = Code { world: world.clone(), body: run };
        let book = world.book().host(code).start().await?;
        book.spawn::<Code>("t", ()).await?;
        let decides = async {
            world.settled().await;
            while book.decide("t", "large#0", true, "user:kim", "").await.is_err() {
                world.settled().await;
            }
        };
        world.once("approves", decides).await;
        book.wait::<Code>("t").await
    });
    assert!(matrix.is_fine(), "{matrix}");
}
