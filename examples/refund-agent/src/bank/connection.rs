//! Kept connections to one address, and the line between "not sent" and "who knows".

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Connections that are kept for later.
const IDLE_MAX: usize = 64;
/// How long an idle connection is trusted. Shorter than servers keep theirs: a request on a
/// connection that the server is just closing would end ambiguous.
const IDLE_TRUST: Duration = Duration::from_secs(30);

type Body = Full<Bytes>;

/// A request that brought no answer.
#[derive(Debug)]
pub(super) enum Unanswered {
    /// Not a byte of it was written.
    NotSent(String),
    /// It may have arrived.
    MaybeSent(String),
}

/// Connections to one address.
#[derive(Debug)]
pub(super) struct Connections {
    host: String,
    port: u16,
    idle: Mutex<Vec<(Instant, SendRequest<Body>)>>,
}

impl Connections {
    pub(super) fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), port, idle: Mutex::default() }
    }

    /// Sends a request and reads the whole answer.
    ///
    /// Dropped after the request was sent, it closes the connection; the request may have arrived.
    pub(super) async fn send(
        &self,
        mut request: Request<Body>,
        timeout: Duration,
    ) -> Result<Response<Bytes>, Unanswered> {
        let deadline = Instant::now() + timeout;
        loop {
            let connection = timeout_at(deadline, self.connection()).await;
            let mut connection = connection
                .map_err(|_| Unanswered::NotSent(format!("no connection within {timeout:?}")))?
                .map_err(Unanswered::NotSent)?;
            let exchange = async {
                let response = match connection.try_send_request(request).await {
                    Ok(response) => response,
                    Err(mut error) => match error.take_message() {
                        // The kept connection had died, and gives the request back unsent.
                        Some(unsent) => return Ok(Err(unsent)),
                        None => return Err(chain(error.error())),
                    },
                };
                let (head, body) = response.into_parts();
                let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
                let body = body.map_err(|error| chain(error.as_ref()))?.to_bytes();
                Ok(Ok(Response::from_parts(head, body)))
            };
            let exchanged = timeout_at(deadline, exchange).await;
            let exchanged = exchanged
                .map_err(|_| Unanswered::MaybeSent(format!("no answer within {timeout:?}")))?;
            match exchanged.map_err(Unanswered::MaybeSent)? {
                Ok(response) => {
                    self.keep(connection);
                    return Ok(response);
                }
                Err(unsent) => request = unsent,
            }
        }
    }

    async fn connection(&self) -> Result<SendRequest<Body>, String> {
        while let Some(mut kept) = self.take() {
            if kept.ready().await.is_ok() {
                return Ok(kept);
            }
        }
        let fault = |cause: String| format!("connecting to {}:{}: {cause}", self.host, self.port);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| fault(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| fault(error.to_string()))?;
        let (fresh, driver) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| fault(chain(&error)))?;
        drive(driver);
        Ok(fresh)
    }

    fn take(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(since, kept)| since.elapsed() < IDLE_TRUST && !kept.is_closed());
        idle.pop().map(|(_, kept)| kept)
    }

    fn keep(&self, connection: SendRequest<Body>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !connection.is_closed() {
            idle.push((Instant::now(), connection));
        }
    }
}

/// Moves a connection's bytes until its sender is dropped or the server closes it.
#[expect(clippy::disallowed_methods, reason = "a connection's bytes move beside its requests")]
fn drive(driver: http1::Connection<TokioIo<TcpStream>, Body>) {
    tokio::spawn(async move {
        // The request in flight gets the same error.
        let _told_elsewhere = driver.await;
    });
}

/// An error with its causes, as one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
