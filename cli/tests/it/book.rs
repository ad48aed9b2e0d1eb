//! A journal on disk, and the tool to look at it.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use deedbook_journal::{
    checkpointer::{Append, Checkpointer, Claim, Lease},
    embedded::{CreateOptions, Embedded, OpenOptions},
    id::{Branch, IdentityKind, Name, StoreTime, ThreadId},
    limits::ValueLimits,
    pen::{Draft, Pen},
    policy::Policy,
    record::{Kind, Place, Role},
    row::{Row, Status},
    value::view,
};
use serde_json::Value;

/// A folder with a journal in it.
pub(crate) struct Book {
    dir: tempfile::TempDir,
}

impl Book {
    /// An empty journal.
    pub(crate) fn new() -> Self {
        let book = Self { dir: tempfile::tempdir().unwrap() };
        let options = CreateOptions::new().namespace([7; 16]);
        let home = Embedded::create(book.path(), options).unwrap();
        block_on(home.close()).unwrap();
        book
    }

    /// A folder without one.
    pub(crate) fn none() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("book.deedbook")
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn home(&self) -> Embedded {
        // A child that another test has just forked holds the lock until it begins its program.
        let options = OpenOptions::new().wait(Duration::from_secs(10));
        Embedded::open(self.path(), options).unwrap()
    }

    /// Writes a thread of these records, which begin after its `thread.start`.
    pub(crate) fn thread(&self, id: &str, status: Status, drafts: Vec<Draft>) {
        self.thread_with(id, drafts, |row| row.status = status);
    }

    /// The same with another row.
    pub(crate) fn thread_with(&self, id: &str, drafts: Vec<Draft>, set: impl FnOnce(&mut Row)) {
        let home = self.home();
        block_on(async {
            let id = ThreadId::new(id).unwrap();
            let now = home.now().await.unwrap();
            let mut row = Row::new("refund", Status::Running, now);
            set(&mut row);
            let start = Draft::new(&id, Kind::ThreadStart)
                .with(|h| {
                    h.workflow = Some("refund".into());
                    h.by = Some("worker:1".into());
                    h.build = Some("v1".into());
                })
                .payload(Role::Input, msgpack(r#"{"order":"ORD-1"}"#));
            let mut all = vec![start];
            all.extend(drafts);
            let which = Claim::Thread { id: id.clone(), create: Some(row.clone()) };
            let leases = home.claim(which, "worker:1", Duration::from_secs(60)).await.unwrap();
            write(&home, &leases[0], all, row).await;
            home.renew(&[(id, leases[0].epoch)], Duration::ZERO).await.unwrap();
            home.close().await.unwrap();
        });
    }

    /// The tool, ready for arguments.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_deedbook"));
        command.env("DEEDBOOK_JOURNAL", self.path());
        command.env("USER", "alice").env_remove("NO_COLOR");
        command.current_dir(self.dir.path()).stdin(Stdio::null());
        command
    }

    /// Runs the tool.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        Ran::of(self.command().args(args).output().unwrap())
    }

    /// Runs the tool, which must end with 0.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
        assert_eq!(ran.stderr, "", "{args:?}");
        ran.stdout
    }

    /// Runs the tool with `--json`; the objects that it wrote.
    pub(crate) fn json(&self, args: &[&str]) -> Vec<Value> {
        let ran = self.run(&[&["--json"], args].concat());
        assert!([0, 3, 4].contains(&ran.code), "{args:?}: {}", ran.stderr);
        let objects = ran.stdout.lines().map(|l| serde_json::from_str(l).unwrap());
        objects.collect()
    }

    /// The records of a thread as `show --json` tells them: kinds.
    pub(crate) fn kinds(&self, thread: &str) -> Vec<String> {
        let shown = self.json(&["show", "--", thread]).remove(0);
        let records = shown["records"].as_array().unwrap();
        records.iter().map(|r| r["kind"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn status(&self, thread: &str) -> String {
        let shown = self.json(&["show", "--", thread]).remove(0);
        shown["status"].as_str().unwrap().to_owned()
    }

    /// The journal's bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.path()).unwrap()
    }

    /// The names in its folder, but for the anchor, which holds nothing of a journal.
    pub(crate) fn names(&self) -> Vec<String> {
        let files = std::fs::read_dir(self.dir()).unwrap();
        let names = files.map(|f| f.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| !name.ends_with("-anchor")).collect();
        names.sort();
        names
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// What a run of the tool came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Appends drafts under a lease.
pub(crate) async fn write(home: &Embedded, lease: &Lease, drafts: Vec<Draft>, row: Row) {
    let log_id = home.identity().log_id;
    let mut pen = Pen::new(log_id, lease.thread.clone(), lease.epoch, lease.next, lease.head);
    let mut records = Vec::new();
    for draft in drafts {
        let now = home.now().await.unwrap();
        records.push(pen.write(draft, now, &mut || [3; 32]).1);
    }
    let append = Append {
        thread: lease.thread.clone(),
        epoch: lease.epoch,
        at: lease.next,
        records: records.into(),
        consumes: Vec::new(),
        row,
    };
    for result in home.append(vec![append]).await {
        result.unwrap();
    }
}

pub(crate) fn msgpack(json: &str) -> Vec<u8> {
    view::from_json(json, &ValueLimits::new()).unwrap()
}

fn draft(kind: Kind) -> Draft {
    Draft::new(&ThreadId::new("set by the pen").unwrap(), kind)
}

fn place(name: &str) -> Place {
    Place {
        episode: 0,
        branch: Branch::root(),
        name: Name::new(name).unwrap(),
        kind: IdentityKind::Positional,
        occurrence: 0,
        business_key: None,
    }
}

/// The first intent of a step.
pub(crate) fn intent(name: &str, policy: Policy) -> Draft {
    draft(Kind::StepIntent)
        .with(|h| {
            h.place = Some(place(name));
            h.attempt = Some(1);
            h.policy = Some(policy);
            h.key = policy.has_effect().then(|| "dk1_0123".into());
        })
        .payload(Role::Args, msgpack(r#"{"amount":4200}"#))
}

/// The result of the step that was opened at `call`.
pub(crate) fn done(call: u64, result: &str) -> Draft {
    draft(Kind::StepDone)
        .with(|h| {
            h.call = Some(call);
            h.attempt = Some(1);
        })
        .payload(Role::Result, msgpack(result))
}

/// An attempt whose outcome is unknown, to be sent again at `due`.
pub(crate) fn unknown(call: u64, why: &str, due: Option<StoreTime>) -> Draft {
    draft(Kind::StepUnknown).with(|h| {
        h.call = Some(call);
        h.attempt = Some(1);
        h.why = Some(why.into());
        h.due = due;
    })
}

/// An approval request that shows this.
pub(crate) fn request(name: &str, shown: &str) -> Draft {
    draft(Kind::ApprovalRequest)
        .with(|h| h.place = Some(place(name)))
        .payload(Role::Shown, msgpack(shown))
}

/// The end of a thread.
pub(crate) fn end(verdict: &str) -> Draft {
    draft(Kind::ThreadEnd)
        .with(|h| {
            h.verdict = Some(verdict.into());
            h.doubts = Some(0);
        })
        .payload(Role::Result, msgpack("null"))
}
