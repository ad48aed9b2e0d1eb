//! Tools of MCP servers for agents: guarded, with the operation key in their metadata.
//!
//! ```no_run
//! use deedbook_agent::{Agent, Response, Scripted, Toolbox};
//! use deedbook_mcp::Server;
//!
//! # async fn f() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::stdio(tokio::process::Command::new("weather-server")).await?;
//! let tools = Toolbox::new().with_all(server.tools().await?);
//! let agent = Agent::builder(Scripted::new([Response::text("hello")])).tools(tools).build()?;
//! # Ok(()) }
//! ```
//!
//! A call of such a tool is a step like any other: recorded before it is made, made once in its
//! thread, answered from the record when the model repeats it. The operation key goes along in the
//! metadata of the request, under [`OPERATION_KEY`], for servers that want to honour it.

#[cfg(feature = "http")]
mod http;
mod link;
mod server;
mod tool;

pub use server::{McpError, Server};
pub use tool::{ATTEMPT, OPERATION_KEY, effect_of_hints};
