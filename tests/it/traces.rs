//! Traces: stable names, and never a payload.

use std::{
    fmt::{Debug, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use deedbook::{Context, Deedbook, Result, Workflow};
use tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span::{Attributes, Id, Record},
};

/// Writes down every span and event as a line of text.
#[derive(Clone, Default)]
struct Lines {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<AtomicU64>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Lines {
    fn add(&self, what: &str, metadata: &Metadata<'_>, fields: impl FnOnce(&mut Fields<'_>)) {
        let mut line = format!("{what} {} {}", metadata.target(), metadata.name());
        fields(&mut Fields(&mut line));
        self.lines.lock().unwrap().push(line);
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.add("span", span.metadata(), |fields| span.record(fields));
        Id::from_u64(self.spans.fetch_add(1, Ordering::Relaxed) + 1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        self.add("event", event.metadata(), |fields| event.record(fields));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Pays;

impl Workflow for Pays {
    const NAME: &'static str = "pays";
    type Input = String;
    type Output = String;

    async fn run(&self, ctx: Context, card: &String) -> Result<String> {
        let seen =
            ctx.step("look").read().run(card, async |_| Ok("canary-look".to_owned())).await?;
        ctx.step("pay").idempotent().run(&seen, async |_| Ok("canary-paid".to_owned())).await
    }
}

#[test]
fn spans_and_fields_have_stable_names_and_no_payload_is_in_them() {
    let lines = Lines::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // With a single subscriber in the process, a place that speaks first on another thread (a
    // test beside this one) asks that thread's subscriber, finds none, and is silent for ever.
    let _second = tracing::Dispatch::new(Lines::default());
    tracing::subscriber::with_default(lines.clone(), || {
        runtime.block_on(async {
            let book = Deedbook::memory().host(Pays).start().await.unwrap();
            book.run::<Pays>("t-1", "canary-card".into()).await.unwrap();
            book.shutdown().await.unwrap();
        });
    });
    let lines = lines.lines.lock().unwrap().clone();
    let text = lines.join("\n");
    assert!(!text.contains("canary"), "{text}");
    let found = |parts: &[&str]| lines.iter().any(|l| parts.iter().all(|p| l.contains(p)));
    assert!(
        found(&[
            "span deedbook",
            " step ",
            "thread=t-1",
            "step=pay#0",
            "operation_key=\"dk1_",
            "attempt=1"
        ]),
        "{text}"
    );
    assert!(found(&["step=look#0", "operation_key=\"\"", "attempt=1"]), "{text}");
    assert!(
        found(&["outcome delivered", "step=pay#0", "replayed=false", "durable=false"]),
        "{text}"
    );
    assert!(found(&["thread ended", "thread=t-1", "status=done"]), "{text}");
}
