//! Threads that earlier agents have run, replayed with the agent as it is now. Nothing is paid:
//! its hands cannot be used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use deedbook::{Builder, Context, DivergenceKind, Result, Workflow};
use deedbook_testkit::{ReplayCheck, Verdict, replay_check};
use refund_agent::agent::hands::{Answer, Letters, Payments};
use refund_agent::agent::outbox::OutboxError;
use refund_agent::agent::{Asked, RefundAgent};
use refund_agent::bank::{BankError, Mode, Receipt};
use refund_agent::judge::{Assessment, Judge};
use refund_agent::requests::Refund;

/// Hands that nobody may use.
#[derive(Debug)]
struct Tied;

impl Judge for Tied {
    fn assess<'a>(&'a self, refund: &'a Refund) -> Assessment<'a> {
        panic!("{} was assessed", refund.id)
    }
}

impl Payments for Tied {
    fn refund<'a>(
        &'a self,
        refund: &'a Refund,
        _key: &'a str,
        _reference: &'a str,
    ) -> Answer<'a, Receipt, BankError> {
        panic!("{} was paid", refund.id)
    }

    fn find<'a>(&'a self, reference: &'a str) -> Answer<'a, Option<Receipt>, BankError> {
        panic!("{reference} was looked up")
    }
}

impl Letters for Tied {
    fn write<'a>(
        &'a self,
        _key: &'a str,
        thread: &'a str,
        _text: &'a str,
    ) -> Answer<'a, (), OutboxError> {
        panic!("{thread} was written to")
    }

    fn holds<'a>(&'a self, key: &'a str) -> Answer<'a, bool, OutboxError> {
        panic!("{key} was looked up")
    }
}

fn agent(mode: Mode) -> RefundAgent {
    let settle = Duration::from_secs(3 * 86_400);
    RefundAgent::new(Arc::new(Tied), Arc::new(Tied), mode, Arc::new(Tied), settle)
}

fn exported(thread: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports");
    folder.join(thread).with_extension("jsonl")
}

#[test]
fn recorded_refunds_replay_on_the_agent_of_today() {
    for thread in ["rq-paid", "rq-asked", "rq-cut-off"] {
        replay_check(exported(thread), |book: Builder| book.host(agent(Mode::Keys)));
    }
}

/// A bank that promises less is another policy: told, and no divergence.
#[test]
fn another_bank_is_told_as_another_policy() {
    let check = ReplayCheck::new(exported("rq-paid"));
    let replays = check.explore(|book: Builder| book.host(agent(Mode::None)));
    assert!(replays.is_fine(), "{replays}");
    let text = replays.to_string();
    assert!(text.contains("pay#0: policy: record 3 has idempotent"), "{text}");
}

/// The same agent under changed requests: what a replay of a real file finds is told in full.
#[test]
fn a_changed_export_is_told() {
    let text = std::fs::read_to_string(exported("rq-paid")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changed.jsonl");
    std::fs::write(&path, text.replacen("\"verdict\":\"done\"", "\"verdict\":\"failed\"", 1))
        .unwrap();
    let replays = ReplayCheck::new(&path).explore(|book: Builder| book.host(agent(Mode::Keys)));
    let [was] = replays.threads() else { panic!("{replays}") };
    assert!(matches!(was.verdict, Verdict::Damaged(_)), "{replays}");
    assert!(!replays.is_fine() && replays.to_string().contains("line 11"), "{replays}");
}

/// An agent that has forgotten a step of its own.
#[test]
fn an_agent_that_changed_is_told_by_its_step() {
    struct Hasty;

    impl Workflow for Hasty {
        const NAME: &'static str = RefundAgent::NAME;
        type Input = Asked;
        type Output = ();

        async fn run(&self, ctx: Context, asked: &Self::Input) -> Result<()> {
            let pay = ctx.step("pay").idempotent();
            pay.run(&asked.refund, async |_| panic!("it was paid")).await
        }
    }

    for thread in ["rq-paid", "rq-asked", "rq-cut-off"] {
        let check = ReplayCheck::new(exported(thread));
        let replays = check.explore(|book: Builder| book.host(Hasty));
        let [was] = replays.threads() else { panic!("{replays}") };
        let Verdict::Diverges(divergence) = &was.verdict else { panic!("{replays}") };
        assert_eq!((divergence.call.as_str(), divergence.at), ("assess#0", 1));
        assert!(matches!(divergence.kind, DivergenceKind::NotMade { .. }), "{divergence}");
    }
}
