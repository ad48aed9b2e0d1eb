//! `book.guard(..)`, row by row of the Python package that it replaces: what callers see.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{
    CallError, Deedbook, Duplicates, ErrorKind, Guard, Idempotent, Probe, Retry, StepError,
    StepResultExt, VirtualClock, guard::Source,
};
use deedbook_journal::embedded::{CreateOptions, Embedded};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::*;

/// A book whose time passes when the test says so, and what its bodies do outside.
struct Desk {
    book: Deedbook,
    clock: VirtualClock,
    /// How often the world outside was changed.
    effects: Arc<AtomicU32>,
}

impl Desk {
    async fn new() -> Self {
        let clock = VirtualClock::new();
        let book = Deedbook::memory().clock(clock.clone()).holder("svc:shop").start();
        Self { book: book.await.unwrap(), clock, effects: Arc::default() }
    }

    fn charge(&self) -> Guard<Idempotent> {
        self.book.guard("charge").idempotent()
    }

    /// A body that changes the world, and gives the count of changes.
    fn effect(&self) -> u32 {
        self.effects.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> u32 {
        self.effects.load(Ordering::SeqCst)
    }

    /// Calls `charge` under this key with these arguments.
    async fn pay<A: Serialize>(&self, key: &str, args: &A) -> Result<u32, CallError> {
        self.charge().key(key).call(args, async |_| Ok(self.effect())).await
    }
}

/// Whatever the test does not wait for.
#[expect(clippy::disallowed_methods, reason = "callers beside each other, as in a program")]
fn side<T: Send + 'static>(
    task: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(task)
}

#[tokio::test]
async fn i01_bodies_may_be_async_or_block_their_thread() {
    let desk = Desk::new().await;
    let charge = || desk.charge();
    for _ in 0..2 {
        assert_eq!(charge().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 1);
    }
    let effects = desk.effects.clone();
    for _ in 0..2 {
        let effects = effects.clone();
        let body = move |op: deedbook::Operation| {
            assert!(op.key().starts_with("dk1_"));
            Ok(effects.fetch_add(1, Ordering::SeqCst) + 1)
        };
        assert_eq!(charge().call_blocking(&2, body).await.unwrap(), 2);
    }
    assert_eq!(desk.count(), 2);
}

#[tokio::test]
async fn i02_a_name_belongs_to_one_module() {
    let desk = Desk::new().await;
    let send = |module| {
        let guard = desk.book.guard("send").idempotent().declared_in(module);
        guard.call("hello", async |_| Ok(desk.effect()))
    };
    send("shop::mail").await.unwrap();
    send("shop::mail").await.unwrap();
    let error = send("shop::sms").await.unwrap_err();
    assert!(matches!(error, CallError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("shop::mail and in shop::sms"), "{error}");
    assert_eq!(desk.count(), 1);
}

#[tokio::test]
async fn i03_equal_arguments_are_one_operation_and_others_are_not() {
    #[derive(Serialize)]
    struct Ordered {
        order: &'static str,
        amount: f64,
    }
    #[derive(Serialize)]
    struct Turned {
        amount: u8,
        order: &'static str,
    }
    let desk = Desk::new().await;
    let call = async |args: &(dyn erased::Args + Sync)| args.pay(&desk).await;
    let map = |pairs: &[(&str, u32)]| -> BTreeMap<String, u32> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect()
    };
    let first = call(&Ordered { order: "a", amount: 120.0 }).await.unwrap();
    assert_eq!(call(&Turned { amount: 120, order: "a" }).await.unwrap(), first);
    let distinct: &[&(dyn erased::Args + Sync)] = &[
        &1,
        &true,
        &"1",
        &(1u64 << 53),
        &((1u64 << 53) + 1),
        &map(&[("1", 1)]),
        &BTreeMap::from([(1u8, 1)]),
        &"\u{e9}",
        &"e\u{301}",
        &None::<u8>,
    ];
    let before = desk.count();
    for (n, args) in (1..).zip(distinct) {
        assert_eq!(call(*args).await.unwrap(), before + n);
    }
    // Zero is zero, and what is no number is nothing.
    let zero = call(&0.0).await.unwrap();
    assert_eq!(call(&-0.0).await.unwrap(), zero);
    assert_eq!(call(&0).await.unwrap(), zero);
    let error = call(&f64::NAN).await.unwrap_err();
    assert!(matches!(error, CallError::Invalid { .. }), "{error}");
    assert_eq!(desk.count(), before + distinct.len() as u32 + 1);
}

/// Arguments of any type.
mod erased {
    use super::*;

    pub(super) trait Args {
        fn pay<'a>(
            &'a self,
            desk: &'a Desk,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, CallError>> + 'a>>;
    }

    impl<A: Serialize> Args for A {
        fn pay<'a>(
            &'a self,
            desk: &'a Desk,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<u32, CallError>> + 'a>> {
            Box::pin(desk.charge().call(self, async |_| Ok(desk.effect())))
        }
    }
}

#[tokio::test]
async fn i04_what_cannot_be_recorded_is_refused_before_anything_happens() {
    struct Socket;
    impl Serialize for Socket {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("a socket is no value"))
        }
    }
    let desk = Desk::new().await;
    let error = desk.pay("k", &Socket).await.unwrap_err();
    assert!(error.to_string().contains("a socket is no value"), "{error}");
    // What matters of it is named instead; the rest is the body's hands.
    let value = desk.charge().identified_by("ORD-1").call("ORD-1", async |_| Ok(desk.effect()));
    assert_eq!(value.await.unwrap(), 1);
    assert_eq!(desk.count(), 1);
}

#[tokio::test]
async fn i05_an_explicit_key_belongs_to_its_step_and_to_its_arguments() {
    let desk = Desk::new().await;
    assert_eq!(desk.pay("ORD-1", &4200).await.unwrap(), 1);
    let other = desk.book.guard("refund").idempotent().key("ORD-1");
    assert_eq!(other.call(&4200, async |_| Ok(desk.effect())).await.unwrap(), 2);
    let error = desk.pay("ORD-1", &9900).await.unwrap_err();
    let CallError::Conflict(conflict) = &error else { panic!("{error}") };
    assert_ne!(conflict.recorded, Some(conflict.given));
    assert!(!error.to_string().contains("9900"), "{error}");
    assert!(desk.pay("", &1).await.unwrap_err().to_string().contains("empty"));
    assert_eq!(desk.count(), 2);
}

#[tokio::test]
async fn i06_a_function_may_give_the_key() {
    let desk = Desk::new().await;
    let key = |order: &str| format!("order/{}", order.to_lowercase());
    for order in ["ORD-1", "ord-1"] {
        let guard = desk.charge().key(key(order)).any_content();
        assert_eq!(guard.call(order, async |_| Ok(desk.effect())).await.unwrap(), 1);
    }
}

#[tokio::test]
async fn i07_a_scope_is_part_of_the_operation_and_never_empty() {
    let desk = Desk::new().await;
    let within = |scope: &str| desk.charge().within(scope).call(&1, async |_| Ok(desk.effect()));
    assert_eq!(within("conversation-1").await.unwrap(), 1);
    assert_eq!(within("conversation-2").await.unwrap(), 2);
    assert_eq!(within("conversation-1").await.unwrap(), 1);
    // A framework that has no id yet must not fall back to everybody's scope.
    let error = within("").await.unwrap_err();
    assert!(matches!(error, CallError::Invalid { .. }), "{error}");
    assert!(within("deedbook:system").await.is_err());
    assert_eq!(desk.count(), 2);
}

#[tokio::test]
async fn i08_journals_do_not_know_of_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut keys = Vec::new();
    for name in ["a.redb", "b.redb"] {
        let book = Deedbook::create(folder.path().join(name)).start().await.unwrap();
        let guard = book.guard("charge").idempotent();
        keys.push(guard.call(&1, async |op| Ok(op.key().to_owned())).await.unwrap());
        book.shutdown().await.unwrap();
    }
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn i09_an_outcome_is_valid_from_its_end_and_what_runs_is_never_run_twice() {
    let desk = Desk::new().await;
    let hour = Duration::from_secs(3600);
    let begun = Arc::new(Notify::new());
    let go = Arc::new(Notify::new());
    // A body that takes ten times as long as a hold lasts, and longer than its outcome is valid.
    let (book, effects) = (desk.book.clone(), desk.effects.clone());
    let (begins, goes) = (begun.clone(), go.clone());
    let slow = side(async move {
        let guard = book.guard("charge").idempotent().valid_for(Duration::from_secs(60));
        let guard = guard.timeout(Duration::from_secs(7200));
        let body = async move |_| {
            begins.notify_one();
            goes.notified().await;
            Ok(effects.fetch_add(1, Ordering::SeqCst) + 1)
        };
        guard.call(&1, body).await
    });
    begun.notified().await;
    for _ in 0..40 {
        desk.clock.advance(Duration::from_secs(15));
        tokio::task::yield_now().await;
        pause(2).await;
        let guard = desk.charge().valid_for(Duration::from_secs(60));
        let error = guard.call(&1, async |_| Ok(desk.effect())).await.unwrap_err();
        assert!(matches!(error, CallError::InFlight(_)), "{error}");
    }
    go.notify_one();
    assert_eq!(slow.await.unwrap().unwrap(), 1);
    let valid = || desk.charge().valid_for(Duration::from_secs(60));
    desk.clock.advance(Duration::from_secs(59));
    assert_eq!(valid().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 1);
    desk.clock.advance(Duration::from_secs(1));
    assert_eq!(valid().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 2);
    desk.clock.advance(hour);
    // Who did not say so is given what there is.
    assert_eq!(desk.charge().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn i10_of_many_callers_one_runs_the_body() {
    let folder = tempfile::tempdir().unwrap();
    let book = Deedbook::create(folder.path().join("a.redb")).start().await.unwrap();
    let effects = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..240)
        .map(|n: u32| {
            let (book, effects) = (book.clone(), effects.clone());
            side(async move {
                let guard = book.guard("charge").idempotent().key(format!("ORD-{}", n % 30));
                let body = async |_| {
                    tokio::task::yield_now().await;
                    effects.fetch_add(1, Ordering::SeqCst);
                    Ok(n)
                };
                let waits = Duplicates::Wait(Duration::from_secs(60));
                guard.duplicates(waits).call(&(n % 30), body).await
            })
        })
        .collect();
    let mut results = BTreeMap::new();
    for (n, task) in tasks.into_iter().enumerate() {
        let result = task.await.unwrap().unwrap();
        assert_eq!(*results.entry(n % 30).or_insert(result), result);
    }
    assert_eq!(effects.load(Ordering::SeqCst), 30);
    book.shutdown().await.unwrap();
}

#[tokio::test]
async fn i11_the_first_result_and_every_later_one_are_the_same_value() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Receipt {
        number: (u8, String),
        #[serde(skip)]
        hint: Option<String>,
    }
    let desk = Desk::new().await;
    let call = || {
        desk.charge().call_told(&1, async |_| {
            Ok(Receipt { number: (desk.effect() as u8, "x".into()), hint: Some("now".into()) })
        })
    };
    let first = call().await.unwrap();
    let again = call().await.unwrap();
    // What is not stored is not given, neither now nor later.
    assert_eq!(first.value, Receipt { number: (1, "x".into()), hint: None });
    assert_eq!(first.value, again.value);
    assert!(!first.source.replayed && again.source.replayed);
    assert_eq!(first.source.position, again.source.position);
    assert_eq!(first.source.key, again.source.key);
}

#[tokio::test]
async fn i12_a_duplicate_is_told_who_is_at_it_and_a_dead_owner_blocks_nobody() {
    let desk = Desk::new().await;
    let book = desk.book.clone();
    let hung = side(async move {
        let guard = book.guard("charge").idempotent();
        guard.call(&1, async |_| std::future::pending::<Result<u32, _>>().await).await
    });
    while desk.book.guard("charge").idempotent().call(&2, async |_| Ok(0)).await.is_err() {}
    tokio::task::yield_now().await;
    desk.clock.advance(Duration::from_secs(5));
    let error = desk.charge().call(&1, async |_| Ok(desk.effect())).await.unwrap_err();
    let CallError::InFlight(flight) = &error else { panic!("{error}") };
    assert_eq!(&*flight.owner, "svc:shop");
    assert_eq!(flight.age, Duration::from_secs(5));
    assert!(flight.key.as_deref().is_some_and(|key| error.to_string().contains(key)), "{error}");
    assert!(flight.retry_after > Duration::ZERO);
    // The owner dies without a word, as far as the journal can tell.
    std::mem::forget(hung);
    let thread = flight.thread.clone();
    let home = desk.book.checkpointer();
    home.renew(&[(thread, flight.epoch)], Duration::ZERO).await.unwrap();
    assert_eq!(desk.charge().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 1);
}

#[tokio::test]
async fn i13_a_waiter_is_woken_has_a_deadline_and_runs_only_under_a_claim() {
    let desk = Desk::new().await;
    let go = Arc::new(Notify::new());
    let begun = Arc::new(Notify::new());
    let (book, goes, begins) = (desk.book.clone(), go.clone(), begun.clone());
    let owner = side(async move {
        let guard = book.guard("charge").idempotent();
        let body = async move |_| {
            begins.notify_one();
            goes.notified().await;
            Err::<u32, _>(StepError::new("422").not_applied())
        };
        guard.call(&1, body).await
    });
    begun.notified().await;
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let (book, effects) = (desk.book.clone(), desk.effects.clone());
            side(async move {
                let guard = book.guard("charge").idempotent();
                let guard = guard.duplicates(Duplicates::Wait(Duration::from_secs(3600)));
                guard.call(&1, async |_| Ok(effects.fetch_add(1, Ordering::SeqCst) + 1)).await
            })
        })
        .collect();
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
    // No time passes: nobody polls. The owner fails, one waiter runs, and the others are given
    // what it brings.
    go.notify_one();
    assert!(matches!(owner.await.unwrap(), Err(CallError::NotDone { ambiguous: false, .. })));
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap().unwrap(), 1);
    }
    assert_eq!(desk.count(), 1);
    // The caller's own deadline.
    let book = desk.book.clone();
    let hung = side(async move {
        let guard = book.guard("charge").idempotent();
        guard.call(&2, async |_| std::future::pending::<Result<u32, _>>().await).await
    });
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let (book, effects) = (desk.book.clone(), desk.effects.clone());
    let waiter = side(async move {
        let guard = book.guard("charge").idempotent();
        let guard = guard.duplicates(Duplicates::Wait(Duration::from_secs(3)));
        guard.call(&2, async |_| Ok(effects.fetch_add(1, Ordering::SeqCst))).await
    });
    for _ in 0..30 {
        tokio::task::yield_now().await;
        desk.clock.advance(Duration::from_millis(200));
    }
    assert!(matches!(waiter.await.unwrap(), Err(CallError::InFlight(_))));
    assert_eq!(desk.count(), 1);
    hung.abort();
}

#[tokio::test]
async fn i14_a_takeover_fences_the_owner() {
    let desk = Desk::new().await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (book, begins, goes) = (desk.book.clone(), begun.clone(), go.clone());
    let owner = side(async move {
        let body = async move |_| {
            begins.notify_one();
            goes.notified().await;
            Ok("first, late".to_owned())
        };
        book.guard("charge").idempotent().call(&1, body).await
    });
    begun.notified().await;
    let takes = || desk.charge().duplicates(Duplicates::TakeOver);
    let second = takes().call(&1, async |op| Ok(format!("second {}", op.attempt()))).await;
    assert_eq!(second.unwrap(), "second 2");
    go.notify_one();
    let lost = owner.await.unwrap().unwrap_err();
    assert!(matches!(lost, CallError::Lost { kept: true }), "{lost}");
    let again: String = desk.charge().call(&1, async |_| Ok(String::new())).await.unwrap();
    assert_eq!(again, "second 2");
}

#[tokio::test]
async fn i15_failures_are_told_apart() {
    let desk = Desk::new().await;
    let call = async |n: u8, error: StepError| {
        let body = async |_| {
            desk.effect();
            Err::<u32, _>(error)
        };
        desk.book.guard("charge").at_most_once().call(&n, body).await.unwrap_err()
    };
    let no = || StepError::new("no");
    for _ in 0..3 {
        let error = call(1, no().not_applied()).await;
        assert!(matches!(error, CallError::NotDone { ambiguous: false, .. }), "{error}");
    }
    assert_eq!(desk.count(), 3);
    for replayed in [false, true, true] {
        let error = call(2, no().terminal()).await;
        assert!(matches!(error, CallError::Failed { replayed: r, .. } if r == replayed), "{error}");
    }
    assert_eq!(desk.count(), 4);
    for own in [true, false, false] {
        let error = call(3, no()).await;
        let CallError::InDoubt { failure, .. } = &error else { panic!("{error}") };
        assert_eq!(failure.is_some(), own);
        assert!(error.to_string().contains("deedbook resolve"), "{error}");
    }
    assert_eq!(desk.count(), 5);
    // Where the other side honours the key, the next call sends it again.
    let tries = AtomicU32::new(0);
    let body = async |_| match tries.fetch_add(1, Ordering::SeqCst) {
        0 => Err(std::io::Error::other("connection reset").into()),
        n => Ok(n),
    };
    let error = desk.charge().call(&4, body).await.unwrap_err();
    assert!(matches!(error, CallError::NotDone { ambiguous: true, .. }), "{error}");
    assert_eq!(desk.charge().call(&4, body).await.unwrap(), 1);
    // And so does this call, if it is to try more often.
    tries.store(0, Ordering::SeqCst);
    let often = Retry::attempts(3).first(Duration::ZERO);
    assert_eq!(desk.charge().retry(often).call(&5, body).await.unwrap(), 1);
}

#[tokio::test]
async fn i16_a_panic_and_a_dropped_call_are_recorded_as_unknown() {
    let desk = Desk::new().await;
    let once = || desk.book.guard("charge").at_most_once();
    let error = once().call(&1, async |_| -> Result<u32, StepError> { panic!("oh") }).await;
    let CallError::InDoubt { doubt, failure } = error.unwrap_err() else { panic!() };
    assert_eq!(doubt.doubt.as_str(), "panic");
    assert!(failure.unwrap().message.contains("oh"));
    let blocking = once().call_blocking(&2, |_| -> Result<u32, StepError> { panic!("ah") }).await;
    assert!(matches!(blocking, Err(CallError::InDoubt { .. })));
    // The caller goes away while the body runs.
    let begun = Arc::new(Notify::new());
    let (book, begins) = (desk.book.clone(), begun.clone());
    let call = side(async move {
        let body = async move |_| {
            begins.notify_one();
            std::future::pending::<Result<u32, StepError>>().await
        };
        book.guard("charge").at_most_once().call(&3, body).await
    });
    begun.notified().await;
    call.abort();
    let _ = call.await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let error = once().call(&3, async |_| Ok(desk.effect())).await.unwrap_err();
    let CallError::InDoubt { doubt, .. } = &error else { panic!("{error}") };
    assert_eq!(doubt.doubt.as_str(), "dropped");
    assert_eq!(desk.count(), 0);
}

#[tokio::test]
async fn i17_a_result_that_cannot_be_stored_is_still_a_fact() {
    #[derive(Debug, Deserialize)]
    struct Handle;
    impl Serialize for Handle {
        fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
            Err(serde::ser::Error::custom("a handle cannot be stored"))
        }
    }
    let desk = Desk::new().await;
    for _ in 0..3 {
        let body = async |_| {
            desk.effect();
            Ok(Handle)
        };
        let error = desk.charge().call(&1, body).await.unwrap_err();
        let CallError::NoResult { failure, key: Some(_), .. } = &error else { panic!("{error}") };
        assert!(failure.message.contains("a handle cannot be stored"), "{failure}");
    }
    assert_eq!(desk.count(), 1);
}

#[tokio::test]
async fn i18_what_cannot_work_is_refused_before_the_first_duplicate() {
    let desk = Desk::new().await;
    let guard = desk.book.guard("charge").at_most_once().duplicates(Duplicates::TakeOver);
    let error = guard.call(&1, async |_| Ok(desk.effect())).await.unwrap_err();
    assert!(error.to_string().contains("cannot be taken over"), "{error}");
    let error = desk.charge().key("k").occurrence(1).call(&1, async |_| Ok(1)).await.unwrap_err();
    assert!(error.to_string().contains("another key"), "{error}");
    let error = desk.book.reset("deedbook:step/x/1", "", "").await.unwrap_err();
    assert!(error.to_string().contains("say who resets it"), "{error}");
    let error = desk.book.guard("").idempotent().call(&1, async |_| Ok(1)).await.unwrap_err();
    assert!(matches!(error, CallError::Invalid { .. }), "{error}");
    assert_eq!(desk.count(), 0);
}

#[tokio::test]
async fn i19_what_was_told_survives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.redb");
    let book = Deedbook::create(&path).start().await.unwrap();
    let value = book.guard("charge").idempotent().call(&1, async |_| Ok(7)).await.unwrap();
    // Dropped without a word, as a crash would.
    drop(book);
    let book = reopened(&path).await;
    let body = async |_| -> Result<i32, StepError> { panic!("it ran again") };
    assert_eq!(book.guard("charge").idempotent().call(&1, body).await.unwrap(), value);
    book.shutdown().await.unwrap();
}

#[expect(clippy::disallowed_methods, reason = "a real file is let go in real time")]
async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

async fn reopened(path: &std::path::Path) -> Deedbook {
    loop {
        match Deedbook::open(path).start().await {
            Ok(book) => return book,
            Err(error)
                if error.to_string().contains("in use") || error.kind() == ErrorKind::Open =>
            {
                pause(10).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn i20_a_step_under_way_is_not_cleared_away() {
    let desk = Desk::new().await;
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (book, begins, goes) = (desk.book.clone(), begun.clone(), go.clone());
    let owner = side(async move {
        let body = async move |_| {
            begins.notify_one();
            goes.notified().await;
            Ok(1)
        };
        book.guard("charge").idempotent().call_told(&1, body).await
    });
    begun.notified().await;
    let thread = desk.charge().wanted(&1).unwrap();
    let thread = thread.thread(desk.book.checkpointer().identity()).unwrap();
    let error = desk.book.reset(&thread, "user:ann", "stuck").await.unwrap_err();
    assert!(error.to_string().contains("svc:shop is at it"), "{error}");
    go.notify_one();
    assert_eq!(owner.await.unwrap().unwrap().value, 1);
    assert_eq!(desk.charge().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 1);
}

#[tokio::test]
async fn i22_a_completion_after_a_reset_or_a_takeover_is_no_outcome() {
    let desk = Desk::new().await;
    let told = desk.charge().call_told(&1, async |_| Ok(desk.effect())).await.unwrap();
    desk.book.reset(&told.source.thread, "user:ann", "wanted twice").await.unwrap();
    let again = desk.charge().call_told(&1, async |_| Ok(desk.effect())).await.unwrap();
    assert_eq!((told.value, again.value), (1, 2));
    assert_ne!(told.source.key, again.source.key);
    assert_eq!(desk.charge().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 2);
}

#[tokio::test]
async fn i23_every_attempt_stays_in_the_journal() {
    let desk = Desk::new().await;
    let tries = AtomicU32::new(0);
    let body = async |_| match tries.fetch_add(1, Ordering::SeqCst) {
        n @ 0..2 => Err(StepError::new(format!("no {n}")).not_applied()),
        n => Ok(n),
    };
    let guard = desk.charge().retry(Retry::attempts(5).first(Duration::ZERO));
    let told = guard.call_told(&1, body).await.unwrap();
    assert_eq!(told.source.attempts, 3);
    let home = desk.book.checkpointer();
    let page = home.read(&told.source.thread, 0, usize::MAX).await.unwrap();
    let kinds: Vec<_> = page
        .items
        .iter()
        .map(|(_, record)| Header::parse(&record.header).unwrap().kind.as_str().to_owned())
        .filter(|kind| kind.starts_with("step."))
        .collect();
    let one = ["step.intent", "step.fail"];
    assert_eq!(kinds, [&one[..], &one[..], &["step.intent", "step.done"]].concat());
}

#[tokio::test]
async fn i25_keys_are_the_same_in_every_process() {
    // Two journals of one namespace stand for two machines; the keys are golden.
    let mut keys = Vec::new();
    for _ in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.redb");
        let options = CreateOptions::new().namespace([7; 16]);
        drop(Embedded::create(&path, options).unwrap());
        let book = reopened(&path).await;
        let guard = || book.guard("charge").idempotent();
        let key = async |op: deedbook::Operation| Ok(op.key().to_owned());
        keys.push(guard().call(&(1, "a"), key).await.unwrap());
        keys.push(guard().within("task-1").key("ORD-1").call(&1, key).await.unwrap());
        book.shutdown().await.unwrap();
    }
    assert_eq!(keys[..2], keys[2..]);
    assert_eq!(
        keys[..2],
        [
            "dk1_d96abe51d1d7fea8fb4030702d1def7f70e2e3304ff150be",
            "dk1_16822d77d1526d6e519a122f17ac0aae12df3e39513918eb",
        ]
    );
}

#[tokio::test]
async fn i29_errors_have_kinds_and_fields() {
    let desk = Desk::new().await;
    desk.book.shutdown().await.unwrap();
    let error = desk.pay("k", &1).await.unwrap_err();
    let CallError::Journal(inner) = &error else { panic!("{error}") };
    assert_eq!(inner.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn i31_values_of_every_type_are_recorded() {
    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    enum Shape {
        Empty,
        Wide { big: u128, map: BTreeMap<i64, Vec<u8>> },
    }
    let desk = Desk::new().await;
    let wide = Shape::Wide { big: u128::MAX, map: BTreeMap::from([(-1, vec![0, 255])]) };
    for shape in [Shape::Empty, wide] {
        for _ in 0..2 {
            let body = async |_| {
                desk.effect();
                Ok(shape.clone())
            };
            assert_eq!(desk.charge().call(&shape, body).await.unwrap(), shape);
        }
    }
    assert_eq!(desk.count(), 2);
}

#[tokio::test]
async fn the_downstream_is_asked_by_the_caller_who_waits() {
    let desk = Desk::new().await;
    let asked = Arc::new(AtomicU32::new(0));
    let guard = || {
        let asked = asked.clone();
        let probe = async move |_| {
            asked.fetch_add(1, Ordering::SeqCst);
            Ok(Probe::Happened(9u32))
        };
        desk.book.guard("charge").reconcile(probe).timeout(Duration::from_secs(10))
    };
    let error = guard().call(&1, async |_| Err(StepError::new("?"))).await.unwrap_err();
    let CallError::InDoubt { doubt, .. } = &error else { panic!("{error}") };
    assert_eq!(doubt.retry_after, Some(Duration::from_secs(70)));
    let waits = guard().duplicates(Duplicates::Wait(Duration::from_secs(100)));
    let waiting = waits.call(&1, async |_| Ok(desk.effect()));
    let mut waiting = std::pin::pin!(waiting);
    for _ in 0..10 {
        let soon = tokio::time::timeout(Duration::from_millis(1), waiting.as_mut()).await;
        assert!(soon.is_err());
    }
    desk.clock.advance(Duration::from_secs(70));
    assert_eq!(waiting.await.unwrap(), 9);
    assert_eq!((asked.load(Ordering::SeqCst), desk.count()), (1, 0));
}

#[tokio::test]
async fn a_replay_is_told_and_outcomes_kept_in_memory_are_forgotten_at_a_reset() {
    let clock = VirtualClock::new();
    let book = Deedbook::memory().clock(clock.clone()).outcomes_kept(2).start().await.unwrap();
    let replays = Arc::new(AtomicU32::new(0));
    let call = async |n: u32, value: u32| {
        let replays = replays.clone();
        let tell = move |source: &Source| {
            assert!(source.replayed);
            replays.fetch_add(1, Ordering::SeqCst);
        };
        let guard = book.guard("charge").idempotent().valid_for(Duration::from_secs(60));
        guard.on_replay(tell).call_told(&n, async |_| Ok(value)).await.unwrap()
    };
    let first = call(1, 10).await;
    assert_eq!(call(1, 11).await.value, 10);
    assert_eq!(replays.load(Ordering::SeqCst), 1);
    // What is remembered is not read, is valid no longer than it is, and is forgotten at a reset.
    book.reset(&first.source.thread, "user:ann", "again").await.unwrap();
    assert_eq!(call(1, 12).await.value, 12);
    clock.advance(Duration::from_secs(61));
    assert_eq!(call(1, 13).await.value, 13);
    for n in 2..9 {
        call(n, n).await;
    }
    assert_eq!(call(1, 14).await.value, 13);
    // Nothing that is under way is remembered: the error is not the answer to the next call.
    let body = async |_| Err::<u32, _>(std::io::Error::other("no")).not_applied();
    let charge = || book.guard("charge").idempotent();
    assert!(charge().call(&100, body).await.is_err());
    assert_eq!(charge().call(&100, async |_| Ok(1)).await.unwrap(), 1);
}

#[tokio::test]
async fn guards_are_turned_off_on_record_only() {
    let desk = Desk::new().await;
    assert_eq!(desk.pay("ORD-1", &1).await.unwrap(), 1);
    desk.book.guards(false, "user:ann", "the bank's sandbox has no ledger").await.unwrap();
    assert_eq!(desk.pay("ORD-1", &1).await.unwrap(), 2);
    assert_eq!(desk.pay("ORD-1", &1).await.unwrap(), 3);
    desk.book.guards(true, "user:ann", "back").await.unwrap();
    assert_eq!(desk.pay("ORD-1", &1).await.unwrap(), 1);
    let home = desk.book.checkpointer();
    let filter = Filter { reserved: true, ..Filter::default() };
    let page = home.list(&filter, None, 100).await.unwrap();
    let steps = page.items.iter().filter(|i| i.id.as_str().starts_with("deedbook:step/"));
    assert_eq!(steps.count(), 3);
    let switch = page.items.iter().find(|i| i.id.as_str() == "deedbook:guards").unwrap();
    assert_eq!(switch.next, 4);
}

#[tokio::test]
async fn a_caller_without_a_probe_is_told_so_and_holds_nobody_up() {
    let desk = Desk::new().await;
    let once = Duration::from_secs(10);
    let asks = || {
        let probe = async |_| Ok(Probe::Happened(9u32));
        desk.book.guard("charge").reconcile(probe).timeout(once)
    };
    asks().call(&1, async |_| Err(StepError::new("?"))).await.unwrap_err();
    desk.clock.advance(Duration::from_secs(70));
    let error = desk.charge().call(&1, async |_| Ok(desk.effect())).await.unwrap_err();
    assert!(error.to_string().contains("declare `.reconcile(probe)`"), "{error}");
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(asks().call(&1, async |_| Ok(desk.effect())).await.unwrap(), 9);
    assert_eq!(desk.count(), 0);
}
