//! Verifying and exporting while others write, and erase.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
};

use super::{book::Book, held::owner};

fn call(book: &Book, name: &str, thread: &str, more: &[&str]) {
    let mut all = vec!["call", name, "--thread", thread, "--policy", "idempotent"];
    all.extend(more);
    all.extend(["--", "echo", "\"secret\""]);
    book.ok(&all);
}

#[test]
fn what_others_write_and_erase_meanwhile_is_no_damage() {
    let book = Book::new();
    let _owner = owner(&book, "1h");
    for n in 0..10 {
        call(&book, "mail", &format!("old-{n}"), &["--args", "\"secret\""]);
    }
    let (over, made) = (AtomicBool::new(false), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let n = made.fetch_add(1, Ordering::SeqCst);
                call(&book, "mail", &format!("new-{n}"), &["--args", "\"secret\""]);
                // The same thread grows again and again.
                call(&book, "again", "same", &["--valid-for", "1ms"]);
            }
        });
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                book.ok(&["forget", "mail", "--older-than", "0s", "--reason", "x", "--by=ann"]);
            }
        });
        for round in 0..8 {
            // Damage ends with 3, and whatever this says is told.
            let verified = book.run(&["verify"]);
            let export = format!("{round}.jsonl");
            let exported = book.run(&["export", "-o", &export]);
            let of_export = book.run(&["verify", "--export", &export]);
            let steps = book.json(&["steps", "again", "--json"]);
            let thread = steps.first().map(|step| step["thread"].as_str().unwrap().to_owned());
            let one = thread.map(|thread| book.run(&["verify", &thread]));
            if round == 7 || verified.code + exported.code + of_export.code != 0 {
                over.store(true, Ordering::SeqCst);
            }
            for ran in [Some(verified), Some(exported), Some(of_export), one].iter().flatten() {
                assert_eq!(ran.code, 0, "{}{}", ran.stdout, ran.stderr);
            }
        }
    });
    assert!(made.load(Ordering::SeqCst) > 3, "nothing was written meanwhile");
}
