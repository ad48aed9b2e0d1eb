//! HTTP in, HTTP out.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use tokio::sync::mpsc;

use super::desk::{Answer, Desk};
use super::ledger::Settlement;
use super::server::Mode;
use super::wire::{
    Found, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, IN_FLIGHT, Instruction, PROBLEM_JSON, Problem,
    REFUND_APPLIED,
};
use super::{key, percent, rules};

/// The largest request body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a client may take to send a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// What clients are asked to wait, in seconds; HTTP knows no smaller unit.
const RETRY_AFTER_S: HeaderValue = HeaderValue::from_static("1");

type Reply = Response<Full<Bytes>>;

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the answer is lost, as asked")]
pub(super) struct Lost;

/// Answers one request.
pub(super) async fn answer(
    desk: &Arc<Desk>,
    mode: Mode,
    running: mpsc::Sender<()>,
    request: Request<Incoming>,
) -> Result<Reply, Lost> {
    let known = match request.uri().path() {
        "/refunds" if request.method() == Method::POST => {
            return match read_refund(mode, request).await {
                Ok((instruction, key)) => reply(desk.refund(instruction, key, running).await),
                Err(problem) => Ok(problem_reply(&problem)),
            };
        }
        "/refunds" if request.method() == Method::GET => {
            return Ok(look_up(desk, mode, request.uri().query()));
        }
        "/ledger" if request.method() == Method::GET => {
            return Ok(json(200, "application/json", &desk.summary()));
        }
        "/refunds" => "GET, POST",
        "/ledger" => "GET",
        _ => {
            let detail = "ask for /refunds or /ledger";
            return Ok(problem_reply(&Problem::new(404, "no-such-page", "no such page", detail)));
        }
    };
    let detail = format!("this page takes {known}");
    let problem = Problem::new(405, "method-not-allowed", "method not allowed", detail);
    Ok(with(problem_reply(&problem), ALLOW, HeaderValue::from_static(known)))
}

/// The instruction and, where keys are honoured, its key.
async fn read_refund(
    mode: Mode,
    request: Request<Incoming>,
) -> Result<(Instruction, Option<String>), Problem> {
    let key = match mode {
        Mode::Keys => Some(read_key(request.headers())?),
        Mode::Lookup | Mode::None => None,
    };
    let is_json = request.headers().get(CONTENT_TYPE).is_some_and(|value| {
        let media_type = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default();
        media_type.trim_ascii().eq_ignore_ascii_case(b"application/json")
    });
    if !is_json {
        let detail = "send the instruction as application/json";
        return Err(Problem::new(415, "not-json", "not JSON", detail));
    }
    let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            let detail = format!("send at most {BODY_BYTES_MAX} bytes, whole");
            return Err(Problem::new(413, "body-too-large", "the body is too large", detail));
        }
        Err(_) => {
            let detail = "send the body faster";
            return Err(Problem::new(408, "body-too-slow", "the body did not arrive", detail));
        }
    };
    let instruction: Instruction = serde_json::from_slice(&body).map_err(|error| {
        Problem::new(400, "bad-instruction", "not an instruction", error.to_string())
    })?;
    rules::well_formed(&instruction)?;
    Ok((instruction, key))
}

fn read_key(headers: &HeaderMap) -> Result<String, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else {
        return Err(Problem::new(
            400,
            "idempotency-key-required",
            "Idempotency-Key is missing",
            "send one, as a string in double quotes, and the same one on every retry",
        ));
    };
    let key = match values.next() {
        None => key::from_header(value.as_bytes()),
        Some(_) => Err("stands there twice"),
    };
    key.map_err(|what| {
        let title = "Idempotency-Key is malformed";
        let detail =
            format!("it {what}: send 1 to 255 printable ASCII characters in double quotes");
        Problem::new(400, "idempotency-key-malformed", title, detail)
    })
}

fn look_up(desk: &Desk, mode: Mode, query: Option<&str>) -> Reply {
    if mode != Mode::Lookup {
        let detail = "this bank was not started with --mode lookup";
        let title = "this bank has no look-up";
        return problem_reply(&Problem::new(404, "lookup-not-supported", title, detail));
    }
    let reference = query.and_then(|query| query.strip_prefix("reference="));
    let reference = reference.filter(|text| !text.contains('&')).and_then(percent::decode);
    match reference {
        Some(reference) => {
            let refunds = desk.with_reference(&reference);
            json(200, "application/json", &Found { refunds })
        }
        None => {
            let detail = "ask for /refunds?reference=R, with R percent-encoded";
            problem_reply(&Problem::new(400, "bad-lookup", "not a look-up", detail))
        }
    }
}

fn reply(answer: Answer) -> Result<Reply, Lost> {
    let retry = |problem| with(problem_reply(&problem), RETRY_AFTER, RETRY_AFTER_S);
    Ok(match answer {
        Answer::Settled { settlement, replayed } => {
            let reply = match settlement {
                Settlement::Refunded(receipt) => json(201, "application/json", &receipt),
                Settlement::Rejected(problem) => problem_reply(&problem),
            };
            if replayed {
                let name = HeaderName::from_static(IDEMPOTENT_REPLAYED);
                with(reply, name, HeaderValue::from_static("true"))
            } else {
                reply
            }
        }
        Answer::InFlight => retry(Problem::new(
            409,
            IN_FLIGHT,
            "a call with this key is at work",
            "wait, then send the same call again",
        )),
        Answer::KeyReused => problem_reply(&Problem::new(
            422,
            "idempotency-key-reused",
            "this key came with another payload",
            "use a key of its own for every refund",
        )),
        Answer::Unavailable => {
            let detail = "nothing was done: send the same call again";
            let problem = Problem::new(503, "unavailable", "the bank is busy", detail);
            let name = HeaderName::from_static(REFUND_APPLIED);
            with(retry(problem), name, HeaderValue::from_static("no"))
        }
        Answer::Failed(cause) => {
            let title = "whether it was executed is not known";
            problem_reply(&Problem::new(500, "ledger-failed", title, cause))
        }
        Answer::Lost => return Err(Lost),
    })
}

fn problem_reply(problem: &Problem) -> Reply {
    json(problem.status, PROBLEM_JSON, problem)
}

fn json<T: Serialize>(status: u16, media_type: &'static str, value: &T) -> Reply {
    let (status, body) = match (StatusCode::from_u16(status), serde_json::to_vec(value)) {
        (Ok(status), Ok(body)) => (status, body),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    };
    let mut reply = Response::new(Full::new(Bytes::from(body)));
    *reply.status_mut() = status;
    with(reply, CONTENT_TYPE, HeaderValue::from_static(media_type))
}

fn with(mut reply: Reply, name: HeaderName, value: HeaderValue) -> Reply {
    reply.headers_mut().insert(name, value);
    reply
}
