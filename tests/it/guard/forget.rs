//! Forgetting: what a settled step was given and brought is erased, and that it happened stays.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{CallError, Deedbook, StepError};
use deedbook_journal::{
    checkpointer::{BoxFuture, Checkpointer},
    failure::Failure,
    guard::{
        Claimed, Forgotten, GuardError, Stands, Wanted, forget, is_forgotten, may_be_forgotten,
        reset, seen,
    },
    history::Answer,
    id::{StoreTime, ThreadId},
    policy::Policy,
    record::{Kind, Role},
};

use harness::watched::{Hook, Place, Watched};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);

/// Identified by its arguments, which is the default.
fn by_arguments(args: &str) -> Wanted {
    let wanted = Wanted::new(Within::Journal, "mail", Policy::Idempotent).unwrap();
    wanted.arguments(args).unwrap()
}

impl Shop {
    async fn forget(&self, thread: &ThreadId) -> Result<Forgotten, GuardError> {
        let before = self.home.now().await.unwrap().before(DAY);
        forget(&*self.home, thread, before, "ops:ann", "older than we keep", [3; 32]).await
    }

    async fn refused(&self, thread: &ThreadId) -> String {
        let next = self.info(thread).await.next;
        let why = self.forget(thread).await.unwrap_err();
        assert!(matches!(why, GuardError::Refused { .. }), "{why}");
        assert_eq!(self.info(thread).await.next, next, "a refusal writes nothing");
        why.to_string()
    }

    /// The roles of all payloads that are there.
    async fn roles(&self, thread: &ThreadId) -> Vec<Role> {
        let page = self.home.read(thread, 0, usize::MAX).await.unwrap();
        page.items.iter().flat_map(|(_, record)| record.payloads.iter().map(|p| p.role)).collect()
    }
}

#[tokio::test]
async fn i09_what_is_old_is_erased_and_never_happens_again() {
    for wanted in [wanted(Policy::AtMostOnce), by_arguments("ann@example.org")] {
        let shop = Shop::new();
        let ticket = shop.fresh(&wanted).await;
        let thread = ticket.thread().clone();
        let key = ticket.operation().key;
        let done = ticket.complete(&*shop.home, bytes("receipt")).await.unwrap();
        assert!(shop.refused(&thread).await.contains("later"), "it is not old yet");
        shop.clock.advance(DAY + Duration::from_secs(1));
        let gone = shop.forget(&thread).await.unwrap();
        let size = (wanted_args(&wanted).len() + bytes("receipt").len()) as u64;
        assert_eq!(gone, Forgotten { steps: 1, payloads: 2, bytes: size });
        // The scope, and who wanted it gone and why.
        assert_eq!(shop.roles(&thread).await, [Role::Input, Role::Note, Role::Note]);
        assert_eq!(shop.count(&thread, Kind::Redact).await, 2);
        let again = shop.settled(&wanted).await;
        assert_eq!(again.answer, Answer::Erased { failed: false });
        assert_eq!((again.position, again.at, again.attempts), (done.position, done.at, 1));
        assert_eq!(again.key, key);
        assert!(again.failure().unwrap().to_string().contains("erased"));
        // There is nothing left, and no write says so.
        let next = shop.info(&thread).await.next;
        assert_eq!(shop.forget(&thread).await.unwrap(), Forgotten::default());
        assert_eq!(shop.info(&thread).await.next, next);
        let info = shop.info(&thread).await;
        assert!(is_forgotten(&info) && info.holder.is_none());
        assert!(!may_be_forgotten(&info, StoreTime(u64::MAX)));
        let seen = seen(&*shop.home, &info).await.unwrap().unwrap();
        assert_eq!(seen.stands, Stands::Done);
    }
}

/// What such a step is given.
fn wanted_args(wanted: &Wanted) -> Vec<u8> {
    match wanted.name().as_str() {
        "mail" => bytes("ann@example.org"),
        _ => vec![0xc0],
    }
}

#[tokio::test]
async fn a_failure_is_still_one_when_what_went_wrong_is_gone() {
    let shop = Shop::new();
    let wanted = by_arguments("bob@example.org");
    let ticket = shop.fresh(&wanted).await;
    let thread = ticket.thread().clone();
    let failure = Failure::new("the address of bob@example.org is wrong");
    ticket.fail(&*shop.home, &failure, true).await.unwrap();
    shop.clock.advance(2 * DAY);
    assert_eq!(shop.forget(&thread).await.unwrap().payloads, 2);
    let settled = shop.settled(&wanted).await;
    assert_eq!(settled.answer, Answer::Erased { failed: true });
    let said = settled.failure().unwrap().to_string();
    assert!(settled.failed() && said.contains("erased") && !said.contains("bob"), "{said}");
    let seen = seen(&*shop.home, &shop.info(&thread).await).await.unwrap().unwrap();
    assert_eq!(seen.stands, Stands::Failed);
}

#[tokio::test]
async fn what_is_not_settled_is_not_forgotten() {
    let shop = Shop::new();
    let flight = shop.fresh(&wanted(Policy::AtMostOnce)).await;
    let thread = flight.thread().clone();
    assert!(shop.refused(&thread).await.contains("is at it"));
    // Its owner dies: nobody knows what became of it.
    shop.clock.advance(2 * DAY);
    shop.in_doubt(&wanted(Policy::AtMostOnce)).await;
    assert!(shop.refused(&thread).await.contains("not settled"));
    let open = by_arguments("x");
    let ticket = shop.fresh(&open).await;
    let thread = ticket.thread().clone();
    ticket.fail(&*shop.home, &Failure::new("busy"), false).await.unwrap();
    shop.clock.advance(2 * DAY);
    assert!(shop.refused(&thread).await.contains("not settled"));
    let other = ThreadId::new("order-4").unwrap();
    let why = shop.forget(&other).await.unwrap_err();
    assert!(why.to_string().contains("guarded"), "{why}");
    let nobody = forget(&*shop.home, &thread, StoreTime(u64::MAX), "", "why", [1; 32]).await;
    assert!(nobody.unwrap_err().to_string().contains("who"));
}

#[tokio::test]
async fn a_forgotten_step_that_is_valid_no_longer_happens_anew_with_its_arguments() {
    let shop = Shop::new();
    let wanted = by_arguments("ann@example.org");
    let first = shop.fresh(&wanted).await;
    let (thread, key) = (first.thread().clone(), first.operation().key);
    first.complete(&*shop.home, bytes("first")).await.unwrap();
    shop.clock.advance(2 * DAY);
    shop.forget(&thread).await.unwrap();
    // By its thread alone nobody can know the next key.
    let why = reset(&*shop.home, &thread, "ann", "again", [1; 32]).await.unwrap_err();
    assert!(why.to_string().contains("erased"), "{why}");
    assert_eq!(shop.settled(&wanted).await.answer, Answer::Erased { failed: false });
    let expired = wanted.clone().valid_for(DAY);
    let second = shop.fresh(&expired).await;
    assert_eq!((second.thread(), second.operation().attempt), (&thread, 2));
    assert_ne!(second.operation().key, key);
    second.complete(&*shop.home, bytes("second")).await.unwrap();
    // What it was given is on record again, and so it can be reset, and forgotten once more.
    assert_eq!(read::<String>(&shop.settled(&expired).await), "second");
    let seen_now = seen(&*shop.home, &shop.info(&thread).await).await.unwrap().unwrap();
    assert_eq!(seen_now.call().unwrap().args.as_deref(), Some(&*bytes("ann@example.org")));
    assert!(!is_forgotten(&shop.info(&thread).await));
    shop.clock.advance(2 * DAY);
    assert_eq!(shop.forget(&thread).await.unwrap().payloads, 2);
    let third = shop.fresh(&expired).await;
    assert_eq!(third.operation().attempt, 3);
    assert_ne!(third.operation().key, second_key(&seen_now));
}

fn second_key(seen: &deedbook_journal::guard::Seen) -> Option<Arc<str>> {
    seen.call().unwrap().key.clone()
}

#[tokio::test]
async fn a_reset_works_where_the_key_is_the_identity_and_other_arguments_are_no_conflict_then() {
    let shop = Shop::new();
    let one = wanted(Policy::Idempotent).arguments(&1).unwrap();
    let ticket = shop.fresh(&one).await;
    let thread = ticket.thread().clone();
    ticket.complete(&*shop.home, bytes("one")).await.unwrap();
    let two = wanted(Policy::Idempotent).arguments(&2).unwrap();
    shop.conflict(&two).await;
    shop.clock.advance(2 * DAY);
    shop.forget(&thread).await.unwrap();
    // Nobody can tell any more.
    assert_eq!(shop.settled(&two).await.answer, Answer::Erased { failed: false });
    reset(&*shop.home, &thread, "ann", "again", [1; 32]).await.unwrap();
    let ticket = shop.fresh(&two).await;
    ticket.complete(&*shop.home, bytes("two")).await.unwrap();
    assert_eq!(read::<String>(&shop.settled(&two).await), "two");
    shop.conflict(&one).await;
}

#[tokio::test]
async fn one_that_was_interrupted_is_carried_on() {
    let shop = Shop::new();
    let wanted = by_arguments("ann@example.org");
    let ticket = shop.fresh(&wanted).await;
    let thread = ticket.thread().clone();
    ticket.complete(&*shop.home, bytes("receipt")).await.unwrap();
    shop.clock.advance(2 * DAY);
    // Somebody stops it behind every act on the journal, first behind none, then behind one.
    let (mut tries, mut partly) = (0, false);
    loop {
        let home = Watched::new(shop.home.clone(), Arc::new(StopsAfter(AtomicU32::new(tries))));
        let before = home.now().await.unwrap().before(DAY);
        let forgetting = forget(&*home, &thread, before, "ops:ann", "old", [3; 32]);
        let stopped = tokio::time::timeout(Duration::from_millis(5), forgetting).await;
        let left = shop.roles(&thread).await;
        let any = left.contains(&Role::Args) || left.contains(&Role::Result);
        partly |= left.contains(&Role::Args) != left.contains(&Role::Result);
        assert_eq!(is_forgotten(&shop.info(&thread).await), !any, "stopped at {tries}");
        if let Ok(gone) = stopped {
            gone.unwrap();
            break;
        }
        // Its hold runs out.
        shop.clock.advance(DAY);
        assert!(matches!(shop.claim(&wanted).await, Claimed::Settled(_)), "stopped at {tries}");
        tries += 1;
    }
    assert!(tries > 5 && partly, "{tries}");
    assert_eq!(shop.roles(&thread).await.iter().filter(|r| **r != Role::Note).count(), 1);
    assert!(is_forgotten(&shop.info(&thread).await));
    assert_eq!(shop.settled(&wanted).await.answer, Answer::Erased { failed: false });
}

#[tokio::test]
async fn what_comes_late_is_kept_as_evidence_and_forgotten_by_the_next_one() {
    let shop = Shop::new();
    let wanted = by_arguments("ann@example.org");
    let slow = shop.fresh(&wanted).await;
    let thread = slow.thread().clone();
    shop.clock.advance(LEASE + Duration::from_secs(1));
    let second = shop.fresh(&wanted).await;
    second.complete(&*shop.home, bytes("second")).await.unwrap();
    shop.clock.advance(2 * DAY);
    assert_eq!(shop.forget(&thread).await.unwrap().payloads, 2);
    let lost = slow.complete(&*shop.home, bytes("late")).await.unwrap_err();
    assert!(matches!(lost, GuardError::Lost { kept: true }), "{lost}");
    let info = shop.info(&thread).await;
    assert!(info.inbox == 1 && !is_forgotten(&info), "{info:?}");
    assert_eq!(shop.forget(&thread).await.unwrap(), Forgotten { steps: 1, payloads: 1, bytes: 5 });
    assert_eq!(shop.count(&thread, Kind::StepLate).await, 1);
    assert_eq!(shop.count(&thread, Kind::MessageRefused).await, 0);
    assert!(is_forgotten(&shop.info(&thread).await));
    assert!(!shop.roles(&thread).await.contains(&Role::Result));
}

/// After so many acts on the journal nothing comes back any more.
#[derive(Debug)]
struct StopsAfter(AtomicU32);

impl Hook for StopsAfter {
    fn at<'a>(&'a self, _: Place<'a>) -> BoxFuture<'a, ()> {
        let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match left {
            Ok(_) => Box::pin(std::future::ready(())),
            Err(_) => Box::pin(std::future::pending()),
        }
    }
}

#[tokio::test]
async fn a_book_forgets_what_is_old_and_tells_later_callers_so() {
    let clock = VirtualClock::new();
    let book = Deedbook::memory().clock(clock.clone()).outcomes_kept(10).start().await.unwrap();
    let mail = async |to: &str| {
        let guard = book.guard("mail").idempotent();
        guard.call(to, async |_| Ok::<_, StepError>(to.len())).await
    };
    let bounce = async || {
        let guard = book.guard("bounce").idempotent();
        guard.call("x", async |_| Err::<u32, _>(StepError::new("no such box").terminal())).await
    };
    assert_eq!(mail("ann").await.unwrap(), 3);
    bounce().await.unwrap_err();
    clock.advance(2 * DAY);
    assert_eq!(mail("bob").await.unwrap(), 3);
    let gone = book.forget(DAY, "ops:ann", "older than we keep").await.unwrap();
    assert_eq!((gone.steps, gone.payloads), (2, 4));
    let told = mail("ann").await.unwrap_err();
    assert!(
        matches!(&told, CallError::NoResult { .. }),
        "also where it was kept in memory: {told}"
    );
    assert!(told.to_string().contains("erased"), "{told}");
    let told = bounce().await.unwrap_err();
    assert!(matches!(told, CallError::Failed { replayed: true, .. }), "{told}");
    assert!(!told.to_string().contains("no such box"), "{told}");
    assert_eq!(mail("bob").await.unwrap(), 3);
    assert_eq!(book.forget(DAY, "ops:ann", "again").await.unwrap(), Forgotten::default());
    book.shutdown().await.unwrap();
}
