//! What came before: from here on it goes as it went the last time, but for differences. Writer and reader keep the
//! same history, so that only the differences have to be kept.
//!
//! Words are compared eight at a time with those that followed the same blocks before. Which of them are numbers
//! of blocks is known from there, too, as long as those are the same.

/// How many words are compared at once.
pub(crate) const GROUP: usize = 8;
/// Where the first word is: those in front of it belong to no block.
const FRONT: usize = GROUP;
/// Where the last one ends: as much as a processor has close by.
const END: usize = 1 << 17;
/// How far in front of what is written the oldest words are let alone: a few are overwritten in advance.
const MARGIN: usize = 3 * GROUP;
/// How many bits of a note are the place; the others are the lap.
const PLACE_BITS: u32 = 20;
const CONTEXTS_SHIFT: u32 = 64 - 15;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// How many places there are: for what is kept beside the words.
pub(crate) const PLACES: usize = END + GROUP;

/// What stands in the place of a number that is never to be recognised.
const NEVER: u64 = u64::MAX;

/// The last words of a thread, in a circle.
#[derive(Debug)]
pub(crate) struct History {
    words: Box<[u64; PLACES]>,
    /// 1 where a block begins, else 0.
    heads: Box<[u8; PLACES]>,
    /// Where the next word goes, and how often that has gone round, from 1.
    at: usize,
    lap: u32,
    /// Where it went on the last time, if there is such a time.
    from: Option<usize>,
    /// Where each block, after the two before it, was met last: the lap and the place.
    contexts: Box<[u32]>,
    /// The same of each block, whatever was before it.
    numbers: Vec<u32>,
}

impl History {
    pub fn new() -> Self {
        let boxed = |length| vec![0; length].into_boxed_slice();
        Self {
            words: boxed(PLACES).try_into().expect("its length"),
            heads: vec![0; PLACES].into_boxed_slice().try_into().expect("its length"),
            at: FRONT,
            lap: 1,
            from: None,
            contexts: vec![0; 1 << (64 - CONTEXTS_SHIFT)].into(),
            numbers: Vec::new(),
        }
    }

    /// Makes room for blocks that have come.
    pub fn fit(&mut self, blocks: usize) {
        self.numbers.resize(blocks, 0);
    }

    /// Forgets all of it.
    pub fn forget(&mut self) {
        (self.at, self.lap, self.from) = (FRONT, 1, None);
        self.contexts.fill(0);
        self.numbers.fill(0);
    }

    /// Where the next word goes.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Where it goes on as it did, if anywhere.
    #[inline]
    pub fn from(&self) -> Option<usize> {
        self.from
    }

    /// What came last time, and where blocks begin there: a bit each. Not all of it may be compared: see [`Self::room`].
    #[inline]
    pub fn expected(&self, from: usize) -> (&[u64; GROUP], u32) {
        let words = self.words[from..from + GROUP].try_into().expect("a group");
        let heads = self.heads[from..from + GROUP].try_into().expect("a group");
        // The lowest bit of each byte, gathered in the highest one.
        let heads = u64::from_le_bytes(heads).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        (words, heads as u32)
    }

    /// How many words can be compared at once.
    #[inline]
    pub fn room(&self, from: usize) -> usize {
        let behind = if from < self.at { self.at - from } else { END - from };
        GROUP.min(END - self.at).min(behind)
    }

    /// So many of these words have come, the blocks in the same places as the last time.
    #[inline]
    pub fn follow(&mut self, from: usize, words: &[u64; GROUP], count: usize) {
        debug_assert!(count <= GROUP);
        self.words[self.at..self.at + GROUP].copy_from_slice(words);
        let heads: [u8; GROUP] = self.heads[from..from + GROUP].try_into().expect("a group");
        self.heads[self.at..self.at + GROUP].copy_from_slice(&heads);
        // One of its blocks is noted, so that what is followed for long is not forgotten.
        let head = u64::from_le_bytes(heads).trailing_zeros() as usize / 8;
        if head < count
            && let Some(last) = self.numbers.get_mut(words[head] as usize)
        {
            *last = self.lap << PLACE_BITS | (self.at + head) as u32;
        }
        self.go(count);
        let next = from + count;
        self.from = Some(if next == END { FRONT } else { next });
    }

    #[inline]
    fn go(&mut self, count: usize) {
        self.at += count;
        if self.at == END {
            self.at = FRONT;
            self.lap += 1;
        }
    }

    /// A block comes that was not expected: looks where it was before.
    #[inline]
    pub fn meet(&mut self, number: u32) {
        let context = self.context(number);
        let found = self.contexts[context];
        let found = self.place(found, number).or_else(|| {
            let last = self.numbers.get(number as usize).copied();
            last.and_then(|last| self.place(last, number))
        });
        let here = self.lap << PLACE_BITS | self.at as u32;
        self.contexts[context] = here;
        if let Some(last) = self.numbers.get_mut(number as usize) {
            *last = here;
        }
        self.from = found.map(|found| self.further_back(found, number.into()));
    }

    /// A word of a block that was not met before.
    pub fn append(&mut self, word: u64, is_head: bool) {
        self.words[self.at] = word;
        self.heads[self.at] = is_head.into();
        self.go(1);
    }

    /// A block that shall not be recognised when it comes again begins.
    pub fn append_unique(&mut self) {
        self.from = None;
        self.append(NEVER, true);
    }

    /// A block and the two in front of it, if they are not too long.
    #[inline]
    fn context(&self, number: u32) -> usize {
        let heads = self.heads[self.at - GROUP..self.at].try_into().expect("a group");
        let mut heads = u64::from_le_bytes(heads);
        let mut context = u64::from(number);
        for _ in 0..2 {
            if heads != 0 {
                let back = heads.leading_zeros() as usize / 8;
                context = context.wrapping_mul(MIX) ^ self.words[self.at - 1 - back];
                heads &= !(0xff << (56 - 8 * back));
            }
        }
        (context.wrapping_mul(MIX) >> CONTEXTS_SHIFT) as usize
    }

    /// The place where a block was met, if it still is there.
    #[inline]
    fn place(&self, noted: u32, number: u32) -> Option<usize> {
        let (lap, place) = (noted >> PLACE_BITS, (noted & ((1 << PLACE_BITS) - 1)) as usize);
        let is_here = lap == self.lap && place < self.at
            || lap + 1 == self.lap && lap != 0 && place > self.at + MARGIN;
        let is_same = || self.words[place] == u64::from(number) && self.heads[place] == 1;
        (is_here && is_same()).then_some(place)
    }

    /// The same place some rounds earlier, if it is that of a loop which is shorter than a group.
    #[inline]
    fn further_back(&self, mut place: usize, number: u64) -> usize {
        if place < self.at && self.at - place < GROUP {
            let round = self.at - place;
            let is_such = |place: usize| self.words[place] == number && self.heads[place] == 1;
            while self.at - place < GROUP && place >= FRONT + round && is_such(place - round) {
                place -= round;
            }
        }
        place
    }
}
