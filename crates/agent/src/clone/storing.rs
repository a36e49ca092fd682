//! Making the clone of a mapping, to be kept in a file: bytes in, bytes out. The host does that; nothing of a process
//! is needed for it but where in its code it has been.
//!
//! A block is the same whoever asks for it, so a place that is no beginning of an instruction does no harm.

use crate::clone::cache::address_map::Map;
use crate::clone::cache::arena::{Arena, EXITS, HEAD};
use crate::clone::cache::blocks::Block;
use crate::clone::cache::branch_tables::FirstTable;
use crate::clone::cache::emit;
use crate::clone::cache::emit::in_reach;
use crate::clone::cache::links::Link;
use crate::clone::cache::pieces::{Cold, LONGEST_BLOCK, MOST, slot_stub};
use crate::clone::cache::sequences::Sequences;
use crate::clone::tools::halts::Halts;
use crate::clone::tools::weaving::Weaving;
use crate::clone::translate::translate;
use crate::clone::translate::translator::{self, Inserts, Known, Source};
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use weft_abi::stored::{
    CALL_LENGTH, CHECKED_FROM, Checksum, HEADER_LENGTH, LONGEST_CODE, LONGEST_TABLES, MOST_SLOTS,
    STORED_MAGIC, StoredBlock, StoredHeader, StoredKey, StoredPiece, StoredPlace, StoredRange,
    Table, place_hash, sum_of,
};

const PAGE: usize = 4096;
/// Where the mapping is taken to be. Any place will do.
const BASE: u64 = 1 << 44;
/// What a stub takes.
const STUB: usize = slot_stub::SIZE.next_multiple_of(16);
/// More bytes than a block takes with its cold part, in nearly all programs: what is left of them is a hole in the file.
const USUAL: usize = 896;
/// What is before the handlers that restartable sequences are aborted to.
const SIGNATURE: [u8; 4] = 0x5305_3053u32.to_le_bytes();

/// What was executed at a place of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Executed {
    /// How far behind its beginning.
    pub offset: u32,
    /// Whether branches that are not direct lead there.
    pub is_entered: bool,
}

/// How much is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What begins at the given places.
    Given,
    /// What direct branches lead to from there as well.
    Reachable,
}

/// Translates what was executed of a mapping, of which these are the bytes, of a file with a path. The clone is to lie at
/// a distance from it. Returns the file; `None` if there is nothing that can be kept.
pub fn store(
    key: StoredKey,
    (path, bytes): (&[u8], &[u8]),
    places: &[Executed],
    distance: u64,
    extent: Extent,
) -> Option<Vec<u8>> {
    let is_near = in_reach(distance, 0) && in_reach(distance, key.identity.length);
    if may_have_sequences(bytes) || u32::try_from(bytes.len()).is_err() || !is_near {
        return None;
    }
    let mut length = (places.len() * USUAL + 8 * MOST).next_multiple_of(PAGE);
    loop {
        let mut buffer = vec![0; length];
        let mut making = Making::new(&mut buffer, key, bytes, distance);
        let is_whole = making.add_all(places, extent);
        if is_whole || length as u64 == LONGEST_CODE {
            return making.file(path);
        }
        length = (2 * length).min(LONGEST_CODE as usize);
    }
}

/// Whether there may be restartable sequences in code. They are found when the program names them, and cannot be in a
/// clone that is older. Without the signature the kernel aborts none; where a C library registers it, it is an operand.
pub fn may_have_sequences(bytes: &[u8]) -> bool {
    let at = bytes.windows(4).enumerate().filter(|(_, four)| *four == SIGNATURE);
    let is_operand = |at: usize| at > 0 && matches!(bytes[at - 1], 0xb8..=0xbf);
    at.map(|(at, _)| at).any(|at| !is_operand(at))
}

/// A file that is being made.
struct Making<'a> {
    key: StoredKey,
    bytes: &'a [u8],
    distance: u64,
    arena: Arena,
    /// Where the slots begin.
    end: u64,
    map: Map,
    blocks: Vec<Block>,
    /// How many branches are not linked.
    open: usize,
    table: FirstTable,
    weaving: Weaving,
    halts: Halts,
    sequences: Sequences,
}

impl<'a> Making<'a> {
    fn new(buffer: &mut [u8], key: StoredKey, bytes: &'a [u8], distance: u64) -> Self {
        let code = BASE.wrapping_add(distance);
        let is_wide = key.mask > 0xffff;
        Self {
            key,
            bytes,
            distance,
            end: code + buffer.len() as u64,
            arena: Arena::in_buffer(buffer, code),
            map: Map::new(),
            blocks: Vec::new(),
            open: 0,
            table: FirstTable { at: key.table as u32, is_wide },
            weaving: Weaving::default(),
            halts: Halts::default(),
            sequences: Sequences::default(),
        }
    }

    /// Adds blocks, and links what there was room for. Returns whether that was all.
    fn add_all(&mut self, places: &[Executed], extent: Extent) -> bool {
        let mut is_whole = true;
        for place in places {
            is_whole &= self.add(BASE + u64::from(place.offset));
        }
        let mut next = 0;
        while extent == Extent::Reachable && is_whole && next < self.blocks.len() {
            for index in 0..self.blocks[next].open.len() {
                let target = self.blocks[next].open[index].target;
                is_whole &= self.add(target);
            }
            next += 1;
        }
        for place in places.iter().filter(|place| place.is_entered) {
            is_whole &= self.enter(BASE + u64::from(place.offset));
        }
        self.link();
        is_whole
    }

    /// Whether there is room for one more block, with a stub for each branch.
    fn has_room(&self) -> bool {
        let (hot, cold, _) = self.arena.filled();
        self.arena.has_room() && (cold - hot) as usize > 4 * MOST + STUB * self.open
    }

    /// Adds the block of an address, if that is in the mapping. Returns whether there was room for it.
    fn add(&mut self, address: u64) -> bool {
        let offset = address.wrapping_sub(BASE);
        if self.map.get(address).is_some() || offset >= self.bytes.len() as u64 {
            return true;
        }
        if !self.has_room() {
            return false;
        }
        // As much as a block can need.
        let rest = &self.bytes[offset as usize..];
        let source = Source { address, bytes: &rest[..rest.len().min(LONGEST_BLOCK * 16)] };
        let filled = self.arena.filled();
        let known = Known {
            map: &self.map,
            store: None,
            sequences: &self.sequences,
            table: self.table,
            is_fixed: true,
        };
        let inserts = Inserts { weaving: &mut self.weaving, recorder: None, halts: &self.halts };
        let place = (0, &mut self.arena);
        match translate(&source, address, known, place, inserts, translator::Extent::Block, true) {
            Some(block) if !block.is_absolute && block.end > block.start => {
                self.open += block.open.len();
                self.map.add(&block, self.blocks.len() as u32);
                self.blocks.push(block);
            }
            _ => self.arena.empty_to(filled),
        }
        true
    }

    /// Makes the way in for branches to an address that are not direct. Returns whether there was room for it.
    fn enter(&mut self, address: u64) -> bool {
        let Some(&place) = self.map.get(address).filter(|place| place.entry == 0) else {
            return true;
        };
        if !self.has_room() {
            return false;
        }
        let wrong = self.arena.gates().wrong;
        let mut out = self.arena.cold(emit::ENTRY + 5, Cold::Entry);
        emit::entry_by_distance(&mut out, address, wrong);
        out.jump(place.body);
        if let Some(place) = self.map.get_mut(address) {
            place.entry = out.rx;
        }
        true
    }

    /// Leads branches to their targets, or to stubs, for which there is room.
    fn link(&mut self) {
        let mut stubs: BTreeMap<u64, u64> = BTreeMap::new();
        let open: Vec<Link> =
            self.blocks.iter_mut().flat_map(|block| core::mem::take(&mut block.open)).collect();
        for link in open {
            let to = match (self.map.get(link.target), stubs.get(&link.target)) {
                (Some(place), _) => place.body,
                (None, Some(&stub)) => stub,
                (None, None) => {
                    let stub = self.stub(link.target, (EXITS + stubs.len()) as u64);
                    stubs.insert(link.target, stub);
                    stub
                }
            };
            let distance = to.wrapping_sub(link.site + 4) as u32;
            // SAFETY: where the block has left room for it.
            unsafe { self.arena.writable(link.site).cast::<u32>().write_unaligned(distance) };
        }
    }

    fn stub(&mut self, target: u64, slot: u64) -> u64 {
        let gate = self.arena.gates().slot;
        let end = self.end;
        let mut out = self.arena.cold(slot_stub::SIZE, Cold::SlotStub);
        out.bytes(&[0xff, 0x25]); // jmp [rip + distance]
        out.distance(end + 8 * slot);
        emit::leave_with(&mut out, gate, target);
        out.rx
    }

    fn file(mut self, path: &[u8]) -> Option<Vec<u8>> {
        if self.blocks.is_empty() {
            return None;
        }
        let code = BASE.wrapping_add(self.distance);
        self.write_gates(code);
        let (hot, cold, _) = self.arena.filled();
        let within = |place: u64| (place - code) as u32;
        let offset = |address: u64| (address - BASE) as u32;
        let mut records = Vec::new();
        let mut blocks = Vec::new();
        for block in &self.blocks {
            blocks.push(StoredBlock {
                code: within(block.code),
                start: offset(block.start),
                end: offset(block.end),
                records: records.len() as u32,
            });
            records.extend_from_slice(&block.records);
        }
        let mut pieces = Vec::new();
        let mut targets = Vec::new();
        for &(distance, kind) in self.arena.pieces() {
            pieces.push(StoredPiece { distance, kind: kind as u8 as u32 });
            if kind == Cold::SlotStub {
                targets.push(within(self.end - u64::from(distance) + slot_stub::EXIT));
            }
        }
        let places = self.places(within, offset);
        let mut tables = vec![0; HEADER_LENGTH];
        let blocks_at = append(&mut tables, &blocks);
        let pieces_at = append(&mut tables, &pieces);
        let places_at = append(&mut tables, &places);
        let targets_at = append(&mut tables, &targets);
        let records_at = append(&mut tables, &records);
        let path = append(&mut tables, path);
        let ranges = self.ranges();
        let mut original = Checksum::default();
        for range in &ranges {
            original.add(&self.bytes[range.start as usize..range.end as usize]);
        }
        let ranges = append(&mut tables, &ranges);
        tables.resize(tables.len().next_multiple_of(PAGE), 0);
        let mut header = StoredHeader {
            magic: STORED_MAGIC,
            checksum: 0,
            key: self.key,
            distance: self.distance,
            tables_length: tables.len() as u64,
            code_length: self.end - code,
            hot: (hot - code).next_multiple_of(8),
            cold: cold - code,
            slots: (EXITS + targets.len()) as u64,
            first: self.blocks.iter().map(|block| block.start - BASE).min()?,
            last: self.blocks.iter().map(|block| block.end - BASE).max()?,
            blocks: blocks_at,
            records: records_at,
            pieces: pieces_at,
            places: places_at,
            targets: targets_at,
            path,
            ranges,
            original: original.sum(),
        };
        tables[..HEADER_LENGTH].copy_from_slice(&header.bytes());
        // SAFETY: the arena's own buffer.
        let written = unsafe {
            core::slice::from_raw_parts(self.arena.writable(code), header.code_length as usize)
        };
        let (front, back) = (&written[..header.hot as usize], &written[header.cold as usize..]);
        header.checksum = sum_of(&tables[CHECKED_FROM..], front, back);
        tables[..HEADER_LENGTH].copy_from_slice(&header.bytes());
        let is_small = tables.len() as u64 <= LONGEST_TABLES && header.slots <= MOST_SLOTS;
        tables.extend_from_slice(written);
        is_small.then_some(tables)
    }

    /// Where there is what was translated, in the order of addresses.
    fn ranges(&self) -> Vec<StoredRange> {
        /// What is between two ranges that is read along with them.
        const GAP: u32 = 64;
        let mut parts: Vec<(u32, u32)> = self
            .blocks
            .iter()
            .map(|block| ((block.start - BASE) as u32, (block.end - BASE) as u32))
            .collect();
        parts.sort_unstable();
        let mut ranges: Vec<StoredRange> = Vec::new();
        for (start, end) in parts {
            match ranges.last_mut() {
                Some(last) if start <= last.end.saturating_add(GAP) => last.end = last.end.max(end),
                _ => ranges.push(StoredRange { start, end }),
            }
        }
        ranges
    }

    /// The ways to the agent: each leads where the slot of its number says.
    fn write_gates(&mut self, code: u64) {
        for number in 0..EXITS as u64 {
            let rx = code + 16 * number;
            let mut out = emit::Out { rw: self.arena.writable(rx), rx, length: 0 };
            out.bytes(&[0xff, 0x25]); // jmp [rip + distance]
            out.distance(self.end + 8 * number);
            out.bytes(&[0xcc; 10]);
        }
        debug_assert_eq!(HEAD, 16 * EXITS as u64);
    }

    fn places(&self, within: impl Fn(u64) -> u32, offset: impl Fn(u64) -> u32) -> Vec<StoredPlace> {
        let count = self.map.all().count();
        let mut table = vec![StoredPlace::default(); (2 * count).next_power_of_two()];
        let mask = table.len() - 1;
        for place in self.map.all() {
            let address = offset(place.address) + 1;
            let mut index = place_hash(address) & mask;
            while table[index].address != 0 {
                index = (index + 1) & mask;
            }
            let call = u32::from(place.call_length) << CALL_LENGTH;
            let entry = if place.entry == 0 { 0 } else { call | within(place.entry) };
            table[index] = StoredPlace { address, body: within(place.body), entry };
        }
        table
    }
}

/// The places that a file was made for, which is one of this header: those of its blocks, in their order.
pub fn places_of(header: &StoredHeader, file: &[u8]) -> Vec<Executed> {
    let table = |table: &Table, size: usize| {
        let at = table.at as usize;
        file.get(at..at + table.count as usize * size).unwrap_or_default()
    };
    let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |four| u32::from_le_bytes(*four));
    let blocks = table(&header.blocks, size_of::<StoredBlock>()).chunks(size_of::<StoredBlock>());
    let starts = blocks.map(|block| number(&block[4..]));
    let mut places: Vec<Executed> =
        starts.map(|offset| Executed { offset, is_entered: false }).collect();
    let entered = table(&header.places, size_of::<StoredPlace>()).chunks(size_of::<StoredPlace>());
    for place in entered {
        let [address, entry] = [number(place), number(&place[8..])];
        // Where a call returns to has a way in anyway.
        if address != 0 && entry != 0 && entry >> CALL_LENGTH == 0 {
            places.push(Executed { offset: address - 1, is_entered: true });
        }
    }
    places
}

/// Appends a table of plain numbers.
fn append<T: Copy>(tables: &mut Vec<u8>, entries: &[T]) -> Table {
    tables.resize(tables.len().next_multiple_of(8), 0);
    let at = tables.len() as u64;
    // SAFETY: the entries are numbers, and nothing is between them.
    let bytes =
        unsafe { core::slice::from_raw_parts(entries.as_ptr().cast::<u8>(), size_of_val(entries)) };
    tables.extend_from_slice(bytes);
    Table { at, count: entries.len() as u64 }
}
