//! What a killed tool leaves beside its file, and who takes it away.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Stdio},
};

use deedbook_journal::{policy::Policy, row::Status};

use super::book::{Book, done, intent};

fn start(book: &Book, args: &[&str]) -> Child {
    let mut command = book.command();
    command.args(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Kills a child with SIGKILL.
fn kill(mut child: Child) {
    // It may have ended by itself.
    let _ = child.kill();
    child.wait().unwrap();
}

/// Kills `init` until it leaves a file aside.
fn left_by_a_killed_init(book: &Book) -> PathBuf {
    for tries in 0.. {
        assert!(tries < 500, "init was always faster than the kill");
        let mut child = start(book, &["init"]);
        let aside = || book.names().into_iter().find(|name| name.ends_with(".new"));
        while child.try_wait().unwrap().is_none() && aside().is_none() {
            std::hint::spin_loop();
        }
        kill(child);
        match aside() {
            Some(left) if !book.path().exists() => return book.file(&left),
            _ => {
                // It was faster.
                let _ = fs::remove_file(book.path());
            }
        }
    }
    unreachable!("the tries are counted")
}

/// They stayed for ever, and one more with every kill.
#[test]
fn what_a_killed_init_leaves_goes_with_the_next_one() {
    let book = Book::none();
    let left = left_by_a_killed_init(&book);
    let other = book.file(".other.deedbook.0123456789abcdef.new");
    fs::write(&other, "another journal's").unwrap();
    book.ok(&["init"]);
    assert!(!left.exists());
    assert_eq!(book.names(), [".other.deedbook.0123456789abcdef.new", "book.deedbook"]);
    book.ok(&["verify"]);
}

/// Killed right after the journal has its name: the file has two, and is complete.
#[test]
fn the_other_name_of_a_journal_whose_maker_was_killed_goes_at_the_next_opening() {
    let book = Book::new();
    let left = book.file(".book.deedbook.0123456789abcdef.new");
    for args in [&["threads"][..], &["init"]] {
        fs::hard_link(book.path(), &left).unwrap();
        book.run(args);
        assert_eq!(book.names(), ["book.deedbook"], "{args:?}");
        book.ok(&["verify"]);
    }
    // While somebody is at work on it, a name is left alone.
    let home = book.home();
    fs::hard_link(book.path(), &left).unwrap();
    assert_eq!(book.run(&["init"]).code, 1);
    assert!(left.exists());
    drop(home);
    book.ok(&["verify"]);
    assert_eq!(book.names(), ["book.deedbook"]);
}

#[test]
fn many_that_make_a_journal_and_are_killed_take_nothing_from_one_another() {
    for round in 0..4_usize {
        let book = Book::none();
        let left = left_by_a_killed_init(&book);
        let children: Vec<Child> = (0..24).map(|_| start(&book, &["init"])).collect();
        let mut made = 0;
        for (n, child) in children.into_iter().enumerate() {
            if n % 4 == round {
                kill(child);
                continue;
            }
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            match output.status.code() {
                Some(0) => made += 1,
                _ => assert!(said.contains("there is something with this name already"), "{said}"),
            }
        }
        assert!(made <= 1, "{made} journals were made");
        assert!(!left.exists());
        // The journal is whole, whoever made it, and the next one leaves nothing but it.
        book.run(&["init"]);
        book.ok(&["verify"]);
        assert_eq!(book.names(), ["book.deedbook"]);
    }
}

/// Its number is that of a process, and in a container all exports have the same.
#[test]
fn what_a_killed_export_leaves_goes_with_the_next_one_to_this_file() {
    let book = Book::new();
    let steps =
        (0..2000).flat_map(|n| [intent(&format!("s{n}"), Policy::Read), done(1 + 2 * n, "1")]);
    book.thread("t", Status::Running, steps.collect());
    let child = start(&book, &["export", "-o", "x"]);
    let part = book.file(&format!(".x.{}.part", child.id()));
    while !part.exists() {
        std::hint::spin_loop();
    }
    kill(child);
    assert_eq!(book.names().len(), 2, "it was faster than this test");
    let other = [".x.12.part.part", ".x.y.part", ".y.12.part"];
    for name in other {
        fs::write(book.file(name), "not a leftover").unwrap();
    }
    let held = fs::File::create(book.file(".x.1.part")).unwrap();
    held.lock().unwrap();
    book.ok(&["export", "-o", "x"]);
    let kept = [".x.1.part", ".x.12.part.part", ".x.y.part", ".y.12.part", "book.deedbook", "x"];
    assert_eq!(book.names(), kept);
    book.ok(&["verify", "--export", "x"]);
}
