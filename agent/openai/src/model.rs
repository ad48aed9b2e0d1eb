//! The model.

use std::{env, fmt, sync::Arc, time::Duration};

use deedbook::Secret;
use deedbook_agent::{Model, ModelError, Request, Response};
use hyper::{HeaderMap, StatusCode, Uri, header::RETRY_AFTER};
use serde_json::{Map, Value};

use crate::{
    connection::{self, Answer},
    protocol,
    stream::Stream,
    tls::Roots,
};

/// The longest answer.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// How much of an error is kept.
const ERROR_CHARS_MAX: usize = 500;
/// The longest wait that a server may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// A model behind the chat-completions protocol.
#[derive(Clone)]
pub struct OpenAi(Arc<Settings>);

#[derive(Debug, Clone)]
struct Settings {
    endpoint: Uri,
    roots: Roots,
    key: Option<Secret<String>>,
    model: String,
    streams: bool,
    more: Map<String, Value>,
    connect: Duration,
    silence: Duration,
}

/// Why a model cannot be reached at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Misfit {
    /// The base URL is none.
    #[error("{0:?} is no base URL; it looks like https://api.example.org/v1")]
    Url(String),
    /// The base URL is `https`, and this build cannot.
    #[error("{0:?} needs the feature `tls` of deedbook-openai")]
    NoTls(String),
    /// No root certificate was found where one should be.
    #[error("no root certificate can be taken from {from}: {why}")]
    Roots {
        /// Where.
        from: String,
        /// What is there instead.
        why: String,
    },
}

impl OpenAi {
    /// The model of this name at this base URL, such as `http://127.0.0.1:8080/v1`.
    ///
    /// # Errors
    /// See [`Misfit`].
    pub fn new(base: &str, model: impl Into<String>) -> Result<Self, Misfit> {
        let endpoint = format!("{}/chat/completions", base.trim_end_matches('/'));
        let endpoint: Uri = endpoint.parse().map_err(|_| Misfit::Url(base.to_owned()))?;
        match (endpoint.scheme_str(), endpoint.host()) {
            (Some("http"), Some(_)) => {}
            (Some("https"), Some(_)) if cfg!(feature = "tls") => {}
            (Some("https"), Some(_)) => return Err(Misfit::NoTls(base.to_owned())),
            _ => return Err(Misfit::Url(base.to_owned())),
        }
        Ok(Self(Arc::new(Settings {
            endpoint,
            roots: Roots::default(),
            key: None,
            model: model.into(),
            streams: true,
            more: Map::new(),
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(120),
        })))
    }

    /// What `OPENAI_BASE_URL`, `OPENAI_API_KEY` and `OPENAI_MODEL` say; without a base URL it is
    /// OpenAI's own. For `https`, the certificates in the file that `SSL_CERT_FILE` names are
    /// trusted as well, as by `root_certificates_file`.
    ///
    /// # Errors
    /// See [`Misfit`].
    pub fn from_env() -> Result<Self, Misfit> {
        let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let base = set("OPENAI_BASE_URL").unwrap_or_else(|| "https://api.openai.com/v1".to_owned());
        let model = set("OPENAI_MODEL").unwrap_or_else(|| "gpt-4o-mini".to_owned());
        let made = Self::new(&base, model)?;
        #[cfg(feature = "tls")]
        let made = match env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty()) {
            Some(path) if made.0.endpoint.scheme_str() == Some("https") => {
                made.root_certificates_file(path)?
            }
            _ => made,
        };
        Ok(match set("OPENAI_API_KEY") {
            Some(key) => made.key(key),
            None => made,
        })
    }

    fn with(mut self, set: impl FnOnce(&mut Settings)) -> Self {
        set(Arc::make_mut(&mut self.0));
        self
    }

    /// The key that is sent as a bearer token. It is in no record and no message.
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        let key = Secret::new(key.into());
        self.with(|settings| settings.key = Some(key))
    }

    /// Trusts these root certificates too, beside those that Mozilla trusts: PEM, as many as there
    /// are. For a server, or a proxy on the way to it, whose certificate a private CA has signed.
    ///
    /// # Errors
    /// [`Misfit::Roots`] if there is none.
    #[cfg(feature = "tls")]
    pub fn root_certificates(self, pem: impl AsRef<[u8]>) -> Result<Self, Misfit> {
        self.trusting("the given PEM", pem.as_ref())
    }

    /// Trusts the root certificates in this file too; see
    /// [`root_certificates`](Self::root_certificates). It is read once, now.
    ///
    /// # Errors
    /// [`Misfit::Roots`] if it cannot be read, or there is none in it.
    #[cfg(feature = "tls")]
    pub fn root_certificates_file(self, path: impl AsRef<std::path::Path>) -> Result<Self, Misfit> {
        let from = path.as_ref().display().to_string();
        match std::fs::read(path) {
            Ok(pem) => self.trusting(&from, &pem),
            Err(error) => Err(Misfit::Roots { from, why: error.to_string() }),
        }
    }

    #[cfg(feature = "tls")]
    fn trusting(self, from: &str, pem: &[u8]) -> Result<Self, Misfit> {
        let mut roots = self.0.roots.clone();
        roots.add(pem).map_err(|why| Misfit::Roots { from: from.to_owned(), why })?;
        Ok(self.with(|settings| settings.roots = roots))
    }

    /// Whether answers are asked for piece by piece. Default: yes.
    #[must_use]
    pub fn streams(self, streams: bool) -> Self {
        self.with(|settings| settings.streams = streams)
    }

    /// Sends this member with every request, such as `temperature`.
    #[must_use]
    pub fn option(self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        let (name, value) = (name.into(), value.into());
        self.with(|settings| {
            settings.more.insert(name, value);
        })
    }

    /// How long a connection may take to be made. Default 10 s.
    #[must_use]
    pub fn connect_within(self, time: Duration) -> Self {
        self.with(|settings| settings.connect = time)
    }

    /// How long the server may say nothing. Default 2 minutes. How long a whole answer may take
    /// is the agent's `model_timeout`.
    #[must_use]
    pub fn silent_for(self, time: Duration) -> Self {
        self.with(|settings| settings.silence = time)
    }

    async fn ask(&self, request: Request) -> Result<Response, ModelError> {
        let settings = &*self.0;
        let body = protocol::request(
            &settings.model,
            &request.messages,
            &request.tools,
            settings.streams,
            &settings.more,
        );
        let key = settings.key.as_ref().map(|key| key.expose().as_str());
        let made = connection::post(
            &settings.endpoint,
            &settings.roots,
            key,
            body.to_string(),
            settings.connect,
            settings.silence,
        );
        let mut answer = made.await?;
        if !answer.status().is_success() {
            return Err(self.refused(answer).await);
        }
        let kind = answer.headers().get(hyper::header::CONTENT_TYPE);
        let streamed = kind.and_then(|kind| kind.to_str().ok());
        if streamed.is_some_and(|kind| kind.starts_with("text/event-stream")) {
            let mut stream = Stream::new(ANSWER_BYTES_MAX);
            while let Some(bytes) = answer.next().await? {
                stream.take(&bytes, &request.pieces)?;
                if stream.is_done() {
                    break;
                }
            }
            return stream.end();
        }
        let response = protocol::whole(&whole(&mut answer, ANSWER_BYTES_MAX).await?)?;
        request.pieces.say(&response.text);
        Ok(response)
    }

    async fn refused(&self, mut answer: Answer) -> ModelError {
        let (status, after) = (answer.status(), retry_after(answer.headers()));
        let text = whole(&mut answer, 1 << 20).await.unwrap_or_default();
        let why = format!("{status}: {}", self.shown(&protocol::error(&text)));
        match status {
            StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS => {
                ModelError::Busy { why, after }
            }
            status if status.is_server_error() => ModelError::Busy { why, after },
            _ => ModelError::Rejected(why),
        }
    }

    /// A server's words, without the key, which some servers repeat.
    fn shown(&self, text: &str) -> String {
        let text = match &self.0.key {
            Some(key) if !key.expose().is_empty() => {
                text.replace(key.expose().as_str(), "[secret]")
            }
            _ => text.to_owned(),
        };
        text.chars().take(ERROR_CHARS_MAX).collect()
    }
}

async fn whole(answer: &mut Answer, most: usize) -> Result<Vec<u8>, ModelError> {
    let mut bytes = Vec::new();
    while let Some(more) = answer.next().await? {
        bytes.extend_from_slice(&more);
        if bytes.len() > most {
            return Err(ModelError::Malformed(format!("it is longer than {most} bytes")));
        }
    }
    Ok(bytes)
}

/// `Retry-After` in seconds, or a provider's `retry-after-ms`.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |value: &hyper::header::HeaderValue| value.to_str().ok()?.parse::<f64>().ok();
    let millis = headers.get("retry-after-ms").and_then(number).map(|ms| ms / 1000.0);
    let seconds = millis.or_else(|| headers.get(RETRY_AFTER).and_then(number))?;
    Duration::try_from_secs_f64(seconds).ok().map(|after| after.min(RETRY_AFTER_MAX))
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.0.model
    }

    async fn respond(&self, request: Request) -> Result<Response, ModelError> {
        self.ask(request).await
    }
}

impl fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
