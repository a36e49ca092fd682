//! Branches that have left the clone: they are linked, or counted first.

use crate::clone::base::keys;
use crate::clone::cache::address_map::Place;
use crate::clone::cache::links::{Link, ONE_SHOT, stub_for};
use crate::clone::cache::marks::Choice;
use crate::clone::cache::pieces::Cold;
use crate::clone::cache::stored::{STORED, set_slot};
use crate::clone::cache::{emit, program_state};
use crate::clone::engine::Engine;
use crate::clone::engine::exit::Exit;
use crate::clone::thread::record::{Thread, at_counter};
use crate::clone::tools::recorder::are_flags_free_at;
use core::sync::atomic::Ordering::Relaxed;
use weft_abi::recording::COUNTERS;

impl Engine {
    /// A direct branch that is not linked to its target: links it.
    pub fn exit(&mut self, thread: &Thread, exit: &Exit) {
        if self.has_passed(thread, exit) {
            return;
        }
        self.continue_as(thread, exit.target);
        if exit.site == 0 {
            // From a single instruction, of which nothing is recorded.
            return self.entered(thread, exit.target);
        }
        // What was flushed is not to be changed: the state of a thread that is still there is found by it.
        if exit.site & ONE_SHOT != 0 || exit.epoch != self.cache.epoch {
            return;
        }
        self.link_to(exit.target, exit.site, exit.stub);
    }

    /// A direct branch of a clone from a file that is not linked to its target: links it, by its slot.
    pub fn exit_by_slot(&mut self, thread: &Thread, target: u64, slot: u64) {
        self.continue_as(thread, target);
        // What was made may have shown that the file's is not what it was made of.
        let Some(place) = self.cache.find(target) else { return };
        if self.cache.store.with_slot(slot).is_some() {
            set_slot(slot, place.body);
            self.cache.add_incoming(&place, Link { site: slot, target });
            self.control.stats.links.fetch_add(1, Relaxed);
        }
    }

    /// Links a branch to the block of an address, if that has one.
    fn link_to(&mut self, target: u64, site: u64, stub: u64) {
        let Some(place) = self.cache.find(target) else { return };
        self.cache.link(site, place.body, stub);
        self.cache.add_incoming(&place, Link { site, target });
        self.control.stats.links.fetch_add(1, Relaxed);
    }

    /// An indirect branch that the table does not know.
    pub fn indirect(&mut self, thread: &Thread, target: u64) {
        self.continue_at(thread, target);
        if self.is_in_step() {
            return;
        }
        if let Some(entry) = self.entry(target) {
            self.cache.tables.set(target, entry);
        }
    }

    /// Where indirect branches enter the code of an address, which must be translated.
    fn entry(&mut self, address: u64) -> Option<u64> {
        let place = self.cache.find(address)?;
        if place.entry != 0 {
            return Some(place.entry);
        }
        self.cache.store.learn(address, true);
        let is_return = self.halts.is_return(address);
        let is_stored = place.block & STORED != 0;
        // A file has no room for it; nor has the block whose code is in one.
        let is_elsewhere = self.cache.arena_of(place.body).is_none();
        let near = if is_elsewhere { self.cache.arena_for(address) } else { None };
        if let Some(arena) = near {
            self.check_room(arena);
        }
        let arena = match near {
            Some(arena) => &mut self.cache.arenas[arena],
            None => self.cache.arena_of_mut(place.body)?,
        };
        let wrong = arena.gates().wrong;
        let most = emit::ENTRY + emit::ADDRESS_BELOW + emit::COUNT + emit::FAR_JUMP;
        let mut out = arena.cold(most, Cold::Entry);
        emit::entry(&mut out, address, wrong);
        if is_return {
            emit::address_below(&mut out, address);
        }
        let counter = self.recorder.as_ref().map_or(0, |it| it.count_entry(&place, &mut out));
        emit::jump(&mut out, place.body);
        let entry = out.rx;
        self.cache.map.insert(Place { entry, counter, ..place });
        if let Some(stored) = self.cache.store.all.get_mut((place.block & !STORED) as usize)
            && is_stored
        {
            stored.entries.push(address);
        }
        Some(entry)
    }

    /// A thread has left the clone by a way that counts once: counts it. Returns whether the thread is
    /// past it and continues.
    pub fn has_passed(&mut self, thread: &Thread, exit: &Exit) -> bool {
        let Some(recorder) = &mut self.recorder else { return false };
        let mut counted = None;
        if let Some(choice) = Choice::of_mark(exit.mark) {
            if recorder.counts(choice) {
                thread.count(choice.counter);
                counted = Some(choice.counter);
            }
        } else if recorder.is_for_hits() && (1..COUNTERS).contains(&exit.mark) {
            // A stub that was linked meanwhile has something else there.
            thread.count(exit.mark as u32);
        }
        let is_one_shot = exit.site & ONE_SHOT != 0;
        if !is_one_shot && counted.is_none() {
            return false;
        }
        let site = exit.site & !ONE_SHOT;
        let is_valid =
            program_state::block_at(&self.cache, site).is_some_and(|block| block.is_valid);
        if exit.epoch != self.cache.epoch || !is_valid {
            return false;
        }
        match counted {
            None => self.cache.remove_jump(site - 1),
            Some(counter) if !is_one_shot => return self.count_branch(thread, exit, counter),
            Some(counter) => {
                let Some(arena) = self.cache.arena_of_mut(site) else { return false };
                let mut out = arena.cold(emit::COUNT + 5, Cold::Snippet);
                emit::count(&mut out, at_counter(counter), are_flags_free_at(exit.target));
                out.jump(site + 4);
                self.cache.write_distance(site, out.rx);
            }
        }
        thread.pc.set(exit.target);
        thread.target.set(site + 4);
        thread.epoch.store(self.cache.epoch, Relaxed);
        true
    }

    /// Puts a counter on a branch, which has just been taken; its target need not be translated yet.
    fn count_branch(&mut self, thread: &Thread, exit: &Exit, counter: u32) -> bool {
        self.continue_as(thread, exit.target);
        let is_free = are_flags_free_at(keys::real(exit.target));
        let Some(arena) = self.cache.arena_of_mut(exit.site) else { return false };
        let mut out = arena.cold(emit::COUNT + 16, Cold::Snippet);
        emit::count(&mut out, at_counter(counter), is_free);
        out.align_distance(1);
        out.byte(0xe9);
        let site = out.here();
        let stub = stub_for(arena, exit.target, site);
        out.distance(stub);
        self.cache.write_distance(exit.site, out.rx);
        self.link_to(exit.target, site, stub);
        true
    }
}
