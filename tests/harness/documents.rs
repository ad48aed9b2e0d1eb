//! Pages whose Rust is compiled, and run, as documentation tests. A test refuses a page that has
//! Rust and is missing here.

#[doc = include_str!("../../README.md")]
struct Readme;

#[doc = include_str!("../../docs/start/README.md")]
struct Start;

#[doc = include_str!("../../docs/concepts/README.md")]
struct Concepts;

#[doc = include_str!("../../docs/guides/crash-tests.md")]
struct CrashTests;

#[doc = include_str!("../../docs/guides/agents.md")]
struct Agents;

#[doc = include_str!("../../docs/guides/from-tulip.md")]
struct FromTulip;

#[doc = include_str!("../../docs/guides/guard.md")]
struct GuardACall;

#[doc = include_str!("../../docs/guides/from-idempotent-tools.md")]
struct FromIdempotentTools;
