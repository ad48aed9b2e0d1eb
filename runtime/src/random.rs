//! Randomness: salts, message ids and jitter. The one module that draws any.

use std::time::Duration;

use deedbook_journal::id::MessageId;

use crate::planted::drawn;

/// Random bytes, drawn from the operating system a kilobyte at a time.
#[derive(Debug)]
pub(crate) struct Random {
    pool: [u8; 1024],
    used: usize,
}

impl Random {
    pub(crate) fn new() -> Self {
        Self { pool: [0; 1024], used: 1024 }
    }

    /// 32 fresh bytes.
    pub(crate) fn salt(&mut self) -> [u8; 32] {
        if self.used + 32 > self.pool.len() {
            fill(&mut self.pool);
            self.used = 0;
        }
        let mut salt = [0; 32];
        if let Some(fresh) = self.pool.get_mut(self.used..self.used + 32) {
            salt.copy_from_slice(fresh);
            // A salt that stays in memory could undo an erasure.
            fresh.fill(0);
        }
        self.used += 32;
        salt
    }

    /// `duration` less up to a fifth of it, so that what failed together does not come back
    /// together.
    pub(crate) fn jitter(&mut self, duration: Duration) -> Duration {
        let [low, high, ..] = self.salt();
        let fraction = u32::from(u16::from_le_bytes([low, high]));
        duration.saturating_sub(duration / 5 * fraction / 65_536)
    }
}

/// A fresh message id.
pub(crate) fn message_id() -> MessageId {
    let mut bytes = [0; 16];
    fill(&mut bytes);
    MessageId(bytes)
}

#[expect(clippy::disallowed_methods, reason = "this module owns randomness")]
#[expect(clippy::expect_used, reason = "without randomness no salt hides anything: stop")]
fn fill(bytes: &mut [u8]) {
    if drawn(bytes) {
        return;
    }
    getrandom::fill(bytes).expect("the operating system gives no random bytes");
}
