//! G14: secrets never reach the journal, an error, or a log: S75, B18.

use std::sync::{Arc, Mutex};

use deedbook::{Context, Deedbook, Result, Secret, Status, StepError};
use harness::{code::Code, outside::Outside};

const CANARY: &str = "canary-8f1c2e";

#[derive(serde::Serialize)]
struct Login<'a> {
    user: &'a str,
    token: Secret<String>,
}

/// A workflow whose step is given this token.
fn login(outside: &Outside, token: String) -> Code {
    Code::new(outside, move |ctx: Context, outside| {
        let token = token.clone();
        async move {
            let login = Login { user: "ada", token: Secret::new(token) };
            let step = ctx.step("login").by_arguments().idempotent();
            let failed: Result<u32> = step
                .run(&login, async |op| {
                    assert!(login.token.expose().starts_with("canary"));
                    outside.send(op).await?;
                    let why = format!("{:?} of {} was refused", login.token, login.user);
                    Err(StepError::new(why).terminal())
                })
                .await;
            let error = failed.unwrap_err().to_string();
            assert!(error.contains("[secret] of ada"), "{error}");
            ctx.approval("go on", &login).await?;
            Ok(vec![])
        }
    })
}

#[tokio::test]
async fn s75_b18_a_secret_is_in_no_file_no_error_and_no_trace() {
    let heard = Heard::default();
    // With one listener only, a place in the code that a thread without it comes by first is held
    // to interest nobody; with two, all are asked.
    let _second = tracing::Dispatch::new(Heard::default());
    let _listening = tracing::subscriber::set_default(heard.clone());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.redb");
    let outside = Outside::default();
    let code = login(&outside, CANARY.to_owned());
    let book = Deedbook::create(&path).host(code).start().await.unwrap();
    book.spawn::<Code>("t", ()).await.unwrap();
    // The request is there as soon as the step is over; a thread that stopped says why.
    while let Err(error) = book.decide("t", "go on#0", true, "user:a", "").await {
        let row = book.status("t").await.unwrap().unwrap().row;
        assert_ne!(row.status, Status::Stalled, "{error}: {row:?}");
        tokio::task::yield_now().await;
    }
    book.wait::<Code>("t").await.unwrap();
    book.shutdown().await.unwrap();
    let mut recorded = false;
    for file in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        recorded |= find(&bytes, b"[secret]");
        assert!(!find(&bytes, CANARY.as_bytes()), "the secret is in a file");
    }
    assert!(recorded, "the step was not recorded at all");
    let heard = heard.0.lock().unwrap().clone();
    assert!(heard.contains("login"), "nothing was traced: {heard}");
    assert!(!heard.contains(CANARY));
    assert_eq!(outside.keys(), 1);

    // A token that was renewed is no other call.
    let code = login(&outside, format!("{CANARY}-2"));
    let book = Deedbook::open(&path).host(code).start().await.unwrap();
    book.wait::<Code>("t").await.unwrap();
    assert_eq!(outside.sent().len(), 1);
    book.shutdown().await.unwrap();
}

fn find(bytes: &[u8], what: &[u8]) -> bool {
    bytes.windows(what.len()).any(|w| w == what)
}

/// Writes down everything that is traced.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<String>>);

impl tracing::field::Visit for Heard {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        use std::fmt::Write;
        let mut heard = self.0.lock().unwrap();
        writeln!(heard, "{field}={value:?}").unwrap();
    }
}

impl tracing::Subscriber for Heard {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}
