//! A cache that is asked many times at once: the part of a cache simulator that has to be fast.

/// How a cache is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// How many lines are looked for in the same place, by the lower bits of their addresses.
    pub sets: usize,
    /// How many of them fit there.
    pub ways: usize,
    /// The bytes of a line, a power of two.
    pub line: u64,
}

/// A cache: of the lines that share a place, those used last are kept.
#[derive(Debug)]
pub struct Cache {
    shape: Shape,
    /// The lines of each set, the one used last first; one more than the line's number, so that 0 is none.
    lines: Vec<u64>,
}

impl Cache {
    /// An empty cache; `None` if such a one cannot be.
    pub fn new(shape: Shape) -> Option<Self> {
        let is_sound = shape.sets > 0 && shape.ways > 0 && shape.line.is_power_of_two();
        let count = shape.sets.checked_mul(shape.ways).filter(|&count| count <= 1 << 32)?;
        is_sound.then(|| Self { shape, lines: vec![0; count] })
    }

    /// Touches these bytes; says how many lines of them were not there.
    #[inline]
    pub fn touch(&mut self, address: u64, bytes: u64) -> u32 {
        let shift = self.shape.line.trailing_zeros();
        let last = address.saturating_add(bytes.max(1) - 1) >> shift;
        (address >> shift..=last).map(|line| u32::from(self.touch_line(line))).sum()
    }

    fn touch_line(&mut self, line: u64) -> bool {
        let Shape { sets, ways, .. } = self.shape;
        let set = match sets.is_power_of_two() {
            true => line as usize & (sets - 1),
            false => (line % sets as u64) as usize,
        };
        let lines = &mut self.lines[set * ways..(set + 1) * ways];
        let found = lines.iter().position(|&held| held == line + 1);
        lines[..=found.unwrap_or(ways - 1)].rotate_right(1);
        lines[0] = line + 1;
        found.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_used_longest_ago_goes() {
        let mut cache = Cache::new(Shape { sets: 2, ways: 2, line: 64 }).expect("a cache");
        assert_eq!(cache.touch(0, 8), 1);
        assert_eq!(cache.touch(63, 1), 0);
        assert_eq!(cache.touch(60, 8), 1, "the second half");
        assert_eq!(cache.touch(128, 4), 1);
        assert_eq!(cache.touch(0, 4), 0);
        assert_eq!(cache.touch(256, 4), 1, "in the place of 128");
        assert_eq!(cache.touch(0, 4), 0);
        assert_eq!(cache.touch(128, 4), 1);
    }

    #[test]
    fn what_cannot_be_is_not() {
        assert!(Cache::new(Shape { sets: 0, ways: 1, line: 64 }).is_none());
        assert!(Cache::new(Shape { sets: 1, ways: 1, line: 48 }).is_none());
        assert!(Cache::new(Shape { sets: usize::MAX, ways: 4, line: 64 }).is_none());
        let mut whole = Cache::new(Shape { sets: 3, ways: 1, line: 1 << 63 }).expect("a cache");
        assert_eq!(whole.touch(u64::MAX, 8), 1);
    }
}
