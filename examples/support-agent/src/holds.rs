//! Instants at which a process stops and waits to be killed.

use std::{env, io::Write};

/// The variable that names the instant.
pub const HOLD: &str = "SUPPORT_AGENT_HOLD";

/// The instant at which this process stops.
#[derive(Debug, Clone, Default)]
pub struct Holds(Option<String>);

impl Holds {
    /// What the environment says.
    #[must_use]
    pub fn from_env() -> Self {
        Self(env::var(HOLD).ok().filter(|hold| !hold.is_empty()))
    }

    /// Stops here for ever if this is the instant.
    pub async fn reach(&self, instant: &str) {
        if self.0.as_deref() == Some(instant) {
            let line = serde_json::json!({"held": instant});
            // Nobody reads any more: then nobody kills either.
            let _ = writeln!(std::io::stdout(), "{line}");
            let _ = std::io::stdout().flush();
            std::future::pending::<()>().await;
        }
    }
}
