//! The child: lives until its point, or until the workflow has ended.

use std::{
    collections::HashMap,
    env,
    path::Path,
    process::{Command, exit},
    sync::{Arc, Mutex},
    time::Duration,
};

use deedbook::{
    Context, Deedbook, ErrorKind, Operation, PolicyKind, Probe, Resolution, Result, Retry, Step,
    StepError, Workflow,
};
use deedbook_journal::{
    checkpointer::{Append, BoxFuture},
    embedded::{CreateOptions, Embedded, OpenError, OpenOptions},
};
use harness::watched::{Hook, Place, Watched};

use super::{IN_DOUBT, TOLD, ledger::Ledger};

/// The thread.
pub(super) const THREAD: &str = "order-1";

/// The point at which this process dies.
#[derive(Debug)]
struct Marks {
    point: String,
    counts: Mutex<HashMap<&'static str, u32>>,
}

impl Marks {
    /// Dies here, if this is the point.
    fn at(&self, name: &str) {
        if name == self.point {
            let pid = std::process::id().to_string();
            Command::new("kill").args(["-KILL", &pid]).status().unwrap();
            loop {
                std::thread::park();
            }
        }
    }

    fn counted(&self, name: &'static str) -> u32 {
        let mut counts = self.counts.lock().unwrap();
        let count = counts.entry(name).or_insert(0);
        *count += 1;
        *count
    }

    fn appended(&self, group: &[Append]) {
        let count = *self.counts.lock().unwrap().get("append").unwrap();
        self.at(&format!("after append {count}"));
        for append in group {
            let detail = append.row.detail.as_deref().unwrap_or_default();
            for (begins, point) in
                [("signal", "waiting"), ("timer", "sleeping"), ("next attempt", "retry wait")]
            {
                if detail.starts_with(begins) {
                    self.at(point);
                }
            }
        }
    }
}

impl Hook for Marks {
    fn at<'a>(&'a self, place: Place<'a>) -> BoxFuture<'a, ()> {
        match place {
            Place::Append(_) => {
                let count = self.counted("append");
                self.at(&format!("before append {count}"));
            }
            Place::Appended(group) => self.appended(group),
            Place::Claim => self.at(&format!("claim {}", self.counted("claim"))),
            Place::Read => self.at(&format!("read {}", self.counted("read"))),
            Place::Post => self.at("post"),
            Place::Close => self.at("close"),
            Place::Closed => self.at("closed"),
        }
        Box::pin(std::future::ready(()))
    }
}

#[derive(Debug, Clone)]
struct Agent {
    marks: Arc<Marks>,
    ledger: Ledger,
    policy: PolicyKind,
}

impl Workflow for Agent {
    const NAME: &'static str = "agent";
    type Input = u32;
    type Output = (String, String);

    async fn run(&self, ctx: Context, amount: &u32) -> Result<(String, String)> {
        let assess = ctx.step("assess").read();
        let amount = assess.run(amount, async |_| Ok(*amount)).await?;
        let paid = self.effect(ctx.step("pay"), "pay", amount).await?;
        let () = ctx.signal("go").await?;
        ctx.sleep("settle", Duration::from_millis(20)).await?;
        let mailed = self.effect(ctx.step("mail"), "mail", amount).await?;
        Ok((paid, mailed))
    }
}

impl Agent {
    /// A step with an effect, under the policy of this run.
    async fn effect(
        &self,
        step: Step<deedbook::NoPolicy>,
        name: &'static str,
        amount: u32,
    ) -> Result<String> {
        let first = Duration::from_millis(30);
        let step = step.timeout(Duration::from_secs(5)).retry(Retry::attempts(9).first(first));
        let body = async |op: Operation| self.body(name, op.key(), op.attempt());
        match self.policy {
            PolicyKind::Idempotent => step.idempotent().run(&amount, body).await,
            PolicyKind::AtMostOnce => step.at_most_once().run(&amount, body).await,
            PolicyKind::Reconcile => {
                let step = step.reconcile(async |op: Operation| self.probe(name, op.key()));
                step.quiet(Duration::from_millis(10)).run(&amount, body).await
            }
            PolicyKind::Read => {
                let step = step.read();
                step.run(&amount, async |a| self.body(name, "", a.number())).await
            }
        }
    }

    fn body(&self, name: &str, key: &str, attempt: u32) -> Result<String, StepError> {
        self.ledger.runs(name, attempt);
        self.marks.at(&format!("{name} before effect"));
        if self.marks.point == "retry wait" && attempt == 1 {
            return Err(StepError::new("connection reset"));
        }
        self.ledger.effect(name, key, self.policy == PolicyKind::Idempotent);
        self.marks.at(&format!("{name} after effect"));
        Ok(key.to_owned())
    }

    fn probe(&self, name: &str, key: &str) -> Result<Probe<String>, StepError> {
        self.marks.at(&format!("{name} before probe"));
        let happened = self.ledger.has(key);
        self.marks.at(&format!("{name} after probe"));
        Ok(match happened {
            true => Probe::Happened(key.to_owned()),
            false => Probe::DidNotHappen,
        })
    }
}

/// One life, if this process is a child; otherwise nothing.
#[test]
fn lives() {
    let told = TOLD.map(|name| env::var(name).ok());
    let [Some(folder), Some(policy), Some(point), Some(resolve)] = told else {
        return;
    };
    let marks = Arc::new(Marks { point, counts: Mutex::default() });
    let folder = Path::new(&folder);
    let agent = Agent {
        marks,
        ledger: Ledger::in_folder(folder),
        policy: PolicyKind::from_word(&policy).unwrap(),
    };
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
    let code = runtime.block_on(live(agent, folder, !resolve.is_empty()));
    exit(code);
}

async fn live(agent: Agent, folder: &Path, resolve: bool) -> i32 {
    let marks = agent.marks.clone();
    let home = open(&folder.join("journal.redb"));
    marks.at("open");
    let store = Watched::new(Arc::new(home), marks.clone());
    let book = Deedbook::on(store).host(agent.clone()).start().await.unwrap();
    book.spawn::<Agent>(THREAD, 42).await.unwrap();
    if resolve {
        say_what_happened(&book, &agent.ledger).await;
    }
    if marks.point != "waiting" {
        // Once the thread has ended nobody takes it any more.
        let _ = book.signal(THREAD, "go", &()).await;
    }
    match book.run::<Agent>(THREAD, 42).await {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InDoubt => return IN_DOUBT,
        Err(error) => panic!("{error}"),
    }
    marks.at("answer");
    book.shutdown().await.unwrap();
    0
}

fn open(path: &Path) -> Embedded {
    // The one before may take a moment to be gone.
    let options = OpenOptions::new().wait(Duration::from_secs(5));
    match Embedded::open(path, options.clone()) {
        Ok(home) => home,
        Err(OpenError::NotFound { .. }) => {
            Embedded::create(path, CreateOptions::new().open(options)).unwrap()
        }
        Err(error) => panic!("{error}"),
    }
}

/// A person looks into the ledger, and says what is there.
async fn say_what_happened(book: &Deedbook, ledger: &Ledger) {
    for (step, name) in [("pay#0", "pay"), ("mail#0", "mail")] {
        let resolution = match ledger.effects(name) {
            0 => Resolution::did_not_happen(),
            _ => Resolution::happened(&name.to_owned()).unwrap(),
        };
        // The other one is not in doubt.
        let _ = book.resolve(THREAD, step, resolution, "user:a", "looked it up").await;
    }
}
