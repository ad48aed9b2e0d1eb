//! A process that is killed between what it does outside and what it records of it.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use deedbook::{CallError, Deedbook, Operation, Resolution, StepError};

use crate::{
    Anyhow,
    bank::{Bank, Receipt},
    tell::{say, told},
};

/// The line by which the child says that the bank has charged.
const CHARGED: &str = "charged";

/// Calls one of the two steps.
async fn call(book: &Deedbook, name: &str, body: impl AsyncBody) -> Result<Receipt, CallError> {
    let order = "order-77";
    match name {
        "subscribe" => {
            book.guard(name).idempotent().call(order, async |op| body.run(op).await).await
        }
        _ => book.guard(name).at_most_once().call(order, async |op| body.run(op).await).await,
    }
}

/// A body, in the child or in the story.
trait AsyncBody: Sync {
    fn run(&self, op: Operation) -> impl Future<Output = Result<Receipt, StepError>> + Send;
}

struct Lives<'a>(&'a str, &'a Bank);
struct Dies<'a>(&'a str, &'a Bank);

impl AsyncBody for Lives<'_> {
    async fn run(&self, op: Operation) -> Result<Receipt, StepError> {
        Ok(self.1.charge(self.0, 900, op.key())?)
    }
}

impl AsyncBody for Dies<'_> {
    async fn run(&self, op: Operation) -> Result<Receipt, StepError> {
        self.1.charge(self.0, 900, op.key())?;
        say(CHARGED);
        // The story kills this process now.
        std::future::pending().await
    }
}

/// The process that is killed, unless somebody was here before.
pub(crate) async fn child(name: &str, journal: &Path) -> Anyhow {
    let bank = Bank::open(journal)?;
    let book = Deedbook::open(journal).holder("svc:doomed").start().await?;
    call(&book, name, Dies(name, &bank)).await?;
    say("recorded");
    Ok(book.shutdown().await?)
}

pub(crate) async fn story(journal: &Path, bank: &Bank) -> Anyhow {
    say("\n11 Killed after the charge, before it was recorded");
    die("subscribe", journal)?;
    bank.read_again()?;
    let book = Deedbook::open(journal).holder("svc:shop").start().await?;
    told(
        "subscribe, sent again, same key",
        bank,
        call(&book, "subscribe", Lives("subscribe", bank)),
    )
    .await;
    book.shutdown().await?;

    say("\n12 The same where the other side knows no keys");
    die("page_doctor", journal)?;
    bank.read_again()?;
    let book = Deedbook::open(journal).holder("svc:shop").start().await?;
    let again = || call(&book, "page_doctor", Lives("page_doctor", bank));
    let first = again().await;
    if let Err(CallError::InDoubt { doubt, .. }) = &first {
        told("page_doctor", bank, async { first.clone() }).await;
        let known = Receipt { number: bank.count(), of: "page_doctor: 900".to_owned() };
        let (thread, step) = (&doubt.thread, &doubt.step);
        let happened = Resolution::happened(&known)?;
        book.resolve(thread, step, happened, "user:ann", "the doctor has called back").await?;
        say(format!("   {:<38} by user:ann: it happened", "settled"));
    }
    told("page_doctor", bank, again()).await;
    Ok(book.shutdown().await?)
}

/// Starts the child, and kills it when the bank has charged.
fn die(name: &str, journal: &Path) -> Anyhow {
    let mut child = Command::new(env::current_exe()?)
        .args(["--child", name])
        .arg(journal)
        .stdout(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().ok_or("the child has no output")?;
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    if line.trim() == CHARGED {
        // SIGKILL: nothing of the child runs after this.
        child.kill()?;
        child.wait()?;
        say(format!("   {name:<38} killed    the bank has charged"));
    } else if !child.wait()?.success() {
        return Err(format!("the child failed: {line}").into());
    }
    Ok(())
}
