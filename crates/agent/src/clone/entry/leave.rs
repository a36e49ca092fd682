//! Giving threads back to the program's own code.
//!
//! The host has stopped all threads, and one of them is here for all. Each is where it can leave, or busy:
//! then the host lets it run a little and tries again. Nothing changes before all can leave.
//!
//! The host may be killed before it has moved the last thread. So the signal actions, and the protection of pages, are
//! the program's again before the first is moved: with them threads can be in the clone and out of it side by side. One
//! that is still in it follows when it comes to the dispatcher; the next host finds those that are out as they are.

use crate::clone::base::image::image;
use crate::clone::base::instructions::SYSTEM_CALL_LENGTH;
use crate::clone::base::registers::{RAX, RSP};
use crate::clone::base::visit::visitors;
use crate::clone::cache::arena::Arena;
use crate::clone::cache::program_state;
use crate::clone::cache::program_state::State;
use crate::clone::cache::stored::Stored;
use crate::clone::engine::Engine;
use crate::clone::engine::lock::{forget_engine, locked_for_host};
use crate::clone::entry::in_calls::about_to_call;
use crate::clone::failure::give_up;
use crate::clone::thread::actions::Actions;
use crate::clone::thread::record::{Thread, stepping};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_abi::{CloneThread, CloneVisit, busy};

/// Where a thread would be in the program.
struct Place {
    thread: &'static Thread,
    state: State,
    /// Whether it has left the clone: what else the program has of registers is in its record.
    is_out: bool,
}

/// Finds out where the threads are in the program, if all can leave.
pub extern "C" fn leave(visit: &mut CloneVisit) {
    give_up::visited(|| find_all(visit));
}

fn find_all(visit: &mut CloneVisit) {
    // A thread that holds the lock is in the middle of something.
    let Some(mut engine) = locked_for_host() else {
        visitors(visit).iter_mut().for_each(|visitor| visitor.is_busy = busy::RUNNING);
        return;
    };
    for visitor in visitors(visit) {
        visitor.is_busy = match find(&engine, visitor) {
            Some(_) => 0,
            None if is_native(&engine, visitor) => busy::NATIVE,
            None => busy::RUNNING,
        };
    }
    if visitors(visit).iter().any(|visitor| visitor.is_busy == busy::RUNNING) {
        return;
    }
    for visitor in visitors(visit) {
        let Some(mut place) = find(&engine, visitor) else { continue };
        if !place.is_out {
            engine.cut(visitor.registers.rip, place.state.pc);
        }
        program_state::put_return_address(&mut engine.cache, &mut place.state);
        place.state.pc = engine.cache.out_of_sequence(place.thread, place.state.pc);
        place.describe(visitor);
    }
    // Where no thread has joined the engine, the actions are the program's own, and may have changed since.
    let used = engine.threads().find(|thread| thread.is_used.load(Relaxed) != 0);
    if let Some(thread) = used.filter(|_| engine.has_begun) {
        Actions::give_back(thread);
    }
    engine.cache.release_all();
    visit.is_done = 1;
}

/// Whether a thread is not in the engine at all: a weft has been killed that had begun to give threads back.
fn is_native(engine: &Engine, visitor: &CloneThread) -> bool {
    let pc = visitor.registers.rip;
    let has_record = engine.threads().any(|thread| thread.this == visitor.gs_base);
    !has_record && !image().contains(&pc) && !engine.cache.is_in_clone(pc)
}

fn find(engine: &Engine, visitor: &CloneThread) -> Option<Place> {
    let thread = engine.threads().find(|thread| thread.this == visitor.gs_base)?;
    if thread.is_leaving.load(Acquire) != 0 {
        // A thread that has just been created has its parent's `gs` until it sets its own (`begin_thread`): what the
        // parent leaves with is not for it.
        if !thread.has_on_stacks(visitor.registers.general[RSP]) {
            return None;
        }
        let state = State { general: thread.general(), pc: thread.pc.get(), stacked: None };
        return Some(Place { thread, state, is_out: true });
    }
    if thread.is_used.load(Relaxed) == 0 || thread.has_pending() {
        return None;
    }
    let pc = visitor.registers.rip;
    if image().contains(&pc) {
        return about_to_call(pc, visitor.registers.general[RAX])
            .map(|number| in_call(thread, number));
    }
    if engine.cache.is_gate(pc) || thread.stepping.load(Relaxed) != stepping::NO {
        return None;
    }
    if program_state::progress(&engine.cache, pc) == program_state::Progress::Within {
        return None;
    }
    let mut state = State { general: visitor.registers.general, pc, stacked: None };
    // A thread that is not in the clone has the program's registers.
    program_state::find(&engine.cache, thread, &mut state);
    Some(Place { thread, state, is_out: false })
}

fn in_call(thread: &'static Thread, number: Option<u64>) -> Place {
    let mut general = thread.general();
    if let Some(number) = number {
        general[RAX] = number;
    }
    let state = State { general, pc: thread.pc.get() - SYSTEM_CALL_LENGTH, stacked: None };
    Place { thread, state, is_out: true }
}

impl Place {
    fn describe(self, visitor: &mut CloneThread) {
        let Self { thread, state, is_out } = self;
        visitor.registers.general = state.general;
        visitor.registers.rip = state.pc;
        if is_out {
            visitor.registers.rflags = thread.flags.get();
            visitor.vectors =
                thread.vectors.get().map(|value| [value as u64, (value >> 64) as u64]);
        }
        if thread.is_leaving.load(Acquire) != 0 {
            visitor.mask = thread.pending_mask.get();
        }
        visitor.gs_base = thread.gs_base.get();
        visitor.mask |= thread.hidden_mask.get();
        visitor.altstack = thread.altstack.get();
    }
}

/// Gives everything back to the kernel but the engine's own image. No thread may be in the engine any more
/// but the one that is here.
pub extern "C" fn forget(visit: &mut CloneVisit) {
    give_up::visited(|| forget_all(visit));
}

fn forget_all(visit: &mut CloneVisit) {
    let Some(engine) = locked_for_host() else { return };
    engine.threads().for_each(|thread| thread.unmap());
    if let Some(recorder) = &engine.recorder {
        recorder.unmap();
    }
    engine.cache.arenas.iter().for_each(Arena::unmap);
    engine.cache.store.all.iter().for_each(Stored::unmap);
    engine.cache.tables.unmap();
    forget_engine();
    #[cfg(weft_freestanding)]
    crate::clone::base::heap::unmap();
    visit.is_done = 1;
}
