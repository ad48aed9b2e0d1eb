//! What leads to a server: the session that is, or for HTTP another one where that is gone.

use std::sync::Arc;
#[cfg(feature = "http")]
use std::sync::{Mutex, PoisonError};

use rmcp::{RoleClient, service::RunningService};

use crate::McpError;

pub(crate) type Service = Arc<RunningService<RoleClient, ()>>;

#[derive(Clone)]
pub(crate) enum Link {
    /// What ends, ends.
    Fixed(Service),
    /// A session ends with the server's process, and the next one is as good.
    #[cfg(feature = "http")]
    Renewed(Arc<crate::http::Place>, Arc<Mutex<Service>>),
}

impl Link {
    pub(crate) fn fixed(service: RunningService<RoleClient, ()>) -> Self {
        Self::Fixed(Arc::new(service))
    }

    #[cfg(feature = "http")]
    pub(crate) async fn renewed(place: crate::http::Place) -> Result<Self, McpError> {
        let service = Arc::new(place.greet().await?);
        Ok(Self::Renewed(Arc::new(place), Arc::new(Mutex::new(service))))
    }

    /// A session to send a request in. What fails here has sent nothing of it.
    pub(crate) async fn ready(&self) -> Result<Service, McpError> {
        match self {
            Self::Fixed(service) => Ok(service.clone()),
            #[cfg(feature = "http")]
            Self::Renewed(place, current) => {
                let service = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
                if place.knows(&service).await {
                    return Ok(service);
                }
                // Several at once begin several: the last one is kept, and all of them serve.
                let service = Arc::new(place.greet().await?);
                *current.lock().unwrap_or_else(PoisonError::into_inner) = service.clone();
                Ok(service)
            }
        }
    }
}
