//! The promises, tested: one module a promise.

mod smoke;
