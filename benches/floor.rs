//! The floor: the plainest durable write of the same bytes.
//!
//! One `pwrite` into a file that is preallocated and filled with zeros, so that no write changes
//! the file's length or its extents, and one `fdatasync`. Nothing that promises durability of the
//! same bytes by itself can be cheaper by much.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    path::Path,
    time::Duration,
};

use crate::{
    Result,
    effort::Effort,
    plot::{Axis, Line, Plot},
    report::{Figure, Findings},
    watch::{Watch, median, micros, quantile},
};

/// The size of the file: offsets wrap around in it.
const FILE_BYTES: u64 = 64 << 20;

/// Sizes of a write, in bytes.
const SIZES: [usize; 6] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// A file to measure the floor with.
#[derive(Debug)]
pub struct Floor {
    file: File,
    at: u64,
    buffer: Vec<u8>,
    /// Whether every write makes the file longer, instead of using what was filled before.
    grows: bool,
}

fn new_file(path: &Path) -> Result<File> {
    Ok(OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path)?)
}

impl Floor {
    /// Makes the file in this folder, on the same file system as what is compared with it.
    ///
    /// # Errors
    /// As the system says.
    pub fn new(folder: &Path) -> Result<Self> {
        let file = new_file(&folder.join("floor"))?;
        let zeros = vec![0; 1 << 20];
        for chunk in 0..FILE_BYTES >> 20 {
            file.write_all_at(&zeros, chunk << 20)?;
        }
        file.sync_all()?;
        Ok(Self { file, at: 0, buffer: Vec::new(), grows: false })
    }

    /// The same with a file that grows with each write: what a plain log pays.
    ///
    /// # Errors
    /// As the system says.
    pub fn growing(folder: &Path) -> Result<Self> {
        let file = new_file(&folder.join("growing"))?;
        Ok(Self { file, at: 0, buffer: Vec::new(), grows: true })
    }

    /// Writes and syncs `groups` groups of `bytes` bytes, one after another.
    ///
    /// # Errors
    /// As the system says.
    pub fn run(&mut self, groups: u64, bytes: usize) -> Result<Duration> {
        self.buffer.resize(bytes.max(1), 0x5a);
        let watch = Watch::start();
        for _ in 0..groups {
            if self.at + self.buffer.len() as u64 > FILE_BYTES {
                self.at = 0;
                if self.grows {
                    self.file.set_len(0)?;
                }
            }
            self.file.write_all_at(&self.buffer, self.at)?;
            self.file.sync_data()?;
            self.at += self.buffer.len() as u64;
        }
        Ok(watch.elapsed())
    }
}

/// The floor itself, for writes of several sizes; beside it a file that grows.
///
/// # Errors
/// As the system says.
pub fn floor(folder: &Path, effort: Effort) -> Result<Findings> {
    let (mut filled, mut grown) = (Floor::new(folder)?, Floor::growing(folder)?);
    let mut findings = Findings::default();
    let (mut fast, mut slow) = (Vec::new(), Vec::new());
    for bytes in SIZES {
        let [mut filled_times, mut grown_times, mut ratios] = [const { Vec::new() }; 3];
        let all = Watch::start();
        // One write at a time, so that the two meet the same moments of a shared disk.
        let rounds = effort.pick(100, 5);
        while ratios.len() < rounds || all.elapsed() < effort.time {
            let one = micros(filled.run(1, bytes)?);
            let other = micros(grown.run(1, bytes)?);
            ratios.push(other / one);
            filled_times.push(one);
            grown_times.push(other);
        }
        let name = format!("{} KiB", bytes >> 10);
        let p50 = median(&mut filled_times);
        let grown_p50 = median(&mut grown_times);
        let told = |what: &str, value| Figure::new("floor", format!("{name}: {what}"), value, "µs");
        findings.add(vec![
            told("write and sync, p50", p50),
            told("write and sync, p99", quantile(&mut filled_times, 0.99)),
            told("to a file that grows, p50", grown_p50).beside(p50, median(&mut ratios)),
        ]);
        fast.push((bytes as f64, p50));
        slow.push((bytes as f64, grown_p50));
    }
    findings.plots.push(Plot {
        name: "floor",
        title: "One write and one fdatasync".to_owned(),
        x: Axis::log("bytes in the write"),
        y: Axis::log("time, median, µs"),
        lines: vec![
            Line::new("file filled with zeros before: the floor", fast),
            Line::new("file that grows", slow),
        ],
    });
    Ok(findings)
}
