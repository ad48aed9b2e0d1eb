//! `verify`: what it finds in a journal whose hashes are right and whose records are wrong.

use std::time::Duration;

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim},
    id::ThreadId,
    pen::{Draft, Pen},
    policy::Policy,
    record::{Kind, Role},
    row::Status,
};

use super::book::{Book, block_on, done, end, intent, request, unknown};

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
        ("an outcome of another kind", vec![pay(), about(Kind::TimerFired, 1)]),
        ("an outcome without a call", vec![pay(), done(1, "1").with(|h| h.call = None)]),
        (
            "two ends of an attempt",
            vec![pay(), unknown(1, "timeout", None), unknown(1, "timeout", None)],
        ),
        ("a skipped attempt", vec![pay(), unknown(1, "timeout", None), again(1, 3)]),
        ("an attempt after the outcome", vec![pay(), done(1, "1"), again(1, 2)]),
        ("an outcome of another attempt", vec![pay(), done(1, "1").with(|h| h.attempt = Some(2))]),
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

#[test]
fn an_erased_payload_leaves_a_chain_that_verifies() {
    let book = Book::new();
    let ask = request("ask", r#""canary-123""#);
    book.thread("t", Status::Waiting, vec![ask]);
    let home = book.home();
    block_on(async {
        let id = ThreadId::new("t").unwrap();
        let which = Claim::Thread { id: id.clone(), create: None };
        let lease = home.claim(which, "x", Duration::from_secs(9)).await.unwrap().remove(0);
        let log_id = home.identity().log_id;
        let mut pen = Pen::new(log_id, id.clone(), lease.epoch, lease.next, lease.head);
        let now = home.now().await.unwrap();
        let draft = Draft::new(&id, Kind::ThreadResume);
        let note = Append {
            thread: id.clone(),
            epoch: lease.epoch,
            at: lease.next,
            records: vec![pen.write(draft, now, &mut || [1; 32]).1],
            consumes: Vec::new(),
            row: lease.row.clone(),
        };
        home.erase(&id, 1, Role::Shown, note).await.unwrap();
        home.renew(&[(id, lease.epoch)], Duration::ZERO).await.unwrap();
        home.close().await.unwrap();
    });
    assert!(book.ok(&["verify"]).contains("1 payloads, 1 erased"));
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
