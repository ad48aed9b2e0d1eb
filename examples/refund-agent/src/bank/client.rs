//! The agent's side of the wire.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, Uri};
use serde::de::DeserializeOwned;

use super::connection::{Connections, Unanswered};
use super::error::{BadAddress, BankError};
use super::ledger::Summary;
use super::wire::{
    Found, IDEMPOTENCY_KEY, IN_FLIGHT, Instruction, Problem, REFUND_APPLIED, Receipt,
};
use super::{key, percent};
use crate::requests::Refund;

/// How long a call may take, unless [`Bank::with_timeout`] says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A bank, as its client sees it. Clones share their connections.
///
/// It never retries by itself: whether a call may be sent again is the caller's policy. Its
/// futures need a tokio runtime with I/O and time; dropped after the request was sent, they leave
/// the caller as ignorant as a timeout does.
///
/// ```no_run
/// # async fn pay(refund: &refund_agent::requests::Refund) -> Result<(), Box<dyn std::error::Error>> {
/// use refund_agent::bank::{Bank, BankError};
///
/// let bank = Bank::new("http://127.0.0.1:8080")?;
/// match bank.refund(refund, "rq-1/pay#0", &refund.id).await {
///     Ok(receipt) => println!("executed as {}", receipt.id),
///     Err(BankError::Ambiguous { cause }) => println!("in doubt: {cause}"),
///     Err(error) => println!("not refunded: {error}"),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Bank {
    authority: Arc<str>,
    connections: Arc<Connections>,
    timeout: Duration,
}

impl Bank {
    /// A bank at an address such as `http://127.0.0.1:8080`. Connects at the first call.
    ///
    /// # Errors
    ///
    /// [`BadAddress`] for anything but `http://HOST[:PORT][/]`.
    pub fn new(base_url: impl AsRef<str>) -> Result<Self, BadAddress> {
        let text = base_url.as_ref().trim();
        let bad = || BadAddress { address: text.to_owned() };
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let authority = uri.authority().ok_or_else(bad)?;
        let is_bare = uri.query().is_none() && matches!(uri.path(), "" | "/");
        if uri.scheme_str() != Some("http") || !is_bare || authority.as_str().contains('@') {
            return Err(bad());
        }
        // In an address IPv6 stands in brackets, for the resolver it must not.
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let port = authority.port_u16().unwrap_or(80);
        Ok(Self {
            authority: authority.as_str().into(),
            connections: Arc::new(Connections::new(host, port)),
            timeout: TIMEOUT,
        })
    }

    /// The same bank, with calls that may take so long (10 s unless said).
    #[must_use]
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Orders a refund, once.
    ///
    /// `key` goes into `Idempotency-Key` and should be the operation key: equal on every attempt.
    /// `reference` is the name by which [`Bank::find`] finds the refund.
    ///
    /// # Errors
    ///
    /// Every variant of [`BankError`]; [`BankError::Ambiguous`] means that money may have moved.
    pub async fn refund(
        &self,
        refund: &Refund,
        key: &str,
        reference: &str,
    ) -> Result<Receipt, BankError> {
        let instruction = Instruction {
            order: refund.order.clone(),
            customer: refund.customer.clone(),
            amount_minor: refund.amount_minor,
            currency: refund.currency.code().to_owned(),
            reason: refund.reason.clone(),
            reference: reference.to_owned(),
        };
        let key = key::to_header(key)
            .map_err(|what| BankError::Unsendable { cause: format!("the key {what}") })?;
        let body = serde_json::to_vec(&instruction).map_err(unsendable)?;
        let request = self
            .request(Method::POST, "/refunds")
            .header(CONTENT_TYPE, "application/json")
            .header(IDEMPOTENCY_KEY, key);
        self.call(request, body).await
    }

    /// The first executed refund with this reference, if there is one. Only a bank in mode
    /// `lookup` answers; others reject with `lookup-not-supported`.
    ///
    /// `None` says that the bank had not executed it when it looked: a request that is still on
    /// its way can change that.
    ///
    /// # Errors
    ///
    /// Any [`BankError`]: nothing was learnt.
    pub async fn find(&self, reference: &str) -> Result<Option<Receipt>, BankError> {
        let path = format!("/refunds?reference={}", percent::encode(reference));
        let found: Found = self.call(self.request(Method::GET, &path), Vec::new()).await?;
        match found.refunds.into_iter().next() {
            Some(receipt) if receipt.reference != reference => Err(BankError::Ambiguous {
                cause: format!("the bank found another reference, {:?}", receipt.reference),
            }),
            found => Ok(found),
        }
    }

    /// The bank's totals.
    ///
    /// # Errors
    ///
    /// Any [`BankError`]: nothing was learnt.
    pub async fn ledger(&self) -> Result<Summary, BankError> {
        self.call(self.request(Method::GET, "/ledger"), Vec::new()).await
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        Request::builder().method(method).uri(path).header(HOST, self.authority.as_ref())
    }

    async fn call<T: DeserializeOwned>(
        &self,
        request: Builder,
        body: Vec<u8>,
    ) -> Result<T, BankError> {
        let request = request.body(Full::new(Bytes::from(body))).map_err(unsendable)?;
        let answer = self.connections.send(request, self.timeout).await;
        let answer = answer.map_err(|unanswered| match unanswered {
            Unanswered::NotSent(cause) => BankError::NotApplied { cause, retry_after: None },
            Unanswered::MaybeSent(cause) => BankError::Ambiguous { cause },
        })?;
        if answer.status().is_success() {
            return serde_json::from_slice(answer.body()).map_err(|error| BankError::Ambiguous {
                cause: format!("the answer cannot be read: {error}"),
            });
        }
        Err(failure(&answer))
    }
}

/// What an answer other than success says about the refund.
fn failure(answer: &Response<Bytes>) -> BankError {
    let status = answer.status().as_u16();
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    let retry_after = header(RETRY_AFTER.as_str())
        .and_then(|seconds| seconds.parse().ok())
        .map(Duration::from_secs);
    let problem: Option<Problem> = serde_json::from_slice(answer.body()).ok();
    let code = problem.as_ref().map_or("", |problem| problem.code()).to_owned();
    let detail = problem.as_ref().map_or_else(
        || answer.status().to_string(),
        |problem| format!("{}: {}", problem.title, problem.detail),
    );
    if header(REFUND_APPLIED) == Some("no") {
        return BankError::NotApplied { cause: detail, retry_after };
    }
    match status {
        409 if code == IN_FLIGHT => BankError::InFlight { retry_after },
        429 => BankError::NotApplied { cause: detail, retry_after },
        // Neither is a word on what happened to an earlier part of the call.
        408 | 409 => BankError::Ambiguous { cause: detail },
        400..=499 => BankError::Rejected { status, code, detail },
        _ => BankError::Ambiguous { cause: format!("status {status}: {detail}") },
    }
}

fn unsendable(cause: impl std::fmt::Display) -> BankError {
    BankError::Unsendable { cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_http() {
        for good in ["http://127.0.0.1:8080", "http://localhost/", " http://[::1]:1\n"] {
            assert!(Bank::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", "127.0.0.1:80", "https://a", "http://a/b", "http://a?b", "http://u@a", "/"]
        {
            assert!(Bank::new(bad).is_err(), "{bad:?}");
        }
    }

    fn failure_of(status: u16, headers: &[(&str, &str)], body: &'static str) -> BankError {
        let mut answer = Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        failure(&answer.body(Bytes::from(body)).unwrap())
    }

    #[test]
    fn only_what_says_so_counts_as_not_applied() {
        let retry = [("retry-after", "7"), ("refund-applied", "no")];
        let error = failure_of(503, &retry, "");
        assert!(matches!(error, BankError::NotApplied { .. }));
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
        for status in [301, 408, 409, 500, 502, 503, 504] {
            let error = failure_of(status, &[("retry-after", "7")], "<html>");
            assert!(matches!(error, BankError::Ambiguous { .. }), "{status}: {error}");
            assert!(!error.is_not_applied() && !error.is_terminal());
        }
        let error = failure_of(404, &[], "<html>");
        assert!(error.is_terminal() && error.is_not_applied());
    }

    #[test]
    fn futures_cross_threads() {
        fn is_send<T: Send>(_: &T) {}
        fn is_shared<T: Send + Sync + Clone + 'static>(_: &T) {}
        let bank = Bank::new("http://127.0.0.1:1").unwrap();
        is_shared(&bank);
        let refund: Refund = serde_json::from_str(
            r#"{"id":"a","order":"o","customer":"c","amount_minor":1,"currency":"EUR","reason":"r"}"#,
        )
        .unwrap();
        is_send(&bank.refund(&refund, "k", "r"));
        is_send(&bank.find("r"));
        is_send(&bank.ledger());
    }
}
