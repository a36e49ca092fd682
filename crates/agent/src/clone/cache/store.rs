//! The clones that were mapped from files, and what is noted for the next time.

use crate::clone::cache::address_map::Place;
use crate::clone::cache::arena::EXITS;
use crate::clone::cache::branch_tables::Tables;
use crate::clone::cache::stored::{Missing, Status, Stored, place_in};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_abi::stored::{
    ENTERED, Identity, LEARNT_COUNT, Learnt, MAPPING_COUNT, NotedMapping, PATH_SIZE, StoredKey,
    noted,
};

/// Clones from files.
#[derive(Debug, Default)]
pub struct Store {
    /// Those that were mapped, and those of them that are not valid any more: threads may still be in them.
    pub all: Vec<Stored>,
    /// Mappings of which is noted what is executed, and their numbers.
    mappings: Vec<(Range<u64>, u32)>,
    means: Option<Means>,
}

/// What it takes to map files.
#[derive(Debug)]
struct Means {
    learnt: &'static Learnt,
    /// Those of the user, then those for all users.
    folders: Vec<Vec<u8>>,
    /// What all of this engine's have in common.
    key: StoredKey,
    exits: [u64; EXITS],
}

impl Store {
    /// A store as the host wants it, for an engine of this hash.
    pub fn new(learnt: &'static Learnt, engine: u64, tables: &Tables, exits: [u64; EXITS]) -> Self {
        if learnt.is_on.load(Relaxed) == 0 {
            return Self::default();
        }
        let folder = learnt.folder.iter().map(|byte| byte.load(Relaxed));
        let names: Vec<u8> = folder.take_while(|&byte| byte != 0).collect();
        let folders = names.split(|&byte| byte == b'\n').map(Vec::from).collect();
        let (table, mask) = (tables.range().start, tables.mask);
        let key = StoredKey { engine, table, mask, ..StoredKey::default() };
        Self { means: Some(Means { learnt, folders, key, exits }), ..Self::default() }
    }

    /// How many mappings are noted.
    pub fn noted(&self) -> u32 {
        let count = self.means.as_ref().map_or(0, |means| means.learnt.mappings.load(Acquire));
        count.min(MAPPING_COUNT as u32)
    }

    /// Where a mapping that the host has noted begins.
    pub fn start_of(&self, number: u32) -> Option<u64> {
        let noted = self.means.as_ref()?.learnt.noted.get(number as usize)?;
        Some(noted.start.load(Relaxed))
    }

    /// Notes where a part of the clone is that is made as the program runs.
    pub fn note_arena(&self, number: usize, start: u64) {
        if let Some(place) = self.means.as_ref().and_then(|it| it.learnt.arenas.get(number)) {
            place.store(start, Relaxed);
        }
    }

    /// Notes that a file was mapped to be executed. Returns the number of the mapping.
    pub fn note(
        &mut self,
        range: &Range<u64>,
        descriptor: usize,
        offset: u64,
        name: &[u8],
    ) -> Option<u32> {
        let learnt = self.means.as_ref()?.learnt;
        let status = Status::of(descriptor)?;
        let identity = Identity {
            device: status.device,
            inode: status.inode,
            size: status.size,
            modified: status.modified,
            changed: status.changed,
            offset,
            length: range.end - range.start,
        };
        let words = identity.words();
        // One that is loaded and unloaded all the time is noted once.
        let is_it = |noted: &NotedMapping| {
            noted.identity.iter().zip(words).all(|(place, word)| place.load(Relaxed) == word)
        };
        if let Some(number) = learnt.noted[..self.noted() as usize].iter().position(is_it) {
            return Some(number as u32);
        }
        let number = learnt.mappings.fetch_add(1, Relaxed);
        let noted = learnt.noted.get(number as usize)?;
        words.iter().zip(&noted.identity).for_each(|(word, to)| to.store(*word, Relaxed));
        noted.start.store(range.start, Relaxed);
        let length = name.len().min(PATH_SIZE);
        name[..length].iter().zip(&noted.path).for_each(|(byte, to)| to.store(*byte, Relaxed));
        noted.path_length.store(length as u32, Relaxed);
        Some(number)
    }

    /// Maps the clone of a mapping that is noted and begins at an address, if there is one. Returns its number in
    /// [`Self::all`].
    pub fn load(&mut self, number: u32, start: u64) -> Option<usize> {
        if self.all.len() >= MAPPING_COUNT {
            self.means = None;
        }
        let means = self.means.as_ref()?;
        let noted = means.learnt.noted.get(number as usize)?;
        let identity =
            Identity::from_words(noted.identity.each_ref().map(|word| word.load(Relaxed)));
        let key = StoredKey { identity, ..means.key };
        self.mappings.push((start..start.saturating_add(identity.length), number));
        let is_back = |stored: &Stored| stored.is_of_mapping(&key, start);
        if let Some(index) = self.all.iter().position(is_back) {
            return self.all[index].open_again().then_some(index);
        }
        let mut found = Err(Missing::File);
        for folder in &means.folders {
            found = Stored::map(folder, &key, start, means.exits);
            if !matches!(found, Err(Missing::File)) {
                break;
            }
        }
        describe(noted, &found);
        self.all.push(found.ok()?);
        Some(self.all.len() - 1)
    }

    /// Where clones from files are.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.all.iter().map(Stored::range)
    }

    /// Whether anything was mapped.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether files are mapped, and it is noted what is executed.
    pub fn is_on(&self) -> bool {
        self.means.is_some()
    }

    /// Maps nothing any more, and notes nothing.
    pub fn turn_off(&mut self) {
        self.means = None;
        self.mappings.clear();
    }

    /// Where the code of an address is.
    pub fn find(&self, address: u64) -> Option<Place> {
        let mut all = self.all.iter().enumerate().filter(|(_, stored)| stored.is_valid);
        all.find_map(|(number, stored)| {
            let found = stored.find(address)?;
            Some(place_in(number as u32, address, stored.code, &found))
        })
    }

    /// The one whose code a place is in.
    pub fn at(&self, place: u64) -> Option<&Stored> {
        self.all.iter().find(|stored| stored.contains(place))
    }

    /// The one that has a slot, if it is valid.
    pub fn with_slot(&self, slot: u64) -> Option<&Stored> {
        self.all.iter().find(|stored| stored.is_valid && stored.has_slot(slot))
    }

    /// Notes that code was made for an address, or for branches to it that are not direct.
    pub fn learn(&self, address: u64, is_entered: bool) {
        let Some(means) = &self.means else { return };
        let Some((range, number)) =
            self.mappings.iter().find(|(range, _)| range.contains(&address))
        else {
            return;
        };
        let learnt = means.learnt;
        if learnt.count.load(Relaxed) as usize >= LEARNT_COUNT {
            return;
        }
        let index = learnt.count.fetch_add(1, Relaxed) as usize;
        let Some(place) = learnt.places.get(index) else { return };
        let flag = if is_entered { ENTERED } else { 0 };
        let offset = (address - range.start) & 0xffff_ffff;
        place.store(flag | u64::from(*number) << 32 | (offset + 1), Release);
    }

    /// A range of the program's addresses is no longer what it was.
    pub fn unmapped(&mut self, start: u64, end: u64) {
        let gone = start..end;
        for (range, _) in &mut self.mappings {
            // Loaders map all of a file first, and then other parts of it over the end.
            if gone.contains(&range.start) {
                range.end = range.start;
            } else if range.contains(&start) {
                range.end = start;
            }
        }
        self.mappings.retain(|(range, _)| !range.is_empty());
    }
}

fn describe(noted: &NotedMapping, found: &Result<Stored, Missing>) {
    let state = match found {
        Ok(stored) => {
            let range = stored.range();
            noted.stored[0].store(range.start, Relaxed);
            noted.stored[1].store(range.end - range.start, Relaxed);
            noted::STORED
        }
        Err(Missing::Room) => noted::IN_THE_WAY,
        Err(Missing::File) => noted::NEW,
    };
    noted.state.store(state, Release);
}
