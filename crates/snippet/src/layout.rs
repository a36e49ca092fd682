//! Where data are: the layout of the memory that generated code writes and weft reads.
//!
//! A *region* is `count` slabs of `stride` bytes. Each thread owns one slab, found by its `fs` base:
//! nothing is shared between threads, so nothing is locked. A slab is a header, the thread's state,
//! and what is summed or read by weft. A new owner must find the state zero: so is fresh memory, and
//! so leaves it who retires a slab.
//!
//! | from            | to              |                                             |
//! |-----------------|-----------------|---------------------------------------------|
//! | 0               | 64              | header, see [`header`]                      |
//! | 64              | `state_end`     | state: locals, running timers, stamps       |
//! | `state_end`     | stride          | counters, histograms, maps, rings           |
//!
//! Slab 0 is never owned (its owner is all ones), and the last one is shared by all threads that
//! found no other: values in it may be inexact, and its flag says so.
//!
//! The owner word is the thread's `fs` base xor the process's *salt*. The salt has the process id in
//! its highest bits, and once more where the slab is picked, so that children do not all queue up
//! behind their parent; it is in a page that the kernel zeroes in a forked child, so that a child never
//! mistakes its parent's slab for its own.
//!
//! A thread looks for its slab from its [home](Region::home) on, until it finds it or one that never had
//! an owner. So a slab that is given back is not like one that never had any: those behind it would
//! no longer be found. See [`header::RETIRED`].

use crate::ir::{Buckets, Datum, DatumKind};

/// Offsets in a slab's header.
pub mod header {
    /// Whose slab it is: 0 if it never was anybody's, [`RETIRED`] if it no longer is (`u64`). While its
    /// new owner signs it, bit 1 is flipped.
    pub const OWNER: u32 = 0;
    /// The owner's thread id, as its own namespace numbers it (`u32`).
    pub const TID: u32 = 8;
    /// The owner's process id (`u32`); 0 in the overflow slab.
    pub const PID: u32 = 12;
    /// See [`OVERFLOWED`] (`u32`).
    pub const FLAGS: u32 = 16;
    /// How many loads could not be done (`u64`).
    pub const FAULTS: u32 = 24;
    /// How many calls were not made because one was running (`u64`).
    pub const SKIPPED_CALLS: u32 = 32;
    /// Of slab 0: how often any slab was claimed (`u64`).
    pub const CLAIMS: u32 = 40;
    /// Not 0 while a snippet's call runs (`u64`). State, like what follows the header.
    pub const CALLING: u32 = 56;
    /// Its length.
    pub const SIZE: u32 = 64;

    /// In the flags of the last slab: threads share it, values may be inexact.
    pub const OVERFLOWED: u32 = 1;
    /// The owner of a slab that was given back. No thread's word is like it: theirs have bit 0 set.
    pub const RETIRED: u64 = 2;
    /// What is flipped in the owner word while a slab is made ready.
    pub const PREPARING: u64 = 2;
}

/// The shape of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// How many slabs, as a power of two: 2 to 20.
    pub count_log2: u8,
    /// How long a slab is, as a power of two; `count * stride` must stay below 2^31.
    pub stride_log2: u8,
    /// Where in a slab the thread's state ends; a multiple of 8.
    pub state_end: u32,
    /// The lowest bit of the `fs` base that picks the slab: 12 where threads have stacks of their
    /// own with their thread control block, lower where these are packed closer (Go: 11).
    pub key_shift: u8,
}

impl Region {
    /// How many slabs.
    pub const fn count(&self) -> usize {
        1 << self.count_log2
    }

    /// How long a slab is.
    pub const fn stride(&self) -> usize {
        1 << self.stride_log2
    }

    /// How long the region is.
    pub const fn size(&self) -> usize {
        self.count() * self.stride()
    }

    /// Whether it can be used as the module says.
    pub const fn is_valid(&self) -> bool {
        self.count_log2 >= 2
            && self.count_log2 <= 20
            && self.key_shift >= 4
            && self.key_shift + self.count_log2 <= 32
            && self.count_log2 + self.stride_log2 <= 30
            && self.stride_log2 >= 7
            && self.state_end >= header::SIZE
            && self.state_end as usize <= self.stride()
            && self.state_end.is_multiple_of(8)
    }

    /// Whether a datum at a place is inside the part of a slab that is meant for it.
    pub fn holds(&self, datum: &Datum, place: Place) -> bool {
        let inside = |at: u32, size: u32, low: u32, high: usize| {
            size == 0
                || at >= low && at as usize + size as usize <= high && at.is_multiple_of(ALIGNMENT)
        };
        inside(place.state, datum.state_size(), header::SIZE, self.state_end as usize)
            && inside(place.sums, datum.size(), self.state_end, self.stride())
    }

    /// The slab that a thread looks at first.
    pub const fn home(&self, key: u64) -> usize {
        (key as u32 >> self.key_shift) as usize & (self.count() - 1)
    }

    /// Makes fresh zeroed memory a region.
    pub fn initialise(&self, memory: &mut [u8]) {
        memory[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        let last = (self.count() - 1) * self.stride();
        memory[last..last + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    }
}

/// Where in a salt the process id is. It has 22 bits on Linux.
pub const SALT_SHIFT: u8 = 41;

/// Where it is once more, to pick slabs.
pub const SALT_HOME_SHIFT: u8 = 12;

/// The salt of a process.
pub const fn salt(pid: u32) -> u64 {
    (pid as u64) << SALT_SHIFT | (pid as u64) << SALT_HOME_SHIFT | 1
}

/// Where a datum is in every slab. What a datum does not have (see [`Datum::state_size`]) is not
/// looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// Its state, between [`header::SIZE`] and [`Region::state_end`].
    pub state: u32,
    /// Its sums, after [`Region::state_end`].
    pub sums: u32,
}

/// Every datum is aligned to this.
pub const ALIGNMENT: u32 = 8;

/// Of a timer's state: the frame of the outermost start; 0 if it does not run.
pub const TIMER_FRAME: u32 = 0;
/// Of a timer's state: when it was started, in its clock's unit.
pub const TIMER_START: u32 = 8;
/// Of a timer's state: how many starts are not stopped; means nothing while it does not run.
pub const TIMER_DEPTH: u32 = 16;
/// Of a timer's state: the highest frame that it was ever started in. If a call returns from there or below while the
/// timer does not run, more than one stack is in use: on one stack, nothing starts above a call that still runs.
pub const TIMER_TOP: u32 = 24;
/// Of a timer's sums: the time, in its clock's unit (wall: ticks, cpu: nanoseconds).
pub const TIMER_TOTAL: u32 = 0;
/// Of a timer's sums: how often it was stopped.
pub const TIMER_COUNT: u32 = 8;
/// Of a timer's sums: how often it was started again although it ran, in a call that was not inside the one which had
/// started it: that one has not returned, or is on another stack, and its time is lost. And how often a call
/// returned that had been taken for ended.
pub const TIMER_LEFT: u32 = 16;

/// Of a histogram: the sum of all values.
pub const HISTOGRAM_SUM: u32 = 0;
/// Of a histogram: its buckets. Log2: by the number of leading zeros. Fine: see [`bucket`]. Linear:
/// below, steps, above.
pub const HISTOGRAM_BUCKETS: u32 = 8;

/// How many buckets a fine histogram has between two powers of two: itself one.
pub const FINE_STEPS: i64 = 16;
/// How many buckets a fine histogram has.
pub const FINE_BUCKETS: u32 = 61 * FINE_STEPS as u32;

/// Of a map: how many additions found no room.
pub const MAP_LOST: u32 = 0;
/// Of a map: the sum of what found no room.
pub const MAP_LOST_SUM: u32 = 8;
/// Of a map: its entries. One key: key xor [`MAP_MIX`], sum. Two: tag, key, key, sum.
pub const MAP_ENTRIES: u32 = 16;
/// How many entries are looked at for a key.
pub const MAP_PROBES: u32 = 16;
/// Makes hashes; odd. The one key that equals it is never held.
pub const MAP_MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// The tag of an entry with two keys while they are written.
pub const MAP_WRITING: u64 = 2;

/// How many texts a table is made for.
pub const TEXTS_CAPACITY: u32 = 1024;
/// How many bytes of a text are kept; one that is longer shares its number with others that begin like it.
pub const TEXT_SIZE: u32 = 120;
/// Of an entry of texts: its number, odd, or [`MAP_WRITING`] while the text is written; 0 if free. The text follows,
/// with zeros behind it.
pub const TEXT_BYTES: u32 = 8;
/// How long an entry of texts is.
pub const TEXT_ENTRY: u32 = TEXT_BYTES + TEXT_SIZE;

/// The number that stands for a text, of its bytes with zeros behind them. Odd, so not 0.
pub fn text_id(words: &[u64]) -> u64 {
    let hash = words.iter().take_while(|&&word| word != 0).fold(0_u64, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(MAP_MIX);
        mixed ^ mixed >> 32
    });
    hash | 1
}

/// The entry where a text is looked for first.
pub fn text_home(id: u64) -> u32 {
    top(id, TEXTS_CAPACITY.trailing_zeros())
}

/// How many stacks a table is made for.
pub const STACKS_CAPACITY: u32 = 1024;
/// How many frames of a stack are kept at most.
pub const STACKS_DEPTH: u32 = 127;
/// For how many addresses there is room in all.
pub const STACKS_WORDS: u32 = 1 << 15;
/// Of stacks: how many words are taken for addresses.
pub const STACKS_TOP: u32 = 0;
/// Of stacks: their entries, of two words. The first is the number, odd, or [`MAP_WRITING`] while the entry is written; 0
/// if free. The second is which of the words is its first address; from bit 32 on how many; from bit 48 on its flags.
pub const STACKS_ENTRIES: u32 = 8;
/// Of stacks: the addresses, with room for one more stack that is not kept.
pub const STACKS_ARENA: u32 = STACKS_ENTRIES + 16 * (STACKS_CAPACITY + MAP_PROBES - 1);
/// In the flags of a stack: there are more frames.
pub const STACK_CUT: u64 = 1;
/// In an address of a stack: a signal handler returns there. What follows is the next instruction of what was
/// interrupted, where others are what a call returns to.
pub const SIGNAL_FRAME: u64 = 1 << 63;
/// The same in one that a frame pointer alone has led to, where there was no rule: there may be calls in between.
pub const GUESSED_FRAME: u64 = 1 << 62;
/// Of the state for stacks: from where on memory is known to be there, in pages, and how many pages (28 bits).
pub const STACKS_RANGE: u32 = 0;
/// Of the state for stacks: the number of the list of regions that the cache is for.
pub const STACKS_GENERATION: u32 = 8;
/// Of the state for stacks: rules by addresses; of each word, 16 bits are the rule's index.
pub const STACKS_CACHE: u32 = 16;
/// How many rules, as a power of two.
pub const STACKS_CACHE_LOG2: u8 = 10;

/// The number that stands for a stack. Odd, so not 0.
pub fn stack_id(addresses: impl Iterator<Item = u64>, flags: u64) -> u64 {
    let hash =
        addresses.map(|one| one & !GUESSED_FRAME).chain([flags]).fold(0_u64, |hash, word| {
            let mixed = (hash ^ word).wrapping_mul(MAP_MIX);
            mixed ^ mixed >> 32
        });
    hash | 1
}

/// Of a ring: how many records were begun.
pub const RING_HEAD: u32 = 0;
/// Of a ring: how many were lost.
pub const RING_LOST: u32 = 8;
/// Of a blocking ring: the tail at which waiting was given up, plus 1.
pub const RING_STALLED: u32 = 16;
/// Of a ring: how many records were read. Written by the reader, so in a cache line of its own.
pub const RING_TAIL: u32 = 64;
/// Of a ring: its records, each its fields and then the number of the record plus 1.
pub const RING_RECORDS: u32 = 128;

/// Of a mark's sums: how often a call returned that had no stamp.
pub const MARK_UNKNOWN: u32 = 0;
/// Of a mark's sums: how many stamps were dropped, because their calls did not return or there was no room.
pub const MARK_LEFT: u32 = 8;
/// How many homes a mark's table has.
pub const MARK_HOMES: u32 = 64;
/// How many entries are looked at for a frame.
pub const MARK_PROBES: u32 = 8;
/// Of a mark's entry: the frame; 0 if free.
pub const MARK_FRAME: u32 = 0;
/// Of a mark's entry: when, in ticks.
pub const MARK_TICKS: u32 = 8;
/// How far below a frame others are taken to be on the same stack, and so dead.
pub const MARK_REACH: u32 = 1 << 20;

impl Datum {
    /// How many bytes of sums it has; a multiple of [`ALIGNMENT`].
    pub fn size(&self) -> u32 {
        match &self.kind {
            DatumKind::Counter(_) => 8,
            DatumKind::Timer(_) => 24,
            DatumKind::Histogram(Buckets::Log2) => HISTOGRAM_BUCKETS + 65 * 8,
            DatumKind::Histogram(Buckets::Fine) => HISTOGRAM_BUCKETS + FINE_BUCKETS * 8,
            DatumKind::Histogram(Buckets::Linear { count, .. }) => {
                HISTOGRAM_BUCKETS + (count + 2) * 8
            }
            DatumKind::Map { keys, capacity, .. } => {
                MAP_ENTRIES + (capacity + MAP_PROBES - 1) * map_entry_size(*keys)
            }
            DatumKind::Ring { fields, capacity, .. } => {
                RING_RECORDS + capacity * record_size(fields.len())
            }
            DatumKind::Local => 0,
            DatumKind::Mark => 16,
            DatumKind::Texts => (TEXTS_CAPACITY + MAP_PROBES - 1) * TEXT_ENTRY,
            DatumKind::Stacks => STACKS_ARENA + 8 * (STACKS_WORDS + STACKS_DEPTH),
        }
    }

    /// How many bytes of state it has; a multiple of [`ALIGNMENT`].
    pub fn state_size(&self) -> u32 {
        match self.kind {
            DatumKind::Timer(_) => 32,
            DatumKind::Local => 8,
            DatumKind::Mark => (MARK_HOMES + MARK_PROBES - 1) * 16,
            DatumKind::Stacks => STACKS_CACHE + (8 << STACKS_CACHE_LOG2),
            _ => 0,
        }
    }

    /// What its sums should be aligned to: a cache line where a reader writes too.
    pub fn alignment(&self) -> u32 {
        if matches!(self.kind, DatumKind::Ring { .. }) { 64 } else { ALIGNMENT }
    }
}

/// How long an entry of a map is.
pub const fn map_entry_size(keys: u8) -> u32 {
    if keys == 1 { 16 } else { 32 }
}

/// How long a record is.
pub const fn record_size(fields: usize) -> u32 {
    (fields as u32 + 1) * 8
}

/// Where a key (or two) is looked for first, and the word that says an entry is its own.
pub fn map_hash(keys: &[u64], capacity: u32) -> (u32, u64) {
    let log2 = capacity.trailing_zeros();
    match *keys {
        [key] => {
            let tag = key ^ MAP_MIX;
            (top(tag.wrapping_mul(MAP_MIX), log2), tag)
        }
        _ => {
            let mixed = keys[0].wrapping_mul(MAP_MIX).wrapping_add(keys[1]).wrapping_mul(MAP_MIX);
            (top(mixed, log2), mixed | 1)
        }
    }
}

fn top(value: u64, bits: u32) -> u32 {
    if bits == 0 { 0 } else { (value >> (64 - bits)) as u32 }
}

/// Gives out places one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Allocator {
    state: u32,
    state_end: u32,
    sums: u32,
    sums_end: u32,
}

impl Allocator {
    /// All of a slab is free but its header.
    pub fn new(region: &Region) -> Self {
        Self {
            state: header::SIZE,
            state_end: region.state_end,
            sums: region.state_end.next_multiple_of(64),
            sums_end: region.stride() as u32,
        }
    }

    /// A place for a datum, if there is room.
    pub fn place(&mut self, datum: &Datum) -> Option<Place> {
        let state = self.state;
        let state_end = state.checked_add(datum.state_size())?;
        let sums = self.sums.next_multiple_of(datum.alignment());
        let sums_end = sums.checked_add(datum.size())?;
        if state_end > self.state_end || sums_end > self.sums_end {
            return None;
        }
        (self.state, self.sums) = (state_end, sums_end);
        Some(Place { state, sums })
    }
}

/// The number of the bucket that a value falls into.
pub fn bucket(buckets: Buckets, value: i64) -> u32 {
    match buckets {
        Buckets::Log2 => value.leading_zeros(),
        Buckets::Fine => {
            let shift = 63 - (value | FINE_STEPS).leading_zeros() - FINE_STEPS.trailing_zeros();
            FINE_STEPS as u32 * shift + (value as u64 >> shift) as u32
        }
        Buckets::Linear { low, step, count } => {
            if value < low {
                return 0;
            }
            let above = value.wrapping_sub(low) as u64 / u64::from(step);
            1 + above.min(u64::from(count)) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fine_buckets_are_a_sixteenth_wide() {
        let numbers = [0, 1, 15, 16, 31, 32, 33, 34, 63, 64, 67, 68, 1000, 1 << 40, i64::MAX];
        let found = numbers.map(|number| bucket(Buckets::Fine, number));
        assert_eq!(found[..12], [0, 1, 15, 16, 31, 32, 32, 33, 47, 48, 48, 49]);
        assert!(found.is_sorted());
        assert!(bucket(Buckets::Fine, -1) < FINE_BUCKETS);
    }
}
