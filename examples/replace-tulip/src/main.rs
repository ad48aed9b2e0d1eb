//! Prints what came of each situation.

use std::{error::Error, io::Write};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mut wrong = 0;
    for seen in replace_tulip::stories::all(folder.path()).await? {
        let mark = if seen.fine { "ok" } else { "WRONG" };
        wrong += u32::from(!seen.fine);
        writeln!(std::io::stdout(), "{mark:<5} {}\n      {}", seen.situation, seen.seen)?;
    }
    if wrong > 0 {
        return Err(format!("{wrong} are not as they should be").into());
    }
    Ok(())
}
