//! What is free of some memory: pieces that are taken, and given back in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The free pieces. No two of them touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    by_start: BTreeMap<u64, u64>,
    /// Length and start.
    by_length: BTreeSet<(u64, u64)>,
}

impl Extents {
    /// All of a range is free.
    pub fn new(range: Range<u64>) -> Self {
        let mut all = Self::default();
        all.keep(range.start, range.end - range.start);
        all
    }

    /// Takes the lowest room there is for a length, at a multiple of `alignment`.
    pub fn take_lowest(&mut self, length: u64, alignment: u64) -> Option<u64> {
        let (start, size, at) = self.by_start.iter().find_map(|(&start, &size)| {
            let at = start.next_multiple_of(alignment);
            (at + length <= start + size).then_some((start, size, at))
        })?;
        self.forget(start);
        self.keep(start, at - start);
        self.keep(at + length, start + size - at - length);
        Some(at)
    }

    /// Takes the start of the shortest piece that is long enough: what was given back is used again
    /// before anything that nobody has used yet.
    pub fn take_shortest(&mut self, length: u64) -> Option<u64> {
        let &(size, start) = self.by_length.range((length, 0)..).next()?;
        self.forget(start);
        self.keep(start + length, size - length);
        Some(start)
    }

    fn keep(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.by_start.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    /// Forgets the piece that begins at an address, if there is one; returns its length.
    fn forget(&mut self, start: u64) -> Option<u64> {
        let length = self.by_start.remove(&start)?;
        self.by_length.remove(&(length, start));
        Some(length)
    }

    /// Gives a piece back.
    pub fn give(&mut self, mut start: u64, mut length: u64) {
        length += self.forget(start + length).unwrap_or(0);
        if let Some((&before, &size)) = self.by_start.range(..start).next_back()
            && before + size == start
        {
            self.forget(before);
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
        assert_eq!(free.take_shortest(65), None);
        assert_eq!(free, Extents::new(8..72));
        assert_eq!(free.take_shortest(64), Some(8));
        assert_eq!(free.take_lowest(1, 1), None);
    }

    #[test]
    fn what_was_given_back_is_used_before_what_is_new() {
        let mut free = Extents::new(0..1000);
        let [first, _, third, _] = [30, 10, 20, 10].map(|n| free.take_shortest(n).unwrap());
        free.give(first, 30);
        free.give(third, 20);
        assert_eq!(free.take_shortest(16), Some(third));
        assert_eq!(free.take_shortest(16), Some(first));
        assert_eq!(free.take_shortest(16), Some(70));
    }

    #[test]
    fn those_that_come_before_others_go_take_no_more_and_more() {
        let mut free = Extents::new(0..1 << 20);
        let lengths = || (1..100).map(|n| 16 * n);
        let mut highest = 0;
        let mut last: Vec<(u64, u64)> = Vec::new();
        for _ in 0..1000 {
            let next: Vec<(u64, u64)> =
                lengths().map(|length| (free.take_shortest(length).unwrap(), length)).collect();
            highest = next.iter().map(|&(at, length)| at + length).fold(highest, u64::max);
            last.into_iter().for_each(|(at, length)| free.give(at, length));
            last = next;
        }
        assert!(highest <= 3 * lengths().sum::<u64>(), "{highest}");
    }
}
