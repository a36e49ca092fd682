//! Threads and processes that the program starts, becomes and ends.

use crate::clone::base::fail::fail;
use crate::clone::base::host::{post, ring, wait_while};
use crate::clone::base::registers::{R11, RAX, RCX, RDI, RSP};
use crate::clone::base::system::EFAULT;
use crate::clone::base::{host, observers, program, signals, system};
use crate::clone::cache::arena::Arena;
use crate::clone::engine::Engine;
use crate::clone::engine::lock::{engine, inherit, unlock};
use crate::clone::kernel::debugger;
use crate::clone::kernel::pass::{answer, make, pass};
use crate::clone::kernel::signals::calls as signal_calls;
use crate::clone::thread::actions::Actions;
use crate::clone::thread::alternate_stack::use_own_stack;
use crate::clone::thread::landmarks::Landmark;
use crate::clone::thread::record::{Thread, at, stripe};
use crate::clone::thread::{assembly, native};
use crate::clone::tools::tracing;
use core::arch::naked_asm;
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_abi::halt::reason;
use weft_abi::{CloneControl, exec, option};

const CLONE_VM: u64 = 0x100;
const CLONE_SIGHAND: u64 = 0x800;
const CLONE_VFORK: u64 = 0x4000;
const CLONE_THREAD: u64 = 0x1_0000;
const CLONE_CLEAR_SIGHAND: u64 = 1 << 32;
const SIGCHLD: u64 = 17;
/// Sets up the current thread for the engine: `gs`, its id, the stack for frames. Returns the alternate stack that
/// it had.
fn settle(thread: &Thread) -> [u64; 3] {
    // SAFETY: `gs` is the engine's, and the thread's memory stays until the thread has ended.
    unsafe { system::call3(system::ARCH_PRCTL, system::ARCH_SET_GS, thread.this as usize, 0) };
    thread.tid.set(system::tid() as u32);
    use_own_stack(thread.signal_stack())
}

/// The first thing that a thread does that is taken over, with all its signals blocked.
pub extern "C" fn join(thread: &Thread) {
    if host::control().is_none_or(|control| control.is_joined.load(Acquire) == 0) {
        // Weft was killed after it had sent some of the threads, while others run natively. So all stay native.
        native::stay_native(thread);
    }
    thread.altstack.set(settle(thread));
    thread.pid.set(system::pid() as u32);
    {
        let mut engine = engine();
        if !core::mem::replace(&mut engine.has_begun, true) {
            Actions::take_over(thread);
        }
        engine.cache.learn_from(thread);
    }
    tracing::begin(thread);
    enter_clone(thread);
    if observers::is_debugged() {
        debugger::halt_soon(thread, reason::ASKED, 0);
    }
}

/// `clone`, `clone3`, `fork`, `vfork`
pub fn clone(thread: &Thread, number: usize) -> Option<isize> {
    let [_, _, rdx, _, rsp, _, rsi, rdi, r8, r9, r10, ..] = thread.general();
    let (flags, stack) = match number {
        system::FORK => (SIGCHLD, 0),
        system::VFORK => (CLONE_VM | CLONE_VFORK | SIGCHLD, 0),
        system::CLONE => (rdi & u64::from(u32::MAX), rsi),
        _ => {
            let Some(words) = program::read::<[u64; 8]>(rdi) else { return Some(EFAULT) };
            (words[0], if words[5] == 0 { 0 } else { words[5] + words[6] })
        }
    };
    let is_sharing = flags & CLONE_VM != 0;
    if !is_sharing && stack == 0 {
        return fork(thread, flags);
    }
    let native_pc = thread.native_pc.take();
    let mask = signals::block_all();
    if thread.has_pending() {
        thread.native_pc.set(native_pc);
        signals::set_mask(mask);
        return None;
    }
    let child = {
        let mut engine = engine();
        let Some(child) = engine.thread() else {
            thread.native_pc.set(native_pc);
            signals::set_mask(mask);
            fail("no memory for a thread")
        };
        child
    };
    child.set_general(&thread.general());
    child.general[RAX].set(0);
    child.general[RCX].set(thread.pc.get());
    child.general[R11].set(thread.flags.get());
    child.general[RSP].set(if stack == 0 { rsp } else { stack });
    child.flags.set(thread.flags.get());
    child.vectors.set(thread.vectors.get());
    child.pc.set(thread.pc.get());
    child.hidden_mask.set(thread.hidden_mask.get());
    child.pending_mask.set(mask);
    child.gs_base.set(thread.gs_base.get());
    if !is_sharing && thread.is_registered() {
        child.register(thread.area.get());
    }
    let has_own_actions = is_sharing && flags & CLONE_SIGHAND == 0;
    let actions = if has_own_actions {
        let _engine = engine();
        Actions::copy(thread)
    } else {
        thread.actions.load(Relaxed)
    };
    child.actions.store(actions, Relaxed);
    // Not that of the thread that had the record before: `inherit` compares it with the lock.
    child.tid.set(0);
    child.pid.set(if flags & CLONE_THREAD != 0 { thread.pid.get() } else { 0 });
    child.name.set(thread.name.get());
    child.is_vforked.set(u32::from(flags & CLONE_VFORK != 0));
    child.is_forked.set(u32::from(!is_sharing));
    child.is_cleared.set(u32::from(flags & CLONE_CLEAR_SIGHAND != 0));
    if flags & CLONE_VFORK != 0 {
        child.altstack.set(thread.altstack.get());
    }
    let args = match number {
        system::VFORK => [flags as usize, 0, 0, 0, 0, 0],
        _ => [rdi, rsi, rdx, r10, r8, r9].map(|value| value as usize),
    };
    let call = if number == system::VFORK { system::CLONE } else { number };
    let mut kept = (!is_sharing).then(|| {
        // As for `fork`: the child has a copy of the lock, and unlocks that itself.
        let mut engine = engine();
        engine.cache.arenas.iter_mut().for_each(Arena::copy_for_child);
        engine
    });
    let result = start_thread(child, call, &args);
    if let Some(engine) = &mut kept {
        engine.cache.arenas.iter_mut().for_each(Arena::forget_copy);
    }
    drop(kept);
    if flags & CLONE_VFORK != 0 && inherit(child, thread) {
        // What the child was doing in the engine is half done, and it is not known what.
        signals::set_mask(mask);
        let next = thread.pc.get();
        answer(thread, next, result);
        fail("a child that had borrowed the memory was killed in the clone engine");
    }
    // A vforked child has ended or become another program, and one that could not start needs nothing. The record
    // of any other may be another thread's by now.
    let is_over = result < 0 || flags & CLONE_VFORK != 0;
    if has_own_actions && is_over {
        let _engine = engine();
        Actions::forget(child.actions.load(Relaxed));
    }
    if is_over || !is_sharing {
        child.is_used.store(0, Release);
    } else {
        engine().control.stats.threads.fetch_add(1, Relaxed);
    }
    signals::set_mask(mask);
    Some(result)
}

/// `fork`: the child continues from here as the parent does.
fn fork(thread: &Thread, flags: u64) -> Option<isize> {
    // No other thread may be in the middle of something that the child then finds half done.
    let mut engine = engine();
    engine.cache.arenas.iter_mut().for_each(Arena::copy_for_child);
    let result = make(thread);
    if result == Some(0) {
        if flags & CLONE_CLEAR_SIGHAND != 0 {
            Actions::clear(thread);
        }
        drop(engine);
        become_process(thread);
    } else {
        engine.cache.arenas.iter_mut().for_each(Arena::forget_copy);
        engine.control.stats.forks.fetch_add(1, Relaxed);
    }
    result
}

/// Updates the engine for a new process, of which this is the only thread.
fn begin_process(engine: &mut Engine, thread: &Thread) {
    engine.forget_halts();
    engine.stop_stepping(thread);
    engine.weaving.begin_process();
    engine.weaving.claim_slabs(thread);
    if let Some(recorder) = &mut engine.recorder {
        recorder.begin_process();
        recorder.claim_stripe(thread);
    }
}

/// What a forked child has to do before anything else.
fn become_process(thread: &Thread) {
    thread.tid.set(system::tid() as u32);
    thread.pid.set(thread.tid.get());
    let mut engine = engine();
    engine.control.processes.fetch_add(1, Relaxed);
    engine.cache.arenas.iter_mut().for_each(Arena::part_from_parent);
    // Of all threads only this one is in the child.
    for other in engine.threads().filter(|other| other.this != thread.this) {
        other.is_used.store(0, Relaxed);
        other.forget_slabs();
        other.has_stripe.set(stripe::NONE);
    }
    thread.forget_slabs();
    begin_process(&mut engine, thread);
    drop(engine);
    tracing::begin(thread);
}

/// Starts a thread that shares this one's memory: makes the system call in the registers of `child`,
/// which is where the new thread begins. Returns to the caller what the kernel returns.
///
/// All signals must be blocked: the new thread has its parent's `gs` for a moment.
#[unsafe(naked)]
extern "C" fn start_thread(child: &Thread, number: usize, args: &[usize; 6]) -> isize {
    naked_asm!(
        "push r12",
        "mov r12, rdi",
        "mov rax, rsi",
        "mov r11, rdx",
        "mov rdi, [r11]",
        "mov rsi, [r11 + 8]",
        "mov rdx, [r11 + 16]",
        "mov r10, [r11 + 24]",
        "mov r8, [r11 + 32]",
        "mov r9, [r11 + 40]",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "pop r12",
        "ret",
        "2:",
        // The new thread.
        "mov rsp, [r12 + {stack}]",
        "mov rdi, r12",
        "call {begin}",
        "jmp rax",
        stack = const at!(stack),
        begin = sym begin_thread,
    )
}

/// The first thing that a new thread does, on its own stack in the agent. Returns the way to the clone.
extern "C" fn begin_thread(thread: &Thread) -> u64 {
    settle(thread);
    if thread.pid.get() == 0 {
        // The first thread of a process has the process's id.
        thread.pid.set(thread.tid.get());
    }
    if thread.is_forked.get() != 0 {
        unlock();
        become_process(thread);
        thread.is_used.store(1, Relaxed);
    } else {
        // Those of the thread that had the record before.
        thread.forget_slabs();
        engine().weaving.claim_slabs(thread);
        tracing::begin(thread);
    }
    if thread.is_cleared.get() != 0 {
        let _engine = engine();
        Actions::clear(thread);
    }
    enter_clone(thread);
    Landmark::Resume.address()
}

fn enter_clone(thread: &Thread) {
    let pc = thread.pc.get();
    engine().continue_at(thread, pc);
    signals::set_mask(thread.pending_mask.get());
}

/// `exit`: the end of a thread.
pub fn exit(thread: &Thread) -> ! {
    let status = thread.general[RDI].get() as usize;
    signals::block_all();
    tracing::end(thread);
    if thread.is_vforked.get() != 0 {
        // Its parent frees the record.
        // SAFETY: ends the thread.
        unsafe { system::call3(system::EXIT, status, 0, 0) };
    }
    assembly::end_thread(thread, status)
}

/// `execve` and `execveat`: the host sees to it that the new program runs from a clone, too.
pub fn execute(thread: &Thread) -> Option<isize> {
    let (control, options) = {
        let engine = engine();
        (engine.control, engine.options)
    };
    if options & option::STAY != 0 {
        return become_other(thread);
    }
    let Some(request) = request_follow(control) else {
        control.unfollowed.fetch_add(1, Relaxed);
        let result = become_other(thread);
        control.unfollowed.fetch_sub(1, Relaxed);
        return result;
    };
    let result = become_other(thread);
    // The call has returned: it has failed.
    request.store(exec::FAILED, Release);
    ring(control);
    wait_while(request, exec::FAILED);
    request.store(exec::FREE, Release);
    result
}

/// Makes the call, with the signal actions and mask that the new program would inherit natively.
fn become_other(thread: &Thread) -> Option<isize> {
    let is_used = |other: &&'static Thread| other.is_used.load(Relaxed) != 0;
    // Other threads that share the engine's handlers would miss them.
    let is_alone = thread.is_vforked.get() != 0 || engine().threads().filter(is_used).count() == 1;
    if !is_alone {
        return pass(thread);
    }
    signal_calls::show_needed(thread);
    let result = pass(thread);
    signal_calls::hide_needed();
    result
}

/// Requests to be followed, and waits until the host is ready.
fn request_follow(control: &'static CloneControl) -> Option<&'static AtomicU32> {
    let request = post(control, exec::ASKED)?;
    if request.load(Acquire) == exec::RELEASED {
        request.store(exec::FREE, Release);
        return None;
    }
    Some(request)
}
