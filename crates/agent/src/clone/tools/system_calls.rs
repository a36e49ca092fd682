//! What snippets at system calls can see of the thread. They are interpreted.

use crate::clone::base::clock::cycles;
use crate::clone::base::{program, system};
use crate::clone::thread::record::Thread;
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::compiler_fence;
use weft_code::Register;
use weft_snippet::World;

const CLOCK_GETTIME: usize = 228;
const CLOCK_THREAD: usize = 3;

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
