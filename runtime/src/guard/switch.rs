//! Whether guards are on, as this process knows it.

use deedbook_journal::{
    checkpointer::Checkpointer,
    guard::{self, Off},
};
use tokio::sync::Mutex;

use super::CallError;

/// What this process knows of the journal's switch.
#[derive(Debug, Default)]
pub(crate) struct Switch(Mutex<guard::Switch>);

impl Switch {
    /// Whether guards are off, and who turned them off.
    pub(crate) async fn off(&self, home: &dyn Checkpointer) -> Result<Option<Off>, CallError> {
        Ok(self.0.lock().await.look(home).await?.cloned())
    }
}
