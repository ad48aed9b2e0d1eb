//! Acts on threads that a program runs, while it runs them.

use std::{sync::Arc, time::Duration};

use deedbook::{Context, Deedbook, Result, Workflow};
use tokio::sync::Notify;

use super::{
    book::{Book, Ran},
    held::eventually,
};

/// Waits for a person, or for a body that ends when the test says so.
#[derive(Clone)]
struct Order {
    go_on: Arc<Notify>,
}

impl Workflow for Order {
    const NAME: &'static str = "order";
    type Input = String;
    type Output = String;

    async fn run(&self, ctx: Context, what: &String) -> Result<String> {
        if what == "busy" {
            let go_on = self.go_on.clone();
            ctx.step("look")
                .read()
                .run(&(), async move |_| {
                    go_on.notified().await;
                    Ok(())
                })
                .await?;
        }
        let days = Duration::from_secs(30 * 24 * 3600);
        let city: String = ctx.signal("city").within(days).await?;
        Ok(city)
    }
}

async fn tool(book: &Book, args: &[&str]) -> Ran {
    let mut command = book.command();
    command.args(args);
    let run = move || Ran::of(command.output().unwrap());
    tokio::task::spawn_blocking(run).await.unwrap()
}

#[test]
fn a_program_takes_up_at_once_what_people_say_with_the_tool() {
    let book = Book::new();
    tokio::runtime::Runtime::new().unwrap().block_on(said_and_taken_up(&book));
    eventually("a closed journal", || book.run(&["verify"]).code == 0);
}

async fn said_and_taken_up(book: &Book) {
    let order = Order { go_on: Arc::new(Notify::new()) };
    // It does not look by itself for as long as this test lasts.
    let program = Deedbook::open(book.path()).host(order.clone());
    let program = program.look_every(Duration::from_secs(3600)).start().await.unwrap();
    let control = deedbook_control::serve(&program).unwrap();

    // Parked: the tool takes hold of the thread, and the program is told when it lets go.
    program.spawn::<Order>("parked", "idle".into()).await.unwrap();
    while program.status("parked").await.unwrap().unwrap().holder.is_some() {
        tokio::task::yield_now().await;
    }
    let ran = tool(book, &["signal", "parked", "city", "\"Bern\""]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let me = format!("(process {}) takes it up", std::process::id());
    assert!(ran.stdout.contains("signal city sent by user:alice (record "), "{}", ran.stdout);
    assert!(ran.stdout.contains(&me), "{}", ran.stdout);
    assert_eq!(program.wait::<Order>("parked").await.unwrap(), "Bern");

    // Held: the run has a body under way, and gives the signal its place meanwhile.
    program.spawn::<Order>("held", "busy".into()).await.unwrap();
    assert!(program.status("held").await.unwrap().unwrap().holder.is_some());
    let ran = tool(book, &["--json", "signal", "held", "city", "\"Biel\""]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let said: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let shown = tool(book, &["--json", "show", "held"]).await;
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    let n = usize::try_from(said["record"].as_u64().unwrap()).unwrap();
    assert_eq!(shown["records"][n]["kind"], "signal", "{shown}");
    // What is under way is not in doubt, and cannot be settled.
    let doubts = tool(book, &["doubts"]).await;
    assert_eq!((doubts.code, doubts.stdout.as_str()), (0, ""), "{}", doubts.stderr);
    let args = ["resolve", "held", "look#0", "--did-not-happen", "--reason", "x"];
    let ran = tool(book, &args).await;
    assert_eq!(ran.code, 1, "{}", ran.stderr);
    order.go_on.notify_one();
    assert_eq!(program.wait::<Order>("held").await.unwrap(), "Biel");

    // Cancelled while it is held, it ends without its result.
    program.spawn::<Order>("unwanted", "busy".into()).await.unwrap();
    let ran = tool(book, &["cancel", "unwanted", "--reason", "withdrawn"]).await;
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    order.go_on.notify_one();
    assert!(program.wait::<Order>("unwanted").await.is_err());
    let ran = tool(book, &["cancel", "unwanted", "--reason", "again"]).await;
    assert!(ran.code == 1 && ran.stderr.contains("ended"), "{}", ran.stderr);

    control.stop().await;
    program.shutdown().await.unwrap();
}
