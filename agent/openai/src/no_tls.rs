//! What stands for TLS in a build without it.

use deedbook_agent::ModelError;
use tokio::net::TcpStream;

/// Nobody is trusted where nothing is secured.
#[derive(Debug, Clone, Default)]
pub(crate) struct Roots {}

pub(crate) async fn secured(_: &Roots, _: &str, _: TcpStream) -> Result<TcpStream, ModelError> {
    Err(ModelError::Rejected("this build has no TLS".to_owned()))
}
