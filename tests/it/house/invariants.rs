//! The invariants of ARCHITECTURE.md that can be read off the text of the code.
//!
//! The exceptions stand here, each with its reason, and an exception that nothing needs is refused.

use super::tree::{Tracked, every_file, files, report};

/// Words that some folders must not say.
struct Ban {
    /// What holds because of it.
    promise: &'static str,
    /// Prefixes of paths it is about.
    within: &'static [&'static str],
    /// Prefixes of paths that may, each with its reason.
    except: &'static [(&'static str, &'static str)],
    /// What is not said there.
    words: &'static [&'static str],
}

const BANS: &[Ban] = &[
    Ban {
        promise: "the journal decides without clock, randomness, files or tasks",
        within: &["journal/src/"],
        except: &[(
            "journal/src/embedded/",
            "the built-in home owns its disk, its clock and its threads",
        )],
        words: &[
            "SystemTime::now",
            "Instant::now",
            "std::fs",
            "File::",
            "OpenOptions::",
            "getrandom",
            "tokio::spawn",
            "tokio::task",
            "tokio::time",
            "std::thread",
            "std::net",
            "std::process",
        ],
    },
    Ban {
        promise: "all file I/O of the embedded home goes through `disk`",
        within: &["journal/src/embedded/"],
        except: &[
            ("journal/src/embedded/disk", "the one seam to the file system"),
            ("journal/src/embedded/lock.rs", "asks the system who holds the lock: no file of ours"),
            ("journal/src/embedded/create.rs", "looks whether the name is taken, and no further"),
        ],
        words: &["std::fs::", "fs::", "File::", "std::os::unix::fs"],
    },
    Ban {
        promise: "the runtime names no checkpointer",
        within: &["runtime/src/"],
        except: &[(
            "runtime/src/home.rs",
            "says which home a book lives in: a built-in one, or any other that it is given",
        )],
        words: &["deedbook_memory", "embedded::", "redb"],
    },
    Ban {
        promise: "a checkpointer knows nothing of steps",
        within: &["checkpointers/memory/src/", "journal/src/embedded/"],
        except: &[],
        words: &["StepId", "history::", "turn::", "policy::", "key::OperationKey"],
    },
    Ban {
        promise: "redb is named in one place",
        within: &["journal/", "runtime/", "checkpointers/", "cli/", "examples/"],
        except: &[("journal/src/embedded/", "the built-in home is a redb file")],
        words: &["redb::"],
    },
];

/// Who may switch off the ban on clock, sleep, spawn and randomness (`clippy.toml`), and why.
const OWNERS: &[(&str, &str)] = &[
    ("agent/script/src/server.rs", "a script plays in real time"),
    ("checkpointers/memory/src/home.rs", "draws the identity of a store"),
    ("examples/", "an example is a program of its own, with real processes in real time"),
    ("benches/watch.rs", "measures real time"),
    ("cli/", "a tool runs in real time"),
    ("control/", "draws names of sockets and ids of messages; its tests run both sides"),
    ("journal/src/embedded/", "the built-in home owns its disk, its clock and its threads"),
    ("runtime/src/clock.rs", "owns the clock and waiting"),
    ("runtime/src/random.rs", "owns randomness"),
    ("runtime/src/worker", "owns tasks"),
    ("testkit/src/kill.rs", "waits for real processes"),
    ("testkit/src/life.rs", "waits for a real disk"),
];

#[test]
fn invariants_hold_in_the_text() {
    for ban in BANS {
        every_file(|file| said(ban, file));
        for prefix in ban.within {
            assert!(files().iter().any(|file| file.path.starts_with(prefix)), "{prefix} is gone");
        }
    }
}

fn said(ban: &Ban, file: &Tracked) -> Vec<String> {
    let about = |prefix: &&str| file.path.starts_with(*prefix);
    if !file.is_shipped_rust()
        || !ban.within.iter().any(about)
        || ban.except.iter().any(|(prefix, _)| about(prefix))
    {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (n, line) in file.code() {
        for word in ban.words {
            if says(line, word) {
                problems.push(format!("{}:{n}: `{word}`, but {}", file.path, ban.promise));
            }
        }
    }
    problems
}

/// Whether the line has this word, and not only as the end of a longer one.
fn says(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn a_ban_can_fail() {
    let ban = &BANS[0];
    let clock = "fn now() {\n    let t = std::time::Instant::now();\n}\n";
    assert_eq!(said(ban, &Tracked::made_up("journal/src/turn.rs", clock)).len(), 1);
    for fine in ["journal/src/embedded/clock.rs", "runtime/src/clock.rs", "journal/src/x/tests.rs"]
    {
        assert!(said(ban, &Tracked::made_up(fine, clock)).is_empty(), "{fine}");
    }
    let tested = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
    assert!(said(ban, &Tracked::made_up("journal/src/turn.rs", tested)).is_empty());
    assert!(!says("use crate::RealFile::open;", "File::"));
}

#[test]
fn only_owners_switch_off_the_ban_on_the_outside_world() {
    every_file(|file| {
        let owned = OWNERS.iter().any(|(prefix, _)| file.path.starts_with(prefix));
        if !file.is_shipped_rust() || owned {
            return Vec::new();
        }
        file.code()
            .filter(|(_, line)| line.contains("clippy::disallowed_methods"))
            .map(|(n, _)| format!("{}:{n}: not the owner of what it uses", file.path))
            .collect()
    });
}

#[test]
fn no_type_of_redb_is_in_a_public_signature() {
    every_file(leaks);

    let leak = "use redb::{Database, ReadableTable as _};\n\n\
                pub fn inner(&self) -> &Database {\n    &self.db\n}\n";
    assert_eq!(leaks(&Tracked::made_up("journal/src/embedded/x.rs", leak)).len(), 1);
    let field = "pub struct Home {\n    pub db: std::sync::Arc<redb::Database>,\n}\n";
    assert_eq!(leaks(&Tracked::made_up("journal/src/embedded/x.rs", field)).len(), 1);
    let from = "impl From<redb::Error> for OpenError {\n";
    assert_eq!(leaks(&Tracked::made_up("journal/src/embedded/x.rs", from)).len(), 1);
    let inside = "use redb::Database;\npub(super) fn f(db: &Database) {}\nstruct D(Database);\n";
    assert!(leaks(&Tracked::made_up("journal/src/embedded/x.rs", inside)).is_empty());
}

/// Types that stay inside the embedded home, which may be made from errors of redb.
const PRIVATE_ERRORS: &[&str] = &["Fault"];

fn leaks(file: &Tracked) -> Vec<String> {
    if !file.is_shipped_rust() || !file.text.contains("redb") {
        return Vec::new();
    }
    let imported = names_from_redb(file);
    let foreign = |text: &str| {
        let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.any(|word| word == "redb" || imported.iter().any(|name| name == word))
    };
    let lines: Vec<(usize, &str)> = file.code().collect();
    let mut problems = Vec::new();
    for (at, (n, line)) in lines.iter().enumerate() {
        let head = line.trim_start();
        let opens = head.starts_with("pub ") || head.starts_with("impl From<");
        if !opens || head.starts_with("pub mod") {
            continue;
        }
        // Up to the body: a signature may take several lines.
        let mut signature = String::new();
        for (_, line) in &lines[at..] {
            signature.push_str(line);
            if line.ends_with(['{', ';', ',', '}']) && !line.ends_with("),") {
                break;
            }
        }
        let private = PRIVATE_ERRORS.iter().any(|name| signature.contains(&format!("for {name}")));
        if foreign(&signature) && !private {
            problems.push(format!("{}:{n}: a type of redb in a public signature", file.path));
        }
    }
    problems
}

/// What `use redb::…` brings into a file, under the names it has there.
fn names_from_redb(file: &Tracked) -> Vec<String> {
    let code: String = file.code().map(|(_, line)| line).collect::<Vec<_>>().join("\n");
    let uses = code.split("use redb::").skip(1).filter_map(|rest| rest.split(';').next());
    uses.flat_map(|list| list.split([',', '{', '}']))
        .map(|name| name.rsplit([':', ' ']).find(|part| !part.is_empty()).unwrap_or_default())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty() && name != "_" && name != "self")
        .collect()
}

#[test]
fn every_exception_is_needed() {
    let mut problems = Vec::new();
    for ban in BANS {
        let strict = Ban { except: &[], ..*ban };
        // What nobody says yet is worth forbidding, with the place where it will be said.
        let unsaid = files().iter().all(|file| said(&strict, file).is_empty());
        for (prefix, reason) in ban.except {
            assert!(reason.len() > 20, "{prefix} needs a reason");
            if unsaid {
                continue;
            }
            let mut covered =
                files().iter().filter(|file| file.path.starts_with(prefix)).peekable();
            if covered.peek().is_some() && covered.all(|file| said(&strict, file).is_empty()) {
                problems.push(format!("{prefix}: \"{}\" needs no exception", ban.promise));
            }
        }
    }
    report(&problems);
}

#[test]
fn every_crate_has_the_lints_of_the_workspace() {
    every_file(|file| {
        // A workspace without a crate of its own has no lints to inherit.
        let is_crate = file.path.ends_with("/Cargo.toml") && file.text.contains("[package]");
        let is_ours = is_crate && !file.path.starts_with("tests/fuzz/");
        match is_ours && !file.text.contains("[lints]\nworkspace = true") {
            true => vec![format!("{}: add [lints] workspace = true", file.path)],
            false => Vec::new(),
        }
    });
}
