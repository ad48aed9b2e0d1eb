//! Connections that nobody reads along, to whom a certificate names.

use std::{fmt, io, sync::Arc};

use deedbook_agent::ModelError;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        CertificateError, ClientConfig, Error, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use crate::connection::broken;

/// Who may sign certificates: those that Mozilla trusts, and those that are added.
#[derive(Clone)]
pub(crate) struct Roots(Arc<RootCertStore>);

impl Default for Roots {
    fn default() -> Self {
        let roots = webpki_roots::TLS_SERVER_ROOTS.to_vec();
        Self(Arc::new(RootCertStore { roots }))
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} roots", self.0.len())
    }
}

impl Roots {
    /// Adds the certificates of this text, or says why it has none.
    pub(crate) fn add(&mut self, pem: &[u8]) -> Result<(), String> {
        let certificates: Result<Vec<CertificateDer<'_>>, _> =
            CertificateDer::pem_slice_iter(pem).collect();
        let certificates = certificates.map_err(|error| error.to_string())?;
        if certificates.is_empty() {
            return Err("it holds no `-----BEGIN CERTIFICATE-----`".to_owned());
        }
        // The bundle of a system may hold some that are beyond this library: never all.
        match Arc::make_mut(&mut self.0).add_parsable_certificates(certificates) {
            (0, unfit) => Err(format!("none of its {unfit} certificates can be read")),
            _ => Ok(()),
        }
    }
}

/// Nothing is sent before the other side has shown that it is the host.
pub(crate) async fn secured(
    roots: &Roots,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, ModelError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(broken)?
        .with_root_certificates(roots.0.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).map_err(broken)?;
    let connected = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    connected.map_err(|error| ModelError::Connection(refused(host, &error)))
}

fn refused(host: &str, error: &io::Error) -> String {
    let tls = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    let why = match tls {
        Some(Error::InvalidCertificate(why)) => {
            let hint = match why {
                CertificateError::UnknownIssuer => {
                    "; `OpenAi::root_certificates` or SSL_CERT_FILE adds who signed it"
                }
                _ => "",
            };
            format!("its certificate is not accepted: {why}{hint}")
        }
        Some(Error::InvalidMessage(_)) => {
            format!("it does not speak TLS, so the base URL may be http: {error}")
        }
        _ => error.to_string(),
    };
    format!("no request was sent to {host}: {why}")
}
