//! Snippets at system calls.
//!
//! They are interpreted, not compiled: a call takes far longer than that, the program's registers are in memory
//! already, and whoever comes to a thread in the middle of it finds it in the agent, as always.
//!
//! A call that a signal has come before, or that the kernel wants to be made again, is the same call: what was done
//! before it is not done again.

use crate::clone::record::Thread;
use crate::clone::state::RAX;
use crate::clone::{cycles, engine, program, system};
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicU32, compiler_fence};
use weft_code::Register;
use weft_snippet::{PointKind, World};

const CLOCK_GETTIME: usize = 228;
const CLOCK_THREAD: usize = 3;

static ARE_THERE: AtomicU32 = AtomicU32::new(0);

/// Whether anything is done at system calls.
pub fn are_any() -> bool {
    ARE_THERE.load(Relaxed) != 0
}

/// Says whether anything is done at system calls from now on.
pub fn are_there(any: bool) {
    ARE_THERE.store(any.into(), Relaxed);
}

/// A system call that what comes before was done for, and that is still to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announced {
    /// Behind the instruction; 0 if there is none.
    pc: u64,
    /// The program's registers.
    asked: [u64; 16],
    /// What has become of them.
    changed: [u64; 16],
}

/// Makes a system call, with what is done before and after it; nothing if a signal came first.
pub fn around(thread: &Thread, perform: fn(&Thread) -> Option<isize>) -> Option<isize> {
    let asked = thread.general();
    let number = asked[RAX];
    let announced = thread.announced.get();
    let mut answer = None;
    if announced.pc == thread.pc.get() && announced.asked == asked {
        thread.announced.set(Announced::default());
        thread.set_general(&announced.changed);
    } else {
        answer = engine().weaving.at_call(thread, number, PointKind::SystemCall);
        if answer.is_some() {
            thread.general[RAX].set(number);
        }
    }
    let changed = thread.general();
    let result = match answer {
        Some(answer) => Some(answer as isize),
        None => perform(thread),
    };
    // Whatever the kernel was given, the program has its own arguments.
    thread.set_general(&asked);
    let Some(result) = result else {
        thread.announced.set(Announced { pc: thread.pc.get(), asked, changed });
        return None;
    };
    thread.general[RAX].set(result as u64);
    engine().weaving.at_call(thread, number, PointKind::SystemReturn);
    Some(thread.general[RAX].get() as isize)
}

/// A thread at a system call.
pub struct Calling<'a> {
    pub thread: &'a Thread,
    pub number: u64,
    /// Where it measures, and how much room there is.
    pub slab: (u64, usize),
}

impl World for Calling<'_> {
    fn register(&self, register: Register) -> u64 {
        self.thread.general[usize::from(register.0)].get()
    }

    fn set_register(&mut self, register: Register, value: u64) {
        self.thread.general[usize::from(register.0)].set(value);
    }

    fn call_number(&self) -> u64 {
        self.number
    }

    fn read(&self, address: u64, bytes: usize) -> Option<u64> {
        match bytes {
            1 => program::read::<u8>(address).map(u64::from),
            2 => program::read::<u16>(address).map(u64::from),
            4 => program::read::<u32>(address).map(u64::from),
            _ => program::read::<u64>(address),
        }
    }

    fn ticks(&mut self) -> u64 {
        cycles()
    }

    fn cpu(&mut self) -> u64 {
        let mut time = [0_u64; 2];
        // SAFETY: the kernel writes two words, which are there.
        unsafe { system::call3(CLOCK_GETTIME, CLOCK_THREAD, time.as_mut_ptr() as usize, 0) };
        time[0] * 1_000_000_000 + time[1]
    }

    fn call(&mut self, _: u64, _: &[i64]) -> i64 {
        // The host refuses snippets that call the program.
        0
    }

    fn slab(&mut self) -> &mut [u8] {
        // The host reads it at any time: what comes first has to be there first.
        compiler_fence(SeqCst);
        let (at, length) = self.slab;
        // SAFETY: the thread's own part of memory that the host has mapped for probes.
        unsafe { core::slice::from_raw_parts_mut(at as *mut u8, length) }
    }
}
