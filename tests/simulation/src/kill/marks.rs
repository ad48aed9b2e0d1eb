//! Marked points of a life: each is passed by its name and how often it was passed, and at one of
//! them the process dies.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// What a life says once it is at its point: whoever started it kills it then.
pub(super) const HERE: &str = "here";
/// What stands in front of the points that a life has passed.
const LIFE: &str = "life";

/// The points of this life.
#[derive(Debug)]
pub(super) struct Marks {
    point: Option<String>,
    dying: AtomicBool,
    passed: Mutex<Passed>,
}

#[derive(Debug)]
struct Passed {
    counts: HashMap<String, u32>,
    file: File,
}

impl Marks {
    /// A life that dies at this point, if it comes there.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(super) fn new(folder: &Path, point: Option<String>) -> io::Result<Self> {
        let mut file = OpenOptions::new().create(true).append(true).open(passed(folder))?;
        writeln!(file, "{LIFE}")?;
        let passed = Mutex::new(Passed { counts: HashMap::new(), file });
        Ok(Self { point, dying: AtomicBool::new(false), passed })
    }

    /// Passes a point; or dies here.
    pub(super) fn at(&self, name: &str) {
        let here = {
            let mut passed = self.passed.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody does anything more in a process that has come to its point.
            if self.dying.load(Ordering::Relaxed) {
                drop(passed);
                stay();
            }
            let count = passed.counts.entry(name.to_owned()).or_insert(0);
            *count += 1;
            let point = format!("{name} {count}");
            // One write, so that no line is cut short by a kill.
            passed.file.write_all(format!("{point}\n").as_bytes()).unwrap();
            let here = self.point.as_ref() == Some(&point);
            self.dying.store(here, Ordering::Relaxed);
            here
        };
        if here {
            let mut out = io::stdout().lock();
            writeln!(out, "{HERE}").unwrap();
            out.flush().unwrap();
            stay();
        }
    }
}

fn stay() -> ! {
    loop {
        thread::park();
    }
}

fn passed(folder: &Path) -> std::path::PathBuf {
    folder.join("passed")
}

/// The points that the last life in a folder has passed, in their order.
#[must_use]
pub(super) fn of_the_last_life(folder: &Path) -> Vec<String> {
    let text = fs::read_to_string(passed(folder)).unwrap_or_default();
    let last = text.rsplit(&format!("{LIFE}\n")).next().unwrap_or_default();
    last.lines().map(str::to_owned).collect()
}
