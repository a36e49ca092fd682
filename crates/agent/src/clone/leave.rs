//! Giving threads back to the program's own code.
//!
//! The host has stopped all threads, and one of them is here for all. Each is where it can leave, or busy:
//! then the host lets it run a little and asks again. Nothing changes before all can leave.

use crate::clone::record::{Thread, stepping};
use crate::clone::signals::Actions;
use crate::clone::state::{self, RAX, State};
use crate::clone::{
    CloneThread, CloneVisit, Engine, SHARED, calls, free, give_up, image, pages, switch, visitors,
};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use weft_abi::busy;

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
    // Whoever has the engine is in the middle of something.
    let Some(mut engine) = free() else {
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
    if visitors(visit).iter().any(|visitor| visitor.is_busy != 0) {
        return;
    }
    for visitor in visitors(visit) {
        let Some(mut place) = find(&engine, visitor) else { continue };
        if !place.is_out {
            engine.cut(visitor.registers.rip, place.state.pc);
        }
        state::put_return_address(&mut engine, &mut place.state);
        place.state.pc = engine.out_of_sequence(place.thread, place.state.pc);
        place.describe(visitor);
    }
    visit.is_done = 1;
}

/// Whether a thread is not in the engine at all: a weft has been killed that had begun to give threads back.
fn is_native(engine: &Engine, visitor: &CloneThread) -> bool {
    let pc = visitor.registers.rip;
    let has_record = engine.threads().any(|thread| thread.this == visitor.gs_base);
    !has_record && !image().contains(&pc) && engine.half_of(pc).is_none()
}

fn find(engine: &Engine, visitor: &CloneThread) -> Option<Place> {
    let thread = engine.threads().find(|thread| thread.this == visitor.gs_base)?;
    if thread.is_leaving.load(Acquire) != 0 {
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
    if engine.is_gate(pc) || thread.stepping.load(Relaxed) != stepping::NO {
        return None;
    }
    if state::progress(engine, pc) == state::Progress::Within {
        return None;
    }
    let mut state = State { general: visitor.registers.general, pc, stacked: None };
    // What is not in the clone has none.
    state::find(engine, thread, &mut state);
    Some(Place { thread, state, is_out: false })
}

/// Whether a thread stands before the program's system call, or in one that the kernel would make again:
/// then the number of the call, if it is not the one that the program gave.
fn about_to_call(pc: u64, rax: u64) -> Option<Option<u64>> {
    let at = |label: &u8| core::ptr::from_ref(label) as u64;
    // SAFETY: labels, whose addresses alone count.
    let (begin, instruction) =
        unsafe { (at(&switch::weft_call_begin), at(&switch::weft_call_instruction)) };
    if pc == instruction {
        return Some(Some(rax));
    }
    (begin..instruction).contains(&pc).then_some(None)
}

/// Whether a thread stands before the program's system call, or in one that the kernel would make again.
pub fn is_in_call(pc: u64, rax: u64) -> bool {
    about_to_call(pc, rax).is_some()
}

fn in_call(thread: &'static Thread, number: Option<u64>) -> Place {
    let mut general = thread.general();
    if let Some(number) = number {
        general[RAX] = number;
    }
    let state = State { general, pc: thread.pc.get() - calls::LENGTH, stacked: None };
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
    let Some(mut engine) = free() else { return };
    // Where nobody has joined it, they are the program's own, and may have changed since.
    let mut threads = engine.threads().filter(|thread| thread.is_used.load(Relaxed) != 0);
    if let Some(thread) = threads.next().filter(|_| engine.has_begun) {
        Actions::give_back(thread);
    }
    pages::release_all(&mut engine);
    engine.threads().for_each(|thread| thread.unmap());
    if let Some(recorder) = &engine.recorder {
        recorder.unmap();
    }
    engine.arenas.iter().for_each(crate::clone::Arena::unmap);
    engine.tables.unmap();
    // SAFETY: nobody comes here any more. What the engine was made of goes as a whole.
    unsafe { core::ptr::write(SHARED.engine.get(), None) };
    #[cfg(weft_freestanding)]
    crate::clone::HEAP.unmap();
    visit.is_done = 1;
}
