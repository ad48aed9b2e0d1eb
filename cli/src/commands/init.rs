//! `init`: the only command that makes a journal.

use std::path::Path;

use deedbook_journal::{
    checkpointer::{Checkpointer, StoreIdentity},
    hex,
};

use crate::{
    args::Init,
    failure::{Failure, Outcome, code},
    open,
    out::{JSON_VERSION, Out},
    text::safe,
};

pub(crate) async fn run(args: &Init, journal: Option<&Path>, out: &mut Out<'_>) -> Outcome {
    let (path, home) = open::create(journal, args.namespace)?;
    let identity = home.identity().clone();
    home.close().await?;
    let path = path.to_string_lossy();
    let told = tell(&path, &identity, out).map_err(|e| e.after(&format!("made {}", safe(&path))));
    told.map(|()| code::OK)
}

fn tell(path: &str, identity: &StoreIdentity, out: &mut Out<'_>) -> Result<(), Failure> {
    let (log_id, namespace) = (hex::encode(&identity.log_id), hex::encode(&identity.namespace));
    if out.json {
        out.object(&serde_json::json!({
            "v": JSON_VERSION,
            "journal": path,
            "log_id": log_id,
            "namespace": namespace,
        }))?;
    } else {
        out.line(&format!("made {path}"))?;
        out.line(&format!("log id     {log_id}"))?;
        out.line(&format!("namespace  {namespace}"))?;
    }
    out.flush()?;
    Ok(())
}
