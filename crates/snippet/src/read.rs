//! What weft reads out of slabs, while the program goes on writing them.

use crate::ir::{Buckets, DatumKind, TimerClock};
use crate::layout::{
    FINE_BUCKETS, FINE_STEPS, HISTOGRAM_BUCKETS, HISTOGRAM_SUM, MAP_ENTRIES, MAP_LOST,
    MAP_LOST_SUM, MAP_MIX, MAP_PROBES, MARK_LEFT, Place, RING_HEAD, RING_LOST, RING_RECORDS,
    RING_TAIL, Region, STACK_CUT, STACKS_ARENA, STACKS_CAPACITY, STACKS_DEPTH, STACKS_ENTRIES,
    STACKS_WORDS, TEXT_BYTES, TEXT_ENTRY, TEXT_SIZE, TEXTS_CAPACITY, TIMER_COUNT, TIMER_FRAME,
    TIMER_LEFT, TIMER_START, TIMER_TOTAL, header, map_entry_size, record_size, stack_id, text_id,
};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// One slab, as the words that it is made of.
#[derive(Clone, Copy, Debug)]
pub struct Slab<'a> {
    words: &'a [AtomicU64],
}

impl<'a> Slab<'a> {
    /// The slab that these words are.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Self { words }
    }

    /// The word at an offset; 0 outside the slab.
    pub fn word(&self, offset: u32) -> u64 {
        self.at(offset).map_or(0, |word| word.load(Relaxed))
    }

    pub(crate) fn at(&self, offset: u32) -> Option<&'a AtomicU64> {
        self.words.get(offset as usize / 8)
    }

    /// Whose it is: see [`header::OWNER`].
    pub fn owner(&self) -> u64 {
        self.word(header::OWNER)
    }

    /// Its thread and process. They stay when the thread is gone.
    pub fn thread(&self) -> (u32, u32) {
        let both = self.word(header::TID);
        (both as u32, (both >> 32) as u32)
    }

    /// Whether several threads have written it, so that its values may be inexact.
    pub fn overflowed(&self) -> bool {
        self.word(header::FLAGS) as u32 & header::OVERFLOWED != 0
    }

    /// How many loads could not be done.
    pub fn faults(&self) -> u64 {
        self.word(header::FAULTS)
    }

    /// How many calls were skipped.
    pub fn skipped_calls(&self) -> u64 {
        self.word(header::SKIPPED_CALLS)
    }

    /// Whether a thread has, or had, values here that were not given to another slab.
    pub fn is_used(&self) -> bool {
        self.thread().1 != 0 || self.overflowed()
    }

    /// Whether anything but zeros may be here.
    pub fn was_used(&self) -> bool {
        self.owner() != 0
    }

    /// Makes some of it zero again. No thread may be writing there.
    pub fn clear(&self, offset: u32, length: u32) {
        for at in (offset..offset + length).step_by(8) {
            if let Some(word) = self.at(at) {
                word.store(0, Relaxed);
            }
        }
    }
}

/// All slabs of a region that may hold values.
pub fn slabs<'a>(
    words: &'a [AtomicU64],
    region: &Region,
) -> impl DoubleEndedIterator<Item = Slab<'a>> {
    words.chunks_exact(region.stride() / 8).skip(1).map(Slab::new)
}

/// How often a slab of a region was claimed.
pub fn claims(words: &[AtomicU64]) -> u64 {
    Slab::new(words).word(header::CLAIMS)
}

/// A counter's value.
pub fn sum_counter<'a>(slabs: impl Iterator<Item = Slab<'a>>, place: Place) -> i64 {
    slabs.fold(0, |sum: i64, slab| sum.wrapping_add(slab.word(place.sums) as i64))
}

/// What a timer has measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimerSum {
    /// Ticks (wall) or nanoseconds (cpu).
    pub total: u64,
    /// How often it was stopped.
    pub count: u64,
    /// How many calls that it was started in did not return, so that their time is lost.
    pub left: u64,
    /// In how many threads it runs.
    pub running: u64,
    /// Of those, the time so far; only known for wall timers.
    pub so_far: u64,
}

/// A timer's value; `ticks` is the time now.
pub fn sum_timer<'a>(
    slabs: impl Iterator<Item = Slab<'a>>,
    place: Place,
    clock: TimerClock,
    ticks: u64,
) -> TimerSum {
    let mut sum = TimerSum::default();
    for slab in slabs {
        sum.total = sum.total.wrapping_add(slab.word(place.sums + TIMER_TOTAL));
        sum.count = sum.count.wrapping_add(slab.word(place.sums + TIMER_COUNT));
        sum.left = sum.left.wrapping_add(slab.word(place.sums + TIMER_LEFT));
        if slab.word(place.state + TIMER_FRAME) != 0 {
            sum.running += 1;
            if clock == TimerClock::Wall {
                sum.so_far += ticks.saturating_sub(slab.word(place.state + TIMER_START));
            }
        }
    }
    sum
}

/// How many stamps of a mark were dropped.
pub fn sum_mark<'a>(slabs: impl Iterator<Item = Slab<'a>>, place: Place) -> u64 {
    slabs.fold(0, |sum: u64, slab| sum.wrapping_add(slab.word(place.sums + MARK_LEFT)))
}

/// A histogram's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSum {
    /// The sum of all values.
    pub sum: i64,
    /// Each bucket's lowest value and how many fell into it, in order. The first of a linear
    /// histogram has all that is lower than the second. A log2 histogram's values are unsigned.
    pub buckets: Vec<(i64, u64)>,
}

/// A histogram's values.
pub fn sum_histogram<'a>(
    slabs: impl Iterator<Item = Slab<'a>>,
    place: Place,
    buckets: Buckets,
) -> HistogramSum {
    let mut counts = vec![0_u64; bucket_count(buckets) as usize];
    let mut sum = 0_i64;
    for slab in slabs {
        sum = sum.wrapping_add(slab.word(place.sums + HISTOGRAM_SUM) as i64);
        for (index, count) in counts.iter_mut().enumerate() {
            let word = slab.word(place.sums + HISTOGRAM_BUCKETS + 8 * index as u32);
            *count = count.wrapping_add(word);
        }
    }
    let lowest = |index: usize| match buckets {
        Buckets::Log2 if index == 0 => 0,
        Buckets::Log2 => (1_u64 << (index - 1)) as i64,
        Buckets::Fine => {
            let shift = (index as i64 / FINE_STEPS - 1).max(0);
            (index as i64 - FINE_STEPS * shift) << shift
        }
        Buckets::Linear { .. } if index == 0 => i64::MIN,
        Buckets::Linear { low, step, .. } => {
            low.saturating_add(i64::from(step) * (index as i64 - 1))
        }
    };
    if buckets == Buckets::Log2 {
        // They are by leading zeros.
        counts.reverse();
    }
    let buckets = counts.into_iter().enumerate().map(|(index, count)| (lowest(index), count));
    HistogramSum { sum, buckets: buckets.collect() }
}

fn bucket_count(buckets: Buckets) -> u32 {
    match buckets {
        Buckets::Log2 => 65,
        Buckets::Fine => FINE_BUCKETS,
        Buckets::Linear { count, .. } => count + 2,
    }
}

/// How many values a histogram has in one slab, and their sum.
pub fn histogram_count(slab: Slab<'_>, place: Place, buckets: Buckets) -> (i64, i64) {
    let counts = (0..bucket_count(buckets))
        .map(|index| slab.word(place.sums + HISTOGRAM_BUCKETS + 8 * index));
    let count = counts.fold(0_u64, u64::wrapping_add);
    (count as i64, slab.word(place.sums + HISTOGRAM_SUM) as i64)
}

/// A map's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSum {
    /// By key; the second key is 0 if there is one only.
    pub entries: BTreeMap<[u64; 2], i64>,
    /// How many additions found no room.
    pub lost: u64,
    /// The sum of what found no room.
    pub lost_sum: i64,
}

/// A map's values.
pub fn sum_map<'a>(
    slabs: impl Iterator<Item = Slab<'a>>,
    place: Place,
    keys: u8,
    capacity: u32,
) -> MapSum {
    let mut sum = MapSum::default();
    for slab in slabs {
        sum.lost = sum.lost.wrapping_add(slab.word(place.sums + MAP_LOST));
        sum.lost_sum = sum.lost_sum.wrapping_add(slab.word(place.sums + MAP_LOST_SUM) as i64);
        for (tag, entry, value) in map_entries(slab, place, keys, capacity) {
            let key = match keys {
                1 => [tag ^ MAP_MIX, 0],
                _ => [slab.word(entry + 8), slab.word(entry + 16)],
            };
            let total = sum.entries.entry(key).or_default();
            *total = total.wrapping_add(value);
        }
    }
    sum
}

/// The sum of all that a map holds in one slab, and how many additions found no room.
pub fn map_total(slab: Slab<'_>, place: Place, keys: u8, capacity: u32) -> (i64, i64) {
    let values = map_entries(slab, place, keys, capacity).map(|(_, _, value)| value);
    (values.fold(0, i64::wrapping_add), slab.word(place.sums + MAP_LOST) as i64)
}

/// The entries in use of a map in one slab: the word that marks each, where it is, and its sum.
pub(crate) fn map_entries<'a>(
    slab: Slab<'a>,
    place: Place,
    keys: u8,
    capacity: u32,
) -> impl Iterator<Item = (u64, u32, i64)> + 'a {
    let size = map_entry_size(keys);
    (0..capacity + MAP_PROBES - 1).filter_map(move |index| {
        let entry = place.sums + MAP_ENTRIES + index * size;
        let tag = slab.at(entry).map_or(0, |word| word.load(Acquire));
        // With two keys, an even one says that the keys are being written.
        let is_whole = tag != 0 && (keys == 1 || tag & 1 != 0);
        is_whole.then(|| (tag, entry, slab.word(entry + size - 8) as i64))
    })
}

/// The texts of a table, by the numbers that stand for them. What is being written is left out.
pub fn texts<'a>(slabs: impl Iterator<Item = Slab<'a>>, place: Place) -> BTreeMap<u64, Vec<u8>> {
    let mut texts = BTreeMap::new();
    for slab in slabs {
        for (id, words) in text_entries(slab, place) {
            texts.entry(id).or_insert_with(|| {
                let bytes = words.iter().flat_map(|word| word.to_le_bytes());
                bytes.take_while(|&byte| byte != 0).collect()
            });
        }
    }
    texts
}

/// The texts of one slab, with their numbers. The program can write to them, too: what does not fit is left out.
pub(crate) fn text_entries<'a>(
    slab: Slab<'a>,
    place: Place,
) -> impl Iterator<Item = (u64, [u64; TEXT_SIZE as usize / 8])> + 'a {
    (0..TEXTS_CAPACITY + MAP_PROBES - 1).filter_map(move |index| {
        let entry = place.sums + index * TEXT_ENTRY;
        let id = slab.at(entry).map_or(0, |word| word.load(Acquire));
        if id & 1 == 0 {
            return None;
        }
        let word = |index: usize| slab.word(entry + TEXT_BYTES + 8 * index as u32);
        let words = core::array::from_fn(word);
        (text_id(&words) == id).then_some((id, words))
    })
}

/// The calls that a thread was in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Addresses, the innermost first; see [`crate::layout::SIGNAL_FRAME`].
    pub addresses: Vec<u64>,
    /// Whether there are more that were not found.
    pub is_cut: bool,
}

/// The stacks of a table, by the numbers that stand for them. What is being written is left out.
pub fn stacks<'a>(slabs: impl Iterator<Item = Slab<'a>>, place: Place) -> BTreeMap<u64, Stack> {
    let mut stacks = BTreeMap::new();
    for slab in slabs {
        stacks.extend(stack_entries(slab, place));
    }
    stacks
}

/// The stacks of one slab, with their numbers. The program can write to them, too: what does not fit is left out.
pub(crate) fn stack_entries<'a>(
    slab: Slab<'a>,
    place: Place,
) -> impl Iterator<Item = (u64, Stack)> + 'a {
    (0..STACKS_CAPACITY + MAP_PROBES - 1).filter_map(move |index| {
        let entry = place.sums + STACKS_ENTRIES + index * 16;
        let id = slab.at(entry).map_or(0, |word| word.load(Acquire));
        if id & 1 == 0 {
            return None;
        }
        let (first, count, flags) = stack_place(slab.word(entry + 8))?;
        let address = |index: u32| slab.word(place.sums + STACKS_ARENA + 8 * (first + index));
        let addresses: Vec<u64> = (0..count).map(address).collect();
        let is_right = stack_id(addresses.iter().copied(), flags) == id;
        is_right.then_some((id, Stack { addresses, is_cut: flags & STACK_CUT != 0 }))
    })
}

/// Where the addresses of an entry are, how many, and its flags, if that can be.
fn stack_place(word: u64) -> Option<(u32, u32, u64)> {
    let (first, count, flags) = (word as u32, u32::from((word >> 32) as u16), word >> 48);
    let fits = count <= STACKS_DEPTH && first <= STACKS_WORDS - count;
    fits.then_some((first, count, flags))
}

/// How many records a ring of one slab has ever held, and how many were lost.
pub fn ring_written(slab: Slab<'_>, place: Place) -> (i64, i64) {
    (slab.word(place.sums + RING_HEAD) as i64, slab.word(place.sums + RING_LOST) as i64)
}

/// A ring in one slab. It must have one reader only.
#[derive(Clone, Copy, Debug)]
pub struct Ring<'a> {
    slab: Slab<'a>,
    at: u32,
    fields: usize,
    capacity: u32,
}

impl<'a> Ring<'a> {
    /// The ring of this kind at a place; `None` if the kind is another.
    pub fn new(slab: Slab<'a>, place: Place, kind: &DatumKind) -> Option<Self> {
        let DatumKind::Ring { fields, capacity, .. } = kind else { return None };
        Some(Self { slab, at: place.sums, fields: fields.len(), capacity: *capacity })
    }

    /// How many records were lost so far.
    pub fn lost(&self) -> u64 {
        self.slab.word(self.at + RING_LOST)
    }

    /// Gives all records that are whole, oldest first, and makes room for new ones.
    pub fn consume(&self, mut take: impl FnMut(&[u64])) -> u64 {
        self.read(false, &mut take)
    }

    /// The same for a thread that is gone: what it did not finish is passed over.
    pub fn drain(&self, mut take: impl FnMut(&[u64])) -> u64 {
        self.read(true, &mut take)
    }

    fn read(&self, pass_over: bool, take: &mut dyn FnMut(&[u64])) -> u64 {
        let Some(tail_word) = self.slab.at(self.at + RING_TAIL) else { return 0 };
        let size = record_size(self.fields);
        let start = tail_word.load(Relaxed);
        let (mut tail, mut passed) = (start, 0);
        let mut record = vec![0; self.fields];
        let head = self.slab.word(self.at + RING_HEAD);
        while tail != head {
            let index = tail as u32 & (self.capacity - 1);
            let at = self.at + RING_RECORDS + index * size;
            let stamp = self.slab.at(at + size - 8).map_or(0, |word| word.load(Acquire));
            if stamp == tail.wrapping_add(1) {
                for (field, value) in record.iter_mut().enumerate() {
                    *value = self.slab.word(at + 8 * field as u32);
                }
                take(&record);
            } else if pass_over {
                passed += 1;
            } else {
                break;
            }
            tail = tail.wrapping_add(1);
            tail_word.store(tail, Release);
        }
        tail.wrapping_sub(start) - passed
    }
}
