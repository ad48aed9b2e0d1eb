//! A bank: an HTTP/1.1 server with its own durable ledger, and its client.
//!
//! The server is another party. It runs as its own process, never sees the agent's journal, and
//! its ledger is the witness of what really happened. What it promises depends on its [`Mode`]:
//!
//! | mode | `Idempotency-Key` | `GET /refunds?reference=R` | fits the policy |
//! | --- | --- | --- | --- |
//! | `keys` | required and honoured | 404 | `idempotent` |
//! | `lookup` | ignored: every `POST` executes | answers | `reconcile` |
//! | `none` | ignored: every `POST` executes | 404 | `at_most_once` |
//!
//! # `POST /refunds`
//!
//! The body is an [`Instruction`] as JSON. Answers, errors as `application/problem+json`:
//!
//! - **201** and a [`Receipt`]: executed, and durable in the ledger before the first byte of the
//!   answer. With `Idempotent-Replayed: true` it is the answer of an earlier call, byte for byte.
//! - **4xx**: definitely not executed. `unknown-currency`, `over-limit`, `closed-order` are the
//!   bank's own reasons; in mode `keys` these too are remembered under their key.
//! - **400** in mode `keys`: the key is missing, or is not a structured-header String (RFC 9651),
//!   which stands in double quotes. A key without quotes is refused, not repaired: guessing where
//!   a key ends is how two operations become one. Parameters after the string are refused too.
//! - **409** with `Retry-After`: the first call with this key is still at work.
//! - **422**: this key came with another payload before. Payloads are compared member by member,
//!   so spacing and the order of members do not matter.
//! - **503** with `Retry-After` and `Refund-Applied: no`: nothing was done or remembered.
//! - Any other 5xx, or no answer at all: the caller cannot know.
//!
//! Keys are kept as long as the ledger. A key whose execution was cut off by the death of the bank
//! is free again, because then the ledger has no line for it. A client that goes away does not
//! stop a refund that has begun.
//!
//! # `GET /ledger`
//!
//! A [`Summary`]: what was executed, and how much of it twice.

mod client;
mod connection;
mod desk;
mod error;
mod key;
pub mod ledger;
mod percent;
mod routes;
mod rules;
mod server;
mod wire;

pub use client::Bank;
pub use error::{BadAddress, BankError};
pub use ledger::Summary;
pub use rules::CLOSED_MARKER;
pub use server::{Mode, Options, ServeError, Server, serve};
pub use wire::{Instruction, Problem, Receipt};
