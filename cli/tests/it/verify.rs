//! `verify`: what it finds in a journal whose hashes are right and whose records are wrong.

use deedbook_journal::{pen::Draft, policy::Policy, record::Kind, row::Status};

use super::book::{Book, done, end, intent, unknown};

fn about(kind: Kind, call: u64) -> Draft {
    done(call, "1").with(|h| h.kind = kind)
}

#[test]
fn records_that_break_the_rules_are_found() {
    let pay = || intent("pay", Policy::AtMostOnce);
    let again = |call, attempt| {
        pay().with(|h| {
            h.place = None;
            h.call = Some(call);
            h.attempt = Some(attempt);
        })
    };
    let cases = [
        ("a second outcome", vec![pay(), done(1, "1"), done(1, "2")]),
        ("an outcome of nothing", vec![done(7, "1")]),
        (
            "an outcome of another kind",
            vec![pay(), about(Kind::TimerFired, 1)],
        ),
        (
            "an outcome without a call",
            vec![pay(), done(1, "1").with(|h| h.call = None)],
        ),
        (
            "two ends of an attempt",
            vec![
                pay(),
                unknown(1, "timeout", None),
                unknown(1, "timeout", None),
            ],
        ),
        (
            "a skipped attempt",
            vec![pay(), unknown(1, "timeout", None), again(1, 3)],
        ),
        (
            "an attempt after the outcome",
            vec![pay(), done(1, "1"), again(1, 2)],
        ),
        (
            "an outcome of another attempt",
            vec![pay(), done(1, "1").with(|h| h.attempt = Some(2))],
        ),
        (
            "a second start",
            vec![done(1, "1").with(|h| h.kind = Kind::ThreadStart)],
        ),
    ];
    for (what, drafts) in cases {
        let book = Book::new();
        book.thread("good", Status::Done, vec![pay(), done(1, "1"), end("done")]);
        let n = drafts.len();
        book.thread("bad", Status::Running, drafts);
        for args in [&["verify"][..], &["verify", "bad"]] {
            let ran = book.run(args);
            assert_eq!(ran.code, 3, "{what}: {}{}", ran.stdout, ran.stderr);
            let named = format!("record {n} of thread bad: ");
            assert!(ran.stdout.contains(&named), "{what}: {}", ran.stdout);
        }
        book.ok(&["verify", "good"]);
        let object = book.json(&["verify"]).remove(0);
        assert_eq!(object["ok"], false);
        assert_eq!(object["problems"].as_array().unwrap().len(), 1);
    }
}

#[test]
fn a_good_journal_is_consistent_and_says_what_was_not_checked() {
    let book = Book::new();
    let again = intent("pay", Policy::Idempotent).with(|h| {
        h.place = None;
        h.call = Some(1);
        h.attempt = Some(2);
    });
    let drafts = vec![
        intent("pay", Policy::Idempotent),
        unknown(1, "timeout", None),
        again,
        done(1, "1").with(|h| h.attempt = Some(2)),
        end("done"),
    ];
    book.thread("t", Status::Done, drafts);
    let said = book.ok(&["verify"]);
    assert!(said.contains("journal: 6 records of 1 threads"), "{said}");
    assert!(said.contains("consistent"), "{said}");
    assert!(
        said.contains("not checked: unsigned: this detects accidents, not a rewrite"),
        "{said}"
    );
    assert_eq!(book.json(&["verify", "t"])[0]["ok"], true);
    assert_eq!(book.run(&["verify", "missing"]).code, 1);
}
