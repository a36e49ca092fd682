//! What the host wants woven, while it has stopped all threads.

use crate::clone::base::image::image;
use crate::clone::base::registers::{RAX, RSP};
use crate::clone::base::visit::{message, visitors};
use crate::clone::cache::program_state;
use crate::clone::cache::program_state::Progress;
use crate::clone::engine::Engine;
use crate::clone::engine::lock::locked_for_host;
use crate::clone::entry::in_calls::is_in_call;
use crate::clone::failure::give_up;
use crate::clone::kernel::call_points;
use crate::clone::thread::assembly::halted;
use crate::clone::thread::record::{Thread, stepping};
use crate::clone::tools::weaving::{Weaving, Words};
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;
use weft_abi::{CloneThread, CloneVisit};

/// Weaves what the host requests into what is translated from now on. All threads are stopped.
pub extern "C" fn weave(visit: &mut CloneVisit) {
    give_up::visited(|| weave_all(visit));
}

fn weave_all(visit: &mut CloneVisit) {
    let Some(mut engine) = locked_for_host() else {
        visitors(visit).iter_mut().for_each(|visitor| visitor.is_busy = 1);
        return;
    };
    let words = message(visit);
    let is_filtered = engine.is_filtered;
    if Weaving::is_leaving(words) {
        forget_weaving(&mut engine);
    } else {
        // What is woven goes into code that is made here.
        engine.cache.leave_store();
        let Some(mut changed) = engine.weaving.follow(&mut Words(words), is_filtered) else {
            return;
        };
        changed.dedup();
        for thread in engine.threads().filter(|thread| thread.is_used.load(Relaxed) != 0) {
            engine.weaving.claim_slabs(thread);
        }
        engine.cache.forget_at(&changed);
    }
    call_points::are_there(engine.weaving.has_calls());
    let mut is_anyone_busy = false;
    for visitor in visitors(visit) {
        visitor.is_busy = u64::from(may_be_in_old_code(&engine, visitor));
        is_anyone_busy |= visitor.is_busy != 0;
    }
    if Weaving::is_leaving(words) && !is_anyone_busy {
        engine.threads().for_each(Thread::forget_slabs);
        engine.weaving = Weaving::default();
    }
    visit.is_done = 1;
}

/// Whether a thread is in code that is out of date, or about to go there.
fn may_be_in_old_code(engine: &Engine, visitor: &CloneThread) -> bool {
    let pc = visitor.registers.rip;
    // A thread that is halted for a debugger looks up its target before it continues.
    if pc == halted() {
        return false;
    }
    let Some(thread) = engine.threads().find(|thread| thread.this == visitor.gs_base) else {
        return false;
    };
    if thread.stepping.load(Relaxed) != stepping::NO {
        return true;
    }
    if image().contains(&pc) {
        let [rax, rsp] = [RAX, RSP].map(|register| visitor.registers.general[register]);
        let (start, size) = thread.signal_stack();
        // Behind a system call of the program's, the engine looks where to go. A handler of signals goes
        // back to where it has come from, which only the kernel knows.
        let is_handling = rsp > start as u64 && rsp <= (start + size) as u64;
        return !is_in_call(pc, rax)
            && (is_handling || leads_to_old_code(engine, thread.target.get()));
    }
    engine.cache.is_gate(pc) || leads_to_old_code(engine, pc)
}

/// Whether a thread that goes on at a place in the clone may come to code that is out of date without the
/// engine's knowledge, or is in the middle of a snippet.
fn leads_to_old_code(engine: &Engine, place: u64) -> bool {
    let Some(block) = program_state::block_at(&engine.cache, place) else {
        // A piece of the cold part, if it is in the clone at all.
        return engine.cache.is_in_clone(place);
    };
    program_state::is_old(&engine.cache, place)
        || program_state::progress(&engine.cache, place) == Progress::Within
        || program_state::is_under_way(block, place)
}

/// Forgets all blocks that something is woven into.
fn forget_weaving(engine: &mut Engine) {
    let places: Vec<Range<u64>> = engine.weaving.woven().collect();
    engine.cache.forget_at(&places);
    engine.weaving.clear();
}
