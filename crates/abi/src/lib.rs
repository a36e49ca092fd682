//! The layout that the host and the agent share. It is the only thing that they share.
//!
//! Both sides are compiled from this file, but not always at the same time: an agent that a killed
//! weft left behind may meet a newer host. So both sides check [`MAGIC`], [`VERSION`] and the sizes
//! before they believe anything else.
//!
//! **When to bump [`VERSION`]**: whenever a field moves, changes its meaning or its size, or when a
//! request is added. Never reuse a number. [`MAGIC`] and the first 16 bytes of [`ControlBlock`]
//! stay where they are in every version, so that any two versions can tell that they differ.
//!
//! Everything here is read and written by two processes at once, hence the atomics; all of it is
//! plain memory to the other side, so no field may hold a pointer that the reader would follow.
#![no_std]

pub mod addresses;
mod clone;
pub mod halt;
pub mod outline;
pub mod pieces;
mod probes;
pub mod recording;
pub mod stored;

pub use clone::{
    CLONE_MAGIC, CLONE_NAME, CLONE_THREAD_SIZE, CloneControl, CloneRegisters, CloneStart,
    CloneStats, CloneStep, CloneThread, CloneVisit, EXEC_COUNT, ExecRequest, FIRST_BITS,
    FOLDER_SIZE, REGION_SHARED, REPORTS_SIZE, SECOND_BITS, TABLES_SIZE, busy, exec, option,
    region_words, turn, weaving,
};
pub use probes::{
    CHANGE_COUNT, CHANGE_SIZE, CHANGES_OFFSET, Change, PROBES_MAGIC, PROBES_NAME, PROBES_VERSION,
    Piece, ProbesHead, VALUES_COUNT, VALUES_NAME,
};

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64};

/// The first eight bytes of a control block.
pub const MAGIC: u64 = u64::from_le_bytes(*b"weft-abi");

/// The version of this layout.
pub const VERSION: u32 = 3;

/// The name that the shared memory carries in the target's `/proc/PID/maps`
/// (`/memfd:weft (deleted)`).
pub const MEMORY_NAME: &str = "weft";

/// How many threads can be in the agent at the same time.
pub const SLOT_COUNT: usize = 64;

/// The size of one [`Slot`], its stack included.
pub const SLOT_SIZE: usize = 4096;

/// Where the agent stands: see [`ControlBlock::state`].
pub mod state {
    /// The host has filled its part in; the agent has not run yet.
    pub const FRESH: u32 = 0;
    /// The agent has checked the layout and filled its part in.
    pub const READY: u32 = 1;
    /// The agent does not know this layout and will do nothing.
    pub const REFUSED: u32 = 2;
}

/// What the host asks of a thread that it sends into the agent: see [`Slot::request`].
pub mod request {
    /// Check the layout, report the processor, become ready.
    pub const INIT: u32 = 1;
    /// Answer, from this thread.
    pub const PING: u32 = 2;
}

/// Who owns an agent. A process id alone can be reused, so the start time goes with it; and it means
/// something only within one PID namespace.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Owner {
    /// weft's process id.
    pub pid: AtomicU64,
    /// weft's start time, in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub start_time: AtomicU64,
    /// The inode of weft's PID namespace.
    pub pid_namespace: AtomicU64,
}

/// What the agent saw of the processor, from inside the target.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CpuReport {
    /// `cpuid(1).ecx`.
    pub leaf1_ecx: AtomicU32,
    /// `cpuid(1).edx`.
    pub leaf1_edx: AtomicU32,
    /// `cpuid(7).ebx`.
    pub leaf7_ebx: AtomicU32,
    /// `cpuid(7).ecx`.
    pub leaf7_ecx: AtomicU32,
    /// `cpuid(7).edx`.
    pub leaf7_edx: AtomicU32,
    /// The bytes that `xsave` writes with everything that the kernel has enabled; 512 where there
    /// is no `xsave`.
    pub vector_state_size: AtomicU32,
    /// The state components that the kernel has enabled (`xgetbv(0)`).
    pub xcr0: AtomicU64,
}

/// The head of the shared memory.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct ControlBlock {
    /// [`MAGIC`]; the host writes it when it has written everything else.
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// `size_of::<ControlBlock>()`.
    pub size: AtomicU32,
    /// [`SLOT_SIZE`].
    pub slot_size: AtomicU32,
    /// One of [`state`]; the agent writes it last.
    pub state: AtomicU32,
    /// The version that the agent was built with.
    pub agent_version: AtomicU32,
    /// Whether user space may execute `rdfsbase` here (`AT_HWCAP2`, bit 1).
    pub may_read_fs_base: AtomicU32,
    /// Who loaded this agent.
    pub owner: Owner,
    /// What the agent saw of the processor.
    pub cpu: CpuReport,
}

/// What one visiting thread is asked and answers, and the stack that it runs on while it is here.
/// The target's own stacks are never used: a goroutine's may end within a few bytes.
#[repr(C, align(64))]
pub struct Slot {
    /// One of [`request`].
    pub request: AtomicU32,
    reserved: AtomicU32,
    /// What to answer with.
    pub question: AtomicU64,
    /// The answer: see [`answer_to`].
    pub answer: AtomicU64,
    /// The visitor's `fs` base, which tells threads apart; 0 where it may not be read.
    pub fs_base: AtomicU64,
    /// Grows down from the slot's end.
    pub stack: [u8; SLOT_SIZE - 64],
}

/// What `prctl(PR_GET_TSC)` says of a thread that gets SIGSEGV when it reads the time stamp counter.
pub const COUNTER_FORBIDDEN: u32 = 2;

/// What the agent answers to a ping's question: something that it cannot have found lying there.
pub const fn answer_to(question: u64) -> u64 {
    question.rotate_left(17) ^ MAGIC
}

const _: () = assert!(size_of::<Slot>() == SLOT_SIZE);
const _: () = assert!(size_of::<ControlBlock>() <= 4096);
