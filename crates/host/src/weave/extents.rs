//! What is free of some memory: pieces that are taken, and given back in any order.

use std::collections::BTreeMap;
use std::ops::Range;

/// The free pieces, by their start. No two of them touch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents(BTreeMap<u64, u64>);

impl Extents {
    /// All of a range is free.
    pub fn new(range: Range<u64>) -> Self {
        Self(BTreeMap::from([(range.start, range.end - range.start)]))
    }

    /// Takes the lowest room there is for a length, at a multiple of `alignment`.
    pub fn take_lowest(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let (start, size, at) = self.0.iter().find_map(|(&start, &size)| {
            let at = start.next_multiple_of(alignment);
            (at + length <= start + size).then_some((start, size, at))
        })?;
        self.0.remove(&start);
        self.keep(start, at - start);
        self.keep(at + length, start + size - at - length);
        Some(at)
    }

    /// Takes the start of the last piece that is long enough. That is almost always the last of all,
    /// which nothing has been taken from.
    pub fn take_last(&mut self, length: u64) -> Option<u64> {
        let found = self.0.iter().rev().find(|&(_, &size)| size >= length);
        let (start, size) = found.map(|(&start, &size)| (start, size))?;
        self.0.remove(&start);
        self.keep(start + length, size - length);
        Some(start)
    }

    fn keep(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.0.insert(start, length);
        }
    }

    /// Gives a piece back.
    pub fn give(&mut self, mut start: u64, mut length: u64) {
        if let Some(after) = self.0.remove(&(start + length)) {
            length += after;
        }
        if let Some((&before, &size)) = self.0.range(..start).next_back()
            && before + size == start
        {
            start = before;
            length += size;
        }
        self.keep(start, length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_apart_and_aligned() {
        let mut free = Extents::new(8..1000);
        let mut taken = Vec::new();
        for length in [8, 64, 24, 128, 8, 200] {
            let at = free.take_lowest(length, 64).unwrap();
            assert_eq!(at % 64, 0);
            taken.push((at, length));
        }
        assert!(
            taken
                .iter()
                .all(|a| taken.iter().all(|b| { a == b || a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0 }))
        );
        // What alignment has left is used too.
        assert_eq!(free.take_lowest(8, 8), Some(8));
        free.give(8, 8);
        for (at, length) in taken {
            free.give(at, length);
        }
        assert_eq!(free, Extents::new(8..1000));
    }

    #[test]
    fn what_does_not_fit_takes_nothing() {
        let mut free = Extents::new(8..72);
        assert_eq!(free.take_lowest(57, 64), None);
        assert_eq!(free.take_last(65), None);
        assert_eq!(free, Extents::new(8..72));
        assert_eq!(free.take_last(64), Some(8));
        assert_eq!(free.take_lowest(1, 1), None);
    }
}
