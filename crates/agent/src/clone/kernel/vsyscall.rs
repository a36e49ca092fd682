//! The kernel's page of old system calls, which are called like functions: it cannot be read, and the kernel would
//! return from there to the program's own code. So the calls are made here.

use crate::clone::base::registers::{RAX, RSP};
use crate::clone::base::vsyscall::number_at;
use crate::clone::base::{observers, program, system};
use crate::clone::engine::lock::engine;
use crate::clone::kernel::debugger;
use crate::clone::thread::record::{Thread, left};

const EFAULT: isize = -14;

/// Makes the call that a thread has come to, and continues it where that returns to. Returns whether it could: if
/// not, the program gets the kernel's fault.
pub fn call(thread: &Thread) -> bool {
    let sp = thread.general[RSP].get();
    let Some(number) = number_at(thread.pc.get()) else { return false };
    let Some(back) = program::read::<u64>(sp) else { return false };
    let [rsi, rdi] = [6, 7].map(|register: usize| thread.general[register].get() as usize);
    // SAFETY: the kernel writes to where the program wants it, or nowhere.
    let make = || unsafe { system::call3(number, rdi, rsi, 0) };
    let mut result = make();
    if result == EFAULT && engine().cache.release_all() {
        result = make();
    }
    if result == EFAULT {
        return false;
    }
    thread.general[RAX].set(result as u64);
    thread.general[RSP].set(sp + 8);
    thread.native_pc.set(back);
    match thread.is_single() {
        true => thread.pc.set(back),
        false => drop(engine().continue_at(thread, back)),
    }
    if observers::is_debugged() {
        debugger::arrived(thread, left::INDIRECT, back);
    }
    true
}
