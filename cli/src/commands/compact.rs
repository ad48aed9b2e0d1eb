//! `compact`: the journal without the space that it does not need.

use std::{path::Path, time::Duration};

use deedbook_journal::{
    embedded::{CompactError, Compacted, Embedded, OpenError},
    hex,
};
use serde_json::{Value, json};

use crate::{
    args,
    failure::{Failure, Outcome, code},
    open,
    out::{JSON_VERSION, Out},
    progress::{Teller, now},
    reach,
    text::{bytes, count, safe},
};

/// For how long an owner that leaves is waited for: it closes the journal first.
const LEFT_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(
    args: &args::Compact,
    journal: Option<&Path>,
    out: &mut Out<'_>,
) -> Outcome {
    let path = open::path(journal)?;
    let mut teller = Teller::new(&args.watch);
    let done = compact(path, &mut teller).await;
    drop(teller);
    let done = done.map_err(|error| match error {
        CompactError::Open(error) => {
            let why = "nobody may have a journal open while it is compacted, and an owner that \
                       others use stays until they have ended";
            open::alone(path, &error, why)
        }
        other => Failure::new(safe(&other.to_string())),
    })?;
    let said = format!(
        "compacted {}: {} before, {} now; {} of {}, as before",
        path.display(),
        bytes(done.bytes_before),
        bytes(done.bytes_after),
        count(done.records, "record"),
        count(done.threads, "thread"),
    );
    let told = tell(path, &done, &said, out).map_err(|failure| failure.after(&safe(&said)));
    told.map(|()| code::OK)
}

/// Compacts the journal; an owner that was started for others, and that nobody uses any more,
/// leaves before that.
async fn compact(path: &Path, teller: &mut Teller) -> Result<Compacted, CompactError> {
    let since = now();
    let mut wait = open::WAIT;
    loop {
        let options = open::options().wait(wait);
        match Embedded::compact(path, &options, |progress| teller.tell(progress)) {
            Err(CompactError::Open(OpenError::Locked { .. }))
                if since.elapsed() < LEFT_WITHIN && reach::is_let_go_of(path).await =>
            {
                wait = LEFT_WITHIN;
            }
            done => return done,
        }
    }
}

fn tell(path: &Path, done: &Compacted, said: &str, out: &mut Out<'_>) -> Result<(), Failure> {
    if out.json {
        let head = done.head.map_or(
            Value::Null,
            |(leaf, hash)| json!({ "leaf": leaf, "hash": hex::encode(&hash.0) }),
        );
        out.object(&json!({
            "v": JSON_VERSION,
            "compacted": path.to_string_lossy(),
            "records": done.records,
            "threads": done.threads,
            "bytes_before": done.bytes_before,
            "bytes_after": done.bytes_after,
            "head": head,
        }))?;
    } else {
        out.line(said)?;
    }
    out.flush()?;
    Ok(())
}
