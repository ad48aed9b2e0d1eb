//! Pages that stay true: links lead somewhere, Rust compiles, commands run.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
};

use deedbook::{Context, Deedbook, Workflow};

use super::tree::{Tracked, every_file, files, report, root};

/// Commands in pages that no test can run, each with its reason.
const NOT_RUN: &[(&str, &str)] = &[
    (
        "OPENAI_API_KEY=… cargo run --release -p support-agent --features tls -- chat",
        "asks a provider, which costs money; tests/story.rs runs the same agent with a script",
    ),
    (".ci/run", "runs this very test"),
    ("cargo build --release -p deedbook-benches", "figures are taken by hand; clippy builds it"),
    (
        "chrt -f 50 benches/peers/run --document docs/reference/peers.md",
        "takes half an hour and builds what nobody else needs; test_harness.py tests what it judges by",
    ),
    (
        "chrt -f 50 target/release/deedbook-benches all --plots docs/reference/plots",
        "durations mean nothing on a machine that does other things; benches/parts.rs runs all",
    ),
    (
        "cargo run --locked --release -p deedbook-benches -- instructions --update",
        "records what .ci/run compares with",
    ),
];

/// Pages all of whose commands another test runs.
const RUN_ELSEWHERE: &[(&str, &str)] = &[
    ("docs/reference/cli.md", "cli/tests/it/docs.rs"),
    ("docs/start/README.md", "tests/it/start.rs"),
    ("docs/internals/log.md", "tests/simulation/tests/rigs/main.rs"),
    ("docs/reference/crashes.md", ".ci/run"),
];

/// What a fenced block holds.
struct Block {
    /// After the backticks: `console run`, `rust`.
    kind: String,
    /// The line of the backticks.
    line: usize,
    text: String,
}

/// The fenced blocks of a page, and its other lines.
fn parts(page: &Tracked) -> (Vec<Block>, Vec<(usize, &str)>) {
    let (mut blocks, mut prose) = (Vec::new(), Vec::new());
    let mut open: Option<Block> = None;
    for (n, line) in page.lines() {
        match (open.take(), line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => {
                open = Some(Block { kind: kind.trim().to_owned(), line: n, text: String::new() });
            }
            (Some(block), Some(_)) => blocks.push(block),
            (Some(mut block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => prose.push((n, line)),
        }
    }
    (blocks, prose)
}

fn pages() -> impl Iterator<Item = &'static Tracked> {
    files().iter().filter(|file| file.path.ends_with(".md"))
}

#[test]
fn every_page_has_one_title() {
    every_file(titles);

    for bad in ["", "## A\n", "# A\n\n# B\n", "text\n\n# A\n"] {
        assert_eq!(titles(&Tracked::made_up("x.md", bad)).len(), 1, "{bad:?}");
    }
    assert!(titles(&Tracked::made_up("x.md", "# A\n\n```sh\n# a comment\n```\n")).is_empty());
}

fn titles(page: &Tracked) -> Vec<String> {
    if !page.path.ends_with(".md") {
        return Vec::new();
    }
    let (_, prose) = parts(page);
    let titles: Vec<usize> =
        prose.iter().filter(|(_, line)| line.starts_with("# ")).map(|(n, _)| *n).collect();
    match titles == [1] {
        true => Vec::new(),
        false => vec![format!("{}: a page has one title, in its first line", page.path)],
    }
}

#[test]
fn no_link_leads_nowhere() {
    report(&pages().flat_map(|page| dead_links(page, files())).collect::<Vec<_>>());

    let there = [Tracked::made_up("docs/a.md", "# A\n\n## What `it` is, then\n")];
    let dead = |text: &str| dead_links(&Tracked::made_up("docs/x.md", text), &there).len();
    assert_eq!(dead("[a](a.md) [s](a.md#what-it-is-then) [up](../docs/a.md) [dir](../docs/)"), 0);
    assert_eq!(dead("[b](b.md) [s](a.md#gone) [up](../a.md) <https://example.org>"), 3);
    assert_eq!(dead("`[not](a-link)`\n[web](https://example.org/b.md)"), 0);
    assert_eq!(dead("[r]: missing.md\n"), 1);
}

fn dead_links(page: &Tracked, files: &[Tracked]) -> Vec<String> {
    let (_, prose) = parts(page);
    let folder = Path::new(&page.path).parent().unwrap();
    let mut problems = Vec::new();
    for (n, line) in prose {
        for target in targets(line) {
            let (path, section) = target.split_once('#').unwrap_or((&target, ""));
            let whole = match path {
                "" => page.path.clone(),
                path => plain(&folder.join(path)),
            };
            let within = format!("{whole}/");
            let found = files.iter().chain([page]).find(|file| file.path == whole);
            let is_folder = whole.is_empty() || files.iter().any(|f| f.path.starts_with(&within));
            let sound = match found {
                Some(file) => section.is_empty() || sections(file).contains(section),
                None => is_folder && section.is_empty(),
            };
            if !sound {
                problems.push(format!("{}:{n}: {target} leads nowhere", page.path));
            }
        }
    }
    problems
}

/// The targets of links in a line that are not on the web.
fn targets(line: &str) -> Vec<String> {
    // Inline code is no link.
    let prose: String = line.split('`').step_by(2).collect();
    let mut found: Vec<String> = prose
        .match_indices("](")
        .filter_map(|(at, _)| prose[at + 2..].split([')', ' ']).next().map(str::to_owned))
        .collect();
    if let Some((label, target)) = line.split_once("]: ")
        && label.starts_with('[')
    {
        found.push(target.trim().to_owned());
    }
    found.retain(|target| !target.contains("://") && !target.starts_with("mailto:"));
    found
}

/// A path without `.` and `..`.
fn plain(path: &Path) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::Normal(name) => parts.push(name.to_str().unwrap()),
            _ => {}
        }
    }
    parts.join("/")
}

/// The names under which a page's headings are linked.
fn sections(page: &Tracked) -> BTreeSet<String> {
    let (_, prose) = parts(page);
    prose
        .iter()
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(_, line)| {
            let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
            text.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
        })
        .collect()
}

#[test]
fn rust_in_pages_is_compiled() {
    let list = fs::read_to_string(root().join("tests/harness/documents.rs")).unwrap();
    let mut problems = Vec::new();
    for page in pages().filter(|page| !page.path.starts_with("CONTRIBUTING")) {
        let (blocks, _) = parts(page);
        let is_rust = |block: &&Block| block.kind.split([',', ' ']).next() == Some("rust");
        for block in blocks.iter().filter(is_rust) {
            if block.kind.contains("ignore") {
                problems.push(format!("{}:{}: ignored Rust rots", page.path, block.line));
            }
        }
        if blocks.iter().any(|block| is_rust(&block))
            && !list.contains(&format!("include_str!(\"../../{}\")", page.path))
        {
            problems.push(format!("{}: add it to tests/harness/documents.rs", page.path));
        }
    }
    report(&problems);
}

/// A command of a page, and what it shows below it.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    output: Vec<String>,
}

fn shown(block: &Block) -> Vec<Shown> {
    let mut all: Vec<Shown> = Vec::new();
    for line in block.text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Shown { command: command.to_owned(), output: Vec::new() });
        } else if let Some(last) = all.last_mut() {
            match line.strip_prefix("> ") {
                Some(more) if last.output.is_empty() => {
                    last.command.push('\n');
                    last.command.push_str(more);
                }
                _ => last.output.push(line.to_owned()),
            }
        }
    }
    all
}

#[test]
fn every_command_in_a_page_is_run() {
    let ci = fs::read_to_string(root().join(".ci/run")).unwrap();
    let run_by_ci = |command: &str| ci.lines().any(|line| line.trim().ends_with(command));
    let mut problems = Vec::new();
    for page in pages() {
        let (blocks, _) = parts(page);
        for block in &blocks {
            let at = format!("{}:{}", page.path, block.line);
            let elsewhere = RUN_ELSEWHERE.iter().any(|(known, _)| *known == page.path);
            match block.kind.as_str() {
                "console" if elsewhere => {}
                "console" => problems.extend(
                    shown(block)
                        .iter()
                        .filter(|shown| !run_by_ci(&shown.command))
                        .filter(|shown| NOT_RUN.iter().all(|(known, _)| *known != shown.command))
                        .map(|shown| format!("{at}: nothing runs `{}`", shown.command)),
                ),
                // Another word would hide a command from this test.
                "sh" | "bash" | "shell" | "zsh" | "terminal" => {
                    problems.push(format!("{at}: commands stand in `console` blocks"));
                }
                _ => {}
            }
        }
    }
    report(&problems);
}

#[test]
fn commands_in_pages_show_what_they_print() {
    let mut problems = Vec::new();
    for page in pages() {
        let (blocks, _) = parts(page);
        let run: Vec<&Block> = blocks.iter().filter(|block| block.kind == "console run").collect();
        if !run.is_empty() {
            problems.extend(run_page(page, &run, &[binaries()]));
        }
    }
    report(&problems);
}

/// Runs the commands of one page, in order and in one folder: a page tells a story. It starts with
/// the journal that the README's program leaves behind. A command that shows no output is only run.
fn run_page(page: &Tracked, blocks: &[&Block], programs: &[PathBuf]) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    leave_journal(&folder.path().join("refunds.redb"));
    let inherited = env::var_os("PATH").unwrap_or_default();
    let path = env::join_paths(programs.iter().cloned().chain(env::split_paths(&inherited)));
    let path = path.unwrap();
    let mut problems = Vec::new();
    for (block, shown) in blocks.iter().flat_map(|b| shown(b).into_iter().map(move |s| (b, s))) {
        let done = Command::new("sh")
            .args(["-uc", &format!("exec 2>&1\n{}", shown.command)])
            .current_dir(folder.path())
            .env("PATH", &path)
            .env("NO_COLOR", "1")
            .env_remove("DEEDBOOK_JOURNAL")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&done.stdout);
        let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
        let wanted: Vec<&str> = shown.output.iter().map(String::as_str).collect();
        let at = format!("{}:{}: `{}`", page.path, block.line, shown.command);
        if !done.status.success() {
            problems.push(format!("{at} ended with {}:\n{}", done.status, printed.join("\n")));
        } else if !wanted.is_empty() && !matches(&wanted, &printed) {
            problems.push(format!("{at} printed:\n{}", printed.join("\n")));
        }
    }
    problems
}

/// The workflow of the pages, cut down to what it leaves in a journal.
struct RefundAgent;

impl Workflow for RefundAgent {
    const NAME: &'static str = "refund";
    type Input = u64;
    type Output = String;

    async fn run(&self, ctx: Context, cents: &u64) -> deedbook::Result<String> {
        let receipt = ctx.step("pay").idempotent();
        receipt.run(cents, async |op| Ok(format!("paid under {}", op.key()))).await
    }
}

fn leave_journal(path: &Path) {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let book = Deedbook::open_or_create(path).host(RefundAgent).start().await.unwrap();
        book.run::<RefundAgent>("order-4821", 1999).await.unwrap();
        book.shutdown().await.unwrap();
    });
}

/// The folder of the programs, which are built unless the whole workspace was.
fn binaries() -> PathBuf {
    let test = env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap().to_owned();
    if !folder.join("deedbook").exists() {
        let profile: &[&str] = if folder.ends_with("release") { &["--release"] } else { &[] };
        let built = Command::new(env!("CARGO"))
            .args(["build", "--locked", "--workspace", "--bins"])
            .args(profile)
            .current_dir(root())
            .status()
            .unwrap();
        assert!(built.success(), "the programs of the workspace do not build");
    }
    folder
}

/// `…` stands for any text within a line, and a line of its own for any lines.
fn matches(wanted: &[&str], printed: &[&str]) -> bool {
    match wanted {
        [] => printed.is_empty(),
        ["…", rest @ ..] => (0..=printed.len()).any(|skip| matches(rest, &printed[skip..])),
        [line, rest @ ..] => match printed {
            [first, others @ ..] => line_matches(line, first) && matches(rest, others),
            [] => false,
        },
    }
}

fn line_matches(wanted: &str, printed: &str) -> bool {
    match wanted.split_once('…') {
        None => wanted == printed,
        Some((start, rest)) => printed.strip_prefix(start).is_some_and(|after| {
            after
                .char_indices()
                .map(|(at, _)| at)
                .chain([after.len()])
                .any(|at| line_matches(rest, &after[at..]))
        }),
    }
}

#[test]
fn a_page_that_shows_something_else_is_found() {
    let page = |text: &str| {
        let page = Tracked::made_up("x.md", text);
        let (blocks, _) = parts(&page);
        let run: Vec<&Block> = blocks.iter().filter(|block| block.kind == "console run").collect();
        assert!(!run.is_empty());
        run_page(&page, &run, &[]).len()
    };
    let story = "# A\n\n```console run\n$ echo one > kept\n```\n\n```console run\n$ cat kept \\\n\
                 > kept\none\no…\n$ printf 'a\\nb\\nc 12 ms\\n'\n…\nc … ms\n```\n";
    assert_eq!(page(story), 0);
    assert_eq!(page("```console run\n$ echo one\ntwo\n```\n"), 1);
    assert_eq!(page("```console run\n$ echo one\n```\n"), 0);
    assert_eq!(page("```console run\n$ ls\nrefunds.redb\nrefunds.redb-anchor\n```\n"), 0);
    assert_eq!(page("```console run\n$ false\n```\n"), 1);
    assert_eq!(page("```console run\n$ echo $UNSET\n…\n```\n"), 1);
}

/// A path in backticks names something that is there: prose rots faster than links.
#[test]
fn every_path_in_prose_is_there() {
    let tops = [
        "agent/",
        "runtime/",
        "journal/",
        "macros/",
        "checkpointers/",
        "cli/",
        "tests/",
        "benches/",
        "docs/",
    ];
    let mut problems = Vec::new();
    for page in pages() {
        let (_, prose) = parts(page);
        for (n, line) in prose {
            let named = line.split('`').skip(1).step_by(2);
            let paths = named.filter(|path| tops.iter().any(|top| path.starts_with(top)));
            let plain = paths.filter(|path| !path.contains(['*', ' ', '{']));
            let gone = plain.filter(|path| !root().join(path).exists());
            problems.extend(gone.map(|path| format!("{}:{n}: {path} is not there", page.path)));
        }
    }
    report(&problems);
}
