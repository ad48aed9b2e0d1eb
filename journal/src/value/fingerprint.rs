//! Fingerprints: what a journal remembers of arguments without their content.

use std::{fmt, sync::LazyLock};

use blake3::hazmat::{ContextKey, HasherExt, hash_derive_key_context};

/// The domain of the derived key; a part of the format.
const CONTEXT: &str = "deedbook 2026-11-29 v1 fingerprint";

static CONTEXT_KEY: LazyLock<ContextKey> = LazyLock::new(|| hash_derive_key_context(CONTEXT));

/// The keyed BLAKE3 hash of canonical arguments.
///
/// Without the journal's secret nobody can find arguments by trying them. The secret is stored
/// with the payloads and erased with them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of `canonical` bytes under the journal's `secret`:
    /// `BLAKE3.keyed_hash(key, canonical)` with
    /// `key = BLAKE3.derive_key("deedbook 2026-11-29 v1 fingerprint", secret)`.
    ///
    /// ```
    /// use deedbook_journal::{limits::ValueLimits, value::{Fingerprint, canonical}};
    /// let limits = ValueLimits::new();
    /// let one = Fingerprint::of(&[7; 32], &canonical::of(&120, &limits)?);
    /// let other = Fingerprint::of(&[7; 32], &canonical::of(&120.0, &limits)?);
    /// assert_eq!(one, other);
    /// # Ok::<(), deedbook_journal::value::ValueError>(())
    /// ```
    #[must_use]
    pub fn of(secret: &[u8; 32], canonical: &[u8]) -> Self {
        let mut key = blake3::Hasher::new_from_context_key(&CONTEXT_KEY);
        let key = key.update(secret).finalize();
        Self(*blake3::keyed_hash(key.as_bytes(), canonical).as_bytes())
    }

    /// The first eight hex digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        crate::hex::encode(self.0.get(..4).unwrap_or_default())
    }
}

impl fmt::Display for Fingerprint {
    /// All 64 hex digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hex::write(f, &self.0)
    }
}
