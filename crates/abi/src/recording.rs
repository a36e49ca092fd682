//! What a program that runs from a clone tells of what it executes: memory that the engine fills and weft
//! reads while it is being filled.
//!
//! It begins with a [`RecordingHead`]. Behind that is the log: what code there is, and which counters belong to
//! it. Behind the log are the counters, a stripe for each thread, so that nobody waits for anybody.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The name that the memory carries in the target's `/proc/PID/maps`.
pub const RECORDING_NAME: &str = "weft-recording";

/// Where the log begins.
pub const LOG_OFFSET: u64 = 4096;
/// How long the log is.
pub const LOG_SIZE: u64 = (1 << 30) - LOG_OFFSET;
/// Where the first stripe begins.
pub const STRIPES_OFFSET: u64 = LOG_OFFSET + LOG_SIZE;
/// How long a stripe is: eight bytes for each counter.
pub const STRIPE_SIZE: u64 = 16 << 20;
/// How many stripes there are.
pub const STRIPE_COUNT: u64 = 2048;
/// How long all of it is; the kernel gives it as it is used.
pub const RECORDING_SIZE: u64 = STRIPES_OFFSET + STRIPE_COUNT * STRIPE_SIZE;
/// How many counters there can be. Number 0 is none.
pub const COUNTERS: u64 = STRIPE_SIZE / 8;

/// How a program is recorded.
pub mod mode {
    /// Not at all.
    pub const OFF: u64 = 0;
    /// Whether each block and each edge was executed: known to the agent the first time, then forgotten.
    pub const HITS: u64 = 1;
    /// How often: counters on edges from which all others follow.
    pub const COUNTS: u64 = 2;
    /// How often, by a counter in every block: to hold the others against.
    pub const EVERY_BLOCK: u64 = 3;
    /// All of it, in order, with what addresses depend on: see [`TraceHead`](super::TraceHead).
    pub const TRACE: u64 = 4;
    /// The same, and with what is read and written.
    pub const TRACE_VALUES: u64 = 5;
}

/// The front of it.
#[repr(C)]
#[derive(Debug)]
pub struct RecordingHead {
    /// How many words of the log are taken.
    pub words: AtomicU64,
    /// How many counters are taken: the number of the next one.
    pub counters: AtomicU64,
    /// How many stripes are taken.
    pub stripes: AtomicU64,
    /// Bits of [`lost`].
    pub lost: AtomicU64,
    /// How many threads and processes have begun when there was no stripe left for them: nothing of them is
    /// recorded.
    pub unrecorded: AtomicU64,
    /// How many files were mapped whose names nobody could tell.
    pub unnamed: AtomicU64,
    /// Counts up while weft takes traces out of the stripes.
    pub beat: AtomicU64,
}

/// How many buffers for a trace a stripe has.
pub const TRACE_BUFFERS: usize = 4;
/// How far they are apart. The first one is that far behind the head, too.
pub const TRACE_BUFFER_SIZE: u64 = 1 << 20;
/// How much at the end of each may not be touched: whoever comes there has filled it.
pub const TRACE_GUARD: u64 = 4096;

/// The front of a stripe that a trace is written to.
#[repr(C)]
#[derive(Debug)]
pub struct TraceHead {
    /// Where in the program's memory the next record goes.
    pub cursor: AtomicU64,
    /// Where in the program's memory the stripe is.
    pub base: AtomicU64,
    /// How many buffers were filled so far.
    pub filled: AtomicU32,
    /// How many of them weft has taken so far.
    pub drained: AtomicU32,
    /// How many bytes were written to each buffer when it was last filled.
    pub lengths: [AtomicU64; TRACE_BUFFERS],
    /// One more than `drained` was when the thread last waited for weft in vain; 0 if it never has.
    pub forsaken: AtomicU64,
}

/// Where it is said how many captures the runs that are traced have, a byte for each number: in the first stripe,
/// behind its buffers.
pub const TRACE_CAPTURES: u64 = STRIPES_OFFSET + 8 * TRACE_BUFFER_SIZE;

/// Where a buffer is in a stripe, counted from the first that was used.
pub const fn trace_buffer(number: u32) -> u64 {
    (number as u64 % TRACE_BUFFERS as u64 + 1) * TRACE_BUFFER_SIZE
}

/// What tells an event of a trace from a block.
pub const EVENT: u64 = 1 << 63;

/// The first word of an event of a trace.
pub const fn event_word(kind: u32, words: usize) -> u64 {
    EVENT | (kind as u64) << 32 | words as u64
}

/// What could not be kept.
pub mod lost {
    /// The log was full.
    pub const LOG: u64 = 1;
    /// There were no more counters.
    pub const COUNTERS: u64 = 2;
}

/// An entry of the log: words. The first one says what the entry tells of (0 while it is being written), how many
/// words it has (from bit 8) and which process it is from (from bit 32).
pub mod entry {
    /// A block was translated. Its address; where its code is in the clone; its length, from bit 16 how it ends,
    /// see [`ending`](super::ending); the counters of the block itself and, from bit 32, of the branch that it
    /// ends with; that of going on to what follows; where the branch leads; its bytes.
    pub const BLOCK: u8 = 1;
    /// An address can be reached otherwise than by direct branches, or from blocks: it, and what counts that.
    pub const ENTERED: u8 = 2;
    /// A thread was sent elsewhere in the middle of a block. Where it was; where the code of that block is, or 0
    /// if it was on its way to that address. With [`AT_END`] it had executed a block that ends there, and was not
    /// at its exit yet.
    pub const CUT: u8 = 3;
    /// The bit of that address which means that a block ends there.
    pub const AT_END: u64 = 1;
    /// A file was mapped to be executed. Where that begins and ends; where in the file it begins; its name, which is
    /// empty if only the host can tell it.
    pub const MODULE: u8 = 4;
    /// A stripe was given to a thread of the process: its number.
    pub const STRIPE: u8 = 5;
    /// Which way out of a branch is not counted: the counter of the other way, and whether it is that to what
    /// follows (else that of the branch).
    pub const SIDE: u8 = 7;
    /// In the place of the counter for going on to what follows: the branch has one counter, for the way that is
    /// said by [`SIDE`].
    pub const CHOSEN: u32 = u32::MAX;
    /// The process was forked: by which one. What that had translated until then is also its own.
    pub const FORKED: u8 = 6;
}

/// How a block ends.
pub mod ending {
    /// With what comes next.
    pub const FALL: u8 = 0;
    /// With a branch that is taken or not.
    pub const BRANCH: u8 = 1;
    /// With a jump.
    pub const JUMP: u8 = 2;
    /// With a call.
    pub const CALL: u8 = 3;
    /// With something of which nobody knows where it leads.
    pub const OTHER: u8 = 4;
}

/// Kinds of events of a trace, and the words that follow.
pub mod event {
    /// A thread begins, or is taken over: its id and that of its process, the bases of `fs` and `gs`, the time.
    pub const THREAD: u32 = 1;
    /// The block before was left in its middle: the address of the instruction that was next (or under way, if it
    /// repeats itself), 1 if what is captured before that instruction was captured (0 if not), and the sixteen
    /// registers there.
    pub const INTERRUPTED: u32 = 2;
    /// A system call begins: its number, six arguments, the time.
    pub const SYSTEM_CALL: u32 = 3;
    /// It is back: its result, the time.
    pub const RESULT: u32 = 4;
    /// The time.
    pub const TIME: u32 = 5;
    /// The bases of `fs` and `gs` are others: both.
    pub const BASES: u32 = 6;
    /// Blocks were executed that are not in the trace: how many.
    pub const LOST: u32 = 7;
    /// The thread has ended: the time.
    pub const END: u32 = 8;
    /// A signal is about to be handled, or to end the program: its number, 1 if what the thread has executed is the
    /// reason (0 if not), the time.
    pub const SIGNAL: u32 = 9;
    /// The thread has a name, or another one: its bytes in two words, with zeros behind it.
    pub const NAME: u32 = 10;
}
