//! The journal under Deedbook: what happened, and what may happen next.
//!
//! In reading order: names ([`id`]), operation keys ([`key`]), values ([`value`]), and the limits
//! on all of them ([`limits`]).

pub mod hex;
pub mod id;
pub mod key;
pub mod limits;
pub mod value;
