//! Acts on a real journal, and what each of them writes.

use super::*;
use crate::{
    bytes::Bytes,
    embedded::{CreateOptions, Embedded},
    history::Standing,
    id::{Branch, IdentityKind, Name},
    message::{self, Verdict},
    policy::Policy,
    record::{Place, Record, Role},
};

struct Book {
    _dir: tempfile::TempDir,
    home: Embedded,
    thread: ThreadId,
}

fn place(name: &str) -> Place {
    Place {
        episode: 0,
        branch: Branch::root(),
        name: Name::new(name).unwrap(),
        kind: IdentityKind::Positional,
        occurrence: 0,
        business_key: None,
    }
}

fn intent(policy: Policy) -> Draft {
    Draft::new(&ThreadId::system(), Kind::StepIntent)
        .with(|h| {
            h.place = Some(place("pay"));
            h.attempt = Some(1);
            h.policy = Some(policy);
            h.key = policy.has_effect().then(|| "dk1_0".into());
        })
        .payload(Role::Args, vec![0xc0])
}

async fn book(drafts: Vec<Draft>) -> Book {
    let dir = tempfile::tempdir().unwrap();
    let home = Embedded::create(dir.path().join("book"), CreateOptions::new()).unwrap();
    let thread = ThreadId::new("t").unwrap();
    let now = home.now().await.unwrap();
    let row = Row::new("refund", Status::Running, now);
    let which = Claim::Thread { id: thread.clone(), create: Some(row.clone()) };
    let leases = home.claim(which, "worker:1", LEASE).await.unwrap();
    let epoch = leases[0].epoch;
    let log_id = home.identity().log_id;
    let mut pen = Pen::new(log_id, thread.clone(), epoch, 0, RecordHash::ZERO);
    let start = Draft::new(&thread, Kind::ThreadStart).with(|h| h.workflow = Some("refund".into()));
    let records = std::iter::once(start)
        .chain(drafts)
        .map(|draft| pen.write(draft, now, &mut || [1; 32]).1)
        .collect();
    let append =
        Append { thread: thread.clone(), epoch, at: 0, records, consumes: Vec::new(), row };
    home.append(vec![append]).await.remove(0).unwrap();
    let held = [(thread.clone(), epoch)];
    home.renew(&held, Duration::ZERO).await.unwrap();
    Book { _dir: dir, home, thread }
}

impl Book {
    async fn act(&self, message: &Message) -> Result<Acted, OperatorError> {
        act(&self.home, &self.thread, message, "cli:1", [5; 32]).await
    }

    async fn found(&self) -> Found {
        Found::load(&self.home, &self.thread).await.unwrap()
    }

    async fn kinds(&self) -> Vec<String> {
        let page = self.home.read(&self.thread, 0, usize::MAX).await.unwrap();
        let header = |r: &Record| Header::parse(&r.header).unwrap();
        let kinds = page.items.iter().map(|(_, r)| header(r).kind.as_str().to_owned());
        kinds.collect()
    }

    async fn epoch(&self) -> u64 {
        let list = self.home.list(&Default::default(), None, 1).await.unwrap();
        assert_eq!(list.items[0].holder, None, "an act lets go");
        list.items[0].epoch.0
    }

    fn resolve(&self, call: &Call, verdict: Verdict) -> Message {
        resolve(MessageId([2; 16]), &call.id, verdict, "why", "user:a").unwrap()
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(test);
}

#[test]
fn an_act_is_one_append_under_a_new_epoch() {
    run(async {
        let book = book(vec![]).await;
        let before = book.epoch().await;
        let message = signal(MessageId([1; 16]), "s", vec![0xc3], "user:a");
        let acted = book.act(&message).await.unwrap();
        assert_eq!((acted.position, acted.admitted_before), (2, 0));
        assert_eq!(acted.row.wake_at, Some(StoreTime(0)));
        assert_eq!(book.epoch().await, before + 1);
        assert_eq!(book.kinds().await, ["thread.start", "thread.resume", "signal"]);
        let found = book.found().await;
        assert_eq!(found.history.signals("s").len(), 1);
    });
}

#[test]
fn a_refusal_writes_nothing_and_takes_no_hold() {
    run(async {
        let book = book(vec![intent(Policy::Idempotent)]).await;
        let (epoch, kinds) = (book.epoch().await, book.kinds().await);
        let found = book.found().await;
        let message = book.resolve(&found.history.calls()[0], Verdict::DidNotHappen);
        let error = book.act(&message).await.unwrap_err();
        assert_eq!(error.to_string(), "refused: step pay#0 is not in doubt");
        assert_eq!((book.epoch().await, book.kinds().await), (epoch, kinds));
    });
}

#[test]
fn a_thread_under_a_lease_is_left_alone() {
    run(async {
        let book = book(vec![]).await;
        let which = Claim::Thread { id: book.thread.clone(), create: None };
        book.home.claim(which, "worker:2", LEASE).await.unwrap();
        let message = cancel(MessageId([1; 16]), "why", "user:a").unwrap();
        let error = book.act(&message).await.unwrap_err();
        let held =
            matches!(&error, OperatorError::Store(StoreError::Held { by }) if &**by == "worker:2");
        assert!(held, "{error}");
        assert_eq!(book.kinds().await, ["thread.start"]);
    });
}

#[test]
fn did_not_happen_lets_the_step_run_again_under_its_key() {
    run(async {
        let book = book(vec![intent(Policy::AtMostOnce)]).await;
        let found = book.found().await;
        let message = book.resolve(&found.history.calls()[0], Verdict::DidNotHappen);
        let acted = book.act(&message).await.unwrap();
        assert_eq!((acted.row.status, acted.row.open_doubts), (Status::Running, 0));
        let history = book.found().await.history;
        let now = book.home.now().await.unwrap();
        assert_eq!(history.standing(&history.calls()[0], now), Standing::Ready(2));
    });
}

#[test]
fn a_cancelled_thread_ends_once_its_loose_ends_are_tied() {
    run(async {
        let book = book(vec![intent(Policy::AtMostOnce)]).await;
        let message = cancel(MessageId([1; 16]), "why", "user:a").unwrap();
        let acted = book.act(&message).await.unwrap();
        assert_eq!((acted.row.status, acted.row.open_doubts), (Status::InDoubt, 1));
        let kinds = book.kinds().await;
        assert_eq!(kinds[2..], ["thread.resume", "marker"]);
        let found = book.found().await;
        let call = &found.history.calls()[0];
        assert!(is_loose(call));
        let happened = Verdict::Happened(message::Bytes(vec![0xc0]));
        let acted = book.act(&book.resolve(call, happened)).await.unwrap();
        assert_eq!((acted.row.status, acted.row.wake_at), (Status::Cancelled, None));
        assert_eq!(book.kinds().await.last().unwrap(), "thread.end");
    });
}

#[test]
fn reads_and_abandoned_steps_keep_no_cancelled_thread_open() {
    for draft in [intent(Policy::Read), intent(Policy::AtMostOnce).with(|h| h.abandon = true)] {
        run(async {
            let doubts = u32::from(draft.header.abandon);
            let book = book(vec![draft]).await;
            let message = cancel(MessageId([1; 16]), "why", "user:a").unwrap();
            let acted = book.act(&message).await.unwrap();
            let row = acted.row;
            assert_eq!((row.status, row.open_doubts), (Status::Cancelled, doubts));
        });
    }
}

#[test]
fn what_was_said_earlier_comes_first() {
    run(async {
        let book = book(vec![]).await;
        let first = signal(MessageId([1; 16]), "s", vec![1], "user:b");
        book.home.post(&book.thread, first).await.unwrap();
        let second = signal(MessageId([2; 16]), "s", vec![2], "user:a");
        let acted = book.act(&second).await.unwrap();
        assert_eq!((acted.position, acted.admitted_before), (3, 1));
        let history = book.found().await.history;
        let values: Vec<_> = history.signals("s").iter().map(|s| s.value.clone()).collect();
        let wanted: [Option<Bytes>; 2] = [Some([1].into()), Some([2].into())];
        assert_eq!(values, wanted);
        assert_eq!(book.home.inbox(&book.thread).await.unwrap(), []);
    });
}

#[test]
fn a_decision_is_bound_to_what_was_shown() {
    run(async {
        let ask = Draft::new(&ThreadId::system(), Kind::ApprovalRequest)
            .with(|h| h.place = Some(place("ask")))
            .payload(Role::Shown, vec![42]);
        let book = book(vec![ask]).await;
        let history = book.found().await.history;
        let mut call = history.calls()[0].clone();
        let good = decide(MessageId([1; 16]), &call, true, "fine", "user:a").unwrap();
        call.shown = Some([0; 32]);
        let bad = decide(MessageId([2; 16]), &call, true, "fine", "user:a").unwrap();
        assert!(matches!(book.act(&bad).await, Err(OperatorError::Refused { .. })));
        book.act(&good).await.unwrap();
        assert!(matches!(book.act(&good).await, Err(OperatorError::Refused { .. })));
    });
}
