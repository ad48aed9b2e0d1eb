//! The lock that guards a journal, and who has it.
//!
//! The lock is the operating system's, on the journal's own file: it goes with its process,
//! however that ends, and so does the answer to who holds it, which is asked of the system
//! instead of being written down.

use std::{fs, path::Path, time::Duration};

use super::{
    clock::monotonic,
    disk::DiskFile,
    error::{Holder, OpenError},
};

/// How often a lock is tried again while somebody waits for it.
const RETRY: Duration = Duration::from_millis(10);

/// Takes the lock, waiting for it up to `wait`.
pub(super) fn acquire(path: &Path, file: &dyn DiskFile, wait: Duration) -> Result<(), OpenError> {
    let since = monotonic();
    loop {
        let locked = file.try_lock().map_err(|source| OpenError::Io {
            path: path.into(),
            what: "lock it",
            source,
        })?;
        if locked {
            return Ok(());
        }
        let left = wait.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(OpenError::Locked {
                path: path.into(),
                holder: holder(file),
                waited: wait,
            });
        }
        pause(left.min(RETRY));
    }
}

#[expect(clippy::disallowed_methods, reason = "a blocking open waits for a lock")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

/// Who has the lock on this file.
pub(super) fn holder(file: &dyn DiskFile) -> Holder {
    let unknown = Holder { pid: None, program: None };
    let Ok((device, inode)) = file.device_and_inode() else {
        return unknown;
    };
    let Ok(locks) = fs::read_to_string("/proc/locks") else {
        return unknown;
    };
    let Some(pid) = find(&locks, device, inode) else {
        return unknown;
    };
    let program = fs::read_to_string(format!("/proc/{pid}/comm"));
    Holder { pid: Some(pid), program: program.ok().map(|name| name.trim_end().to_owned()) }
}

/// The process in a line like `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`.
fn find(locks: &str, device: u64, inode: u64) -> Option<u32> {
    // The kernel's device number, split as it prints it.
    let major = (device >> 8 & 0xfff) | (device >> 32 & 0xffff_f000);
    let minor = (device & 0xff) | (device >> 12 & 0xffff_ff00);
    let wanted = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let kind = fields.next()?;
        let pid = fields.nth(2)?;
        let place = fields.next()?;
        let found = kind == "FLOCK" && place == wanted;
        pid.parse().ok().filter(|pid| found && *pid > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_device_and_inode() {
        let locks = "1: POSIX  ADVISORY  WRITE 17 fe:00:1234 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 12 fe:00:1234 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 99 fe:00:1235 0 EOF\n";
        assert_eq!(find(locks, 0xfe00, 1234), Some(4711));
        assert_eq!(find(locks, 0xfe00, 1235), Some(99));
        assert_eq!(find(locks, 0xfd00, 1235), None);
        assert_eq!(find("nonsense\n\n", 0xfd00, 1235), None);
    }
}
