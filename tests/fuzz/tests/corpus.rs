//! What is kept is tried again, and a few thousand changes of it.

use deedbook_fuzz::{TARGETS, Target, corpus, mutator, random::Random};

/// How many changed inputs each target is given.
const CHANGED: u64 = 2000;
/// Those that open a journal for each.
const CHANGED_SLOW: u64 = 150;

/// Every input that is kept, then changed ones: always the same.
fn holds(name: &str, changed: u64) -> Result<(), String> {
    let target = Target::of(name).ok_or("no such target")?;
    let inputs = corpus::inputs(target).map_err(|error| error.to_string())?;
    assert!(inputs.len() >= 8, "{name} has {} inputs", inputs.len());
    for input in &inputs {
        tried(target, input)?;
    }
    let mut random = Random::new(1);
    for _ in 0..changed {
        let input = inputs.get(random.index(inputs.len())).ok_or("no inputs")?;
        tried(target, &mutator::change(target, input, &inputs, &mut random))?;
    }
    Ok(())
}

/// No panic, which would count as one of what is tried beside it.
fn tried(target: &Target, input: &[u8]) -> Result<(), String> {
    target.attempt(input).map_err(|broken| {
        let (name, text) = (target.name, corpus::line(input));
        format!("{broken}; again: cargo run -p deedbook-fuzz -- {name} --base64 '{text}'")
    })
}

macro_rules! targets {
    ($($name:ident: $changed:expr,)*) => {
        $(#[test]
        fn $name() -> Result<(), String> {
            holds(stringify!($name), $changed)
        })*

        #[test]
        fn every_target_is_tried() {
            let tried = [$(stringify!($name)),*];
            assert_eq!(tried.as_slice(), TARGETS.iter().map(|t| t.name).collect::<Vec<_>>());
        }
    };
}

targets! {
    header: CHANGED,
    record: CHANGED,
    stored: CHANGED,
    history: CHANGED,
    msgpack: CHANGED,
    canonical: CHANGED,
    json: CHANGED,
    words: CHANGED,
    journal: CHANGED_SLOW,
    log: CHANGED_SLOW,
    export: CHANGED_SLOW,
    arguments: CHANGED_SLOW,
}
