//! A clone that was mapped from a file: see [`weft_abi::stored`].
//!
//! What is mapped is never written to: threads of other processes execute it, too. Where its branches lead to is in
//! slots, which are this process's own memory.

use crate::clone::base::{program, system};
use crate::clone::cache::address_map::Place;
use crate::clone::cache::arena::{EXITS, HEAD};
use crate::clone::cache::blocks::BlockView;
use crate::clone::cache::links::Arrivals;
use crate::clone::cache::pieces::Cold;
use alloc::vec::Vec;
use core::ops::Range;
use weft_abi::stored::{
    CHECKED_FROM, Checksum, HEADER_LENGTH, LONGEST_FOLDER, NAME_LENGTH, StoredBlock, StoredHeader,
    StoredKey, StoredPiece, StoredPlace, StoredRange, Table, UNMAPPED_USER, place_hash, sum_of,
};

/// In the number of a block: it is one of a file, whose number is the rest.
pub const STORED: u32 = 1 << 31;
const O_RDONLY: usize = 0;
/// Nobody is kept waiting by a pipe.
const O_NONBLOCK: usize = 0o4_000;
const O_NOFOLLOW: usize = 0o400_000;
const O_CLOEXEC: usize = 0o2_000_000;
/// No program has memory from there on.
const HIGHEST: u64 = 1 << 47;

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// There is no file, or none that may be used.
    File,
    /// Something is where it would go.
    Room,
}

/// A clone that was mapped from a file.
#[derive(Debug)]
pub struct Stored {
    /// Where its description is.
    pub header: u64,
    /// Where what it was made of is, its code, and its slots.
    mapping: u64,
    pub code: u64,
    slots: u64,
    /// Whether it is still the clone of what is there.
    pub is_valid: bool,
    /// What leads to any of it from elsewhere.
    pub arrivals: Arrivals,
    /// Addresses for which there is a way in elsewhere.
    pub entries: Vec<u64>,
}

impl Stored {
    /// Maps the clone of a mapping that begins at an address, if there is a file with it.
    pub fn map(
        folder: &[u8],
        key: &StoredKey,
        mapping: u64,
        exits: [u64; EXITS],
    ) -> Result<Self, Missing> {
        let file = File::open(folder, &key.name()).ok_or(Missing::File)?;
        let length = file.length().ok_or(Missing::File)?;
        let header = file.header().filter(|header| header.key == *key && header.is_sound(length));
        let header = header.ok_or(Missing::File)?;
        let code = mapping.wrapping_add(header.distance);
        let at = code.wrapping_sub(header.tables_length);
        let whole = length + header.slots_length();
        if !at.is_multiple_of(system::PAGE) || !(1..HIGHEST - whole).contains(&at) {
            return Err(Missing::File);
        }
        // The slots are behind the end of the file, and take the place of what is mapped there.
        let flags = system::MAP_PRIVATE | system::MAP_FIXED_NOREPLACE;
        let args = [at as usize, whole as usize, system::PROT_READ, flags, file.0, 0];
        // SAFETY: new memory, where there is nothing.
        let mapped = unsafe { system::call6(system::MMAP, args) };
        if mapped != at as isize {
            if let Ok(elsewhere) = usize::try_from(mapped) {
                // A kernel that does not know the flag.
                system::unmap(elsewhere, whole as usize);
            }
            return Err(Missing::Room);
        }
        let stored = Self {
            header: at,
            mapping,
            code,
            slots: code + header.code_length,
            is_valid: true,
            arrivals: Arrivals::default(),
            entries: Vec::new(),
        };
        // The file may have been replaced since its header was read, but not changed: weft does not do that.
        let is_good = *stored.header() == header && stored.is_undamaged() && stored.is_original();
        if !is_good || !stored.begin(exits) {
            stored.unmap();
            return Err(Missing::File);
        }
        Ok(stored)
    }

    fn header(&self) -> &'static StoredHeader {
        // SAFETY: it was mapped there, and stays as long as the engine.
        unsafe { &*(self.header as *const StoredHeader) }
    }

    fn is_undamaged(&self) -> bool {
        let header = self.header();
        let part = |start: u64, end: u64| {
            // SAFETY: mapped from the file, which is as long.
            unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) }
        };
        let sum = sum_of(
            part(self.header + CHECKED_FROM as u64, self.code),
            part(self.code, self.code + header.hot),
            part(self.code + header.cold, self.slots),
        );
        sum == header.checksum
    }

    /// Whether what was translated is what is mapped. A file can be changed without its times (by who has mapped it, or who
    /// sets clocks).
    fn is_original(&self) -> bool {
        let ranges: &[StoredRange] = self.table(&self.header().ranges);
        let mut sum = Checksum::default();
        let mut readable = 0..0;
        for range in ranges {
            let [start, end] = [range.start, range.end].map(|at| self.mapping + u64::from(at));
            for page in start / system::PAGE..end.div_ceil(system::PAGE) {
                // The file may be shorter than what is mapped of it.
                if !readable.contains(&page) && program::read::<u8>(page * system::PAGE).is_none() {
                    return false;
                }
                readable = page..page + 1;
            }
            if end < start {
                return false;
            }
            // SAFETY: the program's own code, which can be read.
            sum.add(unsafe {
                core::slice::from_raw_parts(start as *const u8, (end - start) as usize)
            });
        }
        sum.sum() == self.header().original
    }

    /// Gives it what is different in each process, and makes it executable. Returns whether that could be done.
    fn begin(&self, exits: [u64; EXITS]) -> bool {
        let header = self.header();
        let ways = EXITS as u64 + header.targets.count;
        if ways != header.slots {
            return false;
        }
        let (length, code_length) = (header.slots_length(), header.code_length);
        // SAFETY: the slots are part of what was just mapped.
        unsafe {
            if !system::map_over(self.slots as usize, length as usize) {
                return false;
            }
            let slots = core::slice::from_raw_parts_mut(self.slots as *mut u64, ways as usize);
            slots[..EXITS].copy_from_slice(&exits);
            for (slot, &target) in slots[EXITS..].iter_mut().zip(self.table::<u32>(&header.targets))
            {
                *slot = self.code + u64::from(target);
            }
            let protection = system::PROT_READ | system::PROT_EXEC;
            let (at, length) = (self.code as usize, code_length as usize);
            system::call3(system::MPROTECT, at, length, protection) == 0
        }
    }

    /// Entries of a table.
    fn table<T>(&self, table: &Table) -> &'static [T] {
        // SAFETY: the header is sound, so the table is within what is mapped; any bytes are entries.
        unsafe {
            let at = (self.header + table.at) as *const T;
            core::slice::from_raw_parts(at, table.count as usize)
        }
    }

    /// How many blocks it has.
    pub fn block_count(&self) -> u64 {
        self.header().blocks.count
    }

    /// Where in memory all of it is.
    pub fn range(&self) -> Range<u64> {
        self.header..self.slots + self.header().slots_length()
    }

    /// Whether a place is in its code.
    pub fn contains(&self, place: u64) -> bool {
        (self.code..self.slots).contains(&place)
    }

    /// The place in its code that ends in 32 bits.
    pub fn ending_in(&self, low: u32) -> Option<u64> {
        let place = self.code + u64::from(low.wrapping_sub(self.code as u32));
        self.contains(place).then_some(place)
    }

    /// Whether a place is in its ways to the agent.
    pub fn is_gate(&self, place: u64) -> bool {
        (self.code..self.code + HEAD).contains(&place)
    }

    /// Whether something in a range of the program's addresses is translated in it.
    pub fn is_of(&self, start: u64, end: u64) -> bool {
        let header = self.header();
        start < self.mapping + header.last && self.mapping + header.first < end
    }

    /// Where the code of an address is.
    pub fn find(&self, address: u64) -> Option<StoredPlace> {
        let offset = u32::try_from(address.wrapping_sub(self.mapping)).ok()?.checked_add(1)?;
        let places: &[StoredPlace] = self.table(&self.header().places);
        let mask = places.len() - 1;
        let mut index = place_hash(offset) & mask;
        // A table that is full would have no end.
        for _ in 0..places.len() {
            let place = &places[index];
            if place.address == offset {
                return Some(*place);
            }
            if place.address == 0 {
                return None;
            }
            index = (index + 1) & mask;
        }
        None
    }

    /// The piece of the cold part that holds a place: where it begins, and what it is.
    pub fn piece(&self, place: u64) -> Option<(u64, Cold)> {
        let header = self.header();
        if place < self.code + header.cold {
            return None;
        }
        let distance = self.slots.checked_sub(place)? as u32;
        let pieces: &[StoredPiece] = self.table(&header.pieces);
        let piece = pieces.get(pieces.partition_point(|piece| piece.distance < distance))?;
        Some((self.slots - u64::from(piece.distance), Cold::of_number(piece.kind as u8)?))
    }

    /// The block that holds a place.
    pub fn block(&self, place: u64) -> Option<BlockView<'static>> {
        let header = self.header();
        let blocks: &[StoredBlock] = self.table(&header.blocks);
        let records: &[u8] = self.table(&header.records);
        let offset = place.checked_sub(self.code)?;
        let index =
            blocks.partition_point(|block| u64::from(block.code) <= offset).checked_sub(1)?;
        let block = &blocks[index];
        let end = blocks.get(index + 1).map_or(records.len(), |next| next.records as usize);
        Some(BlockView {
            start: self.mapping + u64::from(block.start),
            end: self.mapping + u64::from(block.end),
            code: self.code + u64::from(block.code),
            records: records.get(block.records as usize..end)?,
            is_inner: false,
            is_valid: self.is_valid,
        })
    }

    /// Whether a slot is its own.
    pub fn has_slot(&self, slot: u64) -> bool {
        (self.slots..self.slots + 8 * self.header().slots).contains(&slot)
    }

    /// Leads a branch back to its stub.
    pub fn reset_slot(&self, slot: u64) {
        let index = ((slot - self.slots) / 8) as usize;
        let targets: &[u32] = self.table(&self.header().targets);
        if let Some(&target) = index.checked_sub(EXITS).and_then(|index| targets.get(index)) {
            set_slot(slot, self.code + u64::from(target));
        }
    }

    /// It is not the clone of what is there any more. A thread that is still in it faults at its next instruction, and is
    /// led on by the handler; or leaves it at its next branch, where no protection may be changed.
    pub fn close(&mut self, may_protect: bool) {
        self.is_valid = false;
        if may_protect {
            let (at, length) = (self.code as usize, self.header().code_length as usize);
            // SAFETY: the engine's own memory.
            unsafe { system::call3(system::MPROTECT, at, length, system::PROT_READ) };
        }
    }

    /// Whether it was the clone of such a mapping at an address, and is not valid any more.
    pub fn is_of_mapping(&self, key: &StoredKey, mapping: u64) -> bool {
        !self.is_valid && self.mapping == mapping && self.header().key == *key
    }

    /// What it is the clone of is mapped again where it was. Returns whether it is valid now. A thread that was still in
    /// it goes on.
    pub fn open_again(&mut self) -> bool {
        if !self.is_original() {
            return false;
        }
        for slot in (self.slots..).step_by(8).take(self.header().slots as usize) {
            self.reset_slot(slot);
        }
        let (at, length) = (self.code as usize, self.header().code_length as usize);
        let protection = system::PROT_READ | system::PROT_EXEC;
        // SAFETY: the engine's own memory, which is as it was.
        self.is_valid = unsafe { system::call3(system::MPROTECT, at, length, protection) } == 0;
        self.is_valid
    }

    /// Unmaps it, where no thread may be any more.
    pub fn unmap(&self) {
        let range = self.range();
        system::unmap(range.start as usize, (range.end - range.start) as usize);
    }
}

/// Leads a branch to a place.
pub fn set_slot(slot: u64, place: u64) {
    // SAFETY: a slot, aligned: threads that read it see the old or the new.
    unsafe { core::ptr::write_volatile(slot as *mut u64, place) };
}

/// What the map of addresses has for a place in a file with a number.
pub fn place_in(number: u32, address: u64, code: u64, found: &StoredPlace) -> Place {
    let (entry, call_length) = found.entry();
    let entry = if entry == 0 { 0 } else { code + u64::from(entry) };
    let body = code + u64::from(found.body);
    Place { address, body, entry, block: STORED | number, counter: 0, call_length }
}

/// An open file.
struct File(usize);

/// What the kernel says of a file: see `stat(2)`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Status {
    pub device: u64,
    pub inode: u64,
    links: u64,
    pub mode: u32,
    pub user: u32,
    group: u32,
    reserved: u32,
    special: u64,
    pub size: u64,
    block_size: u64,
    blocks: u64,
    accessed: [u64; 2],
    pub modified: [u64; 2],
    pub changed: [u64; 2],
    unused: [u64; 3],
}

const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
/// The right of others to write.
const OTHERS_WRITE: u32 = 0o022;

impl Status {
    /// That of an open file.
    pub fn of(descriptor: usize) -> Option<Self> {
        let mut status = Self::default();
        // SAFETY: the kernel writes as much.
        let result =
            unsafe { system::call3(system::FSTAT, descriptor, &raw mut status as usize, 0) };
        (result == 0).then_some(status)
    }

    /// That of what a path names itself: the path ends with a zero.
    fn of_path(path: &[u8]) -> Option<Self> {
        let mut status = Self::default();
        let path = path.as_ptr() as usize;
        // SAFETY: the kernel reads up to the zero, and writes as much.
        let result = unsafe { system::call3(system::LSTAT, path, &raw mut status as usize, 0) };
        (result == 0).then_some(status)
    }

    /// Whether nobody but this user, or root, can have changed it.
    fn is_trusted(&self, kind: u32) -> bool {
        let is_known = self.user != UNMAPPED_USER && self.user as usize == system::user();
        let is_own = self.user == 0 || is_known;
        is_own && self.mode & KIND == kind && self.mode & OTHERS_WRITE == 0
    }
}

impl File {
    fn open(folder: &[u8], name: &[u8; NAME_LENGTH]) -> Option<Self> {
        const ROOM: usize = LONGEST_FOLDER + 1 + NAME_LENGTH + 1;
        let mut path = [0u8; ROOM];
        path.get_mut(..folder.len())
            .filter(|_| folder.len() <= LONGEST_FOLDER)?
            .copy_from_slice(folder);
        Status::of_path(&path)?.is_trusted(FOLDER).then_some(())?;
        path[folder.len()] = b'/';
        path[folder.len() + 1..][..NAME_LENGTH].copy_from_slice(name);
        let flags = O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
        // SAFETY: the path ends with a zero.
        let opened = unsafe { system::call3(system::OPEN, path.as_ptr() as usize, flags, 0) };
        usize::try_from(opened).ok().map(Self)
    }

    /// How long it is, if it may be believed.
    fn length(&self) -> Option<u64> {
        Status::of(self.0).filter(|status| status.is_trusted(REGULAR)).map(|status| status.size)
    }

    fn header(&self) -> Option<StoredHeader> {
        let mut bytes = [0; HEADER_LENGTH];
        let args = [self.0, bytes.as_mut_ptr() as usize, HEADER_LENGTH, 0, 0, 0];
        // SAFETY: there is room for as much.
        let read = unsafe { system::call6(system::PREAD, args) };
        (read == HEADER_LENGTH as isize).then(|| StoredHeader::from_bytes(&bytes))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the engine's own descriptor.
        unsafe { system::call3(system::CLOSE, self.0, 0, 0) };
    }
}
