//! A model server that plays a script over real HTTP, faults included: for tests and examples.
//!
//! It speaks `POST …/chat/completions`, streaming and not, as the OpenAI-compatible protocol has
//! it. Which line is next is told by the conversation itself, by how often the model has spoken
//! in it: so a script goes on after a crash, of either side, where the conversation is. Faults
//! are counted by conversation and line, and played before the line is.

mod script;
mod server;
mod speech;

pub use script::{Conversation, Fault, Line, Script, WantedCall};
pub use server::{Server, serve};
