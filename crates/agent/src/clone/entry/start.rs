//! How the engine begins.

use crate::clone::base::fail::set_hook;
use crate::clone::base::image::set_image;
use crate::clone::base::visit::{message, visitors};
use crate::clone::base::{host, observers, system};
use crate::clone::cache::branch_tables::Tables;
use crate::clone::cache::code_cache::CodeCache;
use crate::clone::cache::regions::Regions;
use crate::clone::engine::Engine;
use crate::clone::engine::lock::set_engine;
use crate::clone::entry::outlining::outline;
use crate::clone::failure::give_up;
use crate::clone::switch;
use crate::clone::thread::actions::Actions;
use crate::clone::thread::assembly::{abandonable_call, halted};
use crate::clone::thread::landmarks;
use crate::clone::thread::landmarks::Landmark;
use crate::clone::thread::record::at;
use core::ops::Range;
use core::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::{COUNTER_FORBIDDEN, CloneControl, CloneVisit, addresses};

/// Builds the engine for threads that will [`join`](crate::clone::kernel::processes::join) it. Until then nothing
/// of the process has changed but that it has more memory.
pub extern "C" fn start(visit: &mut CloneVisit) {
    set_hook(give_up::fail_with);
    landmarks::set(switch::landmarks());
    let start = visit.start;
    // SAFETY: the host has mapped the control block, and leaves it there.
    let control = unsafe { &*(start.control as *const CloneControl) };
    let place = (start.tables as usize, start.reserved as usize);
    let missing = Landmark::Missing.address();
    let Some(tables) = Tables::map(place.0, place.1, start.options, missing) else { return };
    let table = tables.range();
    let cache = CodeCache::new(Regions::from_host(message(visit)), tables, switch::exits());
    let mut engine = Engine::new(&start, cache, control);
    engine.begin_store();
    set_image(start.image);
    let actions = Actions::read();
    for visitor in visitors(visit) {
        let Some(thread) = engine.thread() else { return };
        thread.actions.store(actions, Relaxed);
        thread.take_over(visitor);
        engine.cache.sequences.add_signature(visitor.signature as u32);
        visitor.record = thread.this;
    }
    if control.counter_mode.load(Relaxed) == COUNTER_FORBIDDEN {
        engine.leave_counter_alone();
    }
    set_engine(engine);
    host::set_control(control);
    introduce(control, table);
    control.outline.store(outline(), Release);
    visit.is_done = 1;
}

/// Fills in what a debugger has to know of the engine.
fn introduce(control: &CloneControl, table: Range<u64>) {
    let debug = &control.debug;
    let call = abandonable_call();
    debug.trap.store(halted(), Relaxed);
    debug.call.store(call.instruction, Relaxed);
    debug.call_abandoned.store(call.abandoned, Relaxed);
    debug.halt.store(at!(halt) as u64, Relaxed);
    debug.table[0].store(table.start, Relaxed);
    debug.table[1].store(table.end, Relaxed);
    debug.aside.store(addresses::ENGINE.0, Relaxed);
    for (place, offset) in
        debug.record.iter().zip([at!(general), at!(pc), at!(flags), at!(vectors)])
    {
        place.store(offset as u64, Relaxed);
    }
    let is_debugged = debug.pid.load(Relaxed) as usize == system::pid();
    observers::set_debugged(is_debugged);
}
