//! What a thread does that has left the clone.

use crate::clone::base::clock::cycles;
use crate::clone::base::instructions::SYSTEM_CALL_LENGTH;
use crate::clone::base::vsyscall::is_at;
use crate::clone::base::{keys, observers, system};
use crate::clone::cache::pieces::{slot_stub, stub};
use crate::clone::cache::stored::STORED;
use crate::clone::cache::{coprocessor, emit, program_state};
use crate::clone::engine::Engine;
use crate::clone::engine::exit::Exit;
use crate::clone::engine::lock::engine;
use crate::clone::failure::give_up;
use crate::clone::kernel::{calls, debugger, vsyscall};
use crate::clone::thread::record::{Thread, left};
use crate::clone::thread::{actions, repeated};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_abi::{CloneStep, turn};

/// How often in a row the beginning of a sequence may be found without a descriptor before that is taken
/// for intended: the kernel clears the descriptor where a thread is interrupted right before.
const MOST_MISSED: u32 = 16;

/// What a thread does that has left the clone: see [`left`].
pub extern "C" fn dispatch(thread: &Thread) {
    let began = cycles();
    let kind = thread.left.get();
    let epoch = thread.epoch.load(Relaxed);
    // SAFETY: an exit as the translator writes it; it stays until this thread has marked that it is out.
    let exit = unsafe {
        match kind {
            left::EXIT => {
                let stub = thread.exit.get() - emit::LEAVE as u64;
                let word = |offset: u64| *((stub + offset) as *const u64);
                let target = program_state::said(stub + stub::TARGET);
                let (site, mark) = (word(stub::SITE), word(stub::FAR));
                Exit { target, site, stub, epoch, mark }
            }
            left::SLOT => {
                let stub = thread.exit.get() - slot_stub::TARGET;
                let target = program_state::said(stub + slot_stub::TARGET);
                let distance = ((stub + slot_stub::SLOT) as *const i32).read_unaligned();
                let site = (stub + slot_stub::EXIT).wrapping_add_signed(distance.into());
                Exit { target, site, stub, epoch, mark: 0 }
            }
            left::INDIRECT => Exit { target: thread.next.get(), site: 0, stub: 0, epoch, mark: 0 },
            _ => {
                let target = program_state::said(thread.exit.get());
                Exit { target, site: 0, stub: 0, epoch, mark: 0 }
            }
        }
    };
    thread.epoch.store(u64::MAX, Release);
    if kind == left::INDIRECT && observers::is_stack_seen() {
        debugger::clean_below(thread);
    }
    thread.native_pc.set(native_pc(kind, exit.target));
    if actions::are_given_back() {
        give_up::follow_others(thread);
    }
    let is_aborted;
    let step = {
        let mut engine = engine();
        engine.control.stats.agent_entries.fetch_add(1, Relaxed);
        match kind {
            left::EXIT | left::SLOT | left::INDIRECT if thread.is_single() => {
                repeated::rejoin_in_agent(thread, keys::real(exit.target));
            }
            left::EXIT => engine.exit(thread, &exit),
            left::SLOT => engine.exit_by_slot(thread, exit.target, exit.site),
            left::INDIRECT => engine.indirect(thread, exit.target),
            left::CHECK => check(&mut engine, thread, &exit),
            left::SEQUENCE => sequence(&mut engine, thread, &exit),
            left::ABORT => abort(&mut engine, thread, exit.target),
            left::SAVED => saved(&mut engine, thread, &exit),
            left::SYSTEM_CALL => {
                engine.control.stats.system_calls.fetch_add(1, Relaxed);
                thread.pc.set(exit.target);
            }
            _ => thread.pc.set(exit.target),
        }
        is_aborted = leave_sequence(&mut engine, thread);
        engine.control.stats.agent_cycles.fetch_add(cycles().saturating_sub(began), Relaxed);
        let is_over = matches!(kind, left::EXIT | left::SLOT | left::INDIRECT | left::SYSTEM_CALL);
        (engine.is_in_step() && is_over).then_some(&engine.control.step)
    };
    if kind == left::REFUSED {
        refused(thread, exit.target);
    }
    if kind == left::SYSTEM_CALL && !is_aborted && !debugger::at_call(thread) {
        calls::system_call(thread);
        let pc = thread.pc.get();
        engine().continue_at(thread, pc);
    }
    match kind {
        left::HALT => debugger::at_breakpoint(thread, &exit),
        left::WATCH => debugger::at_store(thread),
        left::EXIT | left::SLOT | left::INDIRECT | left::SYSTEM_CALL
            if observers::is_debugged() =>
        {
            debugger::arrived(thread, kind, exit.target);
        }
        _ => {}
    }
    thread.native_pc.set(0);
    if let Some(step) = step {
        wait_in_step(thread, step, exit.mark != 0);
    }
}

/// A thread has come to what cannot be translated. Returns if it continues all the same.
fn refused(thread: &Thread, pc: u64) {
    if is_at(pc) {
        if vsyscall::call(thread) {
            return;
        }
    } else if engine().is_execute_only(pc) {
        // Where the process cannot leave, the thread does.
        give_up::execute_only(thread);
    } else {
        give_up::refused(thread);
    }
    thread.target.set(pc);
    thread.epoch.store(engine().cache.epoch, Relaxed);
}

/// Reports where the program is, and waits until the host has compared it.
fn wait_in_step(thread: &Thread, step: &CloneStep, is_onward: bool) {
    let registers = thread.general.iter().chain([&thread.pc, &thread.flags]);
    for (place, value) in step.registers.iter().zip(registers) {
        place.store(value.get(), Relaxed);
    }
    step.is_onward.store(u32::from(is_onward), Relaxed);
    step.turn.store(turn::HOST, Release);
    system::futex_wake(&step.turn);
    while step.turn.load(Acquire) == turn::HOST {
        system::futex_wait(&step.turn, turn::HOST);
    }
}

/// An instruction has saved where the x87's last one was: continues the thread behind it.
fn saved(engine: &mut Engine, thread: &Thread, exit: &Exit) {
    let next = coprocessor::saved(&engine.cache, thread, exit.target);
    if exit.epoch == engine.cache.epoch {
        engine.continue_behind_exit(thread, next);
    } else {
        engine.continue_at(thread, next);
    }
}

/// The start of a block whose original may have changed.
fn check(engine: &mut Engine, thread: &Thread, exit: &Exit) {
    let address = exit.target;
    let is_current = exit.epoch == engine.cache.epoch;
    let known = engine.cache.map.get(address).filter(|_| is_current).map(|place| place.block);
    if let Some(number) = known.filter(|&number| number & STORED == 0) {
        let original = &engine.cache.blocks[number as usize].original;
        // SAFETY: the program's own code; it was there when it was translated.
        let now = unsafe { core::slice::from_raw_parts(address as *const u8, original.len()) };
        if !original.is_empty() && engine.cache.pages.is_readable(address) && now == &original[..] {
            engine.continue_behind_exit(thread, address);
            thread.expect_trap_on_way();
            return;
        }
        engine.cache.forget_block(number);
    }
    // It has been there before.
    engine.continue_as(thread, address);
    thread.expect_trap_on_way();
}

/// The start of a sequence that was not announced to the kernel, or that the kernel has cleared because it has
/// interrupted the thread right before.
fn sequence(engine: &mut Engine, thread: &Thread, exit: &Exit) {
    thread.missed.set(thread.missed.get() + 1);
    let abort = engine.cache.sequences.starting_at(exit.target).next().map(|one| one.abort);
    match abort {
        Some(abort) if thread.missed.get() <= MOST_MISSED => {
            engine.continue_at(thread, abort);
        }
        _ if exit.epoch == engine.cache.epoch => {
            thread.missed.set(0);
            engine.continue_behind_exit(thread, exit.target);
        }
        _ => {
            engine.continue_at(thread, exit.target);
        }
    }
}

/// A sequence that was interrupted.
fn abort(engine: &mut Engine, thread: &Thread, abort: u64) {
    let mut general = thread.general();
    thread.give_kept(&mut general);
    thread.set_general(&general);
    engine.continue_at(thread, abort);
}

/// Takes a thread out of the sequence that it has left the clone from. Returns whether that was aborted.
fn leave_sequence(engine: &mut Engine, thread: &Thread) -> bool {
    let pc = engine.cache.out_of_sequence(thread, thread.pc.get());
    let is_aborted = pc != thread.pc.get();
    if is_aborted {
        engine.continue_at(thread, pc);
    }
    is_aborted
}

/// Where the program can continue natively after an exit: behind a branch, before a system call.
fn native_pc(kind: u32, target: u64) -> u64 {
    match kind {
        left::SYSTEM_CALL => target - SYSTEM_CALL_LENGTH,
        _ => target,
    }
}
