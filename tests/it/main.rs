//! The promises, tested: one module a promise.

mod episodes;
mod house;
mod smoke;
mod traces;
