//! What the home's threads wait with: in one place, so that a model can decide who goes on.
//!
//! With the feature `model`, which only `tests/models` asks for, these are types of shuttle, and
//! every use of one is a point at which another thread may go on. Locks that are held for a few
//! instructions and never while another one is asked for (the clock's, those under redb) stay the
//! system's: a thread of the model must not stop while it holds one.

use std::time::Duration;
#[cfg(not(feature = "model"))]
pub(super) use std::{
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic, mpsc},
    thread,
};

#[cfg(feature = "model")]
pub(super) use shuttle::{
    sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, atomic, mpsc},
    thread,
};

/// Waits for what is sent, and no longer than this.
#[cfg(not(feature = "model"))]
pub(super) fn receive<T>(
    from: &mpsc::Receiver<T>,
    within: Duration,
) -> Result<T, mpsc::RecvTimeoutError> {
    from.recv_timeout(within)
}

/// Waits for what is sent. Time passes as the model likes: where nothing was sent, it may be over
/// at once, or not before something is.
#[cfg(feature = "model")]
pub(super) fn receive<T>(
    from: &mpsc::Receiver<T>,
    _within: Duration,
) -> Result<T, mpsc::RecvTimeoutError> {
    use shuttle::rand::Rng;

    match from.try_recv() {
        Ok(sent) => Ok(sent),
        Err(mpsc::TryRecvError::Empty) if shuttle::rand::thread_rng().gen_bool(0.5) => {
            Err(mpsc::RecvTimeoutError::Timeout)
        }
        Err(_) => from.recv().map_err(|_| mpsc::RecvTimeoutError::Disconnected),
    }
}
