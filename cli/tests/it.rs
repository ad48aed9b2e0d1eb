//! The real binary on real journals.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails, and one of real processes waits for them; clippy knows \
              the former of functions marked as tests only"
)]

mod it {
    mod acts;
    mod beside;
    mod book;
    mod call;
    mod docs;
    mod examined;
    mod export;
    mod forget;
    mod guarded;
    mod held;
    mod key;
    mod leftovers;
    mod look;
    mod operate;
    mod program;
    mod streams;
    mod verify;
    mod words;
}
