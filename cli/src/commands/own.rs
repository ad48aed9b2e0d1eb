//! `own`: a process that holds the journal for others, as long as there are any.

use std::{
    future::poll_fn, os::unix::fs::MetadataExt, path::Path, sync::Arc, task::Poll, time::Duration,
};

use deedbook_control::{ServeError, serve};
use deedbook_journal::{
    checkpointer::{Checkpointer, Filter},
    embedded::Embedded,
};
use serde_json::json;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};

use crate::{
    args::Own,
    failure::{Failure, Outcome, code},
    open,
    out::{JSON_VERSION, Out},
    text::safe,
};

/// How often it is looked whether anybody is there.
const LOOK_EVERY: Duration = Duration::from_millis(25);

pub(crate) async fn run(args: &Own, journal: Option<&Path>, out: &mut Out<'_>) -> Outcome {
    let path = open::path(journal)?;
    if args.apart {
        // Whoever leads a group cannot; it lives without, and ends with its terminal.
        let _ = rustix::process::setsid();
    }
    let home = Embedded::open(path, open::options()).map_err(|e| open::failure(path, &e))?;
    let home = Arc::new(home);
    let file = file_at(path);
    let mut serving = serve(Arc::clone(&home)).map_err(not_served)?;
    if args.apart {
        // One that was started for others has nothing of its own to do here.
        serving.may_be_asked_to_leave();
    }
    let mut end = End::listen()?;
    tell(path, serving.path(), out)?;
    let mut asked = false;
    // A file that is moved away or replaced is not what others mean by its name.
    while file_at(path) == file {
        asked |= serving.was_asked_to_leave();
        let quiet = serving.quiet_for();
        let nobody = !quiet.is_zero();
        if quiet >= args.idle || (asked && nobody) {
            if serving.leave_if_quiet().await {
                break;
            }
            asked = false;
        }
        // After a failed write nothing can be done with it any more; whoever opens it next can.
        if let Err(error) = home.list(&Filter::default(), None, 0).await {
            serving.stop().await;
            return Err(error.into());
        }
        if end.comes_within(LOOK_EVERY).await {
            break;
        }
    }
    serving.stop().await;
    home.close().await?;
    Ok(code::OK)
}

/// What a process is told to end with: it closes the journal then, as if it were not needed any
/// more. Whoever is connected finds another owner, or starts one.
///
/// SIGHUP is not among them: whoever starts it with `nohup` has that ignored, and to listen for it
/// would be to hear it again.
struct End([Signal; 2]);

impl End {
    fn listen() -> Result<Self, Failure> {
        Ok(Self([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]))
    }

    async fn comes_within(&mut self, time: Duration) -> bool {
        let comes = poll_fn(|cx| {
            let told = self.0.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if told { Poll::Ready(()) } else { Poll::Pending }
        });
        timeout(time, comes).await.is_ok()
    }
}

fn not_served(error: ServeError) -> Failure {
    let code = match error {
        ServeError::AlreadyServed { .. } | ServeError::NotHolder { .. } => code::LOCKED,
        _ => code::FAILURE,
    };
    Failure::of(code, safe(&error.to_string()))
}

/// Which file has this name.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|seen| (seen.dev(), seen.ino()))
}

fn tell(path: &Path, socket: &Path, out: &mut Out<'_>) -> Result<(), Failure> {
    let (path, socket) = (path.to_string_lossy(), socket.to_string_lossy());
    if out.json {
        out.object(&json!({ "v": JSON_VERSION, "owned": path, "socket": socket }))?;
    } else {
        out.line(&format!("{path} is open to others at {socket}"))?;
    }
    out.flush()?;
    Ok(())
}
