//! The code cache: all that was translated, where it is, and what it was made of.

use crate::clone::base::instructions::LONGEST_INSTRUCTION;
use crate::clone::base::system::PAGE;
use crate::clone::base::{program, system};
use crate::clone::cache::address_map::{Map, Place};
use crate::clone::cache::arena::{Arena, EXITS};
use crate::clone::cache::blocks::{Block, BlockInfo};
use crate::clone::cache::branch_tables::Tables;
use crate::clone::cache::emit::LINE;
use crate::clone::cache::emit::in_reach;
use crate::clone::cache::links::{Arrivals, Link, stub_for};
use crate::clone::cache::pages::Pages;
use crate::clone::cache::pieces::stub;
use crate::clone::cache::regions::Regions;
use crate::clone::cache::sequences::{ALIGNMENT, Descriptor, Lead, Sequences, read_plain};
use crate::clone::cache::store::Store;
use crate::clone::cache::stored::{STORED, Stored};
use crate::clone::cache::{arena, emit, pages, regions};
use crate::clone::thread::record::Thread;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use weft_abi::stored::Learnt;

/// All that was translated.
#[derive(Debug)]
pub struct CodeCache {
    pub arenas: Vec<Arena>,
    /// Arenas of code near which there is no room: by parts of the address space.
    crowded: BTreeMap<u64, usize>,
    pub blocks: Vec<BlockInfo>,
    /// Blocks that were flushed last.
    pub retired: Vec<BlockInfo>,
    pub map: Map,
    pub regions: Regions,
    pub pages: Pages,
    pub sequences: Sequences,
    pub tables: Tables,
    /// Code for single instructions that will not change: by their addresses, with what counts arrivals there.
    pub steps: BTreeMap<u64, (u64, u32)>,
    /// Whether all has to be flushed before more is added.
    pub is_full: bool,
    /// How often all was flushed, and which half of the arenas is in use.
    pub epoch: u64,
    /// Whether changes of the program's code go unseen.
    pub is_blind: bool,
    /// Whether a filter may forbid to change protections.
    pub is_sealed: bool,
    /// Whether it is recorded what is executed.
    pub is_recorded: bool,
    /// Clones that were mapped from files.
    pub store: Store,
    /// Where the exits from the clone lead, in the order of [`Gates`](super::arena::Gates).
    exits: [u64; EXITS],
}

impl CodeCache {
    /// An empty cache.
    pub fn new(regions: Regions, tables: Tables, exits: [u64; EXITS]) -> Self {
        Self {
            arenas: Vec::new(),
            crowded: BTreeMap::new(),
            blocks: Vec::new(),
            retired: Vec::new(),
            map: Map::new(),
            regions,
            pages: Pages::default(),
            sequences: Sequences::default(),
            tables,
            steps: BTreeMap::new(),
            is_full: false,
            epoch: 1,
            is_blind: false,
            is_sealed: false,
            is_recorded: false,
            store: Store::default(),
            exits,
        }
    }

    /// The arena that holds a place in the clone.
    pub fn arena_of(&self, address: u64) -> Option<&Arena> {
        self.arenas.iter().find(|arena| arena.contains(address))
    }

    pub fn arena_of_mut(&mut self, address: u64) -> Option<&mut Arena> {
        self.arenas.iter_mut().find(|arena| arena.contains(address))
    }

    /// The half of an arena that holds a place in the clone, and its blocks.
    pub fn half_of(&self, address: u64) -> Option<(&arena::Half, &[BlockInfo])> {
        let arena = self.arena_of(address)?;
        if arena.half.contains(address) {
            Some((&arena.half, &self.blocks))
        } else {
            Some((&arena.retired, &self.retired))
        }
    }

    /// Whether a place is in the clone, or in what was flushed of it last.
    pub fn is_in_clone(&self, address: u64) -> bool {
        self.half_of(address).is_some() || self.store.at(address).is_some()
    }

    /// Whether any of it is in a range of memory.
    pub fn is_in(&self, range: &Range<u64>) -> bool {
        let arenas = self.arenas.iter().map(Arena::range);
        let mut own = arenas.chain(self.store.ranges());
        own.any(|own| range.start < own.end && own.start < range.end)
    }

    /// Whether a place is in what was not flushed.
    pub fn is_current(&self, address: u64) -> bool {
        self.arenas.iter().any(|arena| arena.half.contains(address))
            || self.store.at(address).is_some_and(|stored| stored.is_valid)
    }

    /// Whether a place is on the way from the clone to the agent.
    pub fn is_gate(&self, address: u64) -> bool {
        self.arenas.iter().any(|arena| arena.is_gate(address))
            || self.store.at(address).is_some_and(|stored| stored.is_gate(address))
    }

    /// Where the code of an address is, if it has any.
    pub fn find(&self, key: u64) -> Option<Place> {
        self.map.get(key).copied().or_else(|| self.store.find(key))
    }

    /// Begins to map clones from files.
    pub fn use_store(&mut self, learnt: &'static Learnt, engine: u64) {
        self.store = Store::new(learnt, engine, &self.tables, self.exits);
        for number in 0..self.store.noted() {
            if let Some(start) = self.store.start_of(number) {
                self.load(number, start);
            }
        }
    }

    /// Maps the clone of a mapping that is noted and begins at an address, if there is one.
    fn load(&mut self, number: u32, start: u64) {
        // What is made as the program runs has to be near; a file's clone may as well be further away.
        self.arena_for(start);
        if let Some(index) = self.store.load(number, start) {
            self.keep_room(index);
        }
    }

    /// A file was mapped to be executed: maps its clone, if there is one.
    pub fn mapped(&mut self, range: &Range<u64>, descriptor: usize, offset: u64, name: &[u8]) {
        if let Some(number) = self.store.note(range, descriptor, offset, name) {
            self.load(number, range.start);
        }
    }

    /// No code of the program's is where a clone from a file is.
    fn keep_room(&mut self, number: usize) {
        let range = self.store.all[number].range();
        self.regions.insert(regions::Region {
            start: range.start,
            end: range.end,
            protection: system::PROT_NONE,
            is_shared: true,
        });
    }

    /// Maps no clones from files any more, and forgets those that were.
    pub fn leave_store(&mut self) {
        self.store.turn_off();
        self.forget_stored(|_| true, !self.is_sealed);
    }

    /// Forgets clones that were mapped from files.
    fn forget_stored(&mut self, is_gone: impl Fn(&Stored) -> bool, may_protect: bool) {
        let (mut arrivals, mut entries) = (Arrivals::default(), Vec::new());
        let mut is_any = false;
        for stored in self.store.all.iter_mut().filter(|one| one.is_valid && is_gone(one)) {
            stored.close(may_protect);
            arrivals.append(&mut stored.arrivals);
            entries.append(&mut stored.entries);
            is_any = true;
        }
        self.lead_elsewhere(arrivals);
        for address in entries {
            // What is there now may have been made since.
            if self.map.get(address).is_some_and(|place| place.block & STORED != 0) {
                self.map.remove(address);
            }
        }
        if is_any {
            self.tables.clear();
        }
    }

    /// Leads a branch to the agent.
    fn unlink(&mut self, link: &Link) {
        if let Some(arena) = self.arena_of_mut(link.site) {
            let stub = stub_for(arena, link.target, link.site);
            self.write_distance(link.site, stub);
        } else if let Some(stored) = self.store.with_slot(link.site) {
            stored.reset_slot(link.site);
        }
    }

    /// Remembers that a branch is linked to a place.
    pub fn add_incoming(&mut self, place: &Place, link: Link) {
        if let Some(arrivals) = self.arrivals_at(place) {
            arrivals.links.push(link);
        }
    }

    fn arrivals_at(&mut self, place: &Place) -> Option<&mut Arrivals> {
        let index = (place.block & !STORED) as usize;
        match place.block & STORED {
            0 => self.blocks.get_mut(index).map(|block| &mut block.arrivals),
            _ => self.store.all.get_mut(index).map(|stored| &mut stored.arrivals),
        }
    }

    /// Whether the program may write to an address, and the kernel lets it.
    pub fn is_writable(&self, address: u64) -> bool {
        let is_writable =
            |regions: &Regions| regions.at(address).is_some_and(regions::Region::is_writable);
        is_writable(&self.regions)
            && Regions::read().map_or_else(|| system::may_write(address), |now| is_writable(&now))
    }

    pub fn used(&self) -> u64 {
        self.arenas.iter().map(Arena::used).sum()
    }

    /// The arena for code at an address: one that is near enough to reach its data, too.
    pub fn arena_for(&mut self, address: u64) -> Option<usize> {
        const NEAR: u64 = 3 << 29;
        let is_near = |arena: &Arena| arena.rx.abs_diff(address) < NEAR;
        if let Some(index) = self.arenas.iter().position(is_near) {
            return Some(index);
        }
        // Where there was no room, there is none: to look for it takes long.
        let place = address / NEAR;
        if let Some(&index) = self.crowded.get(&place) {
            return Some(index);
        }
        // What is the engine's own is in the way, too; without a descriptor the kernel's list cannot be read.
        let known = Regions::read().unwrap_or_else(|| self.regions.clone());
        let arena = Arena::map(address, self.exits, self.epoch & 1, known)?;
        let rx = arena.rx;
        self.store.note_arena(self.arenas.len(), rx);
        if !is_near(&arena) {
            self.crowded.insert(place, self.arenas.len());
        }
        self.regions.insert(regions::Region {
            start: rx,
            end: rx + arena::SIZE,
            protection: system::PROT_NONE,
            is_shared: true,
        });
        self.arenas.push(arena);
        Some(self.arenas.len() - 1)
    }

    /// What can be executed from an address on without a gap, and can be read: its end. At most two pages.
    pub fn code_end(&mut self, address: u64) -> Option<u64> {
        let end = self.regions.code_end(address).or_else(|| {
            // A stack may have grown.
            let region = *Regions::read()?.at(address).filter(|region| region.is_code())?;
            self.regions.insert(region);
            Some(region.end)
        })?;
        // A file may be shorter than what is mapped of it.
        let next = (address | (system::PAGE - 1)) + 1;
        if !self.pages.is_readable(address) {
            return None;
        }
        let is_longer = end > next && self.pages.is_readable(next);
        Some(if is_longer { end.min(next + system::PAGE) } else { end.min(next) })
    }

    /// Links a branch to a block, by its distance or through its stub.
    pub fn link(&mut self, site: u64, body: u64, stub: u64) {
        if in_reach(site + 4, body) {
            self.write_distance(site, body);
        } else if let Some(arena) = self.arena_of(stub) {
            // SAFETY: a stub, aligned to sixteen. Its first eight bytes are written at once; a thread
            // that has executed the first instruction finds the rest as it was.
            unsafe {
                *arena.writable(stub + stub::FAR).cast::<u64>() = body;
                let jump = [0xff, 0x25, stub::FAR as u8 - 6, 0, 0, 0, 0xcc, 0xcc];
                let first = arena.writable(stub).cast::<u64>();
                core::ptr::write_volatile(first, u64::from_le_bytes(jump));
            }
        }
    }

    pub fn write_distance(&self, site: u64, to: u64) {
        if let Some(arena) = self.arena_of(site) {
            let distance = to.wrapping_sub(site + 4) as u32;
            // SAFETY: the four bytes lie within one line of the cache, so that others see all or none.
            unsafe { core::ptr::write_volatile(arena.writable(site).cast::<u32>(), distance) };
        }
    }

    /// Overwrites a jump in the clone with one instruction that does nothing.
    pub fn remove_jump(&self, at: u64) {
        let Some(arena) = self.arena_of(at) else { return };
        // Eight bytes of the line that the jump lies in.
        let shift = (at % LINE).saturating_sub(LINE - 8) as usize;
        let word = arena.writable(at - shift as u64);
        // SAFETY: they are written at once, and those around the jump stay as they are.
        unsafe {
            let mut bytes = word.cast::<u64>().read_unaligned().to_le_bytes();
            bytes[shift..shift + 5].copy_from_slice(&emit::NOTHING);
            let bytes = u64::from_le_bytes(bytes);
            core::arch::asm!("mov [{}], {}", in(reg) word, in(reg) bytes, options(nostack));
        }
    }

    /// Keeps a block that is not in the map: only the thread that is sent there executes it.
    pub fn add_unfound(&mut self, arena: usize, block: Block) {
        let number = self.add(arena, block, Box::default());
        let added = &mut self.blocks[number as usize];
        (added.is_valid, added.starts) = (false, Vec::new());
    }

    /// Adds a block to those of its arena. Returns its number.
    pub fn add(&mut self, arena: usize, block: Block, original: Box<[u8]>) -> u32 {
        let number = self.blocks.len() as u32;
        self.arenas[arena].half.blocks.push(number);
        self.blocks.push(BlockInfo {
            start: block.start,
            end: block.end,
            is_inner: block.starts.first().is_some_and(|start| start.address != block.start),
            code: block.code,
            records: block.records.into_boxed_slice(),
            original,
            starts: block.starts.iter().map(|start| start.address).collect(),
            arrivals: Arrivals::default(),
            is_valid: true,
        });
        number
    }

    /// Keeps a block that was translated for its first address. Returns how many branches were linked with it.
    pub fn keep(&mut self, mut block: Block, arena: usize, original: Box<[u8]>) -> u64 {
        let number = self.blocks.len() as u32;
        let (links, loops) = (mem::take(&mut block.links), mem::take(&mut block.loops));
        let linked = links.len() + loops.len();
        // As long as the map still has what they were linked to.
        for link in links {
            if let Some(place) = self.find(link.target) {
                self.add_incoming(&place, link);
            }
        }
        for (link, next) in mem::take(&mut block.joins) {
            if let Some(place) = self.find(next) {
                self.add_incoming(&place, link);
                if let Some(arrivals) = self.arrivals_at(&place) {
                    arrivals.dependents.push(number);
                }
            }
        }
        self.map.add(&block, number);
        if !self.is_blind {
            self.pages.add(block.start, block.end, number);
        }
        self.add(arena, block, original);
        self.blocks[number as usize].arrivals.links = loops;
        linked as u64
    }

    /// Sets whether what was flushed can be executed, for threads that have to come out of a snippet there.
    pub fn let_retired_run(&self, may_run: bool) {
        self.arenas.iter().for_each(|arena| arena.let_retired_run(may_run));
    }

    /// Forgets all of a range of the program's addresses, which was unmapped or mapped anew.
    pub fn unmapped(&mut self, start: u64, end: u64) {
        self.forget(start, end);
        self.store.unmapped(start, end);
        self.pages.remove(start, end);
        self.regions.remove(start, end);
        self.sequences.remove(start, end);
    }

    /// Forgets the blocks of a range of the program's addresses.
    pub fn forget(&mut self, start: u64, end: u64) {
        self.forget_steps(start, end);
        self.forget_stored(|stored| stored.is_of(start, end), !self.is_sealed);
        for number in self.pages.take(start, end) {
            self.forget_block(number);
        }
    }

    pub fn forget_block(&mut self, number: u32) {
        let arrivals = Arrivals { dependents: alloc::vec![number], ..Arrivals::default() };
        self.lead_elsewhere(arrivals);
    }

    /// Leads to the agent what has led to code that is gone, and forgets the blocks that are nothing without it.
    fn lead_elsewhere(&mut self, mut arrivals: Arrivals) {
        loop {
            for link in mem::take(&mut arrivals.links) {
                self.unlink(&link);
            }
            let Some(number) = arrivals.dependents.pop() else { break };
            let block = &mut self.blocks[number as usize];
            if !mem::replace(&mut block.is_valid, false) {
                continue;
            }
            arrivals.append(&mut block.arrivals);
            for address in mem::take(&mut block.starts) {
                if self.map.get(address).is_some_and(|place| place.block == number) {
                    self.map.remove(address);
                    self.tables.forget(address);
                }
            }
        }
    }

    /// Forgets the blocks that these instructions are in.
    pub fn forget_at(&mut self, places: &[Range<u64>]) {
        for place in places {
            self.forget_steps(place.start, place.end);
            self.forget_stored(|one| one.is_of(place.start, place.end), !self.is_sealed);
            let blocks = match self.is_blind {
                false => self.pages.blocks_of(place),
                // Where changes go unseen, it is not known what is in a page.
                true => (0..self.blocks.len() as u32).collect(),
            };
            for number in blocks {
                if self.blocks[number as usize].overlaps(place) {
                    self.forget_block(number);
                }
            }
        }
    }

    /// Looks whether a descriptor is at an address, or named there. If it is new, what was translated of its
    /// sequence is forgotten.
    pub fn learn(&mut self, lead: Lead) -> bool {
        let at = match lead {
            Lead::Address(at) | Lead::Named(at) => at,
            Lead::Pointer(at) => read_plain::<u64>(&self.regions, at).unwrap_or_default(),
        };
        if !at.is_multiple_of(ALIGNMENT) {
            return false;
        }
        let words = match lead {
            Lead::Named(_) => program::read(at),
            _ => read_plain(&self.regions, at),
        };
        let learnt = words.and_then(|words| self.sequences.learn(at, words, &self.regions));
        let Some(range) = learnt else { return false };
        let pages = (range.end - 1) / system::PAGE - range.start / system::PAGE + 1;
        for page in self.pages.guarded_after(range.start, pages) {
            self.release(page);
        }
        self.forget(range.start, range.end);
        true
    }

    /// A thread that is taken over may be on its way into a sequence, with what leads there in a register.
    pub fn learn_from(&mut self, thread: &Thread) {
        for value in thread.general() {
            self.learn(Lead::Address(value));
        }
    }

    /// A thread has left the clone: the kernel must not find a descriptor there that may be flushed.
    /// Returns where the thread continues that was about to continue at `pc`.
    pub fn out_of_sequence(&mut self, thread: &Thread, pc: u64) -> u64 {
        let current = thread.sequence();
        if current == 0 || !thread.is_registered() {
            return pc;
        }
        if self.arena_of(current).is_none() {
            self.learn(Lead::Named(current));
            return pc;
        }
        thread.forget_sequence();
        // SAFETY: written by the translator; it stays until this thread has marked that it is out.
        let [start, end, abort] = unsafe { (*(current as *const Descriptor)).original };
        // In the middle of the sequence: it is aborted, as it may be at any time.
        if (start..end).contains(&pc) { abort } else { pc }
    }

    fn forget_steps(&mut self, start: u64, end: u64) {
        if !self.steps.is_empty() {
            let longest = LONGEST_INSTRUCTION as u64;
            self.steps.retain(|&at, _| at.saturating_add(longest) <= start || at >= end);
        }
    }

    /// Lets all guarded pages be written. Returns whether there were any.
    pub fn release_all(&mut self) -> bool {
        let guarded = self.pages.all_guarded();
        for &page in &guarded {
            self.release(page);
        }
        !guarded.is_empty()
    }

    /// Lets a guarded page be written, and forgets what was translated from it. Returns its addresses.
    pub fn release(&mut self, number: u64) -> Range<u64> {
        let ends = number * PAGE..(number + 1) * PAGE;
        self.forget(ends.start, ends.end);
        if let Some(region) = self.regions.at(ends.start) {
            pages::protect(number, region.protection);
        }
        ends
    }

    /// Flushes all blocks: threads that are in them are led out when they find that they cannot be executed.
    pub fn flush(&mut self) {
        self.epoch += 1;
        // Their slots lead to what is flushed; and who is in them would never come out.
        self.store.turn_off();
        self.forget_stored(|_| true, true);
        for arena in &mut self.arenas {
            arena.retire(self.epoch & 1);
        }
        self.retired = mem::take(&mut self.blocks);
        self.map.clear();
        self.pages.forget_blocks();
        self.steps.clear();
        self.tables.clear();
        self.is_full = false;
    }
}
