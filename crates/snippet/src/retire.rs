//! What becomes of slabs whose owner has ended: what they hold goes to another, they go to who comes.

use crate::ir::{Datum, DatumKind};
use crate::layout::{
    MAP_ENTRIES, MAP_LOST, MAP_LOST_SUM, MAP_PROBES, Place, RING_HEAD, RING_LOST, Region,
    STACK_CUT, STACKS_ARENA, STACKS_CAPACITY, STACKS_ENTRIES, STACKS_TOP, STACKS_WORDS, TEXT_BYTES,
    TEXT_ENTRY, TEXTS_CAPACITY, header, map_entry_size,
};
use crate::read::{Slab, map_entries, stack_entries, text_entries};
use alloc::collections::{BTreeMap, BTreeSet};
use core::sync::atomic::Ordering::{Relaxed, Release};

impl Slab<'_> {
    /// Moves what a datum has measured here to another slab, which no program writes to. Records of rings
    /// are only counted there.
    pub fn fold(&self, into: Slab<'_>, datum: &Datum, place: Place) {
        match datum.kind {
            DatumKind::Map { keys, capacity, .. } => self.fold_map(into, place, keys, capacity),
            DatumKind::Texts => self.fold_texts(into, place),
            DatumKind::Stacks => self.fold_stacks(into, place),
            DatumKind::Ring { .. } => {
                for at in [RING_HEAD, RING_LOST] {
                    self.add_word(into, place.sums + at);
                }
            }
            _ => {
                for at in (0..datum.size()).step_by(8) {
                    self.add_word(into, place.sums + at);
                }
            }
        }
        self.clear(place.sums, datum.size());
    }

    fn add_word(&self, into: Slab<'_>, offset: u32) {
        into.add(offset, self.word(offset));
    }

    fn add(&self, offset: u32, value: u64) {
        if let Some(word) = self.at(offset)
            && value != 0
        {
            word.fetch_add(value, Relaxed);
        }
    }

    /// Reading does not ask where an entry is, so any free place will do.
    fn fold_map(&self, into: Slab<'_>, place: Place, keys: u8, capacity: u32) {
        for at in [MAP_LOST, MAP_LOST_SUM] {
            self.add_word(into, place.sums + at);
        }
        let size = map_entry_size(keys);
        let name = |slab: Slab<'_>, tag: u64, entry: u32| match keys {
            1 => [tag, 0, 0],
            _ => [tag, slab.word(entry + 8), slab.word(entry + 16)],
        };
        let mut known: BTreeMap<[u64; 3], u32> = map_entries(into, place, keys, capacity)
            .map(|(tag, entry, _)| (name(into, tag, entry), entry))
            .collect();
        let entries = (0..capacity + MAP_PROBES - 1).map(|n| place.sums + MAP_ENTRIES + n * size);
        let mut free = entries.filter(|&entry| into.word(entry) == 0);
        for (tag, entry, value) in map_entries(*self, place, keys, capacity) {
            let name = name(*self, tag, entry);
            let Some(at) = known.get(&name).copied().or_else(|| free.next()) else {
                into.add(place.sums + MAP_LOST, 1);
                into.add(place.sums + MAP_LOST_SUM, value as u64);
                continue;
            };
            if known.insert(name, at).is_none() {
                for word in (0..size - 8).step_by(8) {
                    into.add(at + word, self.word(entry + word));
                }
            }
            into.add(at + size - 8, value as u64);
        }
    }

    /// The same: any free place will do.
    fn fold_texts(&self, into: Slab<'_>, place: Place) {
        let mut known: BTreeSet<u64> = text_entries(into, place).map(|(id, _)| id).collect();
        let entries = (0..TEXTS_CAPACITY + MAP_PROBES - 1).map(|n| place.sums + n * TEXT_ENTRY);
        let mut free = entries.filter(|&entry| into.word(entry) == 0);
        for (id, words) in text_entries(*self, place) {
            if known.insert(id)
                && let Some(entry) = free.next()
            {
                for (at, word) in (entry + TEXT_BYTES..).step_by(8).zip(words) {
                    into.add(at, word);
                }
                into.add(entry, id);
            }
        }
    }

    /// The same, with the addresses behind those that are there.
    fn fold_stacks(&self, into: Slab<'_>, place: Place) {
        let mut known: BTreeSet<u64> = stack_entries(into, place).map(|(id, _)| id).collect();
        let entries =
            (0..STACKS_CAPACITY + MAP_PROBES - 1).map(|n| place.sums + STACKS_ENTRIES + n * 16);
        let mut free = entries.filter(|&entry| into.word(entry) == 0);
        for (id, stack) in stack_entries(*self, place) {
            let (top, count) = (into.word(place.sums + STACKS_TOP), stack.addresses.len() as u64);
            if top + count > u64::from(STACKS_WORDS) || !known.insert(id) {
                continue;
            }
            let Some(entry) = free.next() else { return };
            let first = place.sums + STACKS_ARENA + 8 * top as u32;
            for (at, address) in (first..).step_by(8).zip(stack.addresses) {
                into.add(at, address);
            }
            into.add(place.sums + STACKS_TOP, count);
            let flags = if stack.is_cut { STACK_CUT } else { 0 };
            into.add(entry + 8, top | count << 32 | flags << 48);
            into.add(entry, id);
        }
    }

    /// Gives a slab back whose data have been [folded](Slab::fold), and whose owner has ended.
    pub fn retire(&self, region: &Region) {
        self.clear(header::TID, header::SIZE - header::TID);
        self.clear(header::SIZE, region.state_end - header::SIZE);
        if let Some(owner) = self.at(header::OWNER) {
            owner.store(header::RETIRED, Release);
        }
    }
}

/// Makes slabs that were given back like those that never had an owner, where no search has to go past
/// them. They must have been given back a while ago: a search may be between two of them now.
pub fn renew<'a>(slabs: impl DoubleEndedIterator<Item = Slab<'a>>) {
    let mut is_end = false;
    for slab in slabs.rev() {
        let owner = slab.at(header::OWNER);
        is_end = match slab.owner() {
            0 => true,
            header::RETIRED if is_end => owner.is_some_and(|word| {
                word.compare_exchange(header::RETIRED, 0, Relaxed, Relaxed).is_ok()
            }),
            _ => false,
        };
    }
}
