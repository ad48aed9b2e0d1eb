//! The real binary on real journals.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails; clippy knows that of functions marked as tests only"
)]

mod it {
    mod acts;
    mod book;
    mod docs;
    mod export;
    mod key;
    mod leftovers;
    mod look;
    mod operate;
    mod streams;
    mod verify;
}
