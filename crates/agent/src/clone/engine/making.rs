//! How addresses of the program get code.

use crate::clone::base::fail::fail;
use crate::clone::base::{keys, system, vsyscall};
use crate::clone::cache::address_map::Place;
use crate::clone::cache::blocks::Block;
use crate::clone::cache::regions;
use crate::clone::engine::Engine;
use crate::clone::thread::record::Thread;
use crate::clone::translate::translator::{Extent, Inserts, Known, Source};
use crate::clone::translate::{refusal, translate};
use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;

impl Engine {
    /// Finds the code of an address, or makes it; `None` if there can be none.
    pub fn find(&mut self, key: u64) -> Option<Place> {
        self.control.stats.lookups.fetch_add(1, Relaxed);
        if let Some(place) = self.cache.find(key) {
            return Some(place);
        }
        self.control.stats.misses.fetch_add(1, Relaxed);
        self.make(key)
    }

    fn make(&mut self, key: u64) -> Option<Place> {
        // An address in a restartable sequence is translated with all of the sequence, if it is at an instruction
        // of that.
        if let Some(range) = self.cache.sequences.around(keys::real(key)) {
            self.make_block(range.start, Some(range.end));
            if let Some(place) = self.cache.map.get(key) {
                return Some(*place);
            }
        }
        self.make_block(key, None)?;
        self.cache.map.get(key).copied()
    }

    /// Makes the code of an address, or of sequences up to an end; `None` if there can be none.
    fn make_block(&mut self, key: u64, sequences_end: Option<u64>) -> Option<()> {
        let address = keys::real(key);
        let mut end = self.cache.code_end(address)?;
        let Some(arena) = self.cache.arena_for(address) else {
            fail("there is no room for a clone near the code");
        };
        self.check_room(arena);
        let is_seeing = !self.cache.is_blind;
        let region = self.cache.regions.at(address).copied();
        let is_checked = is_seeing
            && region.is_some_and(|region| {
                region.is_shared || self.cache.pages.is_often_written(address)
            });
        let is_guarded =
            is_seeing && !is_checked && region.is_some_and(|region| region.is_writable());
        let extent = match sequences_end {
            Some(end) => Extent::Sequences { end, is_checked },
            None if is_checked => Extent::Checked,
            None => Extent::Block,
        };
        if is_guarded {
            self.cache.pages.guard(&self.cache.regions, address);
            match sequences_end {
                Some(last) => self.cache.pages.guard(&self.cache.regions, last - 1),
                // A block stays in its page, so that no page is guarded in vain.
                None => end = end.min((address | (system::PAGE - 1)) + 1),
            }
        }
        let before = self.cache.arenas[arena].used();
        let mut source = Source::at(address, end);
        let copy: Box<[u8]>;
        if is_checked {
            // Read once: other processes may write to it now, and what is kept for comparison must be what was
            // translated.
            copy = source.bytes.into();
            source.bytes = &copy;
        }
        let block = match self.translate(&source, key, arena, extent) {
            None if is_guarded => {
                // Its first instruction goes beyond the page.
                self.cache.pages.guard(&self.cache.regions, address + 15);
                let end = self.cache.code_end(address)?;
                self.translate(&Source::at(address, end), key, arena, extent)?
            }
            block => block?,
        };
        // What has just been translated may be part of a restartable sequence that was found by it: it is
        // translated again.
        if block.leads.iter().fold(false, |news, &lead| self.cache.learn(lead) | news) {
            return self.make(key).map(drop);
        }
        let original = match is_checked {
            true => source.bytes[..(block.end - block.start) as usize].into(),
            false => Box::default(),
        };
        let stats = &self.control.stats;
        stats.blocks.fetch_add(1, Relaxed);
        stats.bytes.fetch_add(self.cache.arenas[arena].used() - before, Relaxed);
        stats.record_bytes.fetch_add(block.records.len() as u64, Relaxed);
        if extent == Extent::Block && !is_guarded && key == address {
            self.cache.store.learn(address, false);
        }
        let linked = self.cache.keep(block, arena, original);
        stats.links.fetch_add(linked, Relaxed);
        Some(())
    }

    pub fn make_single(&mut self, pc: u64, extent: Extent) -> Option<u64> {
        let end = self.cache.code_end(pc)?;
        let arena = self.cache.arena_for(pc)?;
        self.check_room(arena);
        let block = self.translate(&Source::at(pc, end), pc, arena, extent)?;
        let code = block.code;
        self.cache.add_unfound(arena, block);
        Some(code)
    }

    fn translate(
        &mut self,
        source: &Source,
        key: u64,
        arena: usize,
        extent: Extent,
    ) -> Option<Block> {
        let is_linking = !self.is_in_step();
        // The page that it begins in can be read. What may change is not looked at beyond what is translated.
        let may_change = |region: &regions::Region| region.is_writable() || region.is_shared;
        let is_fixed = !self.cache.regions.at(source.address).is_none_or(may_change);
        let begins = match is_fixed {
            true => source.address & !(system::PAGE - 1),
            false => source.address,
        };
        self.weaving.seen = begins..source.address + source.bytes.len() as u64;
        let table = self.cache.tables.first();
        let (map, store) = (&self.cache.map, Some(&self.cache.store));
        let sequences = &self.cache.sequences;
        let known = Known { map, store, sequences, table, is_fixed };
        let place = (arena, &mut self.cache.arenas[arena]);
        let inserts = Inserts {
            weaving: &mut self.weaving,
            recorder: self.recorder.as_mut(),
            halts: &self.halts,
        };
        translate(source, key, known, place, inserts, extent, is_linking)
    }

    /// Makes code for one instruction that is not kept. Returns where it is.
    pub fn single(&mut self, thread: &Thread, pc: u64) -> u64 {
        thread.pc.set(pc);
        let made = self.make_single(pc, Extent::Single);
        thread.epoch.store(self.cache.epoch, Relaxed);
        made.unwrap_or_else(|| self.without_code(pc))
    }

    /// Where a thread continues for an address of which nothing can be translated: there, for the fault that the
    /// program has natively; or, where there is none, out of the clone.
    pub fn without_code(&mut self, pc: u64) -> u64 {
        let is_call =
            vsyscall::is_at(pc) && self.cache.regions.at(pc).is_some_and(regions::Region::is_code);
        if !is_call && !self.is_execute_only(pc) {
            return pc;
        }
        // Any arena will do: the exit reaches nothing of the program.
        let arena = if self.cache.arenas.is_empty() { self.cache.arena_for(pc) } else { Some(0) };
        let Some(arena) = arena else { return pc };
        self.check_room(arena);
        let block = refusal(pc, &mut self.cache.arenas[arena]);
        let code = block.code;
        self.cache.add_unfound(arena, block);
        code
    }
}
