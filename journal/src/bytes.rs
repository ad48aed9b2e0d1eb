//! Bytes that many may hold without a copy.

use std::{fmt, ops::Deref, sync::Arc};

/// Bytes that are cheap to clone: a part of a chunk that is shared.
///
/// A home that reads many records at once gives each of them its part of what it has read. A part
/// keeps the whole chunk in memory.
///
/// ```
/// use deedbook_journal::bytes::Bytes;
/// let chunk = Bytes::from(&b"header payload"[..]);
/// let payload = chunk.part(7..14).unwrap();
/// assert_eq!(*payload, *b"payload");
/// assert!(chunk.part(7..15).is_none());
/// ```
#[derive(Clone)]
pub struct Bytes {
    chunk: Arc<[u8]>,
    from: usize,
    to: usize,
}

impl Bytes {
    /// A part of these bytes; `None` if they do not reach that far.
    #[must_use]
    pub fn part(&self, range: std::ops::Range<usize>) -> Option<Self> {
        let (from, to) = (self.from.checked_add(range.start)?, self.from.checked_add(range.end)?);
        (from <= to && to <= self.to).then(|| Self { chunk: self.chunk.clone(), from, to })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // Within the chunk by construction.
        self.chunk.get(self.from..self.to).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Arc<[u8]>> for Bytes {
    fn from(chunk: Arc<[u8]>) -> Self {
        let to = chunk.len();
        Self { chunk, from: 0, to }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Arc::<[u8]>::from(bytes).into()
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        Arc::<[u8]>::from(bytes).into()
    }
}

impl<const N: usize> From<[u8; N]> for Bytes {
    fn from(bytes: [u8; N]) -> Self {
        bytes.as_slice().into()
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Bytes {}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_part_stays_within_it() {
        let chunk = Bytes::from([0, 1, 2, 3, 4, 5]);
        let part = chunk.part(2..5).unwrap();
        assert_eq!(*part, [2, 3, 4]);
        assert_eq!(part.part(1..3).unwrap(), Bytes::from([3, 4]));
        assert!(part.part(3..3).unwrap().is_empty());
        for (from, to) in [(1, 4), (4, 4), (2, 1), (0, usize::MAX), (usize::MAX, usize::MAX)] {
            assert!(part.part(from..to).is_none(), "{from}..{to}");
        }
    }
}
