//! Harness.

#[cfg(doctest)]
mod documents;
