//! Values: arguments, results, errors and inputs, as bytes.
//!
//! They are stored as MessagePack ([`encode`], [`decode`]), compared in canonical form
//! ([`canonical`]) through their [`Fingerprint`], explained by [`diff`], and shown as JSON
//! ([`view`]). One serializer, one reader and one set of limits stand under all of it.

mod access;
pub mod canonical;
mod decode;
mod diff;
mod encode;
mod error;
mod fingerprint;
mod json;
mod number;
mod secret;
mod serializer;
mod sink;
#[cfg(test)]
mod tests;
pub mod text;
pub mod view;
mod walk;

pub use decode::decode;
pub use diff::{Change, DIFFERENCES_MAX, Difference, SHOWN_CHARS_MAX, diff};
pub use encode::{encode, encode_exact};
pub use error::{ValueError, ValueErrorKind};
pub use fingerprint::Fingerprint;
pub use secret::Secret;
pub use walk::{EXT_I128, EXT_U128, check};
