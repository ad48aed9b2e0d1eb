//! `guard --stdio`: the control protocol on standard input and output.
//!
//! Whoever holds the journal answers; if nobody does, a process that does is started. So one
//! program in another language, or eighty, work on one journal without knowing of each other.

use std::{
    io::{self, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::{
    args::Guard,
    failure::{Failure, Outcome, code},
    open,
    reach::reach,
    text::safe,
};

pub(crate) async fn run(args: &Guard, journal: Option<&Path>) -> Outcome {
    debug_assert!(args.stdio, "there is no other way yet");
    let path = open::path(journal)?;
    // Kept until the end: whoever was started for it leaves when nobody is connected.
    let home = reach(path).await?;
    let owner = home.owner().clone();
    let lost =
        |e: io::Error| Failure::new(format!("{}: {e}", safe(&owner.socket.to_string_lossy())));
    let mut from = UnixStream::connect(&owner.socket).map_err(lost)?;
    let mut to = from.try_clone().map_err(lost)?;
    let over = Arc::new(AtomicBool::new(false));
    let said = Arc::clone(&over);
    let forward = move || {
        let copied = io::copy(&mut io::stdin().lock(), &mut to);
        said.store(copied.is_ok(), Ordering::Release);
        // What was asked is still answered.
        let _ = to.shutdown(Shutdown::Write);
    };
    let forward = thread::Builder::new().name("deedbook-stdin".into()).spawn(forward);
    forward.map_err(|e| Failure::new(format!("cannot start: {e}")))?;
    let mut out = io::stdout().lock();
    let answered = copy_lines(&mut from, &mut out);
    match (answered, over.load(Ordering::Acquire)) {
        (Err(error), _) => Err(error.into()),
        (Ok(()), true) => Ok(code::OK),
        (Ok(()), false) => Err(Failure::new(format!(
            "{} held the journal and has gone; start again to learn what became of what was asked",
            safe(&owner.to_string())
        ))),
    }
}

/// Copies what comes as it comes. That nothing comes any more is no error.
fn copy_lines(from: &mut UnixStream, out: &mut impl Write) -> io::Result<()> {
    let mut chunk = vec![0; 64 * 1024];
    loop {
        let read = match io::Read::read(from, &mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Ok(()),
        };
        out.write_all(chunk.get(..read).unwrap_or_default())?;
        out.flush()?;
    }
}
