//! Which call has an identity.

/// An open-addressed table of the numbers of calls. The identities themselves stand in the calls,
/// so that a call costs eight bytes here and no identity is kept twice.
#[derive(Debug, Clone, Default)]
pub(super) struct Index {
    /// As many as a power of two, at most three quarters of them taken.
    slots: Vec<Slot>,
    taken: usize,
}

/// The hash of an identity, and one more than the number of its call; zero is empty.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    hash: u32,
    number: u32,
}

impl Index {
    /// The number with this hash for which `is` holds.
    #[inline]
    pub(super) fn find(&self, hash: u32, is: impl Fn(usize) -> bool) -> Option<usize> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut at = hash as usize;
        loop {
            let slot = self.slots.get(at & mask)?;
            let number = slot.number.checked_sub(1)? as usize;
            if slot.hash == hash && is(number) {
                return Some(number);
            }
            at = at.wrapping_add(1);
        }
    }

    /// Takes in a number that is not there, unless it is too large for a table.
    pub(super) fn insert(&mut self, hash: u32, number: usize) {
        let number = u32::try_from(number).ok().and_then(|n| n.checked_add(1));
        let Some(number) = number else { return };
        // An empty slot is what a search ends at.
        if (self.taken + 1) * 4 > self.slots.len() * 3 {
            self.grow((self.slots.len() * 2).max(16));
        }
        self.put(Slot { hash, number });
        self.taken += 1;
    }

    /// Makes room for so many more, so that it need not grow often.
    pub(super) fn reserve(&mut self, more: usize) {
        let slots = self.taken.saturating_add(more).saturating_mul(4) / 3 + 1;
        if slots > self.slots.len() {
            self.grow(slots.next_power_of_two());
        }
    }

    fn grow(&mut self, slots: usize) {
        let smaller = std::mem::replace(&mut self.slots, vec![Slot::default(); slots]);
        for slot in smaller.into_iter().filter(|slot| slot.number > 0) {
            self.put(slot);
        }
    }

    fn put(&mut self, new: Slot) {
        let mask = self.slots.len().saturating_sub(1);
        let mut at = new.hash as usize;
        while let Some(slot) = self.slots.get_mut(at & mask) {
            if slot.number == 0 {
                *slot = new;
                return;
            }
            at = at.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_found_under_its_hash_however_many_share_it() {
        for spread in [1, 3, 1000] {
            let hash = |number: usize| u32::try_from(number % spread).unwrap().wrapping_sub(1);
            let mut index = Index::default();
            assert_eq!(index.find(0, |_| true), None);
            for number in 0..500 {
                assert_eq!(index.find(hash(number), |n| n == number), None);
                index.insert(hash(number), number);
            }
            index.reserve(5000);
            let mut reserved = Index::default();
            reserved.reserve(spread % 2);
            reserved.insert(hash(0), 0);
            assert_eq!(reserved.find(hash(0), |n| n == 1), None);
            for number in 0..500 {
                assert_eq!(index.find(hash(number), |n| n == number), Some(number));
            }
            assert_eq!(index.find(hash(0), |n| n == 500), None);
        }
    }
}
