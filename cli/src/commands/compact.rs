//! `compact`: the journal without the space that it does not need.

use std::path::Path;

use deedbook_journal::{
    embedded::{CompactError, Compacted, Embedded},
    hex,
};
use serde_json::{Value, json};

use crate::{
    args,
    failure::{Failure, Outcome, code},
    open,
    out::{JSON_VERSION, Out},
    progress::Teller,
    text::{bytes, count, safe},
};

pub(crate) fn run(args: &args::Compact, journal: Option<&Path>, out: &mut Out<'_>) -> Outcome {
    let path = open::path(journal)?;
    let mut teller = Teller::new(&args.watch);
    let done = Embedded::compact(path, &open::options(), |progress| teller.tell(progress));
    drop(teller);
    let done = done.map_err(|error| match error {
        CompactError::Open(error) => {
            open::alone(path, &error, "nobody may have a journal open while it is compacted")
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
