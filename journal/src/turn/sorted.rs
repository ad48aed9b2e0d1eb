//! Ordered sets that mostly hold one thing.

use std::collections::BTreeSet;

/// An ordered set. Its first element stands apart from the tree that holds the others: most
/// threads have one call at a time, and for them every question here is one about that element.
///
/// ```
/// use deedbook_journal::turn::Sorted;
/// let mut sorted = Sorted::new();
/// for number in [3, 1, 2] {
///     sorted.insert(number);
/// }
/// sorted.remove(&1);
/// assert_eq!(sorted.iter().collect::<Vec<_>>(), [&2, &3]);
/// assert_eq!(sorted.pop_first(), Some(2));
/// ```
#[derive(Debug, Clone)]
pub struct Sorted<T> {
    /// `None` only where there are no others either.
    first: Option<T>,
    others: BTreeSet<T>,
}

impl<T> Default for Sorted<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Sorted<T> {
    /// The set without elements.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: None, others: BTreeSet::new() }
    }

    /// The lowest element.
    #[must_use]
    #[inline]
    pub fn first(&self) -> Option<&T> {
        self.first.as_ref()
    }

    /// Whether it holds nothing.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// How many elements it has.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// The elements, from the lowest.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.others)
    }
}

impl<T: Ord> Sorted<T> {
    /// Takes in an element, unless it is there.
    #[inline]
    pub fn insert(&mut self, new: T) {
        match &mut self.first {
            None => self.first = Some(new),
            Some(first) if *first == new => {}
            Some(first) => {
                let later = if new < *first { std::mem::replace(first, new) } else { new };
                self.others.insert(later);
            }
        }
    }

    /// Takes out an element, if it is there.
    #[inline]
    pub fn remove(&mut self, element: &T) {
        if self.first.as_ref() == Some(element) {
            self.pop_first();
        } else if !self.others.is_empty() {
            self.others.remove(element);
        }
    }

    /// Takes out the lowest element.
    #[inline]
    pub fn pop_first(&mut self) -> Option<T> {
        let next = if self.others.is_empty() { None } else { self.others.pop_first() };
        std::mem::replace(&mut self.first, next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_set_that_a_tree_is(acts in prop::collection::vec((0u8..6, 0u8..3), 0..60)) {
            let (mut sorted, mut tree) = (Sorted::new(), BTreeSet::new());
            for (element, act) in acts {
                match act {
                    0 => {
                        sorted.insert(element);
                        tree.insert(element);
                    }
                    1 => {
                        sorted.remove(&element);
                        tree.remove(&element);
                    }
                    _ => prop_assert_eq!(sorted.pop_first(), tree.pop_first()),
                }
                prop_assert_eq!(sorted.first(), tree.first());
                prop_assert_eq!((sorted.len(), sorted.is_empty()), (tree.len(), tree.is_empty()));
                prop_assert!(sorted.iter().eq(&tree));
            }
        }
    }
}
