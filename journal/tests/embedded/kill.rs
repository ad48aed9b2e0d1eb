//! The process is killed, again and again: what it was told is there.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use deedbook_journal::{
    checkpointer::Checkpointer,
    embedded::{CreateOptions, Embedded, OpenError, OpenOptions},
    id::ThreadId,
};

use crate::desk::{Folder, Pen, open, payloads, put, wait};

const CHILD: &str = "DEEDBOOK_TEST_KILL_CHILD";
const KILLS: u64 = 30;

/// The child: appends in two threads of the system and prints what was acknowledged.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else {
        return;
    };
    let book = match Embedded::open(&path, OpenOptions::new()) {
        Err(OpenError::NotFound { .. }) => {
            Embedded::create(&path, CreateOptions::new().log_id([3; 16])).unwrap()
        }
        opened => opened.unwrap(),
    };
    std::thread::scope(|scope| {
        for name in ["a", "b"] {
            let book = &book;
            scope.spawn(move || {
                wait(async {
                    let mut pen = Pen::claim(book, name).await.unwrap();
                    loop {
                        let next = put(book, pen.write(1, &pen.next.to_le_bytes())).await.unwrap();
                        println!("\nack {name} {next}");
                    }
                });
            });
        }
    });
}

#[test]
fn acknowledged_appends_survive_every_kill() {
    let folder = Folder::new();
    let path = folder.book();
    let mut acknowledged = [0_u64; 2];
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["kill::child", "--exact", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // Some are killed while they make the journal or recover it, most while they write.
        let time = Duration::from_millis(kill * kill % 97 + 3);
        if kill % 3 == 0 {
            std::thread::sleep(time);
        } else {
            let mut line = String::new();
            let since = Instant::now();
            let mut seen = 0;
            while seen < kill * 7 % 60 + 1 && since.elapsed() < Duration::from_secs(60) {
                line.clear();
                assert!(lines.read_line(&mut line).unwrap() > 0, "the child ended by itself");
                seen += u64::from(count(&line, &mut acknowledged));
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        for line in rest.lines() {
            // A line cut short by the kill acknowledges at most what its digits say.
            count(line, &mut acknowledged);
        }
        if !path.exists() {
            assert_eq!(acknowledged, [0, 0]);
            continue;
        }
        let book = open(&path);
        for (name, told) in ["a", "b"].iter().zip(acknowledged) {
            let id = ThreadId::new(name).unwrap();
            let found = wait(payloads(&book, &id)).unwrap_or_default();
            assert!(found.len() as u64 >= told, "kill {kill}: {} of {told}", found.len());
            assert!(found.len() as u64 <= told + 1, "kill {kill}: more than was in flight");
            assert!((0_u64..).zip(&found).all(|(n, p)| *p == n.to_le_bytes()));
        }
        // What was in flight is settled now.
        for (name, told) in ["a", "b"].iter().zip(&mut acknowledged) {
            let id = ThreadId::new(name).unwrap();
            *told = wait(payloads(&book, &id)).unwrap_or_default().len() as u64;
        }
        if kill % 5 == 0 {
            wait(book.close()).unwrap();
        }
    }
    println!("{KILLS} kills, {acknowledged:?} records");
    assert!(acknowledged.iter().all(|n| *n > 50), "{acknowledged:?}");
    // A kill while the journal is made may leave a name aside, a later one the log.
    let known = |n: &String| n.starts_with("book.redb") || n.ends_with(".new");
    assert!(folder.names().iter().all(known), "{:?}", folder.names());
    wait(open(&path).close()).unwrap();
    let left = folder.names().into_iter().filter(|n| !n.ends_with(".new"));
    assert_eq!(left.collect::<Vec<_>>(), ["book.redb"]);
}

fn count(line: &str, acknowledged: &mut [u64; 2]) -> bool {
    let Some((name, next)) = line.trim().strip_prefix("ack ").and_then(|l| l.split_once(' '))
    else {
        return false;
    };
    let Ok(next) = next.parse::<u64>() else {
        return false;
    };
    let told = &mut acknowledged[usize::from(name == "b")];
    *told = next.max(*told);
    true
}
