//! Reaching a journal that somebody holds, or that nobody does yet.

use std::{
    env, io,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use deedbook_control::{ConnectError, Remote};
use deedbook_journal::embedded::{Embedded, Holder, OpenError};

use crate::{
    failure::{Failure, code},
    open,
    progress::{now, pause},
    text::safe,
};

/// For how long an owner is waited for: opening a journal after a crash takes its time.
const OWNER_WITHIN: Duration = Duration::from_secs(30);
/// For how long somebody who holds the journal is waited for to let others in.
const SERVED_WITHIN: Duration = Duration::from_secs(3);
/// How long an owner stays when nobody is there.
const IDLE: &str = "2s";
/// Runs what it is given, without the descriptors that a shell can give to a program.
const LET_GO: &str = r#"exec "$0" "$@" 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-"#;
/// For how long somebody who has gone may count as connected.
const GONE_WITHIN: Duration = Duration::from_millis(500);
/// How long it takes to look again.
const AGAIN: Duration = Duration::from_millis(15);

/// Reaches the journal: through whoever holds it, or through a process that is started to hold it
/// and leaves when nobody needs it any more. Any number of processes may do so at once.
pub(crate) async fn reach(path: &Path) -> Result<Remote, Failure> {
    let since = now();
    let mut started: Option<Child> = None;
    let mut held_since = None;
    loop {
        let why = match Remote::connect(path).await {
            Ok(home) => return Ok(home),
            Err(why) => why,
        };
        let gone = || OpenError::NotFound { path: path.into() };
        match &why {
            ConnectError::NoJournal { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                return Err(open::failure(path, &gone()));
            }
            // Whoever holds a file that is not there any more sees that soon.
            ConnectError::OtherFile { .. } => {}
            why if why.may_pass() => {}
            why => return Err(Failure::new(safe(&why.to_string()))),
        }
        if since.elapsed() > OWNER_WITHIN {
            return Err(Failure::of(code::LOCKED, safe(&why.to_string())));
        }
        match Embedded::holder(path).ok().flatten() {
            Some(holder) => {
                let held = held_since.get_or_insert_with(now);
                if !is_owner(&holder) && held.elapsed() > SERVED_WITHIN {
                    let waited = held.elapsed();
                    let error = OpenError::Locked { path: path.into(), holder, waited };
                    return Err(open::locked(&error, &why));
                }
            }
            None => {
                held_since = None;
                started = begin(path, started)?;
            }
        }
        pause(AGAIN);
    }
}

/// Has an owner leave that was started for others, and that nobody uses any more: whether the
/// journal may soon be free.
pub(crate) async fn is_let_go_of(path: &Path) -> bool {
    let since = now();
    loop {
        let home = match Remote::connect(path).await {
            Ok(home) => home,
            // One of ours that has just begun, or is about to end.
            Err(ConnectError::NotServed | ConnectError::Gone { .. }) => {
                return Embedded::holder(path).ok().flatten().is_none_or(|by| is_owner(&by));
            }
            Err(_) => return false,
        };
        match home.ask_to_leave().await {
            Ok(true) => return true,
            // Somebody who has just ended counts as connected for a moment.
            Ok(false) if since.elapsed() < GONE_WITHIN => {}
            _ => return false,
        }
        drop(home);
        pause(AGAIN);
    }
}

/// Whether this is one of ours, that lets others in as soon as it can.
fn is_owner(holder: &Holder) -> bool {
    holder.program.as_deref() == Some("deedbook")
}

/// Starts an owner, unless the one that was started is still at it.
fn begin(path: &Path, started: Option<Child>) -> Result<Option<Child>, Failure> {
    if let Some(mut child) = started {
        match child.try_wait() {
            Ok(None) => return Ok(Some(child)),
            // It came too late, or has left again.
            Ok(Some(status)) if [Some(0), Some(5)].contains(&status.code()) => {}
            // It could not open the journal, and nobody heard why.
            _ => drop(Embedded::open(path, open::options()).map_err(|e| open::failure(path, &e))?),
        }
    }
    let program = env::current_exe();
    let program = program.map_err(|e| Failure::new(format!("cannot find this program: {e}")))?;
    let path = std::path::absolute(path);
    let path = path.map_err(|e| Failure::new(format!("cannot find the journal: {e}")))?;
    // By way of a shell, which lets go of what this process was given: a lock that somebody holds
    // for as long as a command runs must not be held for as long as an owner stays.
    let mut owner = Command::new("/bin/sh");
    owner.args(["-c", LET_GO]).arg(program).arg("--journal").arg(path);
    owner.args(["own", "--apart", "--idle", IDLE]).current_dir("/");
    owner.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let owner = owner.spawn();
    let owner = owner.map_err(|e| Failure::new(format!("cannot start an owner: {e}")))?;
    Ok(Some(owner))
}
