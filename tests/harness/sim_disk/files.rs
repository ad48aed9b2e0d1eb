//! The seam of the embedded home, on the simulated disk.

use std::{ffi::OsString, io, path::Path, sync::Arc};

use deedbook_journal::embedded::{Disk, DiskFile};

use super::{
    Change, Fault, PAGE, SimDisk, State,
    platter::{Id, Op, put},
};

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    id: Id,
}

fn not_found() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

impl Fault {
    fn error(self) -> io::Error {
        io::Error::from_raw_os_error(if self == Self::Full { 28 } else { 5 })
    }
}

impl State {
    /// Counts an operation, and says how it fails if it does.
    fn strike(&mut self, change: Change) -> Option<Fault> {
        let at = self.tried.len();
        self.tried.push(change);
        let armed = self.armed.as_mut()?;
        let strikes = match armed.only {
            Some(only) => only == change && at >= armed.at,
            None => at == armed.at || (armed.and_later && at > armed.at),
        };
        if strikes && armed.only.is_some() {
            armed.at = usize::MAX;
        }
        self.struck += usize::from(strikes);
        strikes.then_some(armed.fault)
    }

    fn done(&mut self, op: Op) {
        self.platter.take(&op);
        self.ops.push(op);
    }

    /// Does an operation that has happened in full or not at all.
    fn plain(&mut self, change: Change, op: Op) -> io::Result<()> {
        match self.strike(change) {
            Some(fault) => Err(fault.error()),
            None => {
                self.done(op);
                Ok(())
            }
        }
    }

    fn name(&mut self, path: &Path, id: Option<Id>) -> io::Result<()> {
        self.plain(Change::Name, Op::Name(path.into(), id))?;
        match id {
            Some(id) => self.names.insert(path.into(), id),
            None => self.names.remove(path),
        };
        Ok(())
    }

    /// Makes a sync, or the one that fails in its place.
    fn sync(&mut self, change: Change, sync: Op) -> io::Result<()> {
        let Some(fault) = self.strike(change) else {
            self.done(sync);
            return Ok(());
        };
        if let Some(armed) = &mut self.armed {
            let failed = match sync {
                Op::Sync(id) => self.platter.failed_sync(id, &mut armed.random),
                _ => self.platter.failed_sync_names(&mut armed.random),
            };
            self.done(failed);
        }
        Err(fault.error())
    }

    fn write(&mut self, id: Id, offset: u64, data: &[u8]) {
        let file = Arc::make_mut(&mut self.files[id]);
        put(file, offset, data);
        let op = if self.platter.is_doubtful(id) {
            // What a page has that counted as clean goes to the disk with what is new in it.
            let from = offset / PAGE * PAGE;
            let to = (offset + data.len() as u64).next_multiple_of(PAGE).min(file.len() as u64);
            Op::Write(id, from, file[from as usize..to as usize].into())
        } else {
            Op::Write(id, offset, data.into())
        };
        self.done(op);
    }
}

impl Disk for SimDisk {
    fn create_new(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.state();
        if state.names.contains_key(path) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let id = state.files.len();
        state.name(path, Some(id))?;
        state.files.push(Arc::default());
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn open(&self, path: &Path, _write: bool, _follow: bool) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.state().names.get(path).copied().ok_or_else(not_found)?;
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let id = state.names.get(from).copied().ok_or_else(not_found)?;
        if state.names.contains_key(to) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        state.name(to, Some(id))
    }

    fn replace(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let id = state.names.get(from).copied().ok_or_else(not_found)?;
        // A disk may also be found between the two, which is more than a real one does.
        state.name(to, Some(id))?;
        state.names.remove(from);
        state.done(Op::Name(from.into(), None));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        if !state.names.contains_key(path) {
            return Err(not_found());
        }
        state.name(path, None)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let state = self.state();
        let inside = state.names.keys().filter(|name| name.parent() == Some(path));
        Ok(inside.filter_map(|name| Some(name.file_name()?.to_owned())).collect())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.state().sync(Change::SyncNames, Op::SyncNames)
    }
}

impl DiskFile for SimFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.id].len() as u64)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.disk.state();
        let at = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = at.checked_add(out.len());
        let there = end.and_then(|end| state.files[self.id].get(at..end));
        out.copy_from_slice(there.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.disk.state();
        match state.strike(Change::Write) {
            None => {
                state.write(self.id, offset, data);
                Ok(())
            }
            Some(fault) => {
                if fault != Fault::Device && data.len() > 1 {
                    state.write(self.id, offset, &data[..data.len() / 2]);
                }
                Err(fault.error())
            }
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        state.plain(Change::Length, Op::SetLen(self.id, len))?;
        Arc::make_mut(&mut state.files[self.id]).resize(len as usize, 0);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.state().sync(Change::Sync, Op::Sync(self.id))
    }

    fn try_lock(&self) -> io::Result<bool> {
        Ok(!self.disk.state().locked.insert(self.id, true).unwrap_or(false))
    }

    fn names(&self) -> io::Result<u64> {
        let state = self.disk.state();
        Ok(state.names.values().filter(|id| **id == self.id).count() as u64)
    }

    fn device_and_inode(&self) -> io::Result<(u64, u64)> {
        Ok((0, self.id as u64))
    }
}
