//! Seccomp filters that the program puts over itself, and with it over the engine and over snippets.

use crate::clone::base::fail::fail;
use crate::clone::base::{program, system};
use crate::clone::engine::Engine;
use crate::clone::engine::lock::engine;
use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;
use weft_code::seccomp::{Filter, Instruction};

const MAKES_CALLS: &str = "the program is about to have its system calls filtered (seccomp), and what is measured needs some of its own";
const FORBIDS: &str =
    "the program is about to forbid itself system calls (seccomp) that a clone needs";

/// How many instructions the kernel takes.
const LONGEST: usize = 4096;
/// The system calls that the engine makes when a signal comes and when a thread ends: SIG_BLOCK, SIG_UNBLOCK,
/// SIG_SETMASK.
const ALWAYS: [(usize, u64); 3] =
    [(system::RT_SIGPROCMASK, 0), (system::RT_SIGPROCMASK, 1), (system::RT_SIGPROCMASK, 2)];
/// Those that a thread or process makes when it begins in the clone, with their first argument.
const OF_NEW_THREADS: [(usize, u64); 3] = [
    (system::ARCH_PRCTL, system::ARCH_SET_GS as u64),
    (system::GETTID, 0),
    (system::SIGALTSTACK, 0),
];
/// How threads and processes are made, with the flags that C libraries and Go give.
const MAKING: [(usize, u64); 6] = [
    (system::CLONE, 0x3d_0f00),
    (system::CLONE, 0x5_0f00),
    (system::CLONE, 0x120_0011),
    (system::CLONE3, 0),
    (system::FORK, 0),
    (system::VFORK, 0),
];

/// A filter is about to come over the program, whose `sock_fprog` is at an address. The program leaves the clone
/// before it does, if the clone or a snippet would make a call that the filter forbids.
pub fn before_filter(at: u64) {
    let mut engine = engine();
    if engine.weaving.makes_calls() {
        fail(MAKES_CALLS);
    }
    // What cannot be read, the kernel refuses as well.
    if let Some(filter) = read(at) {
        let permits =
            |calls: &[(usize, u64)]| calls.iter().all(|&(n, first)| filter.permits(n, first));
        let needs_more = may_have_new_threads(&engine, &filter);
        if !permits(&ALWAYS) || needs_more && !permits(&OF_NEW_THREADS) {
            fail(FORBIDS);
        }
    }
    engine.seal();
}

/// Whether threads or processes can begin under a filter. One that was made just before may be about to.
fn may_have_new_threads(engine: &Engine, filter: &Filter) -> bool {
    engine.threads().filter(|thread| thread.is_used.load(Relaxed) != 0).count() > 1
        || MAKING.iter().any(|&(number, flags)| filter.permits(number, flags))
}

fn read(at: u64) -> Option<Filter> {
    let [length, instructions] = program::read::<[u64; 2]>(at)?;
    let length = usize::from(length as u16);
    let word = |index| program::read::<u64>(instructions + 8 * index as u64);
    let words: Option<Vec<u64>> = (0..length.min(LONGEST)).map(word).collect();
    Some(Filter::new(words?.into_iter().map(Instruction::from_word).collect()))
}
