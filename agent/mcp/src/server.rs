//! A server, and the tools that it offers.

use std::{collections::BTreeMap, fmt};

use deedbook_agent::{DynTool, Effect, Terms};
use rmcp::{
    RoleClient, ServiceExt,
    service::{ClientInitializeError, ServiceError},
    transport::{IntoTransport, TokioChildProcess},
};
use tokio::process::Command;

use crate::{link::Link, tool};

/// Why a server's tools are not there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum McpError {
    /// Its process could not be started.
    #[error("the MCP server could not be started: {0}")]
    Start(#[from] std::io::Error),
    /// It did not greet as the protocol asks.
    #[error("the MCP server did not greet: {0}")]
    Greet(Box<ClientInitializeError>),
    /// There is no MCP server behind this URL, or none that this build can reach.
    #[error("no MCP server answers at {url}: {why}")]
    Reach {
        /// Where it should be, without what may be secret in it.
        url: String,
        /// What is known of the cause.
        why: String,
    },
    /// It did not list its tools.
    #[error("the MCP server did not list its tools: {0}")]
    List(#[from] ServiceError),
}

impl From<ClientInitializeError> for McpError {
    fn from(error: ClientInitializeError) -> Self {
        Self::Greet(Box::new(error))
    }
}

/// A connection to an MCP server. It lasts as long as this, or one of its tools, is kept.
#[derive(Clone)]
pub struct Server {
    link: Link,
    prefix: String,
    effects: BTreeMap<String, Effect>,
    terms: Terms,
}

impl Server {
    /// A server that is a process of its own and speaks on its input and output.
    ///
    /// # Errors
    /// See [`McpError`].
    pub async fn stdio(command: Command) -> Result<Self, McpError> {
        Self::over(TokioChildProcess::new(command)?).await
    }

    /// A server behind HTTP, in the clear.
    ///
    /// A call is sent once: not again over another connection, nor in another session, nor to
    /// where the server redirects it. So that a server that is down, or has started anew, leaves
    /// no doubt, it is asked for a sign of life before every call; if it does not know the session
    /// any more, another one is begun first.
    ///
    /// # Errors
    /// See [`McpError`].
    #[cfg(feature = "http")]
    pub async fn http(url: &str) -> Result<Self, McpError> {
        Ok(Self::with(Link::renewed(crate::http::Place::new(url)?).await?))
    }

    /// A server behind any transport of `rmcp`.
    ///
    /// # Errors
    /// See [`McpError`].
    pub async fn over<T, E, A>(transport: T) -> Result<Self, McpError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        Ok(Self::with(Link::fixed(().serve(transport).await?)))
    }

    fn with(link: Link) -> Self {
        Self { link, prefix: String::new(), effects: BTreeMap::new(), terms: Terms::new() }
    }

    /// Puts this before the name of every tool, so that two servers do not collide. Never change
    /// it: names are part of the operation keys.
    #[must_use]
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Says what a tool does to the world, whatever the server hints.
    #[must_use]
    pub fn effect(mut self, tool: impl Into<String>, effect: Effect) -> Self {
        self.effects.insert(tool.into(), effect);
        self
    }

    /// What else is said of all its tools.
    #[must_use]
    pub fn terms(mut self, terms: Terms) -> Self {
        self.terms = terms;
        self
    }

    /// Its tools, as it lists them now.
    ///
    /// # Errors
    /// See [`McpError`].
    pub async fn tools(&self) -> Result<Vec<DynTool>, McpError> {
        let listed = self.link.ready().await?.list_all_tools().await?;
        let made = listed.into_iter().map(|listed| {
            let effect = self.effects.get(&*listed.name).copied();
            let effect =
                effect.unwrap_or_else(|| tool::effect_of_hints(listed.annotations.as_ref()));
            tool::made(&self.link, &self.prefix, &listed, effect, self.terms.clone())
        });
        Ok(made.collect())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
