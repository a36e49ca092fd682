//! The debug engine: a program that runs from a clone, as a debugger is to see it.
//!
//! The kernel stops threads, and the engine in the program makes of every stop one at an instruction of the program's
//! own (`crates/agent/src/clone/halt.rs`). What is left to do here is to know where each thread stands, to ask for
//! stops, and to decide who hears of a signal first.

mod context;
mod forks;
mod in_call;
mod points;
mod signal;
mod thread;

use crate::debuggee::{
    Breakpoint, Debuggee, Interrupter, Motion, Registers, Resumption, Stop, Watchpoint,
};
use context::{Context, normalise, set_xmm};
use forks::Forks;
use in_call::forks;
use points::Points;
use signal::{Info, ask, is_asking, is_fault, number, plain, send};
use std::collections::{BTreeMap, VecDeque};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::time::{Duration, Instant};
use thread::{Place, Thread, no_thread, read_halt, write_halt};
use weft_abi::halt::{EARLY, Halt, catches, motion, reason};
use weft_host::checks::seccomp::permits_restart;
use weft_host::clone::{CloneOptions, Grip};
use weft_host::proc::{self, Tid};
use weft_host::{Error, ErrorKind, Launch, Result, Stopped, TargetAddr, memory, ptrace};

/// How long a thread may take to stand still before it is asked once more.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long to wait for threads that the kernel does not stop: they may be there for as long as they like.
const LIMIT: Duration = Duration::from_secs(5);
/// How long threads are looked after without a break.
const ATTENTION: Duration = Duration::from_micros(300);
/// What the kernel stops a thread with that comes to a system call, if it is asked to.
const CALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// What the kernel calls the end of a system call that is to be made again.
const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
/// What the kernel says of a signal that is its own.
const SI_KERNEL: i32 = 0x80;
/// The length of the instruction that makes a system call.
const CALL_LENGTH: u64 = 2;
const RAX: usize = 0;
const RCX: usize = 1;
const R11: usize = 11;

/// A program that runs from a clone, and is debugged. All of it belongs to one thread: the one that took it.
#[derive(Debug)]
pub struct Session {
    grip: Grip,
    child: Option<Child>,
    threads: BTreeMap<Tid, Thread>,
    forks: Forks,
    points: Points,
    /// What has happened and was not told yet.
    news: VecDeque<Stop>,
    /// Whether somebody wants the program to stop.
    is_interrupted: Arc<AtomicBool>,
    /// Who is asked then.
    first: Arc<AtomicI32>,
    end: Option<Stop>,
    /// Whether somebody else is to hear how it ends.
    is_joined: bool,
}

impl Session {
    /// Starts a program, which stands still before its first instruction.
    pub fn launch(launch: Launch, options: CloneOptions) -> Result<Self> {
        let (grip, child, threads) = Grip::launch(launch, options)?;
        Self::begin(grip, Some(child), threads)
    }

    /// Takes over a running process, all of whose threads then stand still.
    pub fn attach(pid: Tid, options: CloneOptions) -> Result<Self> {
        let (grip, threads) = Grip::attach(pid, options)?;
        Self::begin(grip, None, threads)
    }

    /// Joins a program that runs from its clone already, all of whose threads then stand still.
    pub fn join(grip: Grip) -> Result<Self> {
        let threads = grip.join(options(false))?;
        let mut session = Self::new(grip, None);
        session.is_joined = true;
        session.threads = threads.into_iter().map(|tid| (tid, Thread::new())).collect();
        session.stop_all()?;
        Ok(session)
    }

    /// The program, for tools that measure it meanwhile, and for who takes the engine out of it in the end.
    pub fn cloned(&self) -> weft_host::clone::Cloned {
        self.grip.cloned()
    }

    fn new(grip: Grip, child: Option<Child>) -> Self {
        let first = Arc::new(AtomicI32::new(grip.pid()));
        Self {
            grip,
            child,
            threads: BTreeMap::new(),
            forks: Forks::default(),
            points: Points::default(),
            news: VecDeque::new(),
            is_interrupted: Arc::default(),
            first,
            end: None,
            is_joined: false,
        }
    }

    fn begin(grip: Grip, child: Option<Child>, threads: Vec<Tid>) -> Result<Self> {
        let mut session = Self::new(grip, child);
        session.meet(threads)?;
        if session.child.is_some() {
            session.has_executed();
        }
        Ok(session)
    }

    /// Has threads stand still that have just been brought to the engine.
    fn meet(&mut self, threads: Vec<Tid>) -> Result<()> {
        let options = options(self.child.is_some());
        for &tid in &threads {
            let failed = |e: std::io::Error| ptrace::failed("hold", tid, &e);
            ptrace::set_options(tid, options).map_err(failed)?;
            ptrace::resume(tid, 0).map_err(failed)?;
            let thread = Thread { is_asked: true, is_beginning: true, ..Thread::new() };
            self.threads.insert(tid, thread);
        }
        self.await_all()
    }

    /// A program that begins has just come out of a system call.
    fn has_executed(&mut self) {
        if let Some(thread) = self.threads.get_mut(&self.grip.pid()) {
            thread.call = libc::SYS_execve as u64;
        }
    }

    /// Tells a thread to stand still as soon as it can.
    fn ask(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_asked = true;
            thread.stop_or_ask(self.grip.pid(), tid);
        }
    }

    /// Has all threads stand still.
    fn stop_all(&mut self) -> Result<()> {
        self.ask_others();
        self.await_all()
    }

    /// Asks all who run and were not asked yet.
    fn ask_others(&mut self) {
        let unasked = self.running().filter(|(_, thread)| !thread.is_asked);
        for tid in unasked.map(|(tid, _)| tid).collect::<Vec<_>>() {
            self.ask(tid);
        }
    }

    fn running(&self) -> impl Iterator<Item = (Tid, &Thread)> {
        let is_running = |thread: &&Thread| matches!(thread.place, Place::Running);
        self.threads.iter().map(|(&tid, thread)| (tid, thread)).filter(move |(_, t)| is_running(t))
    }

    /// Waits until no thread runs any more, or the program has ended.
    fn await_all(&mut self) -> Result<()> {
        let began = Instant::now();
        let mut asked = began;
        while self.end.is_none() && self.running().next().is_some() {
            if let Some((tid, status)) = self.wait_for_any(libc::WNOHANG)? {
                if let Some(stop) = self.look(tid, status)? {
                    self.keep(stop);
                }
                // Whoever was born meanwhile.
                self.ask_others();
                continue;
            }
            if began.elapsed() > LIMIT {
                break;
            }
            if asked.elapsed() > PATIENCE {
                asked = Instant::now();
                let late = self.running().filter(|(_, thread)| !thread.is_beginning);
                let late: Vec<Tid> = late.map(|(tid, _)| tid).collect();
                late.into_iter().for_each(|tid| self.ask(tid));
            }
            if began.elapsed() > ATTENTION {
                std::thread::sleep(ATTENTION / 4);
            } else {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Waits for any thread of the program. That the process has ended is left for others to hear, if there are any.
    fn wait_for_any(&self, how: i32) -> Result<Option<(Tid, i32)>> {
        if self.is_joined
            && let Some(end) = end_of(self.grip.pid(), how)
        {
            return Ok(Some((self.grip.pid(), end)));
        }
        wait_for_any(how)
    }

    /// Remembers what has happened while others were waited for. Who is at a breakpoint comes to it again; an end is
    /// known.
    fn keep(&mut self, stop: Stop) {
        match stop {
            Stop::Exited(_) | Stop::Killed(_) | Stop::Breakpoint(_) | Stop::Interrupted(_) => {}
            _ => self.news.push_back(stop),
        }
    }

    /// What a thread that was waited for has done. Nothing if it goes on, or if it stands still because it was asked
    /// to.
    fn look(&mut self, tid: Tid, status: i32) -> Result<Option<Stop>> {
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            return Ok(self.gone(tid, status));
        }
        if self.forks.is_stranger(tid) {
            self.forks.part_from(tid);
            return Ok(None);
        }
        let signal = libc::WSTOPSIG(status);
        if status >> 16 != libc::PTRACE_EVENT_STOP {
            self.is_not_stopped(tid, status);
        }
        match status >> 16 {
            0 => return self.signalled(tid, signal),
            libc::PTRACE_EVENT_CLONE => {
                if let Ok(child) = ptrace::event_message(tid) {
                    self.threads.entry(child as Tid).or_insert_with(Thread::new);
                }
            }
            libc::PTRACE_EVENT_FORK => return self.forked(tid, false),
            libc::PTRACE_EVENT_VFORK => return self.forked(tid, true),
            libc::PTRACE_EVENT_VFORK_DONE => return self.vfork_done(tid),
            libc::PTRACE_EVENT_EXEC => return self.executed(),
            libc::PTRACE_EVENT_STOP if !self.threads.contains_key(&tid) => {
                // It is here before it was heard of.
                if proc::threads(self.grip.pid())?.contains(&tid) {
                    self.threads.insert(tid, Thread::new());
                } else {
                    self.forks.part_from(tid);
                    return Ok(None);
                }
            }
            libc::PTRACE_EVENT_STOP => return self.stopped(tid),
            _ => {}
        }
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_resuming = false;
        }
        let_go(tid, 0);
        Ok(None)
    }

    fn gone(&mut self, tid: Tid, status: i32) -> Option<Stop> {
        self.threads.remove(&tid);
        self.forks.forget(tid);
        if tid != self.grip.pid() {
            if self.first.load(Relaxed) == tid {
                let other = self.threads.keys().next().copied().unwrap_or(self.grip.pid());
                self.first.store(other, Relaxed);
            }
            return None;
        }
        self.threads.clear();
        let stop = match libc::WIFEXITED(status) {
            true => Stop::Exited(libc::WEXITSTATUS(status)),
            false => Stop::Killed(libc::WTERMSIG(status) as u8),
        };
        self.end = Some(stop);
        Some(stop)
    }

    /// The process has become another program: of its threads there is one.
    fn executed(&mut self) -> Result<Option<Stop>> {
        self.threads.clear();
        self.news.clear();
        self.points = Points::default();
        let Some(threads) = self.grip.follow()? else { return Ok(None) };
        self.meet(threads)?;
        self.has_executed();
        Ok(Some(Stop::Exec(self.grip.pid())))
    }

    /// A thread is on its way to handle a signal.
    fn signalled(&mut self, tid: Tid, signal: i32) -> Result<Option<Stop>> {
        let failed = |e: std::io::Error| ptrace::failed("look at", tid, &e);
        let registers = ptrace::registers(tid).map_err(failed)?;
        if signal == CALL_STOP {
            self.came_to_call(tid, &registers);
            return Ok(None);
        }
        let debug = self.grip.debug();
        let is_debugged = registers.0.rip == debug.trap.load(Relaxed);
        if signal == libc::SIGTRAP && is_debugged {
            return self.halted(tid, &registers);
        }
        let info = ptrace::signal_info(tid).map_err(failed)?;
        let call = debug.call.load(Relaxed) + CALL_LENGTH;
        let is_in_call = registers.0.rip == call && registers.0.orig_rax as i64 >= 0;
        let is_wanted = debug.passed.load(Relaxed) >> (signal - 1) & 1 == 0;
        let Some(thread) = self.threads.get_mut(&tid) else {
            let_go(tid, signal);
            return Ok(None);
        };
        if is_asking(&info) {
            if !is_in_call {
                in_call::heed(tid, thread, signal, self.is_interrupted.load(Acquire));
                return Ok(None);
            }
            // It stands still without the signal.
            thread.stop_or_ask(self.grip.pid(), tid);
            let_go(tid, 0);
            return Ok(None);
        }
        // It hears of something that ends a call.
        thread.is_resuming = false;
        let is_passed = !is_wanted && matches!(thread.motion, Motion::Continue);
        if is_fault(&info) || is_passed {
            let_go(tid, signal);
        } else if thread.let_through.take_if(|it| *it == signal).is_some() {
            if let Some(info) = thread.let_through_as.take() {
                let _ = ptrace::set_signal_info(tid, &info);
            }
            let_go(tid, signal);
        } else if is_in_call {
            thread.stop_in_call(registers, Some(info));
            let pc = self.pc_in_call(tid, &registers)?;
            // The kernel tells of the call's end, and of a step that it has ended, before it tells of the signal.
            let Some(thread) = self.threads.get_mut(&tid) else { return Ok(None) };
            let number = registers.0.orig_rax;
            let first = if thread.has_stepped(pc) {
                Some(Stop::Stepped(tid))
            } else if std::mem::take(&mut thread.is_call_caught) {
                thread.is_end_heard = true;
                Some(Stop::SystemCall { tid, number, is_return: true })
            } else {
                None
            };
            thread.is_unheard = first.is_some();
            return Ok(first.or(Some(Stop::Signal(tid, signal as u8))));
        } else if proc::is_caught(tid, signal) {
            // The engine tells of it when the program could hear of it.
            let_go(tid, signal);
        } else {
            thread.withheld = Some(info);
            self.ask(tid);
            let_go(tid, 0);
        }
        Ok(None)
    }

    fn halted(&mut self, tid: Tid, registers: &weft_host::Registers) -> Result<Option<Stop>> {
        let place = TargetAddr(registers.0.gs_base + self.grip.debug().halt.load(Relaxed));
        let halt = read_halt(tid, place)?;
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(None) };
        thread.place = Place::Halted(halt);
        (thread.is_beginning, thread.is_resuming, thread.is_bound) = (false, false, false);
        // The engine has not left it to the kernel.
        thread.let_through = None;
        let is_call = matches!(halt.reason, reason::CALL | reason::RETURN);
        let left_call = std::mem::replace(&mut thread.left_call, u64::MAX);
        thread.call = match halt.reason {
            _ if is_call => halt.about,
            reason::STEPPED if halt.about != 0 => halt.about - 1,
            // Into a handler, on the way out of the kernel.
            reason::STEPPED => left_call,
            reason::SIGNAL if halt.about & EARLY != 0 => left_call,
            _ => u64::MAX,
        };
        Ok(Some(match halt.reason {
            reason::BREAKPOINT => Stop::Breakpoint(tid),
            reason::STEPPED => Stop::Stepped(tid),
            reason::SIGNAL => Stop::Signal(tid, halt.about as u8),
            reason::WATCHED => {
                Stop::Watch { tid, address: halt.about, kind: self.points.kind_at(halt.about) }
            }
            reason::CALL => Stop::SystemCall { tid, number: halt.about, is_return: false },
            reason::RETURN => Stop::SystemCall { tid, number: halt.about, is_return: true },
            _ => match &thread.withheld {
                Some(info) => Stop::Signal(tid, number(info) as u8),
                None => return self.answered(tid),
            },
        }))
    }

    /// A thread stands still because it was asked to: for all to stand still, because somebody wants to stop the
    /// program, or long ago. Then it goes on.
    fn answered(&mut self, tid: Tid) -> Result<Option<Stop>> {
        if self.is_interrupted.swap(false, AcqRel) {
            return Ok(Some(Stop::Interrupted(tid)));
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return Ok(None) };
        if !std::mem::take(&mut thread.is_asked) {
            let motion = thread.motion;
            self.let_run(&Resumption { tid, motion, signal: None })?;
        }
        Ok(None)
    }

    /// The signal that a thread has stopped for and not been given yet. A fault is none: it comes again by itself,
    /// unless it was the debugger's, which lets functions that it calls return to where there is no code.
    fn undelivered(&mut self, tid: Tid) -> Option<u8> {
        let thread = self.thread(tid).ok()?;
        let is_told = matches!(thread.place, Place::Halted(Halt { reason: reason::SIGNAL, .. }));
        if !is_told && thread.signal().is_none() {
            return None;
        }
        let info = self.signal_info(tid).ok()?;
        (!is_fault(&info)).then(|| number(&info) as u8)
    }

    fn let_run(&mut self, resumption: &Resumption) -> Result<()> {
        let tid = resumption.tid;
        if let Some(signal) = self.set_out(resumption)? {
            // A failure means that it was killed; waiting tells.
            let _ = match self.thread(tid)?.is_resuming {
                true => ptrace::resume_to_call(tid, signal),
                false => ptrace::resume(tid, signal),
            };
        }
        Ok(())
    }

    fn thread(&self, tid: Tid) -> Result<&Thread> {
        self.threads.get(&tid).ok_or_else(|| no_thread(tid))
    }

    /// Prepares a thread to go on. Returns the signal that it is to be let go with; nothing if it runs already.
    fn set_out(&mut self, resumption: &Resumption) -> Result<Option<i32>> {
        let Resumption { tid, motion, signal } = *resumption;
        let halt_offset = self.grip.debug().halt.load(Relaxed);
        let thread = self.threads.get_mut(&tid).ok_or_else(|| no_thread(tid))?;
        let wanted = signal.map_or(0, i32::from);
        (thread.motion, thread.is_asked) = (motion, false);
        let (motion, range) = match motion {
            Motion::Continue => (motion::GO, [0; 2]),
            Motion::Step => (motion::STEP, [0; 2]),
            Motion::StepWithin(start, end) => (motion::STEP_WITHIN, [start, end]),
        };
        let withheld = thread.withheld.take();
        let described = thread.described.take().filter(|info| number(info) == wanted);
        match std::mem::replace(&mut thread.place, Place::Running) {
            Place::Running => Ok(None),
            Place::Halted(mut halt) => {
                thread.is_call_caught = motion == motion::GO && halt.reason == reason::CALL;
                thread.is_call_stepped = motion != motion::GO && halt.reason != reason::CALL;
                (halt.motion, halt.range, halt.heard) = (motion, range, 0);
                halt.signal = wanted as u64;
                thread.left_call = if wanted == 0 { u64::MAX } else { thread.call };
                if let Some(info) = withheld.filter(|info| number(info) == wanted) {
                    // What the program does not handle is the kernel's to deal with.
                    halt.signal = 0;
                    thread.let_through = Some(wanted);
                    send(self.grip.pid(), tid, &info);
                } else if wanted != 0 {
                    // What the program does not handle the engine leaves to the kernel, too.
                    thread.let_through = (!proc::is_caught(tid, wanted)).then_some(wanted);
                    if let Some(info) = described {
                        memory::write(tid, TargetAddr(halt.info), &info)?;
                    }
                }
                let registers =
                    ptrace::registers(tid).map_err(|e| ptrace::failed("read", tid, &e))?;
                write_halt(tid, TargetAddr(registers.0.gs_base + halt_offset), &halt)?;
                let context = Context::read(tid, halt.context)?;
                thread.is_resuming = motion == motion::GO && in_call::is_resuming(tid, &context);
                if RESTARTS.contains(&context.rax()) && thread.call as i64 >= 0 {
                    context.restart(thread.call, CALL_LENGTH)?;
                }
                Ok(Some(0))
            }
            Place::InCall(mut registers) => {
                let place = TargetAddr(registers.0.gs_base + halt_offset);
                let mut halt = read_halt(tid, place)?;
                (halt.motion, halt.range, halt.told) = (motion, range, wanted as u64);
                halt.heard = std::mem::take(&mut thread.is_end_heard).into();
                write_halt(tid, place, &halt)?;
                let mut is_spared = wanted == 0 && registers.spare_stopped_call();
                if registers.is_resumed_by_call() && !permits_restart(tid) {
                    // A sleep that lasts longer is better than one that the filter ends with the process.
                    registers.begin_call_again();
                    is_spared = true;
                }
                if is_spared {
                    ptrace::set_registers(tid, &registers)
                        .map_err(|e| ptrace::failed("move", tid, &e))?;
                }
                let is_new =
                    wanted != 0 && thread.interrupted_by.is_none_or(|info| number(&info) != wanted);
                thread.interrupted_by = None;
                thread.left_call = if wanted == 0 { u64::MAX } else { registers.0.orig_rax };
                let said = described.or(is_new.then(|| plain(wanted)));
                if std::mem::take(&mut thread.is_stopped) && wanted != 0 {
                    // With such a stop the kernel takes no signal.
                    (thread.let_through, thread.let_through_as) = (Some(wanted), said);
                    send(self.grip.pid(), tid, &plain(wanted));
                    return Ok(Some(0));
                }
                if let Some(info) = said
                    && ptrace::set_signal_info(tid, &info).is_err()
                {
                    thread.let_through = Some(wanted);
                }
                Ok(Some(wanted))
            }
        }
    }
}

impl Debuggee for Session {
    fn pid(&self) -> Tid {
        self.grip.pid()
    }

    fn threads(&self) -> Vec<Tid> {
        let pid = self.grip.pid();
        let first = self.threads.contains_key(&pid).then_some(pid);
        first.into_iter().chain(self.threads.keys().copied().filter(|&tid| tid != pid)).collect()
    }

    fn thread_name(&self, tid: Tid) -> String {
        let path = format!("/proc/{}/task/{tid}/comm", self.grip.pid());
        std::fs::read_to_string(path).map(|name| name.trim_end().into()).unwrap_or_default()
    }

    fn registers(&mut self, tid: Tid) -> Result<Registers> {
        let failed = |e: std::io::Error| ptrace::failed("read", tid, &e);
        let thread = self.thread(tid)?;
        match thread.place {
            Place::Running => Err(runs(tid)),
            Place::InCall(native) => self.registers_in_call(tid, &native),
            Place::Halted(halt) => {
                let native = ptrace::registers(tid).map_err(failed)?;
                let context = Context::read(tid, halt.context)?;
                let mut registers = from_native(&native);
                registers.general = context.general();
                (registers.rip, registers.rflags) = (context.rip(), context.rflags());
                registers.gs_base = halt.gs_base;
                registers.orig_rax = thread.call;
                if halt.reason == reason::CALL {
                    // As the kernel shows it: behind the instruction, with a result that says that there is none.
                    registers.rip += CALL_LENGTH;
                    registers.general[RAX] = -i64::from(libc::ENOSYS) as u64;
                    registers.general[RCX] = registers.rip;
                    registers.general[R11] = registers.rflags;
                }
                registers.vectors = normalise(&context.vectors()?);
                Ok(registers)
            }
        }
    }

    fn set_registers(&mut self, tid: Tid, registers: &Registers) -> Result<()> {
        let failed = |e: std::io::Error| ptrace::failed("write", tid, &e);
        if let Place::InCall(native) = self.thread(tid)?.place {
            if self.registers_in_call(tid, &native)? == *registers {
                return Ok(());
            }
            if self.thread(tid)?.is_in_fork() {
                return Err(forks(tid));
            }
            self.leave_call(tid, &native)?;
        }
        let halt_offset = self.grip.debug().halt.load(Relaxed);
        let thread = self.threads.get_mut(&tid).ok_or_else(|| no_thread(tid))?;
        let Place::Halted(halt) = &mut thread.place else { return Err(runs(tid)) };
        thread.call = registers.orig_rax;
        let mut context = Context::read(tid, halt.context)?;
        let (mut general, mut rip) = (registers.general, registers.rip);
        if halt.reason == reason::CALL {
            // It stands before the instruction.
            rip -= CALL_LENGTH;
            general[RAX] = registers.orig_rax;
            [general[RCX], general[R11]] = [RCX, R11].map(|index| context.general()[index]);
        }
        context.set(&general, rip, registers.rflags);
        context.write()?;
        context.set_vectors(&registers.vectors)?;
        let mut native = ptrace::registers(tid).map_err(failed)?;
        if native.0.fs_base != registers.fs_base {
            native.0.fs_base = registers.fs_base;
            ptrace::set_registers(tid, &native).map_err(failed)?;
        }
        if halt.gs_base != registers.gs_base {
            halt.gs_base = registers.gs_base;
            write_halt(tid, TargetAddr(native.0.gs_base + halt_offset), halt)?;
        }
        Ok(())
    }

    fn signal_info(&mut self, tid: Tid) -> Result<Info> {
        let thread = self.thread(tid)?;
        if let Some(info) = thread.signal() {
            return Ok(info);
        }
        match thread.place {
            Place::Halted(halt) if halt.reason == reason::SIGNAL => {
                let bytes = memory::read(tid, TargetAddr(halt.info), 128)?;
                bytes.try_into().map_err(|_| no_thread(tid))
            }
            // What a breakpoint and a step have natively.
            place => {
                let code = match place {
                    Place::Halted(Halt { reason: reason::STEPPED, .. }) => libc::TRAP_TRACE,
                    Place::Halted(Halt { reason: reason::WATCHED, .. }) => libc::TRAP_HWBKPT,
                    Place::Halted(Halt { reason: reason::BREAKPOINT, .. }) => SI_KERNEL,
                    _ => libc::SI_USER,
                };
                let mut info = [0; 128];
                info[..4].copy_from_slice(&libc::SIGTRAP.to_ne_bytes());
                info[8..12].copy_from_slice(&code.to_ne_bytes());
                Ok(info)
            }
        }
    }

    fn set_signal_info(&mut self, tid: Tid, info: &Info) -> Result<()> {
        let thread = self.threads.get_mut(&tid).ok_or_else(|| no_thread(tid))?;
        thread.described = Some(*info);
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> usize {
        let read =
            memory::read_while_there(self.grip.pid(), TargetAddr(address), bytes.len() as u64);
        bytes[..read.len()].copy_from_slice(&read);
        read.len()
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<()> {
        let pid = self.grip.pid();
        memory::force_write(pid, pid, TargetAddr(address), bytes)?;
        self.points.has_written(address, address + bytes.len() as u64);
        Ok(())
    }

    fn hidden(&self) -> Vec<u64> {
        let maps = proc::maps(self.grip.pid()).unwrap_or_default();
        let own = maps.iter().filter(|mapping| self.grip.is_own(&maps, mapping));
        own.map(|mapping| mapping.start.0).collect()
    }

    fn set_breakpoints(&mut self, all: Vec<Breakpoint>) {
        self.points.set_breakpoints(all);
    }

    fn set_watchpoints(&mut self, all: Vec<Watchpoint>) {
        self.points.wanted.watches = all;
    }

    fn catch_system_calls(&mut self, which: Option<Vec<u64>>, on: bool) {
        let debug = self.grip.debug();
        let mut set = [0u64; 8];
        for number in which.iter().flatten().filter(|&&number| number < 512) {
            set[*number as usize / 64] |= 1 << (number % 64);
        }
        for (place, value) in debug.calls.iter().zip(set) {
            place.store(value, Relaxed);
        }
        let catches = match (on, which) {
            (false, _) => catches::NONE,
            (true, Some(_)) => catches::SOME,
            (true, None) => catches::ALL,
        };
        debug.catches.store(catches, Relaxed);
    }

    fn pass_signals(&mut self, numbers: &[u8]) {
        // Any of these may be what has come of a breakpoint, such as the one that a called function returns to.
        let breakpoints = [libc::SIGILL, libc::SIGTRAP, libc::SIGSEGV].map(|signal| signal as u8);
        let may_pass =
            |&&number: &&u8| (1..=64).contains(&number) && !breakpoints.contains(&number);
        let set = numbers.iter().filter(may_pass);
        let set = set.fold(0, |set, number| set | 1 << (number - 1));
        self.grip.debug().passed.store(set, Relaxed);
    }

    fn resume(&mut self, threads: &[Resumption]) -> Result<()> {
        for thread in threads {
            self.tell_unheard(thread);
        }
        self.let_children_go(self.known_children());
        if self.end.is_some() || !self.news.is_empty() {
            return Ok(());
        }
        // Who steps over a breakpoint has taken it out for that; a step does not come to any.
        let is_more = threads.iter().any(|thread| !matches!(thread.motion, Motion::Step));
        if is_more || self.points.is_step_concerned() {
            self.points.settle(self.grip.debug());
        }
        for thread in threads {
            self.let_run(thread)?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<Stop> {
        let stop = loop {
            if let Some(stop) = self.news.pop_front().or(self.end) {
                break stop;
            }
            if let Some((tid, status)) = self.wait_for_any(0)?
                && let Some(stop) = self.look(tid, status)?
            {
                break stop;
            }
        };
        self.stop_all()?;
        self.is_interrupted.store(false, Release);
        Ok(stop)
    }

    fn interrupter(&self) -> Interrupter {
        let (pid, first) = (self.grip.pid(), self.first.clone());
        let is_interrupted = self.is_interrupted.clone();
        Interrupter::new(move || {
            if !is_interrupted.swap(true, Acquire) {
                ask(pid, first.load(Relaxed));
            }
        })
    }

    fn detach(&mut self, signals: &[u8]) -> Result<()> {
        let debug = self.grip.debug();
        debug.pid.store(0, Relaxed);
        debug.count.store(0, Relaxed);
        debug.version.fetch_add(1, Release);
        self.forget_forks();
        for tid in self.threads() {
            let signal = self.undelivered(tid).filter(|it| signals.contains(it));
            self.part_from_thread(&Resumption { tid, motion: Motion::Continue, signal })?;
        }
        Ok(())
    }

    fn held(&mut self) -> Result<Stopped> {
        let is_halted = |thread: &Thread| matches!(thread.place, Place::Halted(_));
        if !self.threads.values().any(is_halted) {
            self.have_one_leave_call()?;
        }
        let halted = self.threads.iter().filter(|(_, thread)| is_halted(thread));
        let registers = halted.map(|(&tid, _)| {
            let failed = |e: std::io::Error| ptrace::failed("read", tid, &e);
            Ok((tid, ptrace::registers(tid).map_err(failed)?))
        });
        Ok(Stopped::adopt_all(self.grip.pid(), registers.collect::<Result<_>>()?))
    }

    fn tell_forks(&mut self, is_wanted: bool) {
        match is_wanted {
            true => self.forks.are_told = true,
            false => self.forget_forks(),
        }
    }

    fn children(&self) -> Vec<Tid> {
        self.known_children()
    }

    fn part_from_child(&mut self, child: Tid, ends: bool) {
        Self::part_from_child(self, child, ends);
    }

    fn go_with(&mut self, child: Tid) -> Result<()> {
        Self::go_with(self, child)
    }

    fn kill(&mut self) {
        self.forget_forks();
        // SAFETY: plain numbers.
        unsafe { libc::kill(self.grip.pid(), libc::SIGKILL) };
        while self.end.is_none() {
            match self.wait_for_any(0) {
                Ok(Some((tid, status))) => drop(self.look(tid, status)),
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }
}

/// What is to be heard of a thread; and whether it ends with its tracer.
fn options(is_own: bool) -> i32 {
    let options = libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACEVFORKDONE
        | libc::PTRACE_O_TRACEEXEC;
    options | if is_own { libc::PTRACE_O_EXITKILL } else { 0 }
}

/// Waits for any thread that this thread traces.
fn wait_for_any(how: i32) -> Result<Option<(Tid, i32)>> {
    let mut status = 0;
    // SAFETY: the kernel writes the status.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD | how) };
    if tid > 0 {
        return Ok(Some((tid, status)));
    }
    let error = std::io::Error::last_os_error();
    if tid == 0 || error.kind() == std::io::ErrorKind::Interrupted {
        return Ok(None);
    }
    Err(Error::new(ErrorKind::TargetGone, "the program is gone").why(error.to_string()))
}

/// Waits likewise, and says how a process has ended if that is the first to be heard of; it can be heard of again.
fn end_of(pid: Tid, how: i32) -> Option<i32> {
    let options = libc::WEXITED | libc::WSTOPPED | libc::__WALL | libc::__WNOTHREAD | libc::WNOWAIT;
    // SAFETY: plain numbers, which the kernel fills in.
    let (result, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(libc::P_ALL, 0, &raw mut info, options | how), info)
    };
    // SAFETY: the kernel wrote what it reports of a child.
    let (who, status) = unsafe { (info.si_pid(), info.si_status()) };
    if result != 0 || who != pid {
        return None;
    }
    match info.si_code {
        libc::CLD_EXITED => Some(status << 8),
        libc::CLD_KILLED | libc::CLD_DUMPED => Some(status),
        _ => None,
    }
}

/// Lets a stopped thread run. A failure means that it was killed; waiting will tell.
fn let_go(tid: Tid, signal: i32) {
    let _ = ptrace::resume(tid, signal);
}

/// What does not depend on where a thread is.
fn from_native(native: &weft_host::Registers) -> Registers {
    let r = &native.0;
    Registers {
        segments: [r.cs, r.ss, r.ds, r.es, r.fs, r.gs].map(|segment| segment as u16),
        fs_base: r.fs_base,
        orig_rax: r.orig_rax,
        ..Registers::default()
    }
}

fn runs(tid: Tid) -> Error {
    Error::new(ErrorKind::Timeout, format!("thread {tid} does not stand still"))
        .why("the kernel keeps it where nothing can be known of it")
        .advice("let the program go on and stop it again")
}
