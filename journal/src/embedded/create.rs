//! Making a journal: aside, complete and durable, and only then under its name.

use std::{io, path::Path, sync::Arc};

use super::{
    anchor,
    aside::{self, Aside},
    backend::{Backend, Gate},
    core::{Core, guarded},
    disk::DiskFile,
    error::CreateError,
    log::files_of,
    open,
    options::CreateOptions,
    planted,
    tables::{self, Settled},
};
use crate::checkpointer::StoreIdentity;

/// Makes the journal and opens it. The lock is held from before it has its name.
pub(super) fn create(path: &Path, options: &CreateOptions) -> Result<Core, CreateError> {
    let disk = &options.open.disk;
    let io = |what| move |source: io::Error| CreateError::Io { path: path.into(), what, source };
    aside::tidy(&**disk, path, None);
    let taken = |path: &Path| std::fs::symlink_metadata(path).is_ok();
    // The anchor of another journal that had this name says nothing of this one, and is no harm.
    let anchor = anchor::beside(path);
    let log = files_of(path).into_iter().skip(1).find(|file| *file != anchor && taken(file));
    // Looked at last: of several who create at once, one may be writing by now.
    if taken(path) {
        return Err(CreateError::AlreadyExists { path: path.into() });
    }
    if let Some(log) = log {
        return Err(CreateError::LogInTheWay { path: path.into(), log });
    }
    let identity = identity(options).map_err(io("get random bytes for it"))?;
    let failed = |(what, source): aside::Failed| io(what)(source);
    let aside = Aside::make(disk, path).map_err(failed)?;
    let file = Arc::clone(aside.file());
    build(path, &file, &identity)?;
    aside.publish().map_err(|(what, source)| match source.kind() {
        io::ErrorKind::AlreadyExists => CreateError::AlreadyExists { path: path.into() },
        _ => failed((what, source)),
    })?;
    open::open_file(path, file, &options.open)
        .map_err(|source| CreateError::Open { path: path.into(), source })
}

/// Fills the new file and makes it durable.
fn build(
    path: &Path,
    file: &Arc<dyn DiskFile>,
    identity: &StoreIdentity,
) -> Result<(), CreateError> {
    let io = |what| move |source: io::Error| CreateError::Io { path: path.into(), what, source };
    let gate = Gate::new(Arc::clone(file));
    gate.release().map_err(io("write it"))?;
    let written = guarded(|| {
        let db = redb::Builder::new().create_with_backend(Backend(gate))?;
        let mut transaction = db.begin_write()?;
        transaction.set_two_phase_commit(true);
        let settled = Settled { clean: true, ..Settled::default() };
        tables::begin(&transaction, identity, &settled)?;
        transaction.commit()?;
        Ok(db.close()?)
    });
    written.map_err(|fault| CreateError::Storage { path: path.into(), why: fault.into_why() })?;
    file.sync().map_err(io("make it durable"))
}

#[expect(clippy::disallowed_methods, reason = "an identity is made of fresh randomness")]
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    if let Some(drawn) = planted::drawn() {
        return Ok(drawn);
    }
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(e.to_string()))?;
    Ok(bytes)
}

fn identity(options: &CreateOptions) -> io::Result<StoreIdentity> {
    Ok(StoreIdentity {
        log_id: options.log_id.map_or_else(random, Ok)?,
        namespace: options.namespace.map_or_else(random, Ok)?,
        secret: options.secret.map_or_else(random, Ok)?,
    })
}
