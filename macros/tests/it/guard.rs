//! Guarded calls.

use std::{
    collections::BTreeMap,
    error::Error,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{
    CallError, Deedbook, Duplicates, Operation, Probe, Retry, StepError, StepResultExt,
    VirtualClock, guard::Source, step,
};
use deedbook_journal::record::{Header, Kind, Role};
use serde::{Deserialize, Serialize};

/// What the bodies change: the count of changes, and the keys they came under.
#[derive(Debug, Default)]
struct Bank {
    count: AtomicU32,
    keys: Mutex<Vec<String>>,
}

impl Bank {
    fn charge(&self, op: &Operation) -> u32 {
        self.keys.lock().unwrap().push(op.key().to_owned());
        self.count.fetch_add(1, Ordering::SeqCst) + 1
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

async fn book() -> Deedbook {
    Deedbook::memory().start().await.unwrap()
}

#[step("charge_card", idempotent, operation = op)]
async fn charge(
    book: &Deedbook,
    order: &str,
    cents: u64,
    #[hands] bank: &Bank,
) -> Result<u32, CallError> {
    assert!(!order.is_empty() && cents > 0);
    Ok(bank.charge(&op))
}

#[tokio::test]
async fn the_body_runs_once_for_equal_arguments() {
    let (book, bank) = (book().await, Bank::default());
    for _ in 0..3 {
        assert_eq!(charge(&book, "ORD-1", 4200, &bank).await.unwrap(), 1);
    }
    assert_eq!(charge(&book, "ORD-1", 9900, &bank).await.unwrap(), 2);
    // Other hands are the same call.
    assert_eq!(charge(&book, "ORD-1", 4200, &Bank::default()).await.unwrap(), 1);
    assert_eq!(bank.count(), 2);
}

#[tokio::test]
async fn it_is_the_guard_that_one_would_write_by_hand() {
    #[derive(Serialize)]
    struct Charge<'a> {
        order: &'a str,
        cents: u64,
    }
    let (book, bank) = (book().await, Bank::default());
    let args = Charge { order: "ORD-1", cents: 4200 };
    let by_hand = || book.guard("charge_card").idempotent();
    charge(&book, "ORD-1", 4200, &bank).await.unwrap();
    // The same operation: what the macro recorded is given to the guard by hand,
    let told = by_hand().call_told(&args, async |op| Ok(bank.charge(&op))).await.unwrap();
    assert!(told.source.replayed);
    assert_eq!(told.source.key.as_deref(), bank.keys.lock().unwrap().first().map(String::as_str));
    assert_eq!(bank.count(), 1);
    // and the other way round, in a book that neither has written to.
    let args = Charge { order: "ORD-2", cents: 1 };
    by_hand().call(&args, async |op| Ok(bank.charge(&op))).await.unwrap();
    assert_eq!(charge(&book, "ORD-2", 1, &bank).await.unwrap(), 2);
    assert_eq!(bank.count(), 2);
}

#[tokio::test]
async fn arguments_are_recorded_by_their_names_and_hands_are_not() {
    let (book, bank) = (book().await, Bank::default());
    charge(&book, "ORD-1", 4200, &bank).await.unwrap();
    let args = BTreeMap::from([("order", Arg::Text("ORD-1")), ("cents", Arg::Number(4200))]);
    let wanted = book.guard("charge_card").idempotent().wanted(&args).unwrap();
    let home = book.checkpointer();
    let thread = wanted.thread(home.identity()).unwrap();
    let page = home.read(&thread, 0, usize::MAX).await.unwrap();
    let kind = |header: &[u8]| Header::parse(header).unwrap().kind;
    let (_, intent) =
        page.items.iter().find(|(_, record)| kind(&record.header) == Kind::StepIntent).unwrap();
    let payload = String::from_utf8_lossy(&intent.payload(Role::Args).unwrap().bytes);
    assert!(payload.contains("order") && payload.contains("cents"), "{payload}");
    assert!(!payload.contains("bank"), "{payload}");
}

#[derive(Serialize)]
#[serde(untagged)]
enum Arg {
    Text(&'static str),
    Number(u64),
}

#[step("refund", idempotent, key = order, operation = op)]
async fn refund(
    book: &Deedbook,
    order: String,
    cents: u64,
    #[hands] bank: &Bank,
) -> Result<u32, CallError> {
    let owned: String = order;
    assert!(!owned.is_empty() && cents > 0);
    Ok(bank.charge(&op))
}

#[tokio::test]
async fn other_arguments_under_a_key_are_a_conflict() {
    let (book, bank) = (book().await, Bank::default());
    assert_eq!(refund(&book, "ORD-1".into(), 1, &bank).await.unwrap(), 1);
    assert_eq!(refund(&book, "ORD-1".into(), 1, &bank).await.unwrap(), 1);
    let error = refund(&book, "ORD-1".into(), 2, &bank).await.unwrap_err();
    let CallError::Conflict(conflict) = &error else { panic!("{error}") };
    assert_eq!(conflict.fields, ["/cents"], "{error}");
}

#[step(
    "transfer", idempotent, operation = op,
    identified_by(from, to), within = format!("tenant/{tenant}"),
    honoured_for = "24h", timeout = "10s", valid_for = "7d",
    duplicates = wait("30s"), retry(attempts = 3, first = "1ms", most = "1s"),
    redact("/note"), on_replay = |_: &Source| ()
)]
async fn transfer<N: Serialize + Clone + Send + Sync>(
    book: &Deedbook,
    from: u32,
    to: u32,
    note: N,
    #[hands] tenant: &str,
    #[hands] bank: &Bank,
) -> Result<u32, Box<dyn Error + Send + Sync>> {
    let _ = (from, to, note);
    let nth = bank.charge(&op);
    if tenant == "shaky" && op.attempt() < 3 {
        return Err(StepError::new("503").not_applied());
    }
    Ok(nth)
}

#[tokio::test]
async fn everything_a_guard_can_be_told_can_be_said() {
    #[derive(Serialize)]
    struct Chosen {
        from: u32,
        to: u32,
    }
    #[derive(Serialize)]
    struct Transfer {
        from: u32,
        to: u32,
        note: &'static str,
    }
    let (book, bank) = (book().await, Bank::default());
    assert_eq!(transfer(&book, 1, 2, "rent", "a", &bank).await.unwrap(), 1);
    // By hand it is this.
    let guard = book.guard("transfer").idempotent();
    let guard = guard.identified_by(&Chosen { from: 1, to: 2 }).within("tenant/a");
    let guard = guard
        .honoured_for(Duration::from_secs(24 * 3600))
        .timeout(Duration::from_secs(10))
        .valid_for(Duration::from_secs(7 * 24 * 3600))
        .duplicates(Duplicates::Wait(Duration::from_secs(30)))
        .retry(Retry::attempts(3).first(Duration::from_millis(1)).most(Duration::from_secs(1)))
        .redact("/note");
    let args = Transfer { from: 1, to: 2, note: "rent" };
    let told = guard.call_told(&args, async |op| Ok(bank.charge(&op))).await.unwrap();
    assert_eq!((told.value, told.source.replayed), (1, true));
    assert_eq!(told.source.key.as_deref(), bank.keys.lock().unwrap().first().map(String::as_str));
    // Another scope, another operation; another note, a conflict that does not tell it.
    assert_eq!(transfer(&book, 1, 2, "rent", "b", &bank).await.unwrap(), 2);
    let error = transfer(&book, 1, 2, "bribe", "a", &bank).await.unwrap_err().to_string();
    assert!(error.contains("other arguments") && !error.contains("bribe"), "{error}");
    // It tries again by itself, under the same key.
    assert_eq!(transfer(&book, 1, 2, "rent", "shaky", &bank).await.unwrap(), 5);
    let keys = bank.keys.lock().unwrap();
    assert!(keys[2] == keys[3] && keys[3] == keys[4] && keys[1] != keys[2]);
}

#[step("look_up", read, attempt = a, valid_for = Duration::from_secs(60))]
async fn look_up(book: &Deedbook, #[hands] bank: &Bank) -> Result<(u32, u32), CallError> {
    Ok((bank.count.fetch_add(1, Ordering::SeqCst), a.number()))
}

#[tokio::test]
async fn a_read_without_arguments_has_an_attempt() {
    let clock = VirtualClock::new();
    let book = Deedbook::memory().clock(clock.clone()).start().await.unwrap();
    let bank = Bank::default();
    for _ in 0..2 {
        assert_eq!(look_up(&book, &bank).await.unwrap(), (0, 1));
    }
    clock.advance(Duration::from_secs(61));
    assert_eq!(look_up(&book, &bank).await.unwrap().0, 1);
}

#[step(
    "wire", reconcile, operation = op, timeout = "1s", quiet = "1s",
    probe = async |op| bank.find(&order, op).await
)]
async fn wire(book: &Deedbook, order: String, #[hands] bank: &Bank) -> Result<String, CallError> {
    bank.charge(&op);
    Err(StepError::new(format!("the connection of {order} was reset")))
}

impl Bank {
    async fn find(&self, order: &str, op: Operation) -> Result<Probe<String>, StepError> {
        let known = self.keys.lock().unwrap().iter().any(|key| key == op.key());
        Ok(if known { Probe::Happened(format!("found {order}")) } else { Probe::DidNotHappen })
    }
}

#[tokio::test]
async fn a_probe_sees_the_parameters() {
    let clock = VirtualClock::new();
    let book = Deedbook::memory().clock(clock.clone()).start().await.unwrap();
    let bank = Bank::default();
    let error = wire(&book, "ORD-1".into(), &bank).await.unwrap_err();
    assert!(matches!(error, CallError::InDoubt { .. }), "{error}");
    clock.advance(Duration::from_secs(2));
    assert_eq!(wire(&book, "ORD-1".into(), &bank).await.unwrap(), "found ORD-1");
    assert_eq!(bank.count(), 1);
}

#[step("page", at_most_once, duplicates = refuse)]
async fn page(
    book: &Deedbook,
    mut who: String,
    #[hands] mut log: Vec<String>,
) -> Result<String, CallError> {
    who.push('!');
    log.push(who.clone());
    Ok(log.join(" "))
}

#[tokio::test]
async fn parameters_may_be_changed_by_the_body() {
    let book = book().await;
    let paged = page(&book, "ann".into(), vec!["page".into()]).await.unwrap();
    assert_eq!(paged, "page ann!");
}

mod mail {
    use super::*;

    #[step("send", idempotent)]
    pub(super) async fn send(book: &Deedbook, text: &str) -> Result<String, CallError> {
        Ok(format!("mailed {text}"))
    }
}

mod sms {
    use super::*;

    #[step("send", idempotent)]
    pub(super) async fn send(book: &Deedbook, text: &str) -> Result<String, CallError> {
        Ok(format!("texted {text}"))
    }
}

#[tokio::test]
async fn i02_one_name_in_two_modules_is_refused() {
    let book = book().await;
    assert_eq!(mail::send(&book, "hi").await.unwrap(), "mailed hi");
    let error = sms::send(&book, "hi").await.unwrap_err();
    assert!(matches!(error, CallError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("guard::mail and in it::guard::sms"), "{error}");
    assert_eq!(mail::send(&book, "hi").await.unwrap(), "mailed hi");
}

/// A book of one's own.
struct Shop(Deedbook);

impl std::ops::Deref for Shop {
    type Target = Deedbook;

    fn deref(&self) -> &Deedbook {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: (u8, String),
}

#[step("issue", idempotent, guard, crate = deedbook, occurrence = *nth)]
async fn issue(shop: &Shop, #[hands] nth: &u32) -> Result<Receipt, CallError> {
    Err(std::io::Error::other(format!("no {nth}"))).not_applied()?;
    Ok(Receipt { number: (1, "x".into()) })
}

#[tokio::test]
async fn a_book_of_another_name_is_told_by_a_word() {
    let shop = Shop(book().await);
    let error = issue(&shop, &1).await.unwrap_err();
    assert!(matches!(error, CallError::NotDone { ambiguous: false, .. }), "{error}");
}
