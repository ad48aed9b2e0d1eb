//! Hashing short names quickly, and under a key.

use std::hash::{BuildHasher, Hasher};

/// Makes the hashers of a map whose keys may come from strangers: names, branches, business keys.
/// Who does not know the key cannot make them collide.
///
/// Multiplications take the place of SipHash, which for names as short as ours costs several times
/// as much; nothing is stored under these hashes.
///
/// ```
/// use std::collections::HashMap;
/// use deedbook_journal::keyed::Keyed;
/// let mut counts: HashMap<String, u32, Keyed> = HashMap::with_hasher(Keyed::under(&[7; 32]));
/// *counts.entry("pay".into()).or_default() += 1;
/// assert_eq!(counts["pay"], 1);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Keyed([u64; 2]);

impl Keyed {
    /// Under a secret of the journal.
    #[must_use]
    pub fn under(secret: &[u8; 32]) -> Self {
        let mut key = 0x9e37_79b9_7f4a_7c15_u64;
        let (words, _) = secret.as_chunks::<8>();
        let mut keys = [0; 2];
        for (at, word) in words.iter().enumerate() {
            key = folded(key ^ u64::from_le_bytes(*word), 0xd6e8_feb8_6659_fd93);
            if let Some(slot) = keys.get_mut(at % 2) {
                *slot ^= key;
            }
        }
        // An odd factor loses nothing.
        Self([keys[0], keys[1] | 1])
    }
}

impl BuildHasher for Keyed {
    type Hasher = KeyedHasher;

    #[inline]
    fn build_hasher(&self) -> KeyedHasher {
        let Self([state, factor]) = *self;
        KeyedHasher { state, factor }
    }
}

/// A hasher of [`Keyed`].
#[derive(Debug, Clone)]
pub struct KeyedHasher {
    state: u64,
    factor: u64,
}

/// The product, folded.
#[inline]
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    #[expect(clippy::cast_possible_truncation, reason = "the two halves, one by one")]
    let (high, low) = ((product >> 64) as u64, product as u64);
    high ^ low
}

impl KeyedHasher {
    #[inline]
    fn word(&mut self, word: u64) {
        self.state = folded(self.state ^ word, self.factor).wrapping_add(self.factor);
    }
}

impl Hasher for KeyedHasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.word(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        // The length tells `a` from `a\0`.
        self.word(u64::from_le_bytes(last));
        self.word(bytes.len() as u64);
    }

    #[inline]
    fn write_u8(&mut self, i: u8) {
        self.word(i.into());
    }

    #[inline]
    fn write_u32(&mut self, i: u32) {
        self.word(i.into());
    }

    #[inline]
    fn write_u64(&mut self, i: u64) {
        self.word(i);
    }

    #[inline]
    fn write_usize(&mut self, i: usize) {
        self.word(i as u64);
    }

    #[inline]
    fn finish(&self) -> u64 {
        folded(self.state, self.factor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn hashes_differ_by_key_by_content_and_by_length() {
        let keys = [Keyed::under(&[0; 32]), Keyed::under(&[1; 32]), Keyed::under(&[2; 32])];
        let texts = (0..2000).map(|n| "\0".repeat(n % 20) + &n.to_string());
        let texts: Vec<_> = texts.chain((0..20).map(|n| "\0".repeat(n))).collect();
        let mut hashes = HashSet::new();
        for (key, text) in keys.iter().flat_map(|key| texts.iter().map(move |text| (key, text))) {
            assert!(hashes.insert(key.hash_one(text)), "{text:?}");
        }
        // Tables look at few bits: each of them must differ often enough.
        for bit in 0..64 {
            let set = hashes.iter().filter(|hash| **hash >> bit & 1 == 1).count();
            assert!((2700..3360).contains(&set), "bit {bit}: {set} of {}", hashes.len());
        }
    }
}
