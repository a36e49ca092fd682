//! What the host and the clone engine share: how it is started, what it counts, and how it asks for
//! help when a program is about to become another one.

use crate::Owner;
use crate::halt::CloneDebug;
use crate::stored::Learnt;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

/// The first eight bytes of a [`CloneControl`].
pub const CLONE_MAGIC: u64 = u64::from_le_bytes(*b"weftcln2");

/// The name that the control memory carries in the target's `/proc/PID/maps`.
pub const CLONE_NAME: &str = "weft-clone";

/// How long what the engine has for a thread is: its record, which `gs` points to, and its stacks.
pub const CLONE_THREAD_SIZE: usize = 4096 + 2 * (128 << 10);

/// How many threads of a family can be on their way into `execve` at once.
pub const EXEC_COUNT: usize = 64;

/// How much room there is for the names of reports.
pub const REPORTS_SIZE: usize = 8192;

/// How much room there is for the name of the folder that reports go to.
pub const FOLDER_SIZE: usize = 4096;

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

/// A stopped thread, as the host and the engine tell each other of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloneThread {
    /// What it has: in the program when it is taken over, in the clone when it is to leave; then the engine
    /// puts the program's here.
    pub registers: CloneRegisters,
    /// Where its `gs` begins: the program's or the clone's, as with the registers.
    pub gs_base: u64,
    /// The signals that it blocks: the program's or the clone's, as with the registers.
    pub mask: u64,
    /// Where it has its area for restartable sequences; 0 if there is none.
    pub area: u64,
    /// With what signature it has registered that.
    pub signature: u64,
    /// xmm0 to xmm15: the program's or the clone's, as with the registers.
    pub vectors: [[u64; 2]; 16],
    /// Its name when it is taken over, with zeros behind it, if what it executes is recorded.
    pub name: [u64; 2],
    /// Where the engine keeps what it knows of the thread: set by the engine.
    pub record: u64,
    /// The program's alternate stack as `sigaltstack` takes it: set by the engine when the thread leaves.
    pub altstack: [u64; 3],
    /// Whether the thread cannot leave where it is: set by the engine; see [`busy`].
    pub is_busy: u64,
}

/// Why a thread cannot leave the engine where it is; 0 if it can.
pub mod busy {
    /// It is in the middle of something.
    pub const RUNNING: u64 = 1;
    /// It is not in the engine: a weft that was killed has given it back, and others not.
    pub const NATIVE: u64 = 2;
}

/// What the host hands to the engine with a visit: in front of a [`CloneThread`] for each thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneVisit {
    /// How many threads there are.
    pub threads: u64,
    /// Whether the engine has done what it was asked for.
    pub is_done: u64,
    /// With what it starts, for the visit that starts it.
    pub start: CloneStart,
    /// How many words there are behind the threads. For the visit that starts the engine: what is mapped, see
    /// [`region_words`]. For the visit that weaves: what is to be woven, see [`weaving`].
    pub message: u64,
}

/// What is said of a mapping when the engine starts: the first address, the one behind the last, and bits of
/// `PROT_READ`, `PROT_WRITE` and `PROT_EXEC`, with [`REGION_SHARED`] if others can change it. The target may not
/// have a `/proc` to ask.
pub const fn region_words(start: u64, end: u64, protection: u64, is_shared: bool) -> [u64; 3] {
    [start, end, protection | if is_shared { REGION_SHARED } else { 0 }]
}

/// See [`region_words`].
pub const REGION_SHARED: u64 = 1 << 8;

/// What the host asks the engine to weave: commands, one after the other, each with what it needs.
pub mod weaving {
    /// There is memory to measure into: [`FIELDS`] words. Its base; its shape (the logarithms of the number
    /// and of the length of its slabs and the shift of keys, a byte each, and in the upper half the end of
    /// their state); the multiplier, the shift and the offset of the clock; whether the processor has BMI2.
    pub const MEMORY: u64 = 1;
    /// How many that are.
    pub const FIELDS: usize = 6;
    /// A probe: its number, its memory, the length of its text in bytes, how many points it has, and the text,
    /// filled up to whole words. Then for each point the instruction that it belongs to, or the number of its system
    /// call, its address, its kind, its convention, its way, which access of the instruction's it is and whether it
    /// comes before other probes, a byte each, the start and the end of its function, and for each datum its place:
    /// state in the lower, sums in the upper half.
    pub const INSERT: u64 = 2;
    /// A probe is to go: its number.
    pub const REMOVE: u64 = 3;

    /// The only command of its message: nothing is to be woven any more, and all memory to measure into is
    /// about to go. Done when no thread is said to be busy.
    pub const LEAVE: u64 = 4;
    /// There are unwind rules: where.
    pub const RULES: u64 = 5;

    /// Ways: before the instruction.
    pub const BEFORE: u8 = 0;
    /// After it, when control goes on to the next.
    pub const AFTER: u8 = 1;
    /// Where it jumps, when it does.
    pub const TAKEN: u8 = 2;

    /// The System V convention. A number that is not here is a convention that is not known.
    pub const SYSTEM_V: u8 = 1;
    /// That of Go since 1.17.
    pub const GO: u8 = 2;
}

/// What the engine starts with.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneStart {
    /// Where its [`CloneControl`] is mapped.
    pub control: u64,
    /// Where the engine's own memory begins and ends.
    pub image: [u64; 2],
    /// How many bytes of clone there may be.
    pub cache_size: u64,
    /// Bits of [`option`].
    pub options: u64,
    /// Where it records what the program executes, see [`recording`](crate::recording); 0 if it does not.
    pub recording: u64,
    /// How: one of [`mode`](crate::recording::mode).
    pub mode: u64,
    /// Where its tables go: [`TABLES_SIZE`] bytes below two gigabytes.
    pub tables: u64,
    /// If the program has reserved that place: the flags to `mmap` that give it back as it was, otherwise 0.
    pub reserved: u64,
}

/// How many of the lowest bits of an address choose an entry of the first table by which indirect branches find
/// their way. With sixteen, up to a quarter of the branches of a large program met an entry that was another's.
pub const FIRST_BITS: u32 = 18;
/// The same for the second one.
pub const SECOND_BITS: u32 = 16;
/// The bytes of both: 8 for an entry of the first, 16 for one of the second.
pub const TABLES_SIZE: u64 = (8 << FIRST_BITS) + (16 << SECOND_BITS);

/// How the engine goes about it.
pub mod option {
    /// Changes of code go unseen.
    pub const BLIND: u64 = 1;
    /// Programs that a program becomes run natively.
    pub const STAY: u64 = 2;
    /// After each block the program waits for the host: see [`CloneStep`](super::CloneStep).
    pub const IN_STEP: u64 = 4;
    /// The processor is quick at picking bits (`pext`): all of the first table is used, and not one entry for each
    /// value of the lowest sixteen bits only.
    pub const PICKS_BITS: u64 = 8;
    /// The kernel may be asked for huge pages: no filter is over the program that could forbid the call.
    pub const HUGE_PAGES: u64 = 16;
}

/// Whose turn it is when a program waits after each block.
pub mod turn {
    /// The program's.
    pub const PROGRAM: u32 = 0;
    /// The host's.
    pub const HOST: u32 = 1;
}

/// Where a program is that waits after each block.
#[repr(C)]
#[derive(Debug, Default)]
pub struct CloneStep {
    /// One of [`turn`]; the rest belongs to whose turn it is.
    pub turn: AtomicU32,
    /// Whether the block was left at its end, not by a branch.
    pub is_onward: AtomicU32,
    /// The general registers, as in [`CloneRegisters`], the instruction pointer, and the flags.
    pub registers: [AtomicU64; 18],
}

/// Where a request stands: to follow an `execve`, to have a process leave its clone, or to name what is mapped.
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
    /// The thread has been let go; or its process cannot leave its clone.
    pub const RELEASED: u32 = 5;
    /// A thread waits for its process to leave its clone; while the host sees to it, that is
    /// [`HELD`]. What it waits for does not let it go: it then is where it would be natively.
    pub const LEAVING: u32 = 6;
    /// A thread has mapped a file whose name it cannot ask the kernel for, and waits for the host to look;
    /// while the host does so, that is [`HELD`].
    pub const NAMING: u32 = 7;
}

/// A request of a thread: see [`exec`]. The ids are the thread's own, in its own PID namespace, and written by the
/// target: the host looks for the thread among the processes that the kernel says share this memory.
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
    /// Bytes of records, by which the program's state is found at any place of the clone.
    pub record_bytes: AtomicU64,
    /// Branches that were tied to the block that they lead to.
    pub links: AtomicU64,
    /// How often a target was looked up in the agent.
    pub lookups: AtomicU64,
    /// How often it had not been translated.
    pub misses: AtomicU64,
    /// Writes to a page with translated code.
    pub protection_faults: AtomicU64,
    /// How often the whole clone was flushed.
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
    /// Clones that were mapped from files, and how many blocks they have.
    pub files: AtomicU64,
    /// See above.
    pub file_blocks: AtomicU64,
}

/// The memory that the host shares with the processes that run from a clone. The first three fields stay where
/// they are in every version: by them any weft can tell whose it is, and whether it knows the engine.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct CloneControl {
    /// [`CLONE_MAGIC`]; the host writes it when it has written the next two.
    pub magic: AtomicU64,
    /// A hash of the engine's image.
    pub engine: AtomicU64,
    /// The weft that has brought it.
    pub owner: Owner,
    /// Changes, and wakes the host, whenever it has something to look at.
    pub doorbell: AtomicU32,
    /// Whether nobody answers any more.
    pub is_host_gone: AtomicU32,
    /// How many processes have ever shared this.
    pub processes: AtomicU32,
    /// How many bytes the names of reports take.
    pub reports_length: AtomicU32,
    /// Who may read the time stamp counter, as the kernel says it: [`COUNTER_FORBIDDEN`] if the program has
    /// forbidden it itself.
    pub counter_mode: AtomicU32,
    /// Whether the program has put a seccomp filter over itself since it is here.
    pub is_filtered: AtomicU32,
    /// Whether the host waits for the engine, which threads that lock it one after the other would never leave to it.
    pub is_wanted: AtomicU32,
    reserved: AtomicU32,
    /// How many programs were executed without the host's following: it did not answer, or not in time.
    pub unfollowed: AtomicU64,
    /// How many processes have left their clone without the host: children in their parent's memory.
    pub left: AtomicU64,
    /// Whether all threads have been sent to join it: the host writes it last of all before it lets them go. A thread
    /// that comes and does not find it knows that the host was killed, and goes on natively.
    pub is_joined: AtomicU64,
    /// How much memory there is right behind this in which threads are described to begin with.
    pub visit_area_length: AtomicU64,
    /// A signal mask that blocks all.
    pub every_signal: AtomicU64,
    /// Not zero once the engine's image and the visit area are mapped. The thread that maps them writes it by a system call
    /// on the same trip, so that it is true whenever the host is killed.
    pub is_mapped: AtomicU64,
    /// The same once the visit area is not mapped any more.
    pub is_cleared: AtomicU64,
    /// Where the engine has an [`Outline`](crate::outline::Outline) of what it keeps; 0 if it has not begun.
    pub outline: AtomicU64,
    /// What the engine counts.
    pub stats: CloneStats,
    /// Where the program is, if it waits after each block.
    pub step: CloneStep,
    /// Who wants to be followed.
    pub requests: [ExecRequest; EXEC_COUNT],
    /// The files in which the engine has said what went wrong, a line for each. One that is being
    /// written has zeros in it.
    pub reports: [AtomicU8; REPORTS_SIZE],
    /// Where it is to put them: the name of a folder, with a zero behind it.
    pub folder: [AtomicU8; FOLDER_SIZE],
    /// What concerns a debugger.
    pub debug: CloneDebug,
    /// What concerns clones that are kept in files.
    pub learnt: Learnt,
}
