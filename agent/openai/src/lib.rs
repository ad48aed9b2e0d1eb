//! A model for agents: whatever speaks the OpenAI-compatible chat-completions protocol.
//!
//! ```no_run
//! use deedbook_agent::Agent;
//! use deedbook_openai::OpenAi;
//!
//! // OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL
//! let agent = Agent::builder(OpenAi::from_env()?).build()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `https` needs the feature `tls`.

mod connection;
mod model;
#[cfg(not(feature = "tls"))]
mod no_tls;
mod protocol;
mod stream;
#[cfg(feature = "tls")]
mod tls;

pub use model::{Misfit, OpenAi};
#[cfg(not(feature = "tls"))]
use no_tls as tls;
