//! The control socket: how others reach a journal that somebody holds.
//!
//! A journal in a file is open in one process at a time. That process lets others work on it with
//! one line, [`serve`], and they reach it with [`Remote`], which is a
//! [`Checkpointer`](deedbook_journal::checkpointer::Checkpointer) like any other: so every command
//! of the tool works whether or not a program holds the journal. Between them is a Unix socket
//! that only the same user can use, and a protocol of JSON lines, which
//! `docs/reference/control-protocol.md` describes for clients in any language.
//!
//! In reading order: the [`limits`]; where the socket is (`place`); what the lines say (`wire`)
//! and how they are read (`line`); who answers (`server`) and who asks (`remote`).

pub mod limits;
mod line;
mod place;
mod remote;
mod server;
mod wire;

pub use remote::{ConnectError, Owner, Remote};
pub use server::{ServeError, Serving, serve, serve_at};

use std::{pin::pin, task::Poll};

/// What came first of two.
enum First<A, B> {
    This(A),
    That(B),
}

/// Waits for either of two, and drops the other one.
async fn first<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> First<A, B> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    std::future::poll_fn(|cx| {
        if let Poll::Ready(this) = a.as_mut().poll(cx) {
            return Poll::Ready(First::This(this));
        }
        b.as_mut().poll(cx).map(First::That)
    })
    .await
}
