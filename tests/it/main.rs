//! The promises, tested: one module a promise.

mod house;
mod smoke;
mod traces;
