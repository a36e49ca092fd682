//! What the host and the clone engine share: how it is started, what it counts, and how it asks for
//! help when a program is about to become another one.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first eight bytes of a [`CloneControl`].
pub const CLONE_MAGIC: u64 = u64::from_le_bytes(*b"weftcln1");

/// The name that the control memory carries in the target's `/proc/PID/maps`.
pub const CLONE_NAME: &str = "weft-clone";

/// How many threads of a family can be on their way into `execve` at once.
pub const EXEC_COUNT: usize = 64;

/// How much of a report there is room for.
pub const REPORT_SIZE: usize = 8192;

/// The registers that a program starts or goes on with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneRegisters {
    /// `rax`, `rcx`, `rdx`, `rbx`, `rsp`, `rbp`, `rsi`, `rdi`, `r8` to `r15`: in the order in which
    /// instructions number them.
    pub general: [u64; 16],
    /// The instruction pointer.
    pub rip: u64,
    /// The flags.
    pub rflags: u64,
}

/// What the host hands to the engine when it starts it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneStart {
    /// Where the program goes on.
    pub registers: CloneRegisters,
    /// Where its [`CloneControl`] is mapped.
    pub control: u64,
    /// Where the engine's own memory begins and ends.
    pub image: [u64; 2],
    /// How many bytes of clone there may be.
    pub cache_size: u64,
    /// Bits of [`option`].
    pub options: u64,
}

/// What can be switched off, for tests.
pub mod option {
    /// Changes of code go unseen.
    pub const BLIND: u64 = 1;
    /// Programs that a program becomes run natively.
    pub const STAY: u64 = 2;
}

/// Where a request to follow an `execve` stands.
pub mod exec {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// A thread is writing it.
    pub const CLAIMED: u32 = 1;
    /// A thread waits for the host.
    pub const ASKED: u32 = 2;
    /// The host holds the thread, which may call `execve`.
    pub const HELD: u32 = 3;
    /// The call has failed; the thread waits to be let go.
    pub const FAILED: u32 = 4;
    /// The thread has been let go.
    pub const RELEASED: u32 = 5;
}

/// A thread's request to be followed through `execve`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct ExecRequest {
    /// One of [`exec`].
    pub state: AtomicU32,
    /// The thread.
    pub tid: AtomicU32,
    /// Its process.
    pub pid: AtomicU32,
    reserved: AtomicU32,
}

/// What the engine counts.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CloneStats {
    /// Blocks that were translated.
    pub blocks: AtomicU64,
    /// Bytes of clone that were written for them.
    pub bytes: AtomicU64,
    /// Branches that were tied to the block that they lead to.
    pub links: AtomicU64,
    /// How often a target was looked up in the agent.
    pub lookups: AtomicU64,
    /// How often it had not been translated.
    pub misses: AtomicU64,
    /// Writes to a page with translated code.
    pub protection_faults: AtomicU64,
    /// How often the whole clone was thrown away.
    pub flushes: AtomicU64,
    /// How often a thread left the clone for the agent.
    pub agent_entries: AtomicU64,
    /// Signals that were passed on to the program.
    pub signals: AtomicU64,
    /// System calls.
    pub system_calls: AtomicU64,
    /// Cycles spent in translation and look-ups.
    pub agent_cycles: AtomicU64,
    /// Threads that were started.
    pub threads: AtomicU64,
    /// Processes that were forked.
    pub forks: AtomicU64,
}

/// The memory that the host shares with the processes that run from a clone.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CloneControl {
    /// [`CLONE_MAGIC`].
    pub magic: AtomicU64,
    /// Changes, and wakes the host, whenever it has something to look at.
    pub doorbell: AtomicU32,
    /// Whether nobody answers any more.
    pub is_host_gone: AtomicU32,
    /// How many processes share this.
    pub processes: AtomicU32,
    /// How many bytes of the report are written.
    pub report_length: AtomicU32,
    /// What the engine counts.
    pub stats: CloneStats,
    /// Who wants to be followed.
    pub requests: [ExecRequest; EXEC_COUNT],
    /// What went wrong in the engine, as text.
    pub report: [u8; REPORT_SIZE],
}
