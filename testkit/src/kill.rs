//! The crash matrix with real processes: each run is a child of the test, on a journal on disk,
//! and dies by SIGKILL.

use std::{
    collections::BTreeMap,
    env,
    fmt::{Debug, Display},
    fs,
    future::Future,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use crate::{
    life::{Lived, live},
    matrix::{CrashMatrix, Run},
    place::Place,
    report::{Matrix, Order},
    world::{Point, World},
};

/// Says to a child where its world is.
const FOLDER: &str = "DEEDBOOK_TESTKIT_FOLDER";
/// Says to a child where it crashes.
const POINT: &str = "DEEDBOOK_TESTKIT_POINT";

/// Says to a child which matrix of its test it belongs to.
const NUMBER: &str = "DEEDBOOK_TESTKIT_NUMBER";

/// How many matrices each test has begun in this process.
static BEGUN: Mutex<BTreeMap<String, u64>> = Mutex::new(BTreeMap::new());

/// A child that has not come to its point or its end by then is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// As [`crash_matrix`](crate::crash_matrix), with real processes: the journal is a file, every
/// run a process of its own, and every crash a SIGKILL. It takes about a tenth of a second for
/// each of them, and tries one order of answers.
///
/// It starts the test's own binary again, with the test's name; so it must be called in a test, on
/// the test's own thread, and what stands before it in the test is done again in every child.
///
/// # Panics
/// With the matrix, if anything went wrong; and where the test's name is not known.
#[track_caller]
pub fn kill_matrix<F, Fut, T, E>(program: F)
where
    F: Fn(World) -> Fut,
    Fut: Future<Output = Result<T, E>>,
    T: Debug,
    E: Display,
{
    CrashMatrix::new().kill(program);
}

impl CrashMatrix {
    /// Explores with real processes, and ends the test if anything went wrong: see
    /// [`kill_matrix`].
    ///
    /// # Panics
    /// With the matrix, if anything went wrong; and where the test's name is not known.
    #[track_caller]
    #[expect(clippy::panic, reason = "this is how a test fails")]
    pub fn kill<F, Fut, T, E>(self, program: F)
    where
        F: Fn(World) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Debug,
        E: Display,
    {
        match self.explore_killing(program) {
            Ok(matrix) if matrix.is_fine() => {}
            Ok(matrix) => panic!("{matrix}"),
            Err(why) => panic!("the matrix cannot be explored: {why}"),
        }
    }

    /// Explores with real processes, and says what was found.
    ///
    /// # Errors
    /// Where the test's name is not known, or the system gives no processes or files.
    pub fn explore_killing<F, Fut, T, E>(self, program: F) -> Result<Matrix, String>
    where
        F: Fn(World) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Debug,
        E: Display,
    {
        let test = test_name()?;
        let number = number_in(&test);
        if let (Ok(folder), Ok(wanted)) = (env::var(FOLDER), env::var(NUMBER)) {
            if wanted == number.to_string() {
                self.be_a_child(Path::new(&folder), &program);
            }
            // A child of a later matrix of this test.
            return Ok(Matrix::default());
        }
        let calm = self.at(0, Point::Nowhere, &program, &BTreeMap::new());
        let safe: String =
            test.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let name = format!("deedbook-kills-{}-{safe}-{number}", std::process::id());
        let folder = env::temp_dir().join(name);
        let mut at = 0;
        let run = |point| {
            at += 1;
            let folder = folder.join(at.to_string());
            let run = self.killed((&test, number), &folder, point, &calm.effects);
            run.unwrap_or_else(Run::gone_wrong)
        };
        let order = Order::of(0, &calm, run);
        // What is left behind is a folder of the system's temporary ones.
        let _left = fs::remove_dir_all(&folder);
        Ok(Matrix { orders: vec![order], races: false })
    }

    /// One life after another in this folder, the first with a SIGKILL at this point.
    fn killed(
        &self,
        test: (&str, u64),
        folder: &Path,
        point: Point,
        usual: &BTreeMap<String, u32>,
    ) -> Result<Run, String> {
        fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut run = Run::default();
        let told = |at: &str| fs::read_to_string(folder.join(at)).ok();
        for point in [point, Point::Nowhere] {
            let child = Killed::start(test, folder, point)?;
            let child = child.until(&|| told("reached").is_some() || told("ended").is_some())?;
            drop(child);
            if told("ended").is_some() {
                break;
            }
            let world = self.world(0, Point::Nowhere, folder);
            run.wrongs.extend(crate::matrix::book(&world).wrongs(&world, &BTreeMap::new()));
            fs::remove_file(folder.join("reached")).map_err(|e| e.to_string())?;
        }
        let ended = told("ended").ok_or("it was killed twice")?;
        let world = self.world(0, Point::Nowhere, folder);
        while world.expects() && world.pass() {}
        let ended = match ended.split_once('\n') {
            Some(("ok", value)) => Some(Ok(value.to_owned())),
            Some(("error", error)) => Some(Err(error.to_owned())),
            _ => {
                run.wrongs.push(ended);
                None
            }
        };
        run.judge(&world, ended, usual);
        self.judge_doubts(&mut run, point);
        Ok(run)
    }

    fn world(&self, seed: u64, point: Point, folder: &Path) -> World {
        World::new(seed, point, self.times, Place::Folder(folder.to_owned()))
    }

    /// Runs the program until it comes to its point, and waits to be killed; or until its end.
    fn be_a_child<F, Fut, T, E>(&self, folder: &Path, program: &F) -> !
    where
        F: Fn(World) -> Fut,
        Fut: Future<Output = Result<T, E>>,
        T: Debug,
        E: Display,
    {
        let point = env::var(POINT).ok().and_then(|text| Point::from_text(&text));
        let world = self.world(0, point.unwrap_or(Point::Nowhere), folder);
        if !folder.join("world").exists() {
            (self.prepare)(&world);
        }
        let reached = folder.join("reached");
        world.when_crashing(move || {
            // Whoever waits for this file kills, whatever it holds.
            let _told = fs::write(&reached, "");
            loop {
                thread::park();
            }
        });
        let said = match live(&world, program) {
            Ok(Lived::Ended(Ok(value))) => format!("ok\n{value}"),
            Ok(Lived::Ended(Err(error))) => format!("error\n{error}"),
            Ok(Lived::Panicked(why)) => format!("it panicked: {why}"),
            Ok(Lived::Stuck) => {
                format!("it goes nowhere: {}", crate::matrix::book(&world).open.join("; "))
            }
            Ok(Lived::Crashed) => "it crashed and was not killed".to_owned(),
            Err(why) => why,
        };
        let aside = folder.join("ended.new");
        let told = fs::write(&aside, said).and_then(|()| fs::rename(&aside, folder.join("ended")));
        // Not a return: what follows in the test is for its parent.
        std::process::exit(i32::from(told.is_err()));
    }
}

/// A child, killed when this is dropped.
struct Killed(Child, PathBuf);

impl Killed {
    fn start((test, number): (&str, u64), folder: &Path, point: Point) -> Result<Self, String> {
        let binary = env::current_exe().map_err(|error| error.to_string())?;
        let child = Command::new(binary)
            .args([test, "--exact", "--nocapture", "--include-ignored"])
            .env(FOLDER, folder)
            .env(NUMBER, number.to_string())
            .env(POINT, point.to_text())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|error| format!("no child process: {error}"))?;
        Ok(Self(child, folder.to_owned()))
    }

    /// Waits for this, or for the child's end.
    #[expect(clippy::disallowed_methods, reason = "real processes take real time")]
    fn until(mut self, done: &dyn Fn() -> bool) -> Result<Self, String> {
        let begun = Instant::now();
        while !done() {
            let gone = self.0.try_wait().map_err(|error| error.to_string())?;
            if let Some(status) = gone.filter(|_| !done()) {
                return Err(format!("the child ended without a word: {status}"));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the child in {} comes to no end", self.1.display()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(self)
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        // One that has ended by itself cannot be killed, and need not be.
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

/// Which matrix of its test this one is.
fn number_in(test: &str) -> u64 {
    let mut begun = BEGUN.lock().unwrap_or_else(PoisonError::into_inner);
    let number = begun.entry(test.to_owned()).or_default();
    *number += 1;
    *number
}

/// The name of the test that runs on this thread.
fn test_name() -> Result<String, String> {
    let args: Vec<String> = env::args().collect();
    let exact = args.iter().any(|arg| arg == "--exact");
    let named = args.iter().skip(1).find(|arg| !arg.starts_with('-')).filter(|_| exact);
    let thread = thread::current().name().filter(|name| *name != "main").map(str::to_owned);
    thread.or(named.cloned()).ok_or_else(|| {
        "the test's name is not known; run tests on threads of their own (not with \
         `--test-threads=1`), or this one alone with `--exact`"
            .to_owned()
    })
}
