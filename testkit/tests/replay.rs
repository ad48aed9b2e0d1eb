//! Exported threads are replayed with nothing executed, and what changed is told.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test ends at the first surprise"
)]

#[path = "replay/exported.rs"]
mod exported;

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use deedbook::{
    Context, Deedbook, Divergence, DivergenceKind, ErrorKind, Instead, PolicyKind, Result,
    ThreadId, Workflow,
};
use deedbook_testkit::{ReplayCheck, Replays, Verdict, replay_check};

/// What the code of today is, beside that of then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Today {
    Same,
    /// The code then: bodies run.
    Then,
    Renamed,
    Removed,
    Swapped,
    Argument,
    Policy,
    OtherResult,
    Longer,
    EndsEarly,
    Panics,
}

struct Refund(Today, Arc<AtomicU32>);

impl Refund {
    /// What bodies do: run then, and never again.
    fn body<T>(&self, value: T) -> T {
        assert_eq!(self.0, Today::Then, "a body ran");
        self.1.fetch_add(1, Ordering::Relaxed);
        value
    }

    async fn pay(&self, ctx: Context, cents: u32) -> Result<String> {
        let cents = if self.0 == Today::Argument { cents + 1 } else { cents };
        let name = if self.0 == Today::Renamed { "charge" } else { "pay" };
        let step = ctx.step(name);
        if self.0 == Today::Policy {
            return step.at_most_once().run(&cents, async |_| Ok(self.body("p".to_owned()))).await;
        }
        step.idempotent().run(&cents, async |_| Ok(self.body("p".to_owned()))).await
    }

    async fn rates(&self, ctx: Context) -> Result<u32> {
        // Known by its arguments: an export does not have what fingerprints are keyed with.
        let step = ctx.step("rates").read().by_arguments();
        step.run("EUR", async |_| Ok(self.body(7))).await
    }
}

impl Workflow for Refund {
    const NAME: &'static str = "refund";
    type Input = u32;
    type Output = String;

    async fn run(&self, ctx: Context, cents: &u32) -> Result<String> {
        match self.0 {
            Today::Removed => {}
            Today::Swapped => {
                self.pay(ctx.clone(), *cents).await?;
                self.rates(ctx.clone()).await?;
            }
            Today::Panics => panic!("not today"),
            _ => drop(self.rates(ctx.clone()).await?),
        }
        let mut paid = match self.0 {
            Today::EndsEarly => return Ok("early".to_owned()),
            Today::Swapped => String::new(),
            _ => self.pay(ctx.clone(), *cents).await?,
        };
        if *cents > 1000 {
            let approved = ctx.approval("large", cents).await?;
            paid += &approved.by;
        }
        ctx.sleep("settle", Duration::from_millis(5)).await?;
        if *cents == 999 {
            return Err(deedbook::WorkflowError::new("refused"));
        }
        if self.0 == Today::Longer {
            ctx.step("audit").read().run(cents, async |_| Ok(self.body(1))).await?;
        }
        let again = if self.0 == Today::OtherResult { "!" } else { "" };
        Ok(paid + again)
    }
}

/// Runs threads to where they come, and exports them: `paid` has ended, `failed` as well,
/// `asked` waits for a person.
fn export(path: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let ran = Arc::new(AtomicU32::new(0));
        let book = Deedbook::memory().host(Refund(Today::Then, ran.clone())).start().await.unwrap();
        assert_eq!(book.run::<Refund>("paid", 420).await.unwrap(), "p");
        book.run::<Refund>("failed", 999).await.unwrap_err();
        book.spawn::<Refund>("asked", 5000).await.unwrap();
        while book.status("asked").await.unwrap().unwrap().row.waits_for().is_none() {
            tokio::task::yield_now().await;
        }
        assert_eq!(ran.load(Ordering::Relaxed), 6, "bodies ran then");
        fs::write(path, exported::lines(book.checkpointer()).await).unwrap();
        book.shutdown().await.unwrap();
    });
}

struct Place(tempfile::TempDir, std::path::PathBuf);

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.jsonl");
    export(&path);
    Place(folder, path)
}

fn explore(path: &Path, today: Today) -> Replays {
    let ran = Arc::new(AtomicU32::new(0));
    let replays = ReplayCheck::new(path).explore(|book| book.host(Refund(today, ran.clone())));
    assert_eq!(ran.load(Ordering::Relaxed), 0, "nothing is executed");
    replays
}

#[track_caller]
fn verdict<'a>(replays: &'a Replays, thread: &str) -> &'a Verdict {
    let found = replays.threads().iter().find(|was| was.thread == thread);
    &found.unwrap_or_else(|| panic!("no thread {thread} in {replays}")).verdict
}

/// The divergence of the finished thread and of the one that is not.
#[track_caller]
fn diverged(path: &Path, today: Today) -> Divergence {
    let replays = explore(path, today);
    assert!(!replays.is_fine());
    let [paid, asked] = ["paid", "asked"].map(|thread| match verdict(&replays, thread) {
        Verdict::Diverges(divergence) => divergence.clone(),
        other => panic!("{thread} {today:?}: {other:?}"),
    });
    assert_eq!((&paid.call, paid.at), (&asked.call, asked.at));
    assert!(replays.to_string().contains(&paid.to_string()), "{replays}");
    paid
}

#[test]
fn finished_and_unfinished_threads_replay_with_nothing_executed() {
    let Place(_folder, path) = place();
    let before = fs::read(&path).unwrap();
    let replays = explore(&path, Today::Same);
    assert!(replays.is_fine(), "{replays}");
    assert_eq!(replays.count(|verdict| *verdict == Verdict::Replays), 3, "{replays}");
    replay_check(&path, |book| book.host(Refund(Today::Same, Arc::default())));
    assert_eq!(fs::read(&path).unwrap(), before);
}

/// A thread that stopped before a step, a read, a timer or a request: the step does not run. Every
/// prefix of every thread is what a crash may have left.
#[test]
fn where_the_record_ends_nothing_begins() {
    let Place(_folder, path) = place();
    let whole = fs::read_to_string(&path).unwrap();
    for thread in ["paid", "failed", "asked"] {
        let is_of = |line: &&str| line.contains(&format!("\"th\":\"{thread}\""));
        let records: Vec<_> = whole.lines().filter(is_of).collect();
        assert!(records.len() > 5, "{}", records.len());
        for kept in 1..=records.len() {
            fs::write(&path, exported::of_one(&whole, thread, &records[..kept])).unwrap();
            let replays = explore(&path, Today::Same);
            assert!(replays.is_fine(), "{thread}, {kept} records: {replays}");
        }
    }
}

#[test]
fn a_changed_step_is_told_by_step_and_record() {
    let Place(_folder, path) = place();
    let not_made = |instead| DivergenceKind::NotMade { instead };

    let renamed = diverged(&path, Today::Renamed);
    assert_eq!(renamed.call, "pay#0");
    assert_eq!(renamed.kind, not_made(Instead::New("charge#0".to_owned())));

    let removed = diverged(&path, Today::Removed);
    assert!(removed.call.starts_with("rates~"), "{removed}");
    assert_eq!((removed.at, &removed.kind), (1, &not_made(Instead::Behind("pay#0".to_owned()))));

    let swapped = diverged(&path, Today::Swapped);
    assert!(swapped.call.starts_with("rates~"), "{swapped}");
    assert_eq!((swapped.at, &swapped.kind), (1, &not_made(Instead::Behind("pay#0".to_owned()))));

    let early = diverged(&path, Today::EndsEarly);
    assert_eq!((early.call.as_str(), early.kind), ("pay#0", DivergenceKind::EndedEarly));
}

#[test]
fn a_changed_argument_is_told_by_its_values() {
    let Place(_folder, path) = place();
    let argument = diverged(&path, Today::Argument);
    assert_eq!(argument.call, "pay#0");
    let DivergenceKind::Arguments(differences) = &argument.kind else { panic!("{argument}") };
    assert_eq!(differences.len(), 1);
    let told = explore(&path, Today::Argument).to_string();
    assert!(told.contains("420") && told.contains("421"), "{told}");
}

#[test]
fn a_changed_policy_is_told_and_is_no_divergence() {
    let Place(_folder, path) = place();
    let replays = explore(&path, Today::Policy);
    assert!(replays.is_fine(), "{replays}");
    for was in replays.threads() {
        let [other] = was.other_policies.as_slice() else { panic!("{replays}") };
        assert_eq!(other.call, "pay#0");
        assert_eq!((other.recorded, other.now), (PolicyKind::Idempotent, PolicyKind::AtMostOnce));
        assert!(replays.to_string().contains(&other.to_string()), "{replays}");
    }
    assert!(explore(&path, Today::Same).threads().iter().all(|w| w.other_policies.is_empty()));
}

#[test]
fn another_end_is_told() {
    let Place(_folder, path) = place();
    let other = explore(&path, Today::OtherResult);
    let (recorded, now) = ("\"p\"".to_owned(), "\"p!\"".to_owned());
    assert_eq!(*verdict(&other, "paid"), Verdict::OtherResult { recorded, now });
    // It has not ended then.
    assert_eq!(*verdict(&other, "asked"), Verdict::Replays);
    assert!(!other.is_fine());

    let longer = explore(&path, Today::Longer);
    let now = "it goes on with audit#0".to_owned();
    let recorded = "\"p\"".to_owned();
    assert_eq!(*verdict(&longer, "paid"), Verdict::OtherResult { recorded, now });
    assert_eq!(*verdict(&longer, "failed"), Verdict::Replays);

    let panics = explore(&path, Today::Panics);
    let Verdict::Stops(why) = verdict(&panics, "asked") else { panic!("{panics}") };
    assert!(why.contains("not today"), "{why}");
}

#[test]
fn a_workflow_that_is_not_hosted_is_told_unless_it_is_gone() {
    let Place(_folder, path) = place();
    let none = ReplayCheck::new(&path).explore(|book| book);
    assert_eq!(none.count(|verdict| *verdict == Verdict::NoSuchWorkflow), 3, "{none}");
    assert!(!none.is_fine());
    let gone = ReplayCheck::new(&path).gone("refund").explore(|book| book);
    assert_eq!(gone.threads().len(), 0, "{gone}");
    assert!(!gone.is_fine(), "nothing was replayed, so nothing is shown");
}

#[test]
fn damaged_lines_are_told() {
    let Place(_folder, path) = place();
    let whole = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    let of_paid = |line: &&str| line.contains("\"th\":\"paid\"");
    let at = lines.iter().position(|line| of_paid(line) && line.contains("step.done")).unwrap();
    let told = |changed: String| {
        fs::write(&path, changed).unwrap();
        let replays = explore(&path, Today::Same);
        assert!(!replays.is_fine(), "{replays}");
        replays
    };
    let with = |line: String| {
        let mut lines = lines.clone();
        lines[at] = &line;
        lines.join("\n") + "\n"
    };
    let damaged = |replays: &Replays, what: &str| {
        let Verdict::Damaged(why) = verdict(replays, "paid") else { panic!("{replays}") };
        assert!(why.contains(what), "{why}");
        assert_eq!(*verdict(replays, "asked"), Verdict::Replays);
    };

    let header = told(with(lines[at].replace("step.done", "step.fail")));
    damaged(&header, "the header does not match its hash");
    let payload =
        told(with(lines[at].replace("\"bin\":\"", "\"bin\":\"oXA=").replace("oXA=Bw==", "oXA=")));
    damaged(&payload, "payload result");
    damaged(&told(whole.replace(&format!("{}\n", lines[at]), "")), "is missing");

    let torn = told(with(lines[at][..lines[at].len() / 2].to_owned()));
    assert!(torn.file()[0].contains(&format!("line {} is not a record", at + 1)), "{torn}");
    damaged(&torn, "is missing");

    let cut = told(lines[..lines.len() - 1].join("\n") + "\n");
    assert!(cut.file()[0].contains("the closing line is missing"), "{cut}");
    let tail = lines.iter().rposition(of_paid).unwrap();
    let shorter = told(whole.replace(&format!("{}\n", lines[tail]), ""));
    assert_eq!(*verdict(&shorter, "paid"), Verdict::Replays, "the file itself is told of");
    assert!(!shorter.file().is_empty(), "{shorter}");
    assert!(told("{}\n".to_owned()).file()[0].contains("line 1"));
    fs::remove_file(&path).unwrap();
    assert!(explore(&path, Today::Same).file()[0].contains("cannot be opened"));
}

#[test]
fn what_was_erased_is_told_and_is_no_fault() {
    let Place(_folder, path) = place();
    let whole = fs::read_to_string(&path).unwrap();
    for (kind, thread) in [("thread.start", "paid"), ("step.done", "paid"), ("thread.end", "paid")]
    {
        fs::write(&path, exported::erased(&whole, thread, kind)).unwrap();
        let replays = explore(&path, Today::Same);
        let Verdict::Erased(why) = verdict(&replays, thread) else { panic!("{kind}: {replays}") };
        assert!(why.contains("erased"), "{why}");
        assert!(replays.is_fine(), "{replays}");
    }
}

/// A cancelled thread replays up to its cancellation.
#[test]
fn a_cancelled_thread_replays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.jsonl");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let refund = Refund(Today::Then, Arc::default());
        let book = Deedbook::memory().host(refund).start().await.unwrap();
        book.spawn::<Refund>("t", 5000).await.unwrap();
        while book.status("t").await.unwrap().unwrap().row.waits_for().is_none() {
            tokio::task::yield_now().await;
        }
        book.cancel("t", "user:kim", "a mistake").await.unwrap();
        let _cancelled = book.wait::<Refund>("t").await.unwrap_err();
        fs::write(&path, exported::lines(book.checkpointer()).await).unwrap();
    });
    drop(runtime);
    assert!(fs::read_to_string(&path).unwrap().contains("thread.end"));
    let replays = explore(&path, Today::Same);
    assert!(replays.is_fine(), "{replays}");
    assert!(matches!(*verdict(&explore(&path, Today::Renamed), "t"), Verdict::Diverges(_)));
    assert!(ThreadId::new("t").is_ok());
}

/// Records what is derived from the journal's namespace.
struct Label;

impl Workflow for Label {
    const NAME: &'static str = "label";
    type Input = ();
    type Output = String;

    async fn run(&self, ctx: Context, (): &()) -> Result<String> {
        let label = ctx.uuid().to_string();
        ctx.step("print").idempotent().run(&label, async |_| Ok(label.clone())).await
    }
}

#[test]
fn what_is_derived_from_the_namespace_replays_with_it_and_not_without() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("export.jsonl");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let namespace = runtime.block_on(async {
        let book = Deedbook::memory().host(Label).start().await.unwrap();
        book.run::<Label>("t", ()).await.unwrap();
        fs::write(&path, exported::lines(book.checkpointer()).await).unwrap();
        let namespace = book.checkpointer().identity().namespace;
        book.shutdown().await.unwrap();
        namespace
    });
    ReplayCheck::new(&path).namespace(namespace).run(|book| book.host(Label));
    let without = ReplayCheck::new(&path).explore(|book| book.host(Label));
    let Verdict::Diverges(divergence) = verdict(&without, "t") else { panic!("{without}") };
    assert!(matches!(divergence.kind, DivergenceKind::Arguments(_)), "{divergence:?}");
    assert!(without.to_string().contains("ReplayCheck::namespace"), "{without}");
}

/// `Builder::replay` on a journal itself.
#[test]
fn a_thread_that_has_ended_or_is_not_there_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let book = Deedbook::memory().host(Label).start().await.unwrap();
        book.run::<Label>("ended", ()).await.unwrap();
        let home = book.checkpointer().clone();
        let replay = |thread: &'static str| Deedbook::on(home.clone()).host(Label).replay(thread);
        assert_eq!(replay("ended").await.unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(replay("end").await.unwrap_err().kind(), ErrorKind::NotFound);
        let unhosted = Deedbook::on(home.clone()).replay("ended").await.unwrap_err();
        assert_eq!(unhosted.kind(), ErrorKind::NotFound);
        book.shutdown().await.unwrap();
    });
}
