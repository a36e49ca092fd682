//! Where threads continue, and what is recorded of it.

use crate::clone::base::keys;
use crate::clone::cache::pieces::{Cold, Kind};
use crate::clone::cache::program_state;
use crate::clone::engine::Engine;
use crate::clone::thread::record::Thread;
use crate::clone::tools::tracing;
use core::sync::atomic::Ordering::Relaxed;
use weft_abi::recording::{entry, event};

impl Engine {
    /// Continues a thread at an address of the program. Returns where that is in the clone.
    pub fn continue_at(&mut self, thread: &Thread, pc: u64) -> u64 {
        if keys::is_inner(pc) {
            // No code can be there: the thread faults.
            thread.pc.set(pc);
            thread.target.set(pc);
            return pc;
        }
        let place = self.continue_as(thread, pc);
        self.entered(thread, pc);
        place
    }

    /// The same for an address that may be the start of a function as it is reached from within.
    pub fn continue_as(&mut self, thread: &Thread, key: u64) -> u64 {
        let pc = keys::real(key);
        thread.pc.set(pc);
        let body = self.find(key).map(|place| place.body);
        thread.target.set(body.unwrap_or_else(|| self.without_code(pc)));
        thread.epoch.store(self.cache.epoch, Relaxed);
        thread.target.get()
    }

    /// Continues a thread right behind the exit that it has left by, with the program at `pc`. The exit must be in
    /// what was not flushed.
    pub fn continue_behind_exit(&self, thread: &Thread, pc: u64) {
        thread.pc.set(pc);
        thread.target.set(thread.exit.get() + 8);
        thread.epoch.store(self.cache.epoch, Relaxed);
    }

    /// A thread comes to an address of the program, not by a direct branch.
    pub fn entered(&mut self, thread: &Thread, key: u64) {
        let Some(recorder) = self.recorder.as_ref().filter(|it| !it.is_for_trace()) else {
            return;
        };
        let Some(place) = self.cache.map.get_mut(key) else { return };
        if place.counter == 0 {
            place.counter = recorder.entries_counter(keys::real(key));
        }
        thread.count(place.counter);
    }

    /// A thread is about to go on elsewhere than at its place in the clone, where the program is at `pc`.
    pub fn cut(&self, place: u64, pc: u64) {
        let Some(recorder) = self.recorder.as_ref().filter(|it| it.is_for_counts()) else { return };
        let code = match program_state::piece_at(&self.cache, place) {
            // On its way, which was counted.
            Some((_, Cold::Stub | Cold::CallThunk)) => 0,
            // Not counted yet.
            Some(_) => return,
            None => {
                let Some(block) = program_state::block_at(&self.cache, place) else { return };
                match program_state::kinds_around(block, place) {
                    (_, Kind::Entry) | (Some(Kind::Entry), Kind::Snippet) => return,
                    (_, Kind::Snippet | Kind::Way) => 0,
                    (_, Kind::Onward) => block.code | entry::AT_END,
                    _ => block.code,
                }
            }
        };
        recorder.log(entry::CUT, &[pc, code], &[]);
    }

    /// A thread is about to go on elsewhere than at its place in the clone, where the program is at `pc` with these
    /// registers: if that is in the middle of a run, the run was left.
    pub fn trace_cut(&self, thread: &Thread, place: u64, (pc, general): (u64, &[u64; 16])) {
        let Some(recorder) = self.recorder.as_ref().filter(|it| it.is_for_trace()) else { return };
        // On its way to a run, or before its beginning.
        if recorder.trace_starts.contains(&place)
            || program_state::piece_at(&self.cache, place).is_some()
        {
            return;
        }
        let Some(block) = program_state::block_at(&self.cache, place) else { return };
        let is_captured = match program_state::kinds_around(block, place) {
            _ if place == block.code => return,
            (_, Kind::Entry | Kind::Onward) => return,
            (_, kind) => kind != Kind::Snippet,
        };
        let mut words = [0; 18];
        (words[0], words[1]) = (pc, u64::from(is_captured));
        words[2..].copy_from_slice(general);
        tracing::write_event(thread, event::INTERRUPTED, &words);
    }
}
