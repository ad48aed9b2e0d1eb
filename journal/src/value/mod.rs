//! Values.

/// The keyed BLAKE3 hash of canonical arguments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The first eight hex digits, for people.
    #[must_use]
    pub fn short(&self) -> String {
        crate::hex::encode(self.0.get(..4).unwrap_or_default())
    }
}
