//! The situations come out as they should, and the guide shows this code.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends at the first surprise")]

use std::{fs, path::Path};

#[tokio::test]
async fn every_situation_comes_out_as_it_should() {
    let folder = tempfile::tempdir().unwrap();
    let all = replace_tulip::stories::all(folder.path()).await.unwrap();
    let wrong: Vec<_> = all.iter().filter(|seen| !seen.fine).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(all.len(), 8);
    let readme = include_str!("../README.md");
    for seen in all {
        let lines = format!("ok    {}\n      {}\n", seen.situation, seen.seen);
        assert!(readme.contains(&lines), "the README does not show\n{lines}");
    }
}

/// Every block of the guide, without what a reader does not see, stands in this example.
#[test]
fn the_guide_shows_the_code_of_this_example() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(here.join("../../docs/guides/from-tulip.md")).unwrap();
    let sources = ["tools.rs", "stories.rs"];
    let source: String =
        sources.map(|file| fs::read_to_string(here.join("src").join(file)).unwrap()).concat();
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let source = plain(&source);
    let blocks: Vec<&str> = guide.split("```rust\n").skip(1).collect();
    assert!(blocks.len() >= 4, "{}", blocks.len());
    for block in blocks {
        let block = block.split("```").next().unwrap();
        let shown = block.lines().filter(|line| !line.starts_with("# ") && *line != "#");
        for part in shown.collect::<Vec<_>>().join("\n").split("\n\n") {
            assert!(source.contains(&plain(part)), "the example has no\n{part}");
        }
    }
}
