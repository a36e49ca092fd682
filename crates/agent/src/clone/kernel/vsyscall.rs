//! The kernel's page of old system calls, which are called like functions: it cannot be read, and the kernel would
//! return from there to the program's own code. So the calls are made here.

use crate::clone::record::{Thread, left};
use crate::clone::{engine, halt, pages, program, system};

const START: u64 = 0xffff_ffff_ff60_0000;
const RAX: usize = 0;
const RSP: usize = 4;
const EFAULT: isize = -14;

/// The system call that is at an address.
fn number_at(address: u64) -> Option<usize> {
    match address.wrapping_sub(START) {
        0x000 => Some(system::GETTIMEOFDAY),
        0x400 => Some(system::TIME),
        0x800 => Some(system::GETCPU),
        _ => None,
    }
}

/// Whether there may be such a call at an address.
pub fn is_at(address: u64) -> bool {
    number_at(address).is_some()
}

/// Makes the call that a thread has come to, and has it go on where that returns to. Says whether it could: if not, the
/// program has the kernel's fault.
pub fn call(thread: &Thread) -> bool {
    let sp = thread.general[RSP].get();
    let Some(number) = number_at(thread.pc.get()) else { return false };
    let Some(back) = program::read::<u64>(sp) else { return false };
    let [rsi, rdi] = [6, 7].map(|register: usize| thread.general[register].get() as usize);
    // SAFETY: the kernel writes to where the program wants it, or nowhere.
    let make = || unsafe { system::call3(number, rdi, rsi, 0) };
    let mut result = make();
    if result == EFAULT && pages::release_all(&mut engine()) {
        result = make();
    }
    if result == EFAULT {
        return false;
    }
    thread.general[RAX].set(result as u64);
    thread.general[RSP].set(sp + 8);
    thread.way_out.set(back);
    match thread.is_single() {
        true => thread.pc.set(back),
        false => drop(engine().go(thread, back)),
    }
    if halt::is_debugged() {
        halt::arrived(thread, left::INDIRECT, back);
    }
    true
}
