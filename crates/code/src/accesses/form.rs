//! Values as sums: what a register holds, in terms of what others have held.

/// How many general registers there are.
pub const REGISTERS: usize = 16;

/// The most terms that a form can have.
const TERMS: usize = 3;

/// The first source that nothing is known of.
const UNKNOWN: u16 = 1 << 15;

/// A sum of multiples of sources and a constant, modulo 2^64. Sources have numbers: below 16 the general registers
/// as they were before the first instruction, from there on the captures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    constant: u64,
    count: u8,
    sources: [u16; TERMS],
    factors: [u64; TERMS],
}

impl Form {
    /// Always the same.
    pub const fn constant(constant: u64) -> Self {
        Self { constant, count: 0, sources: [0; TERMS], factors: [0; TERMS] }
    }

    /// The value of a source itself.
    pub(super) const fn of(source: u16) -> Self {
        Self { constant: 0, count: 1, sources: [source, 0, 0], factors: [1, 0, 0] }
    }

    /// A value that nothing is known of.
    pub(super) const fn unknown(number: u16) -> Self {
        Self::of(UNKNOWN | number & (UNKNOWN - 1))
    }

    /// Its value, if the sources have these.
    #[inline]
    pub fn value(&self, sources: &[u64]) -> u64 {
        self.terms().fold(self.constant, |sum, (source, factor)| {
            let value = sources.get(source as usize).copied().unwrap_or(0);
            sum.wrapping_add(value.wrapping_mul(factor))
        })
    }

    /// The sources, and how often each counts.
    pub fn terms(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (0..self.count as usize).map(|term| (self.sources[term], self.factors[term]))
    }

    /// What is added to the sources.
    pub fn offset(&self) -> u64 {
        self.constant
    }

    pub(super) fn is_of_captures(&self) -> bool {
        self.terms().all(|(source, _)| source as usize >= REGISTERS && source < UNKNOWN)
    }

    /// The register that it is, at the beginning, but for a constant.
    pub(super) fn only_register(&self) -> Option<u8> {
        let is_one = self.count == 1 && self.factors[0] == 1;
        (is_one && (self.sources[0] as usize) < REGISTERS).then_some(self.sources[0] as u8)
    }

    /// The one source that is not a capture, if it counts once.
    pub(super) fn single_unknown(&self) -> Option<u16> {
        let is_open = |source: u16| (source as usize) < REGISTERS || source >= UNKNOWN;
        let mut open = self.terms().filter(|&(source, _)| is_open(source));
        match (open.next(), open.next()) {
            (Some((source, 1)), None) => Some(source),
            _ => None,
        }
    }

    pub(super) fn times(&self, factor: u64) -> Self {
        let mut product = Self::constant(self.constant.wrapping_mul(factor));
        for (source, times) in self.terms() {
            // No more terms than before.
            product.add(source, times.wrapping_mul(factor));
        }
        product
    }

    /// The sum; `None` if it has too many terms.
    pub(super) fn plus(&self, other: &Self) -> Option<Self> {
        let mut sum = *self;
        sum.constant = sum.constant.wrapping_add(other.constant);
        other.terms().all(|(source, factor)| sum.add(source, factor)).then_some(sum)
    }

    pub(super) fn minus(&self, other: &Self) -> Option<Self> {
        self.plus(&other.times(u64::MAX))
    }

    /// The same with something in the place of a source; `None` if it has too many terms then.
    pub(super) fn with(&self, source: u16, value: &Self) -> Option<Self> {
        let Some((_, factor)) = self.terms().find(|&(term, _)| term == source) else {
            return Some(*self);
        };
        self.minus(&Self::of(source).times(factor))?.plus(&value.times(factor))
    }

    /// Adds a term; says whether there was room for it.
    fn add(&mut self, source: u16, factor: u64) -> bool {
        let count = self.count as usize;
        let at = self.sources[..count].iter().position(|&term| term == source).unwrap_or(count);
        if factor == 0 {
            return true;
        }
        if at == count {
            if count == TERMS {
                return false;
            }
            self.sources[at] = source;
            self.factors[at] = factor;
            self.count += 1;
            return true;
        }
        self.factors[at] = self.factors[at].wrapping_add(factor);
        if self.factors[at] == 0 {
            self.count -= 1;
            let last = self.count as usize;
            self.sources[at] = self.sources[last];
            self.factors[at] = self.factors[last];
            self.sources[last] = 0;
            self.factors[last] = 0;
        }
        true
    }
}
