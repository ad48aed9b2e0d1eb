//! Histories of any records.

use std::sync::Arc;

use deedbook_journal::{
    history::History,
    id::{Branch, Epoch, IdentityKind, MessageId, Name, StoreTime, ThreadId},
    policy::Policy,
    record::{Header, Kind, Payload, Place, Record, RecordHash, Role},
};

use crate::{Broken, Target, fixture, input::Input};

pub(crate) const TARGET: Target = Target {
    name: "history",
    promise: "records are taken in, or refused and nothing is changed; both readers agree",
    run,
    seeds: fixture::histories,
    words: &["\u{1}", "\u{2}", "\u{3}", "\u{4}"],
    bytes_max: 1024,
};

const RECORDS_MAX: usize = 64;
const POLICIES: [Policy; 4] =
    [Policy::Read, Policy::Idempotent, Policy::Reconcile, Policy::AtMostOnce];
const NOW: StoreTime = StoreTime(1_000);

fn run(input: &[u8]) -> Result<(), Broken> {
    let thread = ThreadId::new("t").unwrap();
    let mut input = Input(input);
    let mut quick = History::new(thread.clone(), [1; 32]);
    let mut strict = History::new(thread, [1; 32]);
    let (mut prev, mut run) = (RecordHash::ZERO, 0);
    for _ in 0..RECORDS_MAX {
        if input.is_over() {
            break;
        }
        let (header, payloads) = made(&mut input, quick.next(), run);
        let (header, record) = Record::seal(&[7; 16], &prev, header, payloads);
        let before = shown(&quick);
        let taken = quick.replay(&record);
        let applied = strict.apply(&header, &record.payloads);
        if taken.is_ok() != applied.is_ok() {
            return Err(format!("{taken:?} by replay, {applied:?} from the header {header:?}"));
        }
        let after = shown(&quick);
        if after != shown(&strict) {
            return Err(format!("{quick:?} by replay is not {strict:?}"));
        }
        if taken.is_err() && after != before {
            return Err(format!("refused, and {before:?} became {after:?}"));
        }
        if taken.is_ok() {
            prev = record.hash;
            if matches!(header.kind, Kind::ThreadStart | Kind::ThreadResume) {
                run = header.n;
            }
        }
        looked_at(&quick);
    }
    quick.loaded();
    looked_at(&quick);
    Ok(())
}

/// All words of what a history holds. Sorted: some of its maps are in no order of their own.
fn shown(history: &History) -> Vec<String> {
    let all = format!("{history:?}");
    let words = all.split(|c: char| c.is_whitespace() || "{}[](),".contains(c));
    let mut words: Vec<_> = words.map(str::to_owned).collect();
    words.sort_unstable();
    words
}

/// Everything that is asked of a history is answered.
fn looked_at(history: &History) {
    let _ = history.doubts(NOW).count();
    for call in history.calls() {
        let _ = (history.standing(call, NOW), history.may_be_settled_again(call));
        let _ = (history.settled_by_person(call), history.misread(call));
    }
    let _ = deedbook_journal::operator::blocking(history, NOW);
    let _ = (history.markers().count(), history.all_signals().count());
}

fn made(input: &mut Input<'_>, n: u64, run: u64) -> (Header, Vec<Payload>) {
    let kind = Kind::ALL[usize::from(input.byte()) % Kind::ALL.len()].clone();
    let flags = input.word();
    let (a, b) = (input.byte(), input.byte());
    let has = |bit: u32| flags & 1 << bit != 0;
    let run = if matches!(kind, Kind::ThreadStart | Kind::ThreadResume) { n } else { run };
    let text =
        |of: u8| -> Arc<str> { ["", "a", "granted", "denied", "done"][usize::from(of) % 5].into() };
    let thread = ThreadId::new("t").unwrap();
    let mut header = Header::new(thread, n, Epoch(1), kind, StoreTime(u64::from(b)), run);
    let (call, small) = (u64::from(a), u32::from(b % 4));
    header.place = has(0).then(|| Place {
        episode: u32::from(has(1)),
        branch: if has(2) {
            Branch::new(vec![Name::new("b").unwrap()]).unwrap()
        } else {
            Branch::root()
        },
        name: Name::new(["pay", "ship", "wait"][usize::from(a) % 3]).unwrap(),
        kind: [IdentityKind::Positional, IdentityKind::Key, IdentityKind::Arguments]
            [usize::from(b) % 3],
        occurrence: small,
        business_key: (b % 3 == 1).then(|| text(a)),
    });
    header.attempt = has(3).then_some(small);
    header.attempts_max = has(4).then_some(small);
    header.call = has(5).then_some(call);
    header.key = has(6).then(|| text(a));
    header.generation = u64::from(has(7));
    header.policy = has(8).then(|| POLICIES[usize::from(b) % POLICIES.len()]);
    header.timeout_ms = has(9).then_some(call);
    header.window_ms = has(10).then_some(call);
    header.quiet_ms = has(11).then_some(call);
    header.abandon = has(12);
    header.carry = if has(13) { (0..u64::from(a % 4)).collect() } else { Vec::new() };
    header.due = has(14).then(|| StoreTime(u64::from(b)));
    header.why = has(15).then(|| text(b));
    header.verdict = has(16).then(|| text(b));
    header.message = has(17).then_some(MessageId([a; 16]));
    header.by = has(18).then(|| text(a));
    header.workflow = has(19).then(|| text(b));
    header.doubts = has(20).then_some(small);
    header.allowed_by = has(21).then_some(call);
    let mut payloads = Vec::new();
    for (bit, role) in (24..).zip(Role::ALL) {
        if has(bit) {
            let bytes = input.take(usize::from(a % 8)).to_vec().into();
            payloads.push(Payload { role, salt: [b; 32], bytes });
        }
    }
    (header, payloads)
}
