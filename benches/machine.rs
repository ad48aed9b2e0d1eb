//! What the figures were measured on.

use std::{fs, path::Path, process::Command};

/// The release of redb that the workspace names.
const REDB: &str = "4.6.0";

fn first_line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().next().map(str::to_owned)
}

fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next_back().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The name of the processor, as the system says it.
fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(": ").map(|(_, name)| name.to_owned())
}

/// The mean number of processes that wanted to run, over 1, 5 and 15 minutes.
#[must_use]
pub fn load() -> String {
    let line = first_line("/proc/loadavg").unwrap_or_default();
    line.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The scheduling class of this process: 1 and 2 are real time (`chrt -f`).
fn scheduling() -> Option<String> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name, in brackets, may hold spaces.
    let (_, rest) = stat.rsplit_once(") ")?;
    let class = rest.split(' ').nth(38)?;
    Some(match class {
        "0" => "ordinary".to_owned(),
        "1" => "real time (fifo)".to_owned(),
        "2" => "real time (round robin)".to_owned(),
        other => format!("class {other}"),
    })
}

/// The compiler, as it says itself.
#[must_use]
pub fn rustc() -> String {
    said("rustc", &["-V"]).unwrap_or_else(|| "unknown".to_owned())
}

/// What there is to say, by name.
#[must_use]
pub fn facts(folder: &Path) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let place = folder.to_string_lossy();
    let system = said("df", &["--output=fstype,source", &place]);
    let profile = if cfg!(debug_assertions) { "debug: figures mean nothing" } else { "release" };
    vec![
        ("deedbook", env!("CARGO_PKG_VERSION").to_owned()),
        ("build", profile.to_owned()),
        ("redb", REDB.to_owned()),
        ("rustc", rustc()),
        ("processor", processor().unwrap_or_else(unknown)),
        ("cores", cores.to_string()),
        ("kernel", first_line("/proc/sys/kernel/osrelease").unwrap_or_else(unknown)),
        ("file system", system.unwrap_or_else(unknown)),
        ("scheduling", scheduling().unwrap_or_else(unknown)),
        ("load before", load()),
    ]
}

/// Resident memory of this process, in bytes.
///
/// # Errors
/// The system does not say.
pub fn resident() -> crate::Result<u64> {
    Ok(said_by("/proc/self/status", "VmRSS:")? * 1024)
}

/// Bytes that this process has had read from a disk, rather than from the system's memory.
///
/// # Errors
/// The system does not say.
pub fn read_from_disk() -> crate::Result<u64> {
    said_by("/proc/self/io", "read_bytes:")
}

fn said_by(file: &str, name: &str) -> crate::Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("{file} does not say {name}"))?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_of_redb_is_the_one_in_use() {
        let manifest = include_str!("../Cargo.toml");
        assert!(manifest.contains(&format!("redb = \"={REDB}\"")));
    }
}
