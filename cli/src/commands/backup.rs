//! `backup`: a copy of the journal, verified before it gets its name.

use deedbook_journal::{
    checkpointer::StoreError,
    embedded::{Backup, BackupError},
    hex,
};
use serde_json::{Value, json};

use crate::{
    args,
    failure::{Failure, Outcome, code},
    open::Opened,
    out::{JSON_VERSION, Out},
    progress::Teller,
    text::{bytes, count, safe},
};

pub(crate) async fn run(args: &args::Backup, home: &Opened, out: &mut Out<'_>) -> Outcome {
    let mut teller = Teller::new(&args.watch);
    let watch = move |progress| teller.tell(progress);
    let made = match home {
        Opened::Here(home) => home.backup(&args.to, watch).await.map_err(|error| match error {
            // A backup brings the journal in order first, and could not.
            BackupError::Journal(_) => {
                format!("{error}; `deedbook export` reads it where nothing can be written")
            }
            error => error.to_string(),
        }),
        Opened::There(home) => home.backup(&args.to, watch).await.map_err(|error| match error {
            StoreError::Refused { why } => (*why).to_owned(),
            other => other.to_string(),
        }),
    };
    let made = made.map_err(|why| Failure::new(safe(&why)))?;
    let records = count(made.records, "record");
    let threads = count(made.threads, "thread");
    let path = made.path.to_string_lossy();
    let done = format!(
        "backed up {records} of {threads} to {path} ({}), and verified it",
        bytes(made.file_bytes)
    );
    let told = tell(&made, &done, out).map_err(|failure| failure.after(&safe(&done)));
    told.map(|()| code::OK)
}

fn tell(made: &Backup, done: &str, out: &mut Out<'_>) -> Result<(), Failure> {
    let head = made.head.map(|(leaf, hash)| (leaf, hex::encode(&hash.0)));
    if out.json {
        let head = head.map_or(Value::Null, |(leaf, hash)| json!({ "leaf": leaf, "hash": hash }));
        out.object(&json!({
            "v": JSON_VERSION,
            "backup": made.path.to_string_lossy(),
            "log_id": hex::encode(&made.log_id),
            "records": made.records,
            "threads": made.threads,
            "file_bytes": made.file_bytes,
            "head": head,
        }))?;
    } else {
        out.line(done)?;
        if let Some((leaf, hash)) = head {
            out.line(&format!("head  leaf {leaf}, {hash}"))?;
        }
    }
    out.flush()?;
    Ok(())
}
