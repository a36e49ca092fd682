//! What becomes of a program whose clone cannot go on. There is a report of it; where the program's state is
//! known, its process goes on natively, and where it is not, it ends.

use crate::clone::base::context::Fault;
use crate::clone::base::host::{post, wait_while};
use crate::clone::base::{host, signals, system};
use crate::clone::engine::Engine;
use crate::clone::engine::lock::{Guard, held, is_held_by, known_threads, locked};
use crate::clone::failure::report;
use crate::clone::failure::report::{Failure, Name};
use crate::clone::thread::actions::Actions;
use crate::clone::thread::record::Thread;
use crate::clone::thread::{actions, native, pending};
use core::fmt::{self, Write};
use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Relaxed, Release};
use weft_abi::exec;

const SIGABRT: usize = 6;
/// How often to wait for a host that has begun to see to it.
const ROUNDS: usize = 4;

/// Whether there is a report of a clone that is not as it was made.
static IS_REPORTED: AtomicU32 = AtomicU32::new(0);

/// Whether a thread is here for the host, which waits for it.
static IS_VISITED: AtomicU32 = AtomicU32::new(0);

/// Does something for the host, on a thread that the host has sent: there is no program to continue if it fails.
pub fn visited(act: impl FnOnce()) {
    IS_VISITED.store(1, Relaxed);
    act();
    IS_VISITED.store(0, Relaxed);
}

struct Standard;

impl Write for Standard {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        system::write_error(text.as_bytes());
        Ok(())
    }
}

/// Reports what went wrong; the program continues natively, or ends.
pub fn fail_with(what: fmt::Arguments<'_>) -> ! {
    match current() {
        // The registers of a thread that the host has sent are not in its record, and the host waits for it.
        Some(thread) if IS_VISITED.load(Relaxed) == 0 => fail_in(thread, what, 0, None),
        _ => end(what, None),
    }
}

/// A fault in the engine's own code.
pub fn faulted(thread: &Thread, fault: Fault<'_>) -> ! {
    let what = format_args!("a fault in the clone engine");
    fail_in(thread, what, 0, Some(fault))
}

/// An instruction that cannot be translated; the thread stands before it.
pub fn refused(thread: &Thread) -> ! {
    let (pc, place) = (thread.pc.get(), thread.exit.get());
    let what = format_args!("the clone engine cannot translate the instruction at {pc:#x}");
    fail_in(thread, what, place, None)
}

/// Code that can be executed but not read; the thread stands before it. Comes back if the process cannot leave.
pub fn execute_only(thread: &Thread) {
    let pc = thread.pc.get();
    let may_leave = !host::is_host_gone() || is_alone(&locked(), thread);
    if !may_leave {
        // Without a host nothing is measured anyway.
        return;
    }
    let what = format_args!("the clone engine cannot read the code at {pc:#x}");
    let fate = "has left its clone";
    let place = thread.exit.get();
    let failure = Failure { what, fate, is_exact: true, place, fault: None };
    let name = report::write(&locked(), thread, &failure);
    let blocked = signals::block_all();
    leave(thread, blocked, &name);
    signals::set_mask(blocked);
}

/// Continues a thread natively that was left in the clone when the host was killed, with its record's state before
/// `native_pc`. Returns if signals wait in the record, which the program would lose.
pub fn follow_others(thread: &Thread) {
    let blocked = signals::block_all();
    if thread.has_pending() {
        signals::set_mask(blocked);
        return;
    }
    pending::keep_mask(thread, blocked);
    thread.pc.set(thread.native_pc.take());
    native::go_natively(thread)
}

/// A fault in a part of the clone that is not as it was written, in a thread whose record has the program's
/// state before it. Comes back if that cannot be: then nothing else than the fault is left.
pub fn broken(engine: Guard, thread: &Thread, fault: Fault<'_>) -> Guard {
    let what = format_args!("the clone is not as it was made");
    let place = fault.context.rip;
    if thread.native_pc.get() != 0 {
        drop(engine);
        fail_in(thread, what, place, Some(fault));
    }
    // A program that handles such faults may see many.
    if IS_REPORTED.swap(1, Relaxed) == 0 {
        let fate = "has got a signal that is not its own";
        let failure = Failure { what, fate, is_exact: false, place, fault: Some(fault) };
        report::write(&engine, thread, &failure);
    }
    engine
}

/// The thread that this is, if it is one of the engine's.
fn current() -> Option<&'static Thread> {
    let mut base = 0u64;
    // SAFETY: the kernel writes the base.
    unsafe {
        let at = &raw mut base as usize;
        system::call3(system::ARCH_PRCTL, system::ARCH_GET_GS, at, 0);
    }
    known_threads()?.find(|thread| thread.this == base)
}

fn fail_in(thread: &Thread, what: fmt::Arguments<'_>, place: u64, fault: Option<Fault<'_>>) -> ! {
    if thread.is_failing.replace(1) != 0 {
        // It is the report that has failed.
        end(what, None);
    }
    let native_pc = thread.native_pc.take();
    let is_exact = native_pc != 0;
    let fate = if is_exact {
        thread.pc.set(native_pc);
        "has left its clone"
    } else {
        "has ended"
    };
    let mask = fault.as_ref().map(|fault| fault.context.mask);
    let failure = Failure { what, fate, is_exact, place, fault };
    let name = {
        // What one has that fails with it, is as good as it is.
        let engine = if is_held_by(thread) { held() } else { locked() };
        report::write(&engine, thread, &failure)
    };
    if is_exact {
        let blocked = signals::block_all();
        leave(thread, mask.unwrap_or(blocked), &name);
    }
    end(what, name)
}

/// Continues the process natively, with this thread where its record says. Returns if it cannot.
fn leave(thread: &Thread, mask: u64, name: &Option<Name>) {
    pending::keep_mask(thread, mask);
    thread.epoch.store(u64::MAX, Release);
    request_leave(thread);
    let engine = locked();
    if !is_alone(&engine, thread) {
        return;
    }
    drop(engine);
    if host::is_host_gone() {
        print(format_args!("the program has left its clone"), name);
    }
    leave_alone(thread)
}

/// Requests that the host take all threads out, and waits. Returns if it does not.
fn request_leave(thread: &Thread) {
    let Some(control) = host::control() else { return };
    // A vforked child has borrowed its parent's memory: the host would take the engine away from the parent.
    if thread.is_vforked.get() != 0 || host::is_host_gone() {
        return;
    }
    thread.is_leaving.store(1, Release);
    if let Some(request) = post(control, exec::LEAVING) {
        (0..ROUNDS).for_each(|_| wait_while(request, exec::HELD));
        request.store(exec::FREE, Release);
    }
    thread.is_leaving.store(0, Release);
}

/// Whether no other thread shares this one's signal actions.
fn is_alone(engine: &Engine, thread: &Thread) -> bool {
    let actions = thread.actions.load(Relaxed);
    let depends = |other: &&'static Thread| {
        other.is_used.load(Relaxed) != 0 && other.actions.load(Relaxed) == actions
    };
    engine.threads().filter(depends).count() == 1
}

/// Continues natively without the host. What the engine has mapped stays.
fn leave_alone(thread: &Thread) -> ! {
    {
        let mut engine = locked();
        if thread.is_vforked.get() != 0 {
            // The host was not involved, and did not count it.
            engine.control.left.fetch_add(1, Relaxed);
        }
        Actions::give_back(thread);
        engine.cache.release_all();
    }
    native::go_natively(thread)
}

fn print(what: fmt::Arguments<'_>, name: &Option<Name>) {
    let _ = write!(Standard, "weft: {what}");
    if let Some(name) = name {
        let _ = Standard.write_str("; the report is ");
        system::write_error(name.bytes());
    }
    let _ = Standard.write_str("\n");
}

/// Ends the program, by a signal, so that it is not mistaken for the program's own end.
fn end(what: fmt::Arguments<'_>, name: Option<Name>) -> ! {
    print(format_args!("the clone engine failed: {what}"), &name);
    actions::end_by(SIGABRT)
}
