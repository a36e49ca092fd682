//! What is known of a program that is debugged, and having all its threads stand still.

use super::held::Held;
use super::kernel::{CALL_LENGTH, end_of, options, wait_for_any};
use super::points::Points;
use super::thread::{Place, Thread, no_thread};
use crate::debuggee::Stop;
use std::collections::{BTreeMap, VecDeque};
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::time::{Duration, Instant};
use weft_host::clone::{CloneOptions, DebugHold};
use weft_host::proc::Tid;
use weft_host::{Launch, Result, ptrace};

/// How long a thread may take to stand still before it is asked once more.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long to wait for threads that the kernel does not stop: they may be there for as long as they like.
const LIMIT: Duration = Duration::from_secs(5);

/// How long threads are looked after without a break.
const ATTENTION: Duration = Duration::from_micros(300);

/// A program that runs from a clone, and is debugged. All of it belongs to one thread: the one that took it.
#[derive(Debug)]
pub struct Session {
    pub(super) hold: DebugHold,
    pub(super) child: Option<Child>,
    pub(super) threads: BTreeMap<Tid, Thread>,
    pub(super) forks: Held,
    pub(super) points: Points,
    /// What has happened and was not reported yet.
    pub(super) pending: VecDeque<Stop>,
    /// Whether the program is to stop.
    pub(super) is_interrupted: Arc<AtomicBool>,
    /// The thread that is stopped first then.
    pub(super) first: Arc<AtomicI32>,
    pub(super) end: Option<Stop>,
    /// Whether the end of the process is left to its parent to collect.
    pub(super) is_joined: bool,
}

impl Session {
    /// Starts a program, which stands still before its first instruction.
    pub fn launch(launch: Launch, options: CloneOptions) -> Result<Self> {
        let (hold, child, threads) = DebugHold::launch(launch, options)?;
        Self::begin(hold, Some(child), threads)
    }

    /// Takes over a running process, all of whose threads then stand still.
    pub fn attach(pid: Tid, options: CloneOptions) -> Result<Self> {
        let (hold, threads) = DebugHold::attach(pid, options)?;
        Self::begin(hold, None, threads)
    }

    /// Joins a program that runs from its clone already, all of whose threads then stand still.
    pub fn join(hold: DebugHold) -> Result<Self> {
        let threads = hold.join(options(false))?;
        let mut session = Self::new(hold, None);
        session.is_joined = true;
        session.threads = threads.into_iter().map(|tid| (tid, Thread::new())).collect();
        session.stop_all()?;
        Ok(session)
    }

    /// The program, for tools that measure it meanwhile, and for the caller that takes the engine out of it in the end.
    pub fn cloned(&self) -> weft_host::clone::Cloned {
        self.hold.cloned()
    }

    pub(super) fn new(hold: DebugHold, child: Option<Child>) -> Self {
        let first = Arc::new(AtomicI32::new(hold.pid()));
        Self {
            hold,
            child,
            threads: BTreeMap::new(),
            forks: Held::default(),
            points: Points::default(),
            pending: VecDeque::new(),
            is_interrupted: Arc::default(),
            first,
            end: None,
            is_joined: false,
        }
    }

    pub(super) fn begin(hold: DebugHold, child: Option<Child>, threads: Vec<Tid>) -> Result<Self> {
        let mut session = Self::new(hold, child);
        session.meet(threads)?;
        if session.child.is_some() {
            session.has_executed();
        }
        Ok(session)
    }

    /// Waits until threads stand still that have just been brought to the engine.
    pub(super) fn meet(&mut self, threads: Vec<Tid>) -> Result<()> {
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
    pub(super) fn has_executed(&mut self) {
        if let Some(thread) = self.threads.get_mut(&self.hold.pid()) {
            thread.call = libc::SYS_execve as u64;
        }
    }

    /// Asks a thread to stop as soon as it can.
    pub(super) fn ask(&mut self, tid: Tid) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.is_asked = true;
            thread.stop_or_ask(self.hold.pid(), tid);
        }
    }

    /// Stops all threads.
    pub(super) fn stop_all(&mut self) -> Result<()> {
        self.ask_others();
        self.await_all()
    }

    /// Asks all threads that run and were not asked yet to stop.
    pub(super) fn ask_others(&mut self) {
        let unasked = self.running().filter(|(_, thread)| !thread.is_asked);
        for tid in unasked.map(|(tid, _)| tid).collect::<Vec<_>>() {
            self.ask(tid);
        }
    }

    pub(super) fn running(&self) -> impl Iterator<Item = (Tid, &Thread)> {
        let is_running = |thread: &&Thread| matches!(thread.place, Place::Running);
        self.threads.iter().map(|(&tid, thread)| (tid, thread)).filter(move |(_, t)| is_running(t))
    }

    /// Waits until no thread runs any more, or the program has ended.
    pub(super) fn await_all(&mut self) -> Result<()> {
        let began = Instant::now();
        let mut asked = began;
        while self.end.is_none() && self.running().next().is_some() {
            if let Some((tid, status)) = self.wait_for_any(libc::WNOHANG)? {
                if let Some(stop) = self.look(tid, status)? {
                    self.keep(stop);
                }
                // Threads that were started meanwhile.
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

    /// Waits for any thread of the program. The end of the process is left to its parent, if that collects it.
    pub(super) fn wait_for_any(&self, how: i32) -> Result<Option<(Tid, i32)>> {
        if self.is_joined
            && let Some(end) = end_of(self.hold.pid(), how)
        {
            return Ok(Some((self.hold.pid(), end)));
        }
        wait_for_any(how)
    }

    /// Remembers what has happened while others were waited for. A thread at a breakpoint comes to it again; an end is
    /// known.
    pub(super) fn keep(&mut self, stop: Stop) {
        match stop {
            Stop::Exited(_) | Stop::Killed(_) | Stop::Breakpoint(_) | Stop::Interrupted(_) => {}
            _ => self.pending.push_back(stop),
        }
    }

    pub(super) fn thread(&self, tid: Tid) -> Result<&Thread> {
        self.threads.get(&tid).ok_or_else(|| no_thread(tid))
    }
}

impl Session {
    /// Where a thread goes on that is in a system call of the program's: behind the instruction by which the engine
    /// makes all of them.
    pub(super) fn call_end(&self) -> u64 {
        self.hold.debug().call.load(Relaxed) + CALL_LENGTH
    }

    /// Whether a thread with these registers is in a system call of the program's.
    pub(super) fn is_in_call(&self, registers: &weft_host::Registers) -> bool {
        registers.0.rip == self.call_end() && registers.0.orig_rax as i64 >= 0
    }
}
