//! Backups, examinations, compaction.

use std::{fs, process::Command};

use deedbook_journal::{checkpointer::Claim, id::ThreadId, policy::Policy, row::Status};

use super::book::{Book, Ran, block_on, done, intent, write};

fn some() -> Book {
    let book = Book::new();
    for k in 0..3 {
        let steps = [intent("pay", Policy::Idempotent), done(1, r#"{"id":"r_17"}"#)];
        book.thread(&format!("order-{k}"), Status::Waiting, steps.into());
    }
    book
}

/// Writes one more record and crashes.
fn crash(book: &Book) {
    use deedbook_journal::checkpointer::Checkpointer;
    let home = book.home();
    block_on(async {
        let id = ThreadId::new("order-0").unwrap();
        let which = Claim::Thread { id, create: None };
        let lease = home.claim(which, "worker:2", std::time::Duration::from_secs(60)).await;
        let lease = lease.unwrap().remove(0);
        let row = lease.row.clone();
        write(&home, &lease, vec![intent("email", Policy::Read)], row).await;
    });
}

/// Every file beside the journal, with its bytes.
fn files(book: &Book) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(book.dir()).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn a_backup_is_a_journal_of_its_own_with_everything_in_it() {
    let book = some();
    let said = book.ok(&["backup", "copy.deedbook"]);
    assert!(said.starts_with("backed up 9 records of 3 threads to copy.deedbook ("), "{said}");
    assert!(said.contains("head  leaf 8, "), "{said}");
    let of = |journal: &str, args: &[&str]| book.ok(&[&["--journal", journal], args].concat());
    let records = |export: String| export.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    let export = |journal| records(of(journal, &["export"]));
    assert_eq!(export("copy.deedbook"), export("book.deedbook"));
    for args in [&["verify"][..], &["key", "--thread", "t", "--step", "s"]] {
        assert_eq!(of("copy.deedbook", args), of("book.deedbook", args), "{args:?}");
    }
    // It is not written over.
    let again = book.run(&["backup", "copy.deedbook"]);
    assert_eq!((again.code, again.stdout.as_str()), (1, ""));
    assert!(again.stderr.contains("copy.deedbook: there is something with this name already"));
    let json = book.json(&["backup", "other.deedbook"]).remove(0);
    assert_eq!((&json["records"], &json["threads"]), (&9.into(), &3.into()));
    assert_eq!(json["head"]["leaf"], 8);
    assert_eq!(json["head"]["hash"].as_str().unwrap().len(), 64);
    let length = fs::metadata(book.file("other.deedbook")).unwrap().len();
    assert_eq!(json["file_bytes"], length);
    let empty = Book::new();
    assert!(empty.json(&["backup", "copy"]).remove(0)["head"].is_null());
}

#[test]
fn how_far_a_backup_has_come_is_told_where_that_is_wanted() {
    let book = some();
    assert_eq!(book.run(&["backup", "silent"]).stderr, "");
    let told = book.run(&["backup", "told", "--progress"]);
    assert_eq!(told.code, 0);
    assert!(told.stderr.starts_with("copying: "), "{}", told.stderr);
    assert!(told.stderr.contains(" of 9 records, "), "{}", told.stderr);
}

#[test]
fn a_journal_that_was_not_closed_is_backed_up_whole() {
    let book = some();
    crash(&book);
    assert_eq!(book.json(&["backup", "copy"]).remove(0)["records"], 10);
    assert!(book.ok(&["--journal", "copy", "verify"]).contains("10 records"));
}

#[test]
fn a_journal_that_is_in_use_is_not_backed_up_from_outside() {
    let book = some();
    let home = book.home();
    let ran = book.run(&["backup", "copy"]);
    assert_eq!(ran.code, 5, "{}", ran.stderr);
    assert!(ran.stderr.contains("in use by"), "{}", ran.stderr);
    assert!(!book.file("copy").exists());
    drop(home);
}

/// They ended with an error of the system.
#[test]
fn where_nothing_can_be_written_one_can_look() {
    use std::os::unix::fs::PermissionsExt;
    let book = some();
    crash(&book);
    let before = files(&book);
    let mode = |file: u32, dir: u32| {
        for (name, _) in &before {
            let mode = fs::Permissions::from_mode(file);
            // Whoever is not kept out has recovered it, and its log is gone.
            drop(fs::set_permissions(book.file(name), mode));
        }
        fs::set_permissions(book.dir(), fs::Permissions::from_mode(dir)).unwrap();
    };
    mode(0o400, 0o500);
    // Nothing keeps some users out.
    let forbidden = fs::File::options().write(true).open(book.path()).is_err();
    for args in [&["threads"][..], &["show", "order-0"], &["doubts"], &["export"], &["verify"]] {
        book.ok(args);
        assert!(!forbidden || files(&book) == before, "{args:?} changed something");
    }
    assert!(book.ok(&["verify"]).contains("10 records"));
    let act = book.run(&["cancel", "order-2", "--reason", "x"]);
    mode(0o600, 0o700);
    if forbidden {
        assert_eq!(act.code, 1);
        assert!(act.stderr.contains("works all the same"), "{}", act.stderr);
    }
}

#[test]
fn a_disk_that_is_full_is_named_and_nothing_is_left() {
    let book = some();
    let before = files(&book);
    // No file may get longer than 32 KiB.
    let script = "trap '' XFSZ; ulimit -f 32; exec \"$D\" backup copy";
    let output = Command::new("bash")
        .args(["-c", script])
        .env("D", env!("CARGO_BIN_EXE_deedbook"))
        .env("DEEDBOOK_JOURNAL", book.path())
        .current_dir(book.dir())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("deedbook: copy: cannot "), "{said}");
    assert!(said.contains("File too large"), "{said}");
    assert!(files(&book) == before);
}

#[test]
fn doctor_says_how_it_stands_and_what_to_do() {
    let book = some();
    let said = book.ok(&["doctor"]);
    assert!(said.contains("ok       records    9 of 3 threads: every hash and every chain holds"));
    assert!(said.ends_with("0 faults, 0 warnings\n"), "{said}");
    crash(&book);
    let before = files(&book);
    let json = book.json(&["doctor"]).remove(0);
    assert_eq!((&json["faults"], &json["records"]), (&0.into(), &10.into()));
    let findings = json["findings"].as_array().unwrap();
    let opening = findings.iter().find(|finding| finding["about"] == "opening").unwrap();
    assert_eq!(opening["verdict"], "note");
    assert!(opening["said"].as_str().unwrap().contains("was not closed"), "{opening}");
    assert!(files(&book) == before);
    // Damage is a fault, with the record.
    book.ok(&["verify"]);
    let mut bytes = book.bytes();
    let at = bytes.windows(4).position(|window| window == b"r_17").unwrap();
    bytes[at] ^= 1;
    fs::write(book.path(), bytes).unwrap();
    let ran = book.run(&["doctor"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (3, ""));
    assert!(ran.stdout.contains("fault    records    record 2 of thread"), "{}", ran.stdout);
    assert!(ran.stdout.contains("next: restore it from a backup"), "{}", ran.stdout);
    let held = book.home();
    let ran = book.run(&["doctor"]);
    assert_eq!(ran.code, 5);
    assert!(ran.stderr.contains("in use by"), "{}", ran.stderr);
    drop(held);
}

#[test]
fn an_older_copy_goes_on_only_when_that_is_accepted() {
    let book = some();
    let older = book.bytes();
    assert_eq!(book.run(&["doctor", "--accept-rollback"]).code, 1);
    book.ok(&["cancel", "order-1", "--reason", "x"]);
    let newer = book.bytes();
    fs::write(book.path(), &older).unwrap();
    for command in [&["threads"][..], &["verify"], &["signal", "order-0", "go", "1"], &["compact"]]
    {
        let ran = book.run(command);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{command:?}");
        assert!(ran.stderr.contains("is older than it was"), "{command:?}: {}", ran.stderr);
        assert!(book.bytes() == older, "{command:?}");
    }
    let ran = book.run(&["doctor"]);
    assert_eq!(ran.code, 3);
    assert!(ran.stdout.contains("fault    anchor"), "{}", ran.stdout);
    let accepted = book.json(&["doctor", "--accept-rollback"]).remove(0);
    assert_eq!(accepted["records"], 9);
    assert!(accepted["had"].as_u64().unwrap() > 9);
    book.ok(&["verify"]);
    assert!(newer != older);
}

#[test]
fn compact_gives_back_space_and_changes_nothing_else() {
    let book = some();
    let before = book.ok(&["verify"]);
    let length = book.bytes().len();
    let json = book.json(&["compact"]).remove(0);
    assert_eq!((&json["records"], &json["bytes_before"]), (&9.into(), &length.into()));
    assert_eq!(json["bytes_after"], book.bytes().len());
    assert!(book.bytes().len() < length);
    assert_eq!(book.ok(&["verify"]), before);
    let told = book.run(&["compact", "--progress"]);
    assert!(told.stdout.contains("9 records of 3 threads, as before"), "{}", told.stdout);
    assert!(told.stderr.starts_with("copying: "), "{}", told.stderr);
    let held = book.home();
    assert_eq!(book.run(&["compact"]).code, 5);
    drop(held);
}

/// The tool where the system lets no file become longer than `blocks` of 512 bytes, as on a disk
/// that is full.
fn without_room(book: &Book, blocks: u32, args: &[&str]) -> Ran {
    let mut shell = Command::new("sh");
    let tool = book.command();
    shell.current_dir(book.dir()).env_clear();
    shell.envs(tool.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    shell.args(["-c", &script]).arg(tool.get_program()).args(args);
    Ran::of(shell.output().unwrap())
}

#[test]
fn what_only_looks_works_where_nothing_can_be_written() {
    let book = some();
    crash(&book);
    // Where nothing can be written, and where it can be opened and not be brought in order.
    for (blocks, opens) in [(0, false), (1, false), (100, true), (150, true)] {
        for args in [&["threads"][..], &["show", "order-0"], &["export"], &["verify"]] {
            let ran = without_room(&book, blocks, args);
            assert_eq!(ran.code, 0, "{blocks} {args:?}: {}", ran.stderr);
            assert!(ran.stdout.contains("order-0") || args == ["verify"], "{}", ran.stdout);
            let noted = ran.stderr.contains("could not be brought in order");
            assert_eq!(noted, opens, "{blocks} {args:?}: {}", ran.stderr);
        }
        let ran = without_room(&book, blocks, &["backup", "copy.deedbook"]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("`deedbook export` reads it"), "{}", ran.stderr);
        assert!(!book.file("copy.deedbook").exists());
        let ran = without_room(&book, blocks, &["signal", "order-0", "go", "1"]);
        assert_eq!(ran.code, 1, "{}", ran.stderr);
        let hint = ran.stderr.contains("what only looks (`threads`, `show`, `export`, `verify`)");
        assert_eq!(hint, !opens, "{}", ran.stderr);
    }
    let said = book.ok(&["verify"]);
    assert!(said.contains("10 records"), "nothing was lost: {said}");
    assert_eq!(book.names(), ["book.deedbook"], "it is in order again");
}
