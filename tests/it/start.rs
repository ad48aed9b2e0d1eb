//! The Start page is true: its program is run, killed and run again, and prints what the page says.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    time::Duration,
};

/// The program beside the page.
mod program {
    #![expect(clippy::print_stdout, reason = "a newcomer sees what it does")]
    include!("../../docs/start/main.rs");

    pub(super) fn run() {
        main().unwrap();
    }
}

/// Tells the child that it is one.
const TOLD: &str = "DEEDBOOK_START_PAGE";
/// What the child says before the program does; the test harness prints before that.
const BEGINS: &str = "the program begins";
/// How long nothing is printed by a program that waits.
const QUIET: Duration = Duration::from_secs(1);

fn page() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::read_to_string(root.join("docs/start/README.md")).unwrap()
}

/// The blocks of the page of this kind.
fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut parts = page.split("```");
    parts.next();
    while let Some(block) = parts.next() {
        let (of, text) = block.split_once('\n').unwrap();
        if of == kind {
            found.push(text);
        }
        parts.next();
    }
    found
}

/// The life of a child process: the page's program.
#[test]
fn lives() {
    if env::var_os(TOLD).is_some() {
        println!("\n{BEGINS}");
        program::run();
        std::process::exit(0);
    }
}

/// Starts the program in this folder, and gives its lines as they come.
fn start(folder: &Path) -> (Child, Receiver<String>) {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "start::lives", "--nocapture"])
        .env(TOLD, "yes")
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, lines) = mpsc::channel();
    let output = BufReader::new(child.stdout.take().unwrap());
    std::thread::Builder::new()
        .spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            for line in lines.skip_while(|line| line != BEGINS).skip(1) {
                // Nobody listens any more once the test has seen enough.
                let _ = tell.send(line);
            }
        })
        .unwrap();
    (child, lines)
}

/// What it prints up to its end, or until it is killed: once it prints nothing any more.
fn printed(folder: &Path, killed: bool) -> Vec<String> {
    let (mut child, lines) = start(folder);
    let mut printed = Vec::new();
    loop {
        let patience = if killed && !printed.is_empty() { QUIET } else { 30 * QUIET };
        match lines.recv_timeout(patience) {
            Ok(line) => printed.push(line),
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => {
                assert!(!killed, "it has ended: {printed:?}");
                assert!(child.wait().unwrap().success(), "{printed:?}");
                return printed;
            }
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(killed, "it does not end: {printed:?}");
    printed
}

/// Whether this is what the page shows; `…` stands for any text at the end of a line.
fn is_shown(shown: &[&str], printed: &[String]) -> bool {
    shown.len() == printed.len()
        && shown.iter().zip(printed).all(|(shown, line)| match shown.split_once('…') {
            Some((front, _)) => line.starts_with(front),
            None => shown == line,
        })
}

#[test]
fn the_program_of_the_start_page_is_killed_and_goes_on() {
    let page = page();
    assert_eq!(blocks(&page, "rust,no_run"), [include_str!("../../docs/start/main.rs")]);
    let folder = tempfile::tempdir().unwrap();
    let runs = blocks(&page, "console");
    assert!(runs.len() >= 3);
    for run in runs {
        let mut shown: Vec<&str> = run.lines().collect();
        assert_eq!(shown.remove(0), "$ cargo run");
        let killed = shown.last() == Some(&"^C");
        shown.truncate(shown.len() - usize::from(killed));
        let printed = printed(folder.path(), killed);
        assert!(is_shown(&shown, &printed), "the page shows {shown:?}, and it is {printed:?}");
    }
}

/// A line that only the tests' compiler does not see is a riddle on the page.
#[test]
fn no_line_of_a_page_is_hidden_from_its_readers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for page in ["README.md", "docs/start/README.md", "docs/concepts/README.md"] {
        let text = fs::read_to_string(root.join(page)).unwrap();
        let all = ["rust", "rust,no_run", "rust,compile_fail"].map(|kind| blocks(&text, kind));
        assert!(!all.concat().is_empty(), "{page}");
        for line in all.concat().iter().flat_map(|block| block.lines()) {
            assert!(
                line.trim_start() != "#" && !line.trim_start().starts_with("# "),
                "{page}: {line}"
            );
        }
    }
}

/// `tests/it/compile.rs` holds the compiler to what the cases say, and this the page to the cases.
#[test]
fn the_compile_errors_of_the_start_page_are_those_of_the_compiler() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("compile_fail");
    let said: String = fs::read_dir(cases)
        .unwrap()
        .map(|case| fs::read_to_string(case.unwrap().path()).unwrap())
        .collect();
    let page = page();
    let quoted = blocks(&page, "text");
    assert!(quoted.len() >= 3);
    for line in quoted.iter().flat_map(|block| block.lines()) {
        let (_, text) = line.split_once(": ").unwrap();
        let text = text.trim_end_matches(" …");
        assert!(said.contains(&format!("//~ {text}\n")), "no case holds the compiler to {text:?}");
    }
}
