//! What the server needs of a program that it debugs.
//!
//! All calls are made by one thread: the kernel lets only the thread that traces a process do so.

use std::fmt;
use std::sync::Arc;
use weft_host::proc::Tid;
use weft_host::{Error, ErrorKind, Result, Stopped};

/// What a thread of the program has in its registers: the program's own values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15: as instructions number them.
    pub general: [u64; 16],
    /// Where it is.
    pub rip: u64,
    /// Its flags.
    pub rflags: u64,
    /// cs, ss, ds, es, fs, gs.
    pub segments: [u16; 6],
    /// What `fs` is relative to.
    pub fs_base: u64,
    /// What `gs` is relative to.
    pub gs_base: u64,
    /// The number of the system call that the thread is in; -1 if it is in none.
    pub orig_rax: u64,
    /// x87, SSE, AVX, AVX-512, PKRU: as XSAVE lays them out in its standard format.
    pub vectors: Vec<u8>,
}

/// How a thread goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// Until something happens.
    Continue,
    /// One instruction of the program.
    Step,
    /// Instructions, as long as they are in a range: from the first address to before the second.
    StepWithin(u64, u64),
}

/// A thread that goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumption {
    /// Which.
    pub tid: Tid,
    /// How.
    pub motion: Motion,
    /// A signal to be delivered first.
    pub signal: Option<u8>,
}

/// What is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchKind {
    /// Writing.
    Write,
    /// Reading.
    Read,
    /// Either.
    Access,
}

/// Why everything stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A thread has come to a breakpoint.
    Breakpoint(Tid),
    /// A thread has done its step.
    Stepped(Tid),
    /// A signal for a thread, which has not been delivered; more of it by [`Debuggee::signal_info`].
    Signal(Tid, u8),
    /// A thread has done what was watched for.
    Watch {
        /// Which.
        tid: Tid,
        /// Where the watched memory is.
        address: u64,
        /// What it was watched for.
        kind: WatchKind,
    },
    /// A thread is about to make a system call, or has made one.
    SystemCall {
        /// Which thread.
        tid: Tid,
        /// Which call.
        number: u64,
        /// Whether it has been made.
        is_return: bool,
    },
    /// The process has become another program.
    Exec(Tid),
    /// A thread has made another process.
    Fork {
        /// Which thread.
        tid: Tid,
        /// The other process.
        child: Tid,
        /// Whether that has borrowed the memory.
        is_vfork: bool,
    },
    /// The process that a thread has made does not have its memory any more.
    VforkDone(Tid),
    /// [`Interrupter::interrupt`] was called.
    Interrupted(Tid),
    /// The program has ended.
    Exited(i32),
    /// A signal has ended the program.
    Killed(u8),
}

/// A place to stop at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breakpoint {
    /// Where.
    pub address: u64,
    /// GDB's agent expressions: it is to stop if any of them is true, or if there is none.
    pub conditions: Vec<Vec<u8>>,
}

/// Memory to watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchpoint {
    /// Where it begins.
    pub address: u64,
    /// How many bytes.
    pub length: u64,
    /// What is watched for.
    pub kind: WatchKind,
}

/// Has [`Debuggee::wait`] come back; for any thread.
#[derive(Clone)]
pub struct Interrupter(Arc<dyn Fn() + Send + Sync>);

impl Interrupter {
    /// One that does what is given.
    pub fn new(act: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(act))
    }

    /// Stops the program. One that stands still already is not stopped later for it.
    pub fn interrupt(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Interrupter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupter")
    }
}

/// A program that is debugged.
pub trait Debuggee {
    /// Its process.
    fn pid(&self) -> Tid;

    /// Its threads, the main one first.
    fn threads(&self) -> Vec<Tid>;

    /// What a thread calls itself.
    fn thread_name(&self, tid: Tid) -> String;

    /// What a thread has in its registers.
    fn registers(&mut self, tid: Tid) -> Result<Registers>;

    /// Gives a thread other values.
    fn set_registers(&mut self, tid: Tid, registers: &Registers) -> Result<()>;

    /// The kernel's `siginfo_t` of the signal that a thread has stopped for.
    fn signal_info(&mut self, tid: Tid) -> Result<[u8; 128]>;

    /// Changes it.
    fn set_signal_info(&mut self, tid: Tid, _info: &[u8; 128]) -> Result<()> {
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the signal of thread {tid} cannot be changed"),
        ))
    }

    /// Reads memory, and says how many bytes could be read. What is weft's own is not there.
    fn read(&self, address: u64, bytes: &mut [u8]) -> usize;

    /// Writes memory, whatever its protection.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()>;

    /// Where the mappings begin that are weft's own, and not to be shown.
    fn hidden(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Whether it looks at the conditions of breakpoints itself.
    fn evaluates_conditions(&self) -> bool {
        true
    }

    /// All breakpoints that are wanted from now on; taken up when the program goes on.
    fn set_breakpoints(&mut self, all: Vec<Breakpoint>);

    /// All watchpoints that are wanted from now on; taken up when the program goes on.
    fn set_watchpoints(&mut self, all: Vec<Watchpoint>);

    /// Whether to stop at system calls, and at which: nothing stands for all.
    fn catch_system_calls(&mut self, which: Option<Vec<u64>>, on: bool);

    /// The signals that nobody wants to be told of.
    fn pass_signals(&mut self, numbers: &[u8]);

    /// Resumes threads. Those that are not named stay where they are.
    fn resume(&mut self, threads: &[Resumption]) -> Result<()>;

    /// Blocks until all of the program stands still.
    fn wait(&mut self) -> Result<Stop>;

    /// What has [`Debuggee::wait`] come back.
    fn interrupter(&self) -> Interrupter;

    /// Those of its threads that weft can have do something, while all of it stands still.
    fn held(&mut self) -> Result<Stopped>;

    /// Whether to stop where the program makes another process.
    fn report_forks(&mut self, is_wanted: bool);

    /// The processes that it has made, and that stand still until something is decided. If nothing is, they go on by
    /// themselves when the program does.
    fn children(&self) -> Vec<Tid>;

    /// Lets one of them go on by itself, or ends it.
    fn part_from_child(&mut self, child: Tid, ends: bool);

    /// From now on, one of them is the program; what was it goes on by itself.
    fn go_with(&mut self, child: Tid) -> Result<()>;

    /// Detaches from the program, with the signals that its threads have stopped for if they are
    /// among these.
    fn detach(&mut self, signals: &[u8]) -> Result<()>;

    /// Ends the program.
    fn kill(&mut self);
}
