//! What agents promise: the rows T, D and B of `docs/reference/behaviours.md`, each a test of
//! that name.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends at the first surprise"
)]
#![allow(clippy::disallowed_methods, reason = "real bodies take real time")]

mod attribute;
mod calls;
mod failures;
mod held;
mod kills;
mod once;
mod scopes;
mod support;
mod turns;
