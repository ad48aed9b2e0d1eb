//! HTTP that sends a request once, and says why it could not.

use std::{error::Error, sync::Arc, time::Duration};

use reqwest::{Client, Url, redirect, retry};
use rmcp::{
    RoleClient, ServiceExt,
    model::{ClientRequest, ErrorCode, PingRequest},
    service::{ClientInitializeError, RunningService, ServiceError},
    transport::{
        DynamicTransportError, StreamableHttpClientTransport,
        common::client_side_sse::ExponentialBackoff,
        streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError},
    },
};
use tokio::time::timeout;

use crate::McpError;

/// How long a connection may take to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// How long a server may take to greet, or to give a sign of life.
const GREET_WITHIN: Duration = Duration::from_secs(30);
/// How often the rest of a stream that broke off is asked for, and how long after the first time.
const RESUMES_MAX: usize = 6;
const RESUME_AFTER: Duration = Duration::from_millis(250);

type Http = StreamableHttpError<reqwest::Error>;

/// Where a server is.
pub(crate) struct Place {
    url: Url,
    client: Client,
}

impl Place {
    pub(crate) fn new(text: &str) -> Result<Self, McpError> {
        let reach = |why: &str| McpError::Reach { url: shown(text), why: why.to_owned() };
        let url = Url::parse(text).map_err(|error| reach(&error.to_string()))?;
        match (url.scheme(), url.host()) {
            ("http", Some(_)) => {}
            ("https", Some(_)) => {
                let why = "it is https: give `Server::over` a transport that speaks TLS";
                return Err(reach(why));
            }
            _ => return Err(reach("it is no http URL; it looks like http://localhost:8000/mcp")),
        }
        let client = Client::builder()
            .connect_timeout(CONNECT_WITHIN)
            // Every request over a connection of its own: one that the server has just closed
            // would leave open whether it was received.
            .pool_max_idle_per_host(0)
            // And once, wherever the answer points.
            .retry(retry::never())
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| reach(&words(&error)))?;
        Ok(Self { url, client })
    }

    fn reach(&self, why: String) -> McpError {
        McpError::Reach { url: shown(self.url.as_str()), why }
    }

    /// Begins a session.
    pub(crate) async fn greet(&self) -> Result<RunningService<RoleClient, ()>, McpError> {
        // A lost session is told to us, instead of sending what was lost with it once more.
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.url.as_str())
            .reinit_on_expired_session(false);
        // Asks for what was answered, and never calls again.
        let mut resumes = ExponentialBackoff::default();
        resumes.max_times = Some(RESUMES_MAX);
        resumes.base_duration = RESUME_AFTER;
        config.retry_config = Arc::new(resumes);
        let transport = StreamableHttpClientTransport::with_client(self.client.clone(), config);
        match timeout(GREET_WITHIN, ().serve(transport)).await {
            Ok(Ok(service)) => Ok(service),
            Ok(Err(ClientInitializeError::TransportError { error, .. })) => {
                Err(self.reach(words(&*error.error)))
            }
            Ok(Err(error)) => Err(self.reach(words(&error))),
            Err(_) => Err(self.reach(format!("it did not greet within {GREET_WITHIN:?}"))),
        }
    }

    /// Whether the server is there and knows the session.
    pub(crate) async fn knows(&self, service: &RunningService<RoleClient, ()>) -> bool {
        let ping = service.send_request(ClientRequest::PingRequest(PingRequest::default()));
        match timeout(GREET_WITHIN, ping).await {
            Ok(Ok(_)) => true,
            // A server that does not know what it must know, but answers in the session.
            Ok(Err(ServiceError::McpError(error))) => error.code == ErrorCode::METHOD_NOT_FOUND,
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

/// A URL without what is often secret in it.
fn shown(text: &str) -> String {
    match Url::parse(text) {
        Ok(url) if url.has_host() => {
            let host = url.host_str().unwrap_or_default();
            let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
            format!("{}://{host}{port}{}", url.scheme(), url.path())
        }
        _ => {
            let path = text.split('?').next().unwrap_or_default();
            format!("{:?}", path.split('@').next_back().unwrap_or_default())
        }
    }
}

/// What an error and its causes say, without the URL, in which a secret may stand.
pub(crate) fn words(error: &(dyn Error + 'static)) -> String {
    let mut said = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        next = error.source();
        if let Some(Http::Client(cause)) = error.downcast_ref::<Http>() {
            // It says what its cause says, and does not name it as such.
            next = Some(cause);
        } else if error.is::<reqwest::Error>() {
            said.extend(error.to_string().split(" for url (").next().map(str::to_owned));
        } else if !wraps(error) {
            said.push(error.to_string());
        }
    }
    said.join(": ")
}

/// Whether it says no more than its cause.
fn wraps(error: &(dyn Error + 'static)) -> bool {
    let sent = error.downcast_ref::<ServiceError>();
    error.is::<DynamicTransportError>() || matches!(sent, Some(ServiceError::TransportSend(_)))
}
