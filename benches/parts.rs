//! Every measurement works: none of them rots between two times that figures are taken.

#![expect(clippy::unwrap_used, reason = "a test panics where something is wrong")]

use std::{fs, path::Path, process::Command};

/// In memory where the system has such a place: nothing here is about the disk.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn measured(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deedbook-benches"));
    let output = command.arg("--folder").arg(folder).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_part_gives_figures_and_its_plots() {
    let folder = folder();
    let plots = folder.path().join("plots");
    let to = plots.to_str().unwrap();
    let all = measured(folder.path(), &["all", "--quick", "--json", "--plots", to]);
    let figures = all["figures"].as_array().unwrap();
    for part in
        ["floor", "costs", "steps", "reads", "calls", "replay", "turns", "open", "growth", "memory"]
    {
        let of = figures.iter().filter(|figure| figure["of"] == part);
        let values: Vec<_> = of.map(|figure| figure["value"].as_f64().unwrap()).collect();
        assert!(values.iter().any(|value| *value > 0.0), "{part}: {values:?}");
    }
    // What is parked is not read, whatever else the machine does.
    let histories = "50 parked threads: histories read by it";
    let histories = figures.iter().find(|figure| figure["what"] == histories).unwrap();
    assert_eq!(histories["value"], 0.0);

    let mut names: Vec<_> = fs::read_dir(&plots)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let wanted = [
        "commit-by",
        "floor",
        "growth-file",
        "growth",
        "memory",
        "open",
        "reads",
        "replay",
        "steps",
    ];
    assert_eq!(names, wanted.map(|name| format!("{name}.svg")));
    for name in names {
        let svg = fs::read_to_string(plots.join(name)).unwrap();
        assert!(svg.contains("class=\"line\"") && !svg.contains("NaN"), "{svg}");
    }
}

#[test]
fn every_case_that_is_counted_runs_twice() {
    let folder = folder();
    let runs = measured(folder.path(), &["counted", "--quick"]);
    let runs: Vec<_> = runs.as_array().unwrap().iter().map(|run| &run["case"]).collect();
    let recorded: serde_json::Value =
        serde_json::from_str(include_str!("instructions.json")).unwrap();
    assert_eq!(runs.len(), 2 * recorded["instructions"].as_object().unwrap().len());
    for pair in runs.chunks(2) {
        assert_eq!(pair[0], pair[1]);
        assert!(recorded["instructions"][pair[0].as_str().unwrap()].is_u64(), "{}", pair[0]);
    }
}
