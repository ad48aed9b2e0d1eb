//! Things by the numbers under which calls were made.

use std::collections::VecDeque;

/// Small things by ascending numbers, of which those with low numbers mostly go first. One that
/// stays longer than those behind it keeps their places with its own.
#[derive(Debug, Clone)]
pub(super) struct Numbered<T> {
    /// The number of the first place.
    from: u64,
    /// The first place holds something, if there is one.
    places: VecDeque<Option<T>>,
}

impl<T> Numbered<T> {
    pub(super) const fn new() -> Self {
        Self { from: 0, places: VecDeque::new() }
    }

    fn place(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.from).and_then(|place| usize::try_from(place).ok())
    }

    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        self.places.get(self.place(number)?)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let place = self.place(number)?;
        self.places.get_mut(place)?.as_mut()
    }

    pub(super) fn insert(&mut self, number: u64, thing: T) {
        if self.places.is_empty() {
            self.from = number;
        }
        while number < self.from {
            self.places.push_front(None);
            self.from -= 1;
        }
        let Some(place) = self.place(number) else { return };
        while self.places.len() <= place {
            self.places.push_back(None);
        }
        if let Some(empty) = self.places.get_mut(place) {
            *empty = Some(thing);
        }
    }

    pub(super) fn remove(&mut self, number: u64) -> Option<T> {
        let place = self.place(number)?;
        let gone = self.places.get_mut(place)?.take();
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.from += 1;
        }
        gone
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let places = (self.from..).zip(&self.places);
        places.filter_map(|(number, thing)| Some((number, thing.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_holds_what_a_tree_holds(
            acts in prop::collection::vec((0u64..9, any::<bool>()), 0..60),
        ) {
            let (mut numbered, mut tree) = (Numbered::new(), BTreeMap::new());
            for (number, inserts) in acts {
                if inserts {
                    numbered.insert(number, number * 10);
                    tree.insert(number, number * 10);
                } else {
                    prop_assert_eq!(numbered.remove(number), tree.remove(&number));
                }
                let held = tree.iter().map(|(number, thing)| (*number, thing));
                prop_assert!(numbered.iter().eq(held));
                for number in 0..10 {
                    prop_assert_eq!(numbered.get(number), tree.get(&number));
                    prop_assert_eq!(numbered.get_mut(number), tree.get_mut(&number));
                }
                prop_assert!(matches!(numbered.places.front(), None | Some(Some(_))));
            }
        }
    }
}
