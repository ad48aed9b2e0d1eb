//! Plays a script: `model-script SCRIPT.json [PORT]`. Says where on its first line of output.

use std::{env, error::Error, fs, io::Write};

use deedbook_model_script::{Script, serve};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let path = arguments.next().ok_or("usage: model-script SCRIPT.json [PORT]")?;
    let port = arguments.next().map_or(Ok(0), |port| port.parse())?;
    let script: Script = serde_json::from_str(&fs::read_to_string(path)?)?;
    let server = serve(script, port).await?;
    writeln!(std::io::stdout(), "{}", server.url())?;
    std::io::stdout().flush()?;
    server.forever().await;
    Ok(())
}
