//! Exported threads, replayed with the code as it is now.

mod file;
mod home;
mod judge;
mod report;

use std::{
    collections::BTreeSet,
    fmt::{self, Debug},
    path::{Path, PathBuf},
};

use deedbook::Builder;

pub use report::{Replays, Verdict, WasReplayed};

/// Replays every thread of an export with the workflows as they are now, and ends the test if one
/// of them does not go as recorded. The file is one that `deedbook export` has written.
///
/// Nothing is executed: no body and no probe runs, reads neither, and nothing is written. So the
/// workflows may be hosted with clients that lead nowhere.
///
/// ```no_run
/// use deedbook::{Context, Result, Workflow};
/// use deedbook_testkit::replay_check;
///
/// struct Greet;
///
/// impl Workflow for Greet {
///     const NAME: &'static str = "greet";
///     type Input = String;
///     type Output = String;
///
///     async fn run(&self, ctx: Context, name: &String) -> Result<String> {
///         ctx.step("compose").read().run(name, async |_| Ok(format!("hello, {name}"))).await
///     }
/// }
///
/// replay_check("tests/greetings.jsonl", |builder| builder.host(Greet));
/// ```
///
/// # Panics
/// With the report, if anything went wrong.
#[track_caller]
pub fn replay_check(path: impl AsRef<Path>, hosts: impl Fn(Builder) -> Builder) {
    ReplayCheck::new(path).run(hosts);
}

/// A replay of an export with settings: see [`replay_check`].
#[derive(Clone)]
#[must_use]
pub struct ReplayCheck {
    path: PathBuf,
    namespace: Option<[u8; 16]>,
    gone: BTreeSet<String>,
}

impl Debug for ReplayCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayCheck").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ReplayCheck {
    /// Of this file.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned(), namespace: None, gone: BTreeSet::new() }
    }

    /// The journal's namespace, as `deedbook key --json` shows it. An export does not have it, and
    /// it is needed where code puts `ctx.uuid()` or `ctx.random()` into what is recorded.
    pub fn namespace(mut self, namespace: [u8; 16]) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Threads of this workflow need no code any more: they are not replayed.
    pub fn gone(mut self, workflow: &str) -> Self {
        self.gone.insert(workflow.to_owned());
        self
    }

    /// Replays, and ends the test if anything went wrong.
    ///
    /// # Panics
    /// With the report, if anything went wrong.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn run(self, hosts: impl Fn(Builder) -> Builder) {
        let replays = self.explore(hosts);
        if !replays.is_fine() {
            panic!("{replays}");
        }
    }

    /// Replays, and says what was found. `hosts` is called once for each thread.
    #[must_use]
    pub fn explore(self, hosts: impl Fn(Builder) -> Builder) -> Replays {
        let mut replays = Replays::of(&self.path);
        replays.knows_namespace = self.namespace.is_some();
        if tokio::runtime::Handle::try_current().is_ok() {
            let why = "the check has an async runtime of its own: call it in a plain `#[test]`, \
                       not in `#[tokio::test]`";
            replays.file.push(why.to_owned());
            return replays;
        }
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                replays.file.push(format!("no async runtime: {error}"));
                return replays;
            }
        };
        let mut export = file::read(&self.path);
        replays.file.append(&mut export.wrongs);
        let identity = export.identity(self.namespace.unwrap_or_default());
        for (id, thread) in export.threads {
            if id.is_reserved() {
                continue;
            }
            let workflow = thread.workflow.as_deref().unwrap_or_default();
            if self.gone.contains(workflow) {
                replays.gone += 1;
                continue;
            }
            let verdict = judge::verdict(&runtime, &identity, &id, thread, &hosts);
            replays.threads.push(verdict);
        }
        replays
    }
}
