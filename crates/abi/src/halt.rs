//! What a debugger and the engine tell each other.
//!
//! A thread that stands still for the debugger is stopped by the kernel at one instruction of the engine's,
//! [`CloneDebug::trap`]. Its [`Halt`] then says why, and where in its memory all that the program has in
//! registers lies. The debugger writes there what is to be different, and how the thread is to go on.

use core::cell::Cell;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// Where the code of a clone leaves it for a debugger, at most.
pub const BREAKPOINT_COUNT: usize = 1 << 15;

/// How many bytes of conditions there may be.
pub const CONDITIONS_SIZE: usize = 1 << 16;

/// How many places of memory can be watched.
pub const WATCH_COUNT: usize = 64;

/// By what a signal is known that asks a thread to stand still: its value. It is a `SIGSEGV` that was queued,
/// since the engine hears of those at any time.
pub const HALT_MAGIC: u64 = u64::from_le_bytes(*b"wefthalt");

/// Why a thread stands still.
pub mod reason {
    /// It does not.
    pub const NONE: u64 = 0;
    /// It was asked to.
    pub const ASKED: u64 = 1;
    /// It has come to a breakpoint.
    pub const BREAKPOINT: u64 = 2;
    /// It has executed what it was to; if that was a system call, its number and one more is what it is about.
    pub const STEPPED: u64 = 3;
    /// There is a signal for the program: the number is what it is about, with [`super::EARLY`] if nothing was executed
    /// since the handler of another one has begun.
    pub const SIGNAL: u64 = 4;
    /// It has changed memory that is watched, or touched it: the address is what it is about.
    pub const WATCHED: u64 = 5;
    /// It is about to make a system call, before whose instruction it stands: the number is what it is about.
    pub const CALL: u64 = 6;
    /// It has made a system call: the number is what it is about.
    pub const RETURN: u64 = 7;
}

/// See [`reason::SIGNAL`].
pub const EARLY: u64 = 1 << 32;

/// Which system calls are of interest.
pub mod catches {
    /// None.
    pub const NONE: u32 = 0;
    /// Some.
    pub const SOME: u32 = 1;
    /// All.
    pub const ALL: u32 = 2;
}

/// How a thread goes on.
pub mod motion {
    /// Nobody has said.
    pub const NONE: u64 = 0;
    /// As if nothing had been.
    pub const GO: u64 = 1;
    /// By one instruction.
    pub const STEP: u64 = 2;
    /// By as many as lie in a range.
    pub const STEP_WITHIN: u64 = 3;
}

/// A thread that stands still: part of what the engine keeps of it. A `Word` is laid out as a [`u64`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HaltOf<Word> {
    /// One of [`reason`].
    pub reason: Word,
    /// What that is about.
    pub about: Word,
    /// Where what the program has is, as the kernel lays it out behind a signal's frame: a `ucontext_t`.
    pub context: Word,
    /// Where its signal is described: a `siginfo_t`. The debugger may describe there the one that it gets.
    pub info: Word,
    /// The program's own `gs` base.
    pub gs_base: Word,
    /// One of [`motion`]: for the debugger to say.
    pub motion: Word,
    /// For [`motion::STEP_WITHIN`]: where that begins and ends.
    pub range: [Word; 2],
    /// The signal that it gets first; 0 for none.
    pub signal: Word,
    /// A signal that the debugger knows of, and is to come to the program without a halt; 0 for none.
    pub told: Word,
    /// Whether the debugger knows that the thread's system call has ended.
    pub heard: Word,
}

/// The same, as it is read and written at once.
pub type Halt = HaltOf<u64>;

impl HaltOf<Cell<u64>> {
    /// Changes all of it.
    pub fn set(&self, to: &Halt) {
        self.reason.set(to.reason);
        self.about.set(to.about);
        self.context.set(to.context);
        self.info.set(to.info);
        self.gs_base.set(to.gs_base);
        self.motion.set(to.motion);
        self.range[0].set(to.range[0]);
        self.range[1].set(to.range[1]);
        self.signal.set(to.signal);
        self.told.set(to.told);
        self.heard.set(to.heard);
    }
}

const _: () = assert!(size_of::<HaltOf<Cell<u64>>>() == size_of::<Halt>());

/// What concerns a debugger in the memory that all share.
#[repr(C)]
#[derive(Debug)]
pub struct CloneDebug {
    /// The process that is debugged; 0 if none is.
    pub pid: AtomicU32,
    /// Changes with the breakpoints, which may change only while all threads stand still.
    pub version: AtomicU32,
    /// Signals that come to the program without a halt: a bit for each.
    pub passed: AtomicU64,
    /// The instruction behind the one that stops a thread: set by the engine, as the following.
    pub trap: AtomicU64,
    /// Where a thread's record has its [`Halt`], seen from where its `gs` begins.
    pub halt: AtomicU64,
    /// The instruction by which the program's system calls are made; and where a thread goes that is not to make the call.
    pub call: AtomicU64,
    /// See above.
    pub call_abandoned: AtomicU64,
    /// Where a thread's record has the program's general registers, its instruction pointer, its flags and xmm0 to
    /// xmm15 while it is in the engine, seen from where its `gs` begins.
    pub record: [AtomicU64; 4],
    /// Where the engine has its table for indirect branches, and where that ends.
    pub table: [AtomicU64; 2],
    /// Where it has what else it needs, if there is room: from here on.
    pub aside: AtomicU64,
    /// Where the program's memory was written to, as far as its code may have changed by it: from here to there.
    pub written: [AtomicU64; 2],
    /// How many breakpoints there are.
    pub count: AtomicU32,
    reserved: AtomicU32,
    /// Their addresses, in order.
    pub breakpoints: [AtomicU64; BREAKPOINT_COUNT],
    /// Where in [`CloneDebug::texts`] the conditions of each are; 0 if it has none.
    pub conditions: [AtomicU32; BREAKPOINT_COUNT],
    /// For each breakpoint that has conditions: how many, in two bytes; and of each its length, in two bytes, and what GDB
    /// calls an agent expression.
    pub texts: [AtomicU8; CONDITIONS_SIZE],
    /// How many places of memory are watched.
    pub watch_count: AtomicU32,
    /// Whether system calls are of interest: none, those in [`CloneDebug::calls`], or all.
    pub catches: AtomicU32,
    /// Where they are, how long, and whether they are watched for being touched at all, not only for changes.
    pub watches: [[AtomicU64; 3]; WATCH_COUNT],
    /// The numbers of system calls that are of interest: a bit for each.
    pub calls: [AtomicU64; 8],
}
