//! What the engine keeps of a thread. The clone reaches it through `gs`.

use crate::clone::base::signals::{NEEDED, TRAP_FLAG};
use crate::clone::base::system;
use crate::clone::thread::alternate_stack::SS_DISABLE;
use core::cell::Cell;
use core::sync::atomic::Ordering::{Acquire, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use weft_abi::CloneThread;
use weft_abi::halt::{Halt, HaltOf, motion};
use weft_abi::recording::STRIPE_SIZE;

/// Where an area for restartable sequences names the descriptor.
pub const CURRENT: u64 = 8;

const STACK: usize = 128 << 10;
/// For the frame that the kernel writes, which holds all vector registers, and for the handler.
const SIGNAL_STACK: usize = 128 << 10;

/// Why a thread has left the clone.
pub mod left {
    /// A direct branch that is not linked to its target.
    pub const EXIT: u32 = 0;
    /// An indirect branch to code that is not in the thread's table.
    pub const INDIRECT: u32 = 1;
    /// A system call.
    pub const SYSTEM_CALL: u32 = 2;
    /// The start of a block whose original may have changed.
    pub const CHECK: u32 = 3;
    /// The start of a restartable sequence that has not been announced to the kernel.
    pub const SEQUENCE: u32 = 4;
    /// A restartable sequence that was interrupted.
    pub const ABORT: u32 = 5;
    /// Something that has saved where the x87's last instruction was.
    pub const SAVED: u32 = 6;
    /// An instruction that cannot be translated.
    pub const REFUSED: u32 = 7;
    /// A breakpoint.
    pub const HALT: u32 = 8;
    /// A store that may be to memory that is watched.
    pub const WATCH: u32 = 9;
    /// A direct branch of a clone from a file that is not linked to its target.
    pub const SLOT: u32 = 10;
}

/// What counters a thread has.
pub mod stripe {
    /// None that are its own.
    pub const NONE: u32 = 0;
    /// A stripe that the host reads.
    pub const SHARED: u32 = 1;
    /// Memory that is never read: there was no stripe left.
    pub const PRIVATE: u32 = 2;
}

/// The value of [`Thread::kept_names`] while two registers are in [`Thread::kept`].
pub const fn kept_names(first: u8, second: u8) -> u32 {
    1 << 8 | (second as u32) << 4 | first as u32
}

/// What the engine keeps of a thread. The clone and its gates reach the fields by their offsets from `gs`.
///
/// A signal handler may interrupt the agent anywhere, on the same thread and with the same record. So no code has
/// that to itself: there are only shared references to it, and a field is one of these.
///
/// - A plain one is written before other threads know of the record, and never again.
/// - An atomic one is read at any time by other threads, or by a handler that has interrupted the agent.
/// - A [`Cell`] is for the thread itself: the agent, its handlers, the clone. Others use it only while the thread
///   has not begun, has ended, or is stopped by the host or a debugger.
///
/// A handler that has interrupted the agent and goes back to it reads no cell that the agent may be changing, and
/// writes only `pending_info` and `pending_mask`: before it sets `is_pending`, and never while that is set. The
/// agent reads them after it has seen that (see [`Thread::has_pending`]), and writes them itself only with signals
/// blocked or while `is_masked` is set. What comes meanwhile goes to `kept_infos` by the same rule, with a bit of
/// `kept_signals` for each. Where a handler has interrupted the clone, or the assembly in `switch.rs`, no other
/// code is in the middle of using a cell.
#[repr(C)]
#[derive(Debug)]
pub struct Thread {
    /// The address of this record: `gs:[0]`.
    pub this: u64,
    /// `rax` while the clone uses it.
    pub rax: Cell<u64>,
    /// `rcx` while the clone uses it.
    pub rcx: Cell<u64>,
    /// The program's value of a register that the clone uses for an address that is out of reach.
    pub far: Cell<u64>,
    /// A second register, where an instruction needs two.
    pub second_far: Cell<u64>,
    /// The area that names the restartable sequence that the thread is in (`rseq(2)`): the program's own, or
    /// `no_area`.
    pub area: Cell<u64>,
    /// The program's values of two registers that the clone of a restartable sequence uses.
    pub kept: [Cell<u64>; 2],
    /// Which they are: see [`kept_names`].
    pub kept_names: Cell<u32>,
    /// How often in a row a sequence has begun that was not announced to the kernel.
    pub missed: Cell<u32>,
    /// Where the second table for indirect branches is.
    pub second: u64,
    /// The bits of an address that choose an entry of the first one.
    pub mask: u64,
    /// Where in the clone to continue.
    pub target: Cell<u64>,
    /// Where an indirect branch goes in the program.
    pub next: Cell<u64>,
    /// Where the data of the exit is that the thread has left by.
    pub exit: Cell<u64>,
    /// The end of the agent's stack.
    pub stack: u64,
    /// How many bytes are mapped for it, with the stacks and the counters.
    length: u64,
    /// One of [`stripe`].
    pub has_stripe: Cell<u32>,
    /// Whether what it executes is written there.
    pub is_traced: Cell<u32>,
    /// One of [`left`].
    pub left: Cell<u32>,
    /// Whether a signal waits to be passed on.
    pub is_pending: AtomicU32,
    /// The program's registers while the thread is in the agent, numbered as instructions do.
    pub general: [Cell<u64>; 16],
    /// The program's instruction pointer.
    pub pc: Cell<u64>,
    /// The program's flags.
    pub flags: Cell<u64>,
    /// xmm0 to xmm15.
    pub vectors: Cell<[u128; 16]>,
    /// Its thread id.
    pub tid: Cell<u32>,
    /// Its process id; 0 if the thread begins a process, until it has begun.
    pub pid: Cell<u32>,
    /// Its name as far as it is known, with zeros behind it.
    pub name: Cell<[u64; 2]>,
    /// The epoch of the code cache that it executes; [`u64::MAX`] while it is in the agent. A flush waits for
    /// threads that are an epoch behind.
    pub epoch: AtomicU64,
    /// The next record in the list of all; 0 at its end.
    pub next_thread: u64,
    /// Whether a thread uses this record.
    pub is_used: AtomicU32,
    /// Signals that the program has blocked, but that the kernel's mask leaves open because the engine needs them.
    pub hidden_mask: Cell<u64>,
    /// The program's own alternate stack: address, flags, size.
    pub altstack: Cell<[u64; 3]>,
    /// The signal that waits, as the kernel described it.
    pub pending_info: Cell<[u64; 16]>,
    /// The mask of the program that it interrupted.
    pub pending_mask: Cell<u64>,
    /// The program's own `gs` base.
    pub gs_base: Cell<u64>,
    /// What the program wants done with signals: [`super::actions::Actions`], shared with the threads that
    /// share it natively.
    pub actions: AtomicU64,
    /// Whether it was vforked: it has borrowed its parent's memory until it calls `execve` or ends.
    pub is_vforked: Cell<u32>,
    /// Whether it begins a process of its own.
    pub is_forked: Cell<u32>,
    /// Whether it begins with default actions (`CLONE_CLEAR_SIGHAND`).
    pub is_cleared: Cell<u32>,
    /// Where the program can continue natively with the registers that are kept here; 0 while those are not exact.
    /// What cannot be repeated must clear it first.
    pub native_pc: Cell<u64>,
    /// Whether it waits for the host to take it out.
    pub is_leaving: AtomicU32,
    /// Whether it is writing a report: a second failure is in that, and ends the process.
    pub is_failing: Cell<u32>,
    /// In place of an area for a thread that has registered none.
    no_area: Cell<[u64; 2]>,
    /// A set of [`stepping`].
    pub stepping: AtomicU32,
    /// The program's own trap flag, while the engine uses that to lead it out of a snippet.
    pub pending_trap: Cell<u64>,
    /// Where in the clone it has trapped last without delivering that to the program; 0 if it has gone elsewhere
    /// since.
    pub trapped: Cell<u64>,
    /// A system call whose snippets were executed, but that is still to be made.
    pub announced: Cell<Announced>,
    /// How it stands still for a debugger, and continues. The debugger reads and writes it.
    pub halt: HaltOf<Cell<u64>>,
    /// What it does for the debugger without the program's knowledge: one of [`task`].
    pub task: Cell<u32>,
    /// Watched memory that it is about to touch; 0 for none.
    pub touched: Cell<u64>,
    /// The address of a repeated instruction that it executes a piece of, and the count that is left after the
    /// piece.
    pub rest: Cell<[u64; 2]>,
    /// The number of the system call that it makes, plus one; and whether its end is reported to the debugger.
    pub number: Cell<u64>,
    pub is_caught: Cell<bool>,
    /// Whether a handler is about to begin that has not executed anything, and whether the signal that waits came
    /// then.
    pub is_beginning: AtomicBool,
    pub is_pending_early: AtomicBool,
    /// Whether the engine has blocked signals, until the program's mask is back.
    pub is_masked: AtomicBool,
    /// What has come while something else waited, a bit for each, and its description by the kernel: see
    /// [`super::kept_signals`].
    pub kept_signals: AtomicU32,
    pub kept_infos: [Cell<[u64; 16]>; KEPT_SIGNALS],
    /// Where its probes measure, in each memory that there is for that.
    pub slabs: [Cell<u64>; MEMORIES],
    /// The program's stack pointer while a snippet uses the agent's stack.
    pub program_stack: Cell<u64>,
}

/// A system call whose snippets were executed, but that is still to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct Announced {
    /// The address behind the instruction; 0 if there is no such call.
    pub pc: u64,
    /// The registers that the program made it with.
    pub requested: [u64; 16],
    /// The registers that the snippets have changed those to.
    pub changed: [u64; 16],
}

/// What a thread does for the debugger without the program's knowledge.
pub mod task {
    pub const NONE: u32 = 0;
    /// It executes one instruction by itself, since that may change memory that is watched.
    pub const STORE: u32 = 1;
    /// It has reported the system call that it is about to make.
    pub const CALL: u32 = 2;
    /// It has the trap flag on the way to an instruction: the trap when it gets there is not the program's.
    pub const WAY: u32 = 3;
}

/// How many signals can come while another one waits.
pub const KEPT_SIGNALS: usize = 3;

/// How many pieces of memory probes can measure into.
pub const MEMORIES: usize = weft_abi::VALUES_COUNT;

/// Whether a thread is led out of a snippet, instruction by instruction, and what for: one of them, or both.
pub mod stepping {
    pub const NO: u32 = 0;
    /// Because a signal waits.
    pub const FOR_SIGNAL: u32 = 1;
    /// Because the code cache was flushed around it.
    pub const FOR_FLUSH: u32 = 2;
}

const HEAD: usize = 4096;
const SIZE: usize = HEAD + STACK + SIGNAL_STACK;

const _: () = assert!(size_of::<Thread>() <= HEAD);
const _: () = assert!(SIZE == weft_abi::CLONE_THREAD_SIZE);

/// Where a counter is, seen from `gs`.
pub fn at_counter(counter: u32) -> u32 {
    SIZE as u32 + 8 * counter
}

/// Where a field is, seen from `gs`.
macro_rules! at {
    ($field:ident) => {
        core::mem::offset_of!($crate::clone::thread::record::Thread, $field)
    };
}
pub(crate) use at;

impl Thread {
    /// Makes room for a thread, and keeps some behind it for counters if there are to be any. `second` and
    /// `next_thread` are for the fields of these names.
    pub fn map(
        is_counting: bool,
        (mask, second): (u64, u64),
        next_thread: u64,
    ) -> Option<&'static Self> {
        let length = SIZE + if is_counting { STRIPE_SIZE as usize } else { 0 };
        let at = system::map_private(length)?;
        let record = at as *mut Self;
        // SAFETY: fresh memory, zeroed, which is fine for every field, large enough and aligned to a page. What
        // does not change any more is written before there is a reference.
        let thread = unsafe {
            (&raw mut (*record).this).write(at as u64);
            (&raw mut (*record).length).write(length as u64);
            (&raw mut (*record).stack).write((at + HEAD + STACK) as u64);
            (&raw mut (*record).mask).write(mask);
            (&raw mut (*record).second).write(second);
            (&raw mut (*record).next_thread).write(next_thread);
            &*record
        };
        thread.altstack.set([0, SS_DISABLE, 0]);
        thread.unregister();
        Some(thread)
    }

    /// Unmaps its memory; no thread may use it any more.
    pub fn unmap(&self) {
        system::unmap(self.this as usize, self.length as usize);
    }

    /// Where its counters are, if it has any.
    pub fn counters(&self) -> u64 {
        self.this + SIZE as u64
    }

    /// Increments a counter.
    pub fn count(&self, counter: u32) {
        // SAFETY: a stripe of counters lies there. No other thread counts in it.
        unsafe { *((self.counters() + 8 * u64::from(counter)) as *mut u64) += 1 };
    }

    /// The program's registers.
    pub fn general(&self) -> [u64; 16] {
        self.general.each_ref().map(Cell::get)
    }

    /// Changes all of them.
    pub fn set_general(&self, general: &[u64; 16]) {
        for (place, &value) in self.general.iter().zip(general) {
            place.set(value);
        }
    }

    /// Whether a signal waits. If so, what is kept of it is all there.
    pub fn has_pending(&self) -> bool {
        self.is_pending.load(Acquire) != 0
    }

    /// Marks the signal that is kept as waiting.
    pub fn set_pending(&self) {
        self.is_pending.store(1, Release);
    }

    /// Clears that mark: a handler may keep another signal from now on.
    pub fn clear_pending(&self) {
        self.is_pending.store(0, Release);
    }

    /// Resets what it does for a debugger.
    pub fn forget_halt(&self) {
        self.halt.set(&Halt::default());
        self.task.set(task::NONE);
        self.rest.set([0; 2]);
    }

    /// Resets where it measures.
    pub fn forget_slabs(&self) {
        self.slabs.iter().for_each(|slab| slab.set(0));
    }

    /// Takes over the state of a thread, as the host describes it.
    pub fn take_over(&self, visitor: &CloneThread) {
        self.set_general(&visitor.registers.general);
        self.flags.set(visitor.registers.rflags);
        self.pc.set(visitor.registers.rip);
        let vectors = visitor.vectors.map(|[low, high]| u128::from(low) | u128::from(high) << 64);
        self.vectors.set(vectors);
        self.gs_base.set(visitor.gs_base);
        self.name.set(visitor.name);
        self.hidden_mask.set(visitor.mask & NEEDED);
        self.pending_mask.set(visitor.mask & !NEEDED);
        if visitor.area != 0 {
            self.register(visitor.area);
        }
    }

    /// Sets the area for restartable sequences.
    pub fn register(&self, area: u64) {
        self.area.set(area);
    }

    /// Sets that it has none.
    pub fn unregister(&self) {
        // Neither nothing nor a descriptor.
        self.no_area.set([1; 2]);
        self.area.set(self.no_area.as_ptr() as u64);
    }

    /// Whether it has an area of the program's.
    pub fn is_registered(&self) -> bool {
        self.area.get() != self.no_area.as_ptr() as u64
    }

    /// The descriptor of the sequence that it is in, or has been; 0 if there is none.
    pub fn sequence(&self) -> u64 {
        // SAFETY: the kernel writes to it at any time, so it has to be there.
        unsafe { ((self.area.get() + CURRENT) as *const u64).read_volatile() }
    }

    /// Takes the name of the sequence out of the area, so that the kernel finds none.
    pub fn forget_sequence(&self) {
        // SAFETY: as above.
        unsafe { ((self.area.get() + CURRENT) as *mut u64).write_volatile(0) }
    }

    /// Gives the registers back that a sequence has been using.
    pub fn give_kept(&self, general: &mut [u64; 16]) {
        if self.kept_names.get() != 0 {
            general[self.kept_names.get() as usize & 15] = self.kept[0].get();
            general[self.kept_names.get() as usize >> 4 & 15] = self.kept[1].get();
        }
    }

    /// It goes back to the clone without having executed an instruction of the program since it was last there. Where the
    /// program steps itself, the trap when it gets there is not the program's.
    pub fn expect_trap_on_way(&self) {
        if self.flags.get() & TRAP_FLAG != 0 {
            self.task.set(task::WAY);
        }
    }

    /// Whether it is to stand still after an instruction.
    pub fn is_stepping(&self) -> bool {
        self.halt.motion.get() >= motion::STEP
    }

    /// Whether it steps on from where it is, without standing still.
    pub fn goes_on(&self) -> bool {
        let [start, end] = self.halt.range.each_ref().map(Cell::get);
        self.halt.motion.get() == motion::STEP_WITHIN && (start..end).contains(&self.pc.get())
    }

    /// Whether it executes one instruction, and comes back.
    pub fn is_single(&self) -> bool {
        self.is_stepping() || self.task.get() == task::STORE
    }

    /// The stack for the kernel's frames: where it is, and how large.
    pub fn signal_stack(&self) -> (usize, usize) {
        (self.stack as usize, SIGNAL_STACK)
    }

    /// Whether an address is on one of the agent's stacks for this thread.
    pub fn has_on_stacks(&self, address: u64) -> bool {
        (self.this..=self.stack + SIGNAL_STACK as u64).contains(&address)
    }

    /// The current thread.
    pub fn current() -> &'static Self {
        let this: u64;
        // SAFETY: every thread that comes here has `gs` set to its own.
        unsafe {
            core::arch::asm!("mov {}, gs:[0]", out(reg) this, options(nostack, preserves_flags));
            &*(this as *const Self)
        }
    }
}
