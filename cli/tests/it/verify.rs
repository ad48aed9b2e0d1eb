//! `verify`: what it finds in a journal whose hashes are right and whose records are wrong.

use std::time::Duration;

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim},
    id::{StoreTime, ThreadId},
    pen::{Draft, Pen},
    policy::Policy,
    record::{Kind, Role},
    row::{Row, Status},
};

use super::book::{Book, block_on, done, end, intent, request, unknown, write};

fn about(kind: Kind, call: u64) -> Draft {
    done(call, "1").with(|h| h.kind = kind)
}

/// What `by` says became of the step that was opened first.
fn word(verdict: &str, by: &str) -> Draft {
    let draft = about(Kind::StepResolve, 1);
    draft.with(|h| {
        h.attempt = None;
        h.verdict = Some(verdict.into());
        h.by = Some(by.into());
    })
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
        ("an outcome of another kind", vec![pay(), about(Kind::TimerFired, 1)]),
        ("an outcome without a call", vec![pay(), done(1, "1").with(|h| h.call = None)]),
        (
            "two ends of an attempt",
            vec![pay(), unknown(1, "timeout", None), unknown(1, "timeout", None)],
        ),
        ("a skipped attempt", vec![pay(), unknown(1, "timeout", None), again(1, 3)]),
        ("an attempt after the outcome", vec![pay(), done(1, "1"), again(1, 2)]),
        ("an outcome of another attempt", vec![pay(), done(1, "1").with(|h| h.attempt = Some(2))]),
        (
            "a second word of a probe",
            vec![
                pay(),
                unknown(1, "timeout", None),
                word("happened", "probe"),
                word("failed", "a"),
            ],
        ),
        (
            "a second word once the code has gone on",
            vec![
                pay(),
                unknown(1, "timeout", None),
                word("happened", "user:a"),
                intent("mail", Policy::Read),
                word("happened", "user:b"),
            ],
        ),
        (
            "a word that nobody said",
            vec![pay(), unknown(1, "timeout", None), word("unreadable", "")],
        ),
        ("a second start", vec![done(1, "1").with(|h| h.kind = Kind::ThreadStart)]),
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
        // Whatever cannot be understood is told with the thread that it is in, once.
        let ran = book.run(&["show", "bad"]);
        if ran.code != 0 {
            assert_eq!(ran.stderr.matches("thread bad").count(), 1, "{what}: {}", ran.stderr);
        }
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
    assert!(said.contains("journal: 6 records of 1 thread, 5 payloads\n"), "{said}");
    assert!(said.contains("consistent"), "{said}");
    assert!(
        said.contains("not checked: unsigned: this detects accidents, not a rewrite"),
        "{said}"
    );
    assert_eq!(book.json(&["verify", "t"])[0]["ok"], true);
    assert_eq!(book.run(&["verify", "missing"]).code, 1);
    let said_again = vec![
        intent("pay", Policy::AtMostOnce),
        unknown(1, "timeout", None),
        word("happened", "user:a"),
        word("failed", "user:b"),
        word("did_not_happen", "user:b"),
        word("happened", "user:a"),
        intent("mail", Policy::Read),
        word("unreadable", ""),
        word("happened", "user:a"),
    ];
    book.thread("u", Status::Running, said_again);
    book.ok(&["verify", "u"]);
}

/// A record that says that a payload was erased.
fn redact(of: u64, role: Role) -> Draft {
    Draft::new(&ThreadId::system(), Kind::Redact).with(|h| {
        h.call = Some(of);
        h.role = Some(role);
        h.by = Some("user:alice".into());
        h.why = Some("asked for".into());
    })
}

/// Erases the content of the request that thread `t` has at 1, and notes it so.
fn erase(book: &Book, note: Draft) {
    let home = book.home();
    block_on(async {
        let id = ThreadId::new("t").unwrap();
        let which = Claim::Thread { id: id.clone(), create: None };
        let lease = home.claim(which, "x", Duration::from_secs(9)).await.unwrap().remove(0);
        let log_id = home.identity().log_id;
        let mut pen = Pen::new(log_id, id.clone(), lease.epoch, lease.next, lease.head);
        let now = home.now().await.unwrap();
        let note = Append {
            thread: id.clone(),
            epoch: lease.epoch,
            at: lease.next,
            records: vec![pen.write(note, now, &mut || [1; 32]).1].into(),
            consumes: Vec::new(),
            row: lease.row.clone(),
        };
        home.erase(&id, 1, Role::Shown, note).await.unwrap();
        home.renew(&[(id, lease.epoch)], Duration::ZERO).await.unwrap();
        home.close().await.unwrap();
    });
}

#[test]
fn an_erased_payload_leaves_a_chain_that_verifies() {
    let book = Book::new();
    let ask = request("ask", r#""canary-123""#);
    book.thread("t", Status::Waiting, vec![ask]);
    erase(&book, redact(1, Role::Shown));
    let said = book.ok(&["verify"]);
    assert!(said.contains("3 records of 1 thread, 1 payload, 1 erased"), "{said}");
    assert!(said.contains("not checked: erased payloads"), "{said}");
    book.ok(&["export", "-o", "x.jsonl"]);
    let text = std::fs::read_to_string(book.file("x.jsonl")).unwrap();
    assert!(text.contains(r#""pay":{"shown":null}"#), "{text}");
    assert!(book.ok(&["verify", "--export", "x.jsonl"]).contains("1 erased"));
    assert!(book.ok(&["show", "t", "--payloads"]).contains("shown       (erased)"));
    // Nobody can see what they would grant.
    let ran = book.run(&["approve", "t"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("erased"), "{}", ran.stderr);
    book.ok(&["deny", "t"]);
    for args in [&["show", "t", "--payloads"][..], &["export"], &["threads"]] {
        assert!(!book.ok(args).contains("canary"));
    }
}

/// Without the record that says so, a payload that somebody took away passed for one that was
/// erased in order.
#[test]
fn a_payload_that_is_gone_without_a_record_is_found() {
    let gone = "record 1 of thread t: its payload shown is gone, and no record says who erased it";
    for (note, wanted) in [
        (about(Kind::ThreadResume, 1).with(|h| h.call = None), gone),
        (redact(1, Role::Args), "it says that payload args of record 1 was erased"),
        (redact(0, Role::Shown), "it says that payload shown of record 0 was erased"),
        (redact(1, Role::Shown).with(|h| h.role = None), "which payload was erased"),
    ] {
        let book = Book::new();
        book.thread("t", Status::Waiting, vec![request("ask", "1")]);
        book.thread("u", Status::Waiting, vec![request("ask", "1")]);
        erase(&book, note);
        book.ok(&["export", "-o", "all.jsonl"]);
        book.ok(&["export", "t", "-o", "one.jsonl"]);
        for args in [
            &["verify"][..],
            &["verify", "t"],
            &["verify", "--export", "all.jsonl"],
            &["verify", "--export", "one.jsonl"],
        ] {
            let ran = book.run(args);
            assert_eq!(ran.code, 3, "{args:?}: {}", ran.stdout);
            assert!(ran.stdout.contains(wanted), "{args:?}: {wanted}: {}", ran.stdout);
            assert!(ran.stdout.contains("1 problem\n"), "{args:?}: {}", ran.stdout);
        }
        book.ok(&["verify", "u"]);
    }
    // What is cut out of an export is gone without a record too.
    let book = Book::new();
    book.thread("t", Status::Waiting, vec![request("ask", "1")]);
    let text = book.ok(&["export"]);
    let at = text.find("\"shown\":{").unwrap() + "\"shown\":".len();
    let to = at + text[at..].find("}").unwrap() + 1;
    let cut = format!("{}null{}", &text[..at], &text[to..]);
    let cut = cut.replace("\"payloads\":2,\"erased\":0", "\"payloads\":1,\"erased\":1");
    std::fs::write(book.file("x.jsonl"), cut).unwrap();
    let ran = book.run(&["verify", "--export", "x.jsonl"]);
    assert!(ran.code == 3 && ran.stdout.contains(gone), "{}", ran.stdout);
}

/// Each thread may be whole and the order among them wrong.
#[test]
fn a_record_of_a_process_that_had_not_begun_is_found() {
    let begin = |book: &Book| {
        let home = book.home();
        block_on(async {
            let id = ThreadId::system();
            let row = Row::new("deedbook:system", Status::Running, StoreTime(0));
            let which = Claim::Thread { id: id.clone(), create: Some(row.clone()) };
            let lease = home.claim(which, "x", Duration::from_secs(9)).await.unwrap().remove(0);
            write(&home, &lease, vec![Draft::new(&id, Kind::RunStart)], row).await;
            home.close().await.unwrap();
        });
    };
    let run = |book: &Book| {
        let resume = about(Kind::ThreadResume, 0).with(|h| {
            h.call = None;
            h.process = Some(0);
        });
        book.thread("t", Status::Running, vec![resume]);
    };
    let good = Book::new();
    begin(&good);
    run(&good);
    good.ok(&["verify"]);
    let bad = Book::new();
    run(&bad);
    begin(&bad);
    for (book, code) in [(&good, 0), (&bad, 3)] {
        book.ok(&["export", "-o", "x.jsonl"]);
        for args in [&["verify"][..], &["verify", "--export", "x.jsonl"]] {
            let ran = book.run(args);
            assert_eq!(ran.code, code, "{args:?}: {}", ran.stdout);
            let told = "record 1 of thread t: it is of process 0, which had not begun before";
            assert_eq!(ran.stdout.contains(told), code == 3, "{args:?}: {}", ran.stdout);
        }
        book.ok(&["verify", "t"]);
    }
}

/// A member that nothing checks would be read by people and believed.
#[test]
fn a_member_that_nobody_knows_is_found_wherever_it_is_put() {
    let book = Book::new();
    let drafts = vec![intent("pay", Policy::AtMostOnce), done(1, "1"), end("done")];
    book.thread("t", Status::Done, drafts);
    let whole = book.ok(&["export"]);
    let places = ["{\"export\":{", "{\"rec\":{", "\"hash\":", "\"pay\":{\"args\":{", "{\"end\":{"];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("export.jsonl");
    let verify = |text: &str| {
        std::fs::write(&file, text).unwrap();
        book.run(&["verify", "--export", file.to_str().unwrap()])
    };
    assert_eq!(verify(&whole).code, 0);
    for place in places {
        let opening = place.ends_with('{');
        let added = if opening {
            format!("{place}\"extra\":\"lie\",")
        } else {
            format!("\"extra\":\"lie\",{place}")
        };
        assert!(whole.contains(place), "{place}: {whole}");
        let ran = verify(&whole.replacen(place, &added, 1));
        assert_ne!(ran.code, 0, "{place}: {}", ran.stdout);
    }
}
