//! The files of the repository, as the checks see them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

/// One file that is tracked, or would be with `git add`.
pub(super) struct Tracked {
    /// From the root, with `/`.
    pub(super) path: String,
    /// All of it; whatever is not UTF-8 is replaced.
    pub(super) text: String,
    /// Whether it is the file of a module under `#[cfg(test)]`.
    of_unit_tests: bool,
}

impl Tracked {
    /// A made-up file, on which a check shows that it can fail.
    pub(super) fn made_up(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned(), of_unit_tests: false }
    }

    pub(super) fn ends_with(&self, endings: &[&str]) -> bool {
        endings.iter().any(|ending| self.path.ends_with(ending))
    }

    /// Rust that users run, as opposed to Rust that tests or measures it.
    pub(super) fn is_shipped_rust(&self) -> bool {
        let path = &self.path;
        path.ends_with(".rs")
            && !path.starts_with("tests/")
            && !path.starts_with("benches/")
            && !path.contains("/tests/")
            && !path.ends_with("/tests.rs")
            && !self.of_unit_tests
    }

    /// Numbered lines of code: no comments, and nothing below a unit test module.
    pub(super) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines();
        let tests = self.text.find("#[cfg(test)]\nmod tests {").unwrap_or(self.text.len());
        let shipped = self.text[..tests].lines().count();
        (1..).zip(lines).take(shipped).filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// The same with every line, comments included.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }
}

/// The root of the repository.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every file, in the order of paths.
pub(super) fn files() -> &'static [Tracked] {
    static FILES: LazyLock<Vec<Tracked>> = LazyLock::new(read);
    &FILES
}

fn read() -> Vec<Tracked> {
    let mut paths = listed().unwrap_or_else(|| walked(&root()));
    paths.sort();
    let mut files: Vec<Tracked> = paths
        .into_iter()
        .filter_map(|path| {
            // Without the files that are deleted, and not yet committed as such.
            let bytes = fs::read(root().join(&path)).ok()?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            Some(Tracked { path, text, of_unit_tests: false })
        })
        .collect();
    assert!(files.len() > 50, "only {} files were found", files.len());
    let of_unit_tests: Vec<String> = files.iter().flat_map(unit_test_files).collect();
    for file in &mut files {
        file.of_unit_tests = of_unit_tests.contains(&file.path);
    }
    files
}

/// The files of the modules that this one declares for unit tests only.
fn unit_test_files(file: &Tracked) -> Vec<String> {
    let Some(stem) = file.path.strip_suffix(".rs") else {
        return Vec::new();
    };
    let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
    let inside = if ["mod", "lib", "main"].contains(&name) { folder } else { stem };
    let declared = file.text.split("#[cfg(test)]\nmod ").skip(1);
    let names = declared.filter_map(|rest| rest.lines().next()?.strip_suffix(';'));
    names.map(|name| format!("{inside}/{name}.rs")).collect()
}

/// What git knows, and what is not ignored.
fn listed() -> Option<Vec<String>> {
    // Git refuses to look at a clone made by another user otherwise.
    let listed = Command::new("git")
        .args(["-c", "safe.directory=*", "ls-files", "-z"])
        .args(["--cached", "--others", "--exclude-standard", "--deduplicate"])
        .current_dir(root())
        .output()
        .ok()?;
    let text = String::from_utf8(listed.stdout).ok()?;
    listed.status.success().then(|| text.split_terminator('\0').map(str::to_owned).collect())
}

/// For a copy of the sources without git: every file, build results left out.
fn walked(folder: &Path) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_symlink() || ["target", ".git"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            paths.extend(walked(&path));
        } else {
            let inside = path.strip_prefix(root()).unwrap();
            paths.push(inside.to_str().expect("paths are UTF-8").to_owned());
        }
    }
    paths
}

/// Runs a check on every file and fails with all that it found.
pub(super) fn every_file(check: impl Fn(&Tracked) -> Vec<String>) {
    report(&files().iter().flat_map(check).collect::<Vec<_>>());
}

/// Fails with all problems at once, so that one run is enough to mend them.
pub(super) fn report(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
}
