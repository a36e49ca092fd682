//! Runs a program one instruction at a time and writes down where control went.

use std::collections::{HashMap, HashSet};
use std::ffi::c_void;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use weft_code::iced_x86::{Code, Decoder, FlowControl, Instruction};

/// How control got from one instruction to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    /// To the next instruction, or to the same one again if it repeats itself.
    Next,
    /// A direct jump, or a conditional branch, whether taken or not.
    Branch,
    /// A jump that does not say where to.
    IndirectJump,
    /// A call.
    Call,
    /// The call's return, where what it called was not watched.
    CallReturn,
    /// A return.
    Return,
    /// A system call: back from a signal's handler, it may lead anywhere.
    System,
}

impl How {
    fn of(instruction: &Instruction) -> Self {
        match instruction.flow_control() {
            FlowControl::Return => Self::Return,
            FlowControl::Call if instruction.code() == Code::Syscall => Self::System,
            FlowControl::Call | FlowControl::IndirectCall => Self::Call,
            FlowControl::IndirectBranch => Self::IndirectJump,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => Self::Branch,
            _ => Self::Next,
        }
    }
}

/// Code that was mapped from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    pub path: String,
    pub start: u64,
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
}

/// What a program did.
#[derive(Default)]
pub struct Trace {
    /// The file of the program itself.
    pub program: String,
    pub mappings: Vec<Mapping>,
    pub transfers: Vec<(u64, u64, How)>,
    /// Where the kernel let a thread begin, or a handler of a signal.
    pub arrivals: Vec<u64>,
    /// How many instructions were stepped, each as often as it ran.
    pub steps: u64,
    /// How often a call was left to run on its own.
    pub skipped: u64,
}

/// What to watch.
pub struct Limits {
    /// How many steps.
    pub steps: u64,
    /// How long at most, whatever the program waits for.
    pub time: Duration,
    /// Calls of a function that were watched this often run on their own, so that the steps go where something is new.
    pub calls: u32,
    /// Whether also the dynamic linker is watched that runs before the program does.
    pub from_start: bool,
}

struct Skip {
    call: u64,
    back: u64,
    stack: u64,
}

#[derive(Default)]
struct Thread {
    /// Where the last step was from, if that is known.
    at: Option<u64>,
    skip: Option<Skip>,
}

struct Tracer {
    pid: i32,
    memory: fs::File,
    trace: Trace,
    known: HashMap<(u64, u64), How>,
    calls: HashMap<u64, u32>,
    arrivals: HashSet<u64>,
    /// Pages that are no file's code.
    strange: HashSet<u64>,
    limits: Limits,
}

fn ptrace(request: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: the requests that are used here read nothing from and write nothing to this process.
    let result = unsafe { libc::ptrace(request, tid, address as *mut c_void, data as *mut c_void) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn peek_user(tid: i32, offset: usize) -> io::Result<u64> {
    let mut value = 0_u64;
    let place = (&raw mut value).cast::<c_void>();
    // SAFETY: the system call writes one word to where it is told to.
    let result =
        unsafe { libc::syscall(libc::SYS_ptrace, libc::PTRACE_PEEKUSER, tid, offset, place) };
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

const RIP: usize = std::mem::offset_of!(libc::user_regs_struct, rip);
const RSP: usize = std::mem::offset_of!(libc::user_regs_struct, rsp);

/// Stops a thread when it gets to an address.
fn set_breakpoint(tid: i32, address: Option<u64>) -> io::Result<()> {
    let register = |number: usize| std::mem::offset_of!(libc::user, u_debugreg) + number * 8;
    if let Some(address) = address {
        ptrace(libc::PTRACE_POKEUSER, tid, register(0), address as usize)?;
    }
    ptrace(libc::PTRACE_POKEUSER, tid, register(7), usize::from(address.is_some()))
}

/// Runs a command and watches it. Its output goes nowhere.
pub fn trace(command: &mut Command, limits: Limits) -> io::Result<Trace> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: both are single system calls.
    unsafe {
        command.pre_exec(|| {
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            ptrace(libc::PTRACE_TRACEME, 0, 0, 0)
        });
    }
    let mut child = command.spawn()?;
    let pid = child.id() as i32;
    let time = limits.time;
    // SAFETY: a system call that takes numbers; what it returns is a new descriptor if it is not negative.
    let handle = unsafe {
        let handle = libc::syscall(libc::SYS_pidfd_open, pid, 0) as i32;
        (handle >= 0).then(|| OwnedFd::from_raw_fd(handle)).ok_or_else(io::Error::last_os_error)?
    };
    let end = || {
        // SAFETY: a system call without pointers but for one that may be null.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                handle.as_raw_fd(),
                libc::SIGKILL,
                std::ptr::null::<c_void>(),
                0,
            )
        }
    };
    let (done, waits) = std::sync::mpsc::channel::<()>();
    let trace = std::thread::scope(|scope| {
        let end = &end;
        scope.spawn(move || {
            if waits.recv_timeout(time) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                end();
            }
        });
        let trace = Tracer::begin(pid, limits).and_then(Tracer::run);
        drop(done);
        trace
    });
    end();
    while wait().is_ok() {}
    // Nothing is left to wait for; this only says so.
    let _ = child.wait();
    trace
}

/// Waits for something that this thread traces, and nothing else of this process.
fn wait() -> io::Result<(i32, i32)> {
    let mut status = 0;
    // SAFETY: the status is written to a variable of that type.
    let tid = unsafe { libc::waitpid(-1, &mut status, libc::__WALL | libc::__WNOTHREAD) };
    if tid == -1 { Err(io::Error::last_os_error()) } else { Ok((tid, status)) }
}

impl Tracer {
    fn begin(pid: i32, limits: Limits) -> io::Result<Self> {
        let (_, status) = wait()?;
        if !libc::WIFSTOPPED(status) {
            return Err(io::Error::other("it did not begin"));
        }
        let options =
            libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL | libc::PTRACE_O_TRACEEXEC;
        ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options as usize)?;
        let program = fs::read_link(format!("/proc/{pid}/exe"))?;
        let mut tracer = Self {
            pid,
            memory: fs::File::open(format!("/proc/{pid}/mem"))?,
            trace: Trace { program: program.to_string_lossy().into(), ..Trace::default() },
            known: HashMap::new(),
            calls: HashMap::new(),
            arrivals: HashSet::new(),
            strange: HashSet::new(),
            limits,
        };
        if !tracer.limits.from_start {
            set_breakpoint(pid, Some(tracer.entry()?))?;
            ptrace(libc::PTRACE_CONT, pid, 0, 0)?;
            if !libc::WIFSTOPPED(wait()?.1) {
                return Err(io::Error::other("it ended before its entry"));
            }
            set_breakpoint(pid, None)?;
        }
        let at = peek_user(pid, RIP)?;
        tracer.arrive(at);
        Ok(tracer)
    }

    /// Where the program itself begins, after the dynamic linker.
    fn entry(&self) -> io::Result<u64> {
        let vector = fs::read(format!("/proc/{}/auxv", self.pid))?;
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        vector
            .chunks_exact(16)
            .find(|pair| word(&pair[..8]) == libc::AT_ENTRY)
            .map(|pair| word(&pair[8..]))
            .ok_or_else(|| io::Error::other("no entry"))
    }

    fn run(mut self) -> io::Result<Trace> {
        let mut threads: HashMap<i32, Thread> = HashMap::new();
        threads.insert(self.pid, Thread { at: Some(peek_user(self.pid, RIP)?), skip: None });
        ptrace(libc::PTRACE_SINGLESTEP, self.pid, 0, 0)?;
        while self.trace.steps < self.limits.steps {
            let Ok((tid, status)) = wait() else { break };
            if !libc::WIFSTOPPED(status) {
                threads.remove(&tid);
                continue;
            }
            let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
            if event == libc::PTRACE_EVENT_EXEC {
                break;
            }
            let is_new = !threads.contains_key(&tid);
            let thread = threads.entry(tid).or_default();
            let mut pass = 0;
            if event == 0 && signal == libc::SIGTRAP {
                // A thread may be ended at any time; then the next wait says so.
                let _ = self.step(tid, thread);
            } else if event == 0 && !(is_new && signal == libc::SIGSTOP) {
                pass = signal;
                thread.at = None;
            }
            let request = match thread.skip {
                Some(_) => libc::PTRACE_CONT,
                None => libc::PTRACE_SINGLESTEP,
            };
            let _ = ptrace(request, tid, 0, pass as usize);
        }
        let pairs = self.known.into_iter();
        self.trace.transfers = pairs.map(|((from, to), how)| (from, to, how)).collect();
        self.trace.transfers.sort_unstable();
        self.trace.arrivals = self.arrivals.into_iter().collect();
        Ok(self.trace)
    }

    fn step(&mut self, tid: i32, thread: &mut Thread) -> io::Result<()> {
        let at = peek_user(tid, RIP)?;
        if let Some(skip) = &thread.skip {
            if at != skip.back || peek_user(tid, RSP)? <= skip.stack {
                return Ok(());
            }
            self.known.insert((skip.call, at), How::CallReturn);
            thread.skip = None;
            thread.at = Some(at);
            return set_breakpoint(tid, None);
        }
        self.trace.steps += 1;
        let Some(from) = thread.at.replace(at) else {
            self.arrive(at);
            return Ok(());
        };
        let how = match self.known.get(&(from, at)) {
            Some(&how) => how,
            None => self.learn(from, at),
        };
        if how == How::Call {
            let count = self.calls.entry(at).or_default();
            *count += 1;
            if *count > self.limits.calls {
                let stack = peek_user(tid, RSP)?;
                let mut word = [0; 8];
                self.memory.read_exact_at(&mut word, stack)?;
                let back = u64::from_ne_bytes(word);
                set_breakpoint(tid, Some(back))?;
                thread.skip = Some(Skip { call: from, back, stack });
                self.trace.skipped += 1;
            }
        }
        Ok(())
    }

    fn learn(&mut self, from: u64, to: u64) -> How {
        let mut bytes = [0; 15];
        let length = self.memory.read_at(&mut bytes, from).unwrap_or(0);
        let instruction = Decoder::with_ip(64, &bytes[..length], from, 0).decode();
        let how = How::of(&instruction);
        self.known.insert((from, to), how);
        self.place(to);
        how
    }

    fn arrive(&mut self, at: u64) {
        self.arrivals.insert(at);
        self.place(at);
    }

    /// Sees to it that the file is known that an address belongs to.
    fn place(&mut self, at: u64) {
        let is_known =
            self.trace.mappings.iter().any(|mapping| (mapping.start..mapping.end).contains(&at));
        if is_known || !self.strange.insert(at >> 12) {
            return;
        }
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        for line in maps.lines() {
            let Some(mapping) = parse_mapping(line) else { continue };
            if !self.trace.mappings.contains(&mapping) {
                self.trace.mappings.push(mapping);
            }
        }
    }
}

/// A line of `/proc/pid/maps`, if it is of a file's code.
fn parse_mapping(line: &str) -> Option<Mapping> {
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let flags = fields.next()?;
    let offset = fields.next()?;
    let path = fields.nth(2).filter(|path| path.starts_with('/') && flags.contains('x'))?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    Some(Mapping {
        path: path.into(),
        start: number(start)?,
        end: number(end)?,
        offset: number(offset)?,
    })
}
