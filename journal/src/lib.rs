//! The journal under Deedbook: what happened, and what may happen next.
//!
//! In reading order: names ([`id`]), operation keys ([`key`]), values ([`value`]), policies
//! ([`policy`]), records ([`record`]) and rows ([`row`]), the durable home of them all
//! ([`checkpointer`], with the checks that all of them share in [`admit`]), and the built-in one
//! ([`embedded`]). Two things are done to a thread without a workflow's code, on any home: acts of
//! people ([`operator`]), and steps that are threads of their own ([`guard`]). Who holds a journal
//! gives others a [`holding`] of it. Limits have names in
//! [`limits`].

pub mod admit;
pub mod bytes;
pub mod checkpointer;
mod digits;
pub mod embedded;
pub mod failure;
pub mod guard;
pub mod hex;
pub mod history;
pub mod holding;
pub mod id;
pub mod key;
pub mod keyed;
pub mod limits;
pub mod message;
pub mod operator;
pub mod pen;
pub mod policy;
pub mod record;
pub mod row;
mod sheet;
pub mod turn;
pub mod value;
