//! One request over one connection. Dropping its answer closes the connection.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use deedbook_agent::ModelError;
use http_body_util::{BodyExt, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use crate::tls::{Roots, secured};

/// What drives the connection: it goes on only while somebody waits for the answer.
type Driver = Pin<Box<dyn Future<Output = hyper::Result<()>> + Send>>;

/// An answer that is being received.
pub(crate) struct Answer {
    response: Response<Incoming>,
    driver: Option<Driver>,
    silence: Duration,
}

/// Sends a request, and waits for the head of the answer.
pub(crate) async fn post(
    uri: &Uri,
    roots: &Roots,
    key: Option<&str>,
    body: String,
    connect: Duration,
    silence: Duration,
) -> Result<Answer, ModelError> {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let connected = timeout(connect, TcpStream::connect((host.as_str(), port)));
    let stream = connected.await.map_err(|_| late("no connection", connect))?.map_err(broken)?;
    stream.set_nodelay(true).map_err(broken)?;
    let request = request(uri, key, body)?;
    if secure {
        let stream = timeout(connect, secured(roots, &host, stream));
        let stream = stream.await.map_err(|_| late("no secure connection", connect))??;
        return send(TokioIo::new(stream), request, silence).await;
    }
    send(TokioIo::new(stream), request, silence).await
}

fn request(uri: &Uri, key: Option<&str>, body: String) -> Result<Request<Full<Bytes>>, ModelError> {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let mut request = Request::post(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .header(ACCEPT, "application/json, text/event-stream")
        .header(CONNECTION, "close");
    if let Some(key) = key {
        let mut bearer = hyper::header::HeaderValue::try_from(format!("Bearer {key}"))
            .map_err(|_| ModelError::Rejected("the API key is no header value".to_owned()))?;
        bearer.set_sensitive(true);
        request = request.header(AUTHORIZATION, bearer);
    }
    let request = request.body(Full::new(Bytes::from(body)));
    request.map_err(|error| ModelError::Rejected(error.to_string()))
}

async fn send<S>(
    stream: S,
    request: Request<Full<Bytes>>,
    silence: Duration,
) -> Result<Answer, ModelError>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = http1::handshake(stream).await.map_err(broken)?;
    let mut driver: Option<Driver> = Some(Box::pin(connection));
    let asked = driven(&mut driver, sender.send_request(request));
    let response = timeout(silence, asked).await.map_err(|_| late("no answer", silence))?;
    Ok(Answer { response: response.map_err(broken)?, driver, silence })
}

impl Answer {
    pub(crate) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The next bytes.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, ModelError> {
        loop {
            let frame = driven(&mut self.driver, self.response.frame());
            let frame = timeout(self.silence, frame).await;
            let frame = frame.map_err(|_| late("nothing more came", self.silence))?;
            match frame.transpose().map_err(broken)? {
                None => return Ok(None),
                // Trailers are nothing to a reader of bodies.
                Some(frame) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Ok(Some(bytes));
                    }
                }
            }
        }
    }
}

/// Waits for something of a connection while the connection is driven.
async fn driven<F: Future>(driver: &mut Option<Driver>, wanted: F) -> F::Output {
    let mut wanted = Box::pin(wanted);
    std::future::poll_fn(move |cx: &mut Context<'_>| {
        if let Poll::Ready(done) = wanted.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        let over = driver.as_mut().is_some_and(|driver| driver.as_mut().poll(cx).is_ready());
        if over {
            *driver = None;
            return wanted.as_mut().poll(cx);
        }
        Poll::Pending
    })
    .await
}

pub(crate) fn broken(error: impl std::error::Error) -> ModelError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    ModelError::Connection(text)
}

fn late(what: &str, after: Duration) -> ModelError {
    ModelError::Connection(format!("{what} within {after:?}"))
}
