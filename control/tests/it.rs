//! The control socket: real sockets, real processes, and clients that do not behave.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    reason = "a test that cannot go on fails, and one of real sockets waits for them; clippy knows \
              the former of functions marked as tests only"
)]

mod it {
    mod book;
    mod client;
    mod conformance;
    mod examine;
    mod guard;
    mod places;
    mod remote;
    mod rude;
}
