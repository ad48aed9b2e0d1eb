//! The story, with real processes and real kills.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]

use std::path::Path;

use deedbook_agent::Outcome;
use support_agent::story::play;

#[tokio::test]
async fn every_effect_happens_once_though_the_agent_is_killed_and_its_model_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let story = play(Path::new(env!("CARGO_BIN_EXE_support-agent")), folder.path()).await.unwrap();
    assert_eq!(story.kills.len(), 7, "{}", story.text);
    let effects: Vec<_> = story.effects.iter().map(|(what, n)| (what.as_str(), *n)).collect();
    assert_eq!(
        effects,
        [
            ("case broken parcel", 1),
            ("page C-1: a parcel arrived broken", 1),
            ("refund 120.00 for ORD-4821", 1),
            ("refund 15.50 for ORD-4822", 1),
        ],
        "{}",
        story.text
    );
    let [first, second, third] = story.replies.as_slice() else { panic!("three replies") };
    let replayed = |reply: &deedbook_agent::Reply| {
        reply.calls.iter().filter(|call| call.replayed.is_some()).count()
    };
    assert_eq!((replayed(first), replayed(second), replayed(third)), (3, 2, 0));
    assert!(matches!(third.calls[0].outcome, Outcome::Conflict { .. }));
    assert_eq!(second.calls[0].outcome.result().unwrap(), "ORD-4822");
}
