use std::time::Duration;

use deedbook::{Context, Deedbook, Result, Workflow};

struct Greet;

impl Workflow for Greet {
    const NAME: &'static str = "greet";
    type Input = String;
    type Output = String;

    async fn run(&self, ctx: Context, name: &String) -> Result<String> {
        let compose = ctx.step("compose").read();
        let greeting = compose
            .run(name, async |_| {
                println!("composing; then it waits for five seconds: kill me");
                Ok(format!("hello, {name}"))
            })
            .await?;
        ctx.sleep("pause", Duration::from_secs(5)).await?;
        let send = ctx.step("send").idempotent();
        send.run(&greeting, async |op| {
            println!("sending {greeting:?} under {}", op.key());
            Ok(())
        })
        .await?;
        Ok(greeting)
    }
}

#[tokio::main]
async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let book = Deedbook::open_or_create("greetings.redb").host(Greet).start().await?;
    let greeting = book.run::<Greet>("greeting-1", "Ada".into()).await?;
    println!("{greeting}");
    Ok(book.shutdown().await?)
}
