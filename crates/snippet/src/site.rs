//! Where a snippet is put, and what it finds there.

use crate::ir::PointKind;
use crate::layout::Region;
use weft_code::{Access, Convention, FlagSet, RegisterSet};

/// What is known about the point that a snippet is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its kind.
    pub kind: PointKind,
    /// How its function (or the one called) gets arguments.
    pub convention: Convention,
    /// Registers whose values nobody needs.
    pub dead: RegisterSet,
    /// Flags that somebody needs.
    pub live_flags: FlagSet,
    /// Whether the 128 bytes below the stack pointer may hold something.
    pub red_zone: bool,
    /// The point's address.
    pub address: u64,
    /// How many bytes the return address is above the stack pointer: 0 at entry and at a return.
    pub stack_shift: i64,
    /// What is read or written, at a point that is about that.
    pub access: Option<Access>,
}

/// Where time comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// `rdtsc`, and the thread's clock by system call.
    Processor,
    /// A word in memory near the code, for tests: all clocks show what it holds.
    Word(u64),
}

/// How ticks become nanoseconds: `(ticks * multiplier >> shift) + offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    /// Where ticks come from.
    pub source: Source,
    /// See above.
    pub multiplier: u64,
    /// See above; below 64.
    pub shift: u8,
    /// See above; durations do without.
    pub offset: u64,
}

impl Clock {
    /// A duration in nanoseconds.
    pub const fn nanoseconds(&self, ticks: u64) -> u64 {
        ((ticks as u128 * self.multiplier as u128) >> self.shift) as u64
    }
}

/// Where the routines of a runtime are; see [`crate::runtime`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routines {
    /// Finds or claims this thread's slab.
    pub claim: u64,
    /// Reads 1, 2, 4 or 8 bytes that may not be there.
    pub load: [u64; 4],
    /// Reads a text that may not be there, and keeps it.
    pub text: u64,
    /// Takes the thread's stack, and keeps it.
    pub stack: u64,
    /// The thread's clock.
    pub cpu: u64,
    /// Finds an entry for one key.
    pub map1: u64,
    /// Finds an entry for two keys.
    pub map2: u64,
    /// Waits for a ring's reader.
    pub wait: u64,
    /// Finds room for a frame's stamp.
    pub stamp: u64,
    /// Finds a frame's stamp.
    pub since: u64,
    /// Drops the stamps of some frames.
    pub leave: u64,
    /// Calls into the program.
    pub call: u64,
}

/// What the clone engine has for snippets: words of the thread's, seen from `gs`, which it has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The address of the thread's slab.
    pub slab: u32,
    /// The `gs` base that the program would have.
    pub gs_base: u32,
    /// Where code is, nearby, that returns to whom the return address is for that the stack pointer points to.
    pub returns: u64,
    /// Where snippets put things aside, if nothing may be written below the program's stack.
    pub stack: Option<OwnStack>,
}

/// A stack of weft's own for snippets, where there is plenty of room: words of the thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnStack {
    /// Where it begins, at its upper end.
    pub top: u32,
    /// Where the program's stack pointer is kept meanwhile.
    pub program: u32,
}

/// Where a C library keeps the id of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadId {
    /// Where from the `fs` base on the `fs` base itself is, by which the library's threads are known.
    pub own_address: i32,
    /// Where from the `fs` base on the id is (`u32`). 0: the thread has none any more.
    pub id: i32,
    /// The process that was looked at. In a forked one, a thread that did not fork by the library has the id of its
    /// parent's there.
    pub process: u32,
}

/// What is the same for all sites of a process. Code, words and routines must be within 2 GiB of
/// each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Env {
    /// The address of the word that holds the address of slab 0.
    pub base: u64,
    /// The address of the word that holds the salt, in a page that a forked child finds zeroed.
    pub salt: u64,
    /// The shape of the slabs.
    pub region: Region,
    /// The runtime's routines.
    pub routines: Routines,
    /// Whether the word at `fs:0` is the `fs` base, so that a load replaces the slower `rdfsbase`.
    /// The ELF ABI for thread-local storage wants it so, and glibc and musl obey; Go does not, and
    /// before a program has set up its first thread there is nothing at `fs:0` at all: only for
    /// processes that are past their start.
    pub thread_pointer: bool,
    /// Where threads find their own ids, so that a thread's first probe asks the kernel nothing: a seccomp filter
    /// that the program installs while it is measured may end it for that.
    pub thread_id: Option<ThreadId>,
    /// Where the [unwind rules](crate::unwind) are, if snippets take stacks.
    pub unwind: Option<u64>,
    /// What the clone engine has, if it runs the program. Then nothing is claimed, and the words above are not
    /// looked at.
    pub engine: Option<Engine>,
    /// Whether the processor has BMI2 (and so LZCNT).
    pub bmi2: bool,
    /// Time.
    pub clock: Clock,
    /// Which states `xsavec` saves around a call into the program: the processor's, without AMX.
    pub xsave_mask: u64,
    /// How much room that takes.
    pub xsave_size: u32,
}
