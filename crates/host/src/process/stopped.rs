//! Stopping threads, and letting them go as if nothing had happened.

use super::noticed::noticed_by;
use super::proc::{self, Tid};
use super::ptrace::{self, CallSide, Event};
use super::turn::Turn;
use super::{memory, seccomp, status};
use crate::arch::{Disturbance, Registers, disturbance, syscall_name, waits_for_child};
use crate::base::worker::State;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

mod guard;

pub use super::noticed::Caution;

/// How long a thread may take to stop. One that is in the kernel cannot before it comes out.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often that is repeated for a thread that could run, but has not had its turn: on a machine that is
/// busy, or was paused itself.
const ROUNDS: u32 = 10;
/// How long one of several threads may take to stop that would all do.
const IMPATIENCE: Duration = Duration::from_millis(20);
/// The same for one that waits for its vforked child, where that may wait for a stopped thread.
const AT_VFORK: Duration = Duration::from_millis(2);
/// How long threads run that are let run for a moment.
const MOMENT: Duration = Duration::from_micros(30);
/// How long to sleep when no thread has anything to report, at least and at most.
const NAP: Duration = Duration::from_micros(20);
const LONG_NAP: Duration = Duration::from_micros(500);
/// Which part of the time that threads have taken so far may pass unseen when they have stopped.
const UNSEEN: u32 = 4;

/// A time for which threads of the target stood still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    /// When it began, on the clock that counts since the machine was started.
    pub began: Duration,
    /// From when the first of them stood still to the last release.
    pub duration: Duration,
    /// How many threads.
    pub threads: usize,
}

/// What a thread reports that was asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Nothing,
    /// What it goes on with; it is still to stop.
    Other,
    /// That it has stopped, or ended.
    Done,
}

/// The threads of one process that a worker holds.
#[derive(Debug, Default)]
pub struct Stopped {
    pid: Tid,
    threads: BTreeMap<Tid, Registers>,
    /// Threads that were left alone, see [`Caution`].
    spared: Vec<Tid>,
    /// Threads that were seized but could not be stopped: inside the kernel, for as long as it takes.
    /// The kernel lets go of them when the worker ends.
    unstoppable: Vec<Tid>,
    /// Spared threads that weft traces without having stopped them, see [`Stopped::guard`]. The kernel
    /// lets go of them when the worker ends.
    guarded: Vec<Tid>,
    /// Processes that a guarded thread has started meanwhile; stopped before their first instruction.
    newborn: Vec<Tid>,
    /// Other processes that are held as well, see [`Stopped::note_others`].
    others: Vec<Tid>,
    /// The system call before which threads stop that are let run, see [`Stopped::stop_before`].
    call: Option<TargetAddr>,
    since: Option<Instant>,
    /// What keeps other wefts from it, if nobody else has that.
    turn: Option<Turn>,
    /// Whether a thread has ended while it was held.
    has_lost: bool,
    /// For how long to wait for threads that need not stop, see [`Stopped::stop_some`].
    lenience: Option<Duration>,
    /// Whether the process runs from a clone, see [`Stopped::stop_all_in_clone`].
    is_in_clone: bool,
}

impl State for Stopped {
    fn assist(worker: Tid) {
        ptrace::collect_ended(worker);
    }
}

impl Stopped {
    /// Stops every thread of a process, those included that are born meanwhile.
    pub fn stop_all(pid: Tid, caution: Caution) -> Result<Self> {
        let mut stopped = Self { pid, ..Self::default() };
        stopped.stop_others(caution)?;
        Ok(stopped)
    }

    /// The same for a process that runs from a clone. A child of `vfork` may wait for the engine's lock, and so for a
    /// thread that is stopped; its parent does not stop before, and is not waited for.
    pub fn stop_all_in_clone(pid: Tid, caution: Caution) -> Result<Self> {
        let mut stopped = Self { pid, is_in_clone: true, ..Self::default() };
        stopped.stop_others(caution)?;
        Ok(stopped)
    }

    /// Stops every thread that is not stopped yet.
    pub(crate) fn stop_others(&mut self, caution: Caution) -> Result<()> {
        // Only a running thread can start another, so once a listing shows none that is new, all are
        // stopped.
        while self.hold(&proc::threads(self.pid)?, caution, PATIENCE)? {}
        Ok(())
    }

    /// Stops some threads of a process that do so within `patience`. All others run on; so does one that takes longer,
    /// whatever it does, until it is [waited for](Self::await_late).
    pub fn stop_some(pid: Tid, tids: &[Tid], caution: Caution, patience: Duration) -> Result<Self> {
        let mut stopped = Self { pid, lenience: Some(patience), ..Self::default() };
        stopped.hold(tids, caution, patience)?;
        Ok(stopped)
    }

    /// Stops some more.
    pub fn stop_more(&mut self, tids: &[Tid], caution: Caution) -> Result<()> {
        self.hold(tids, caution, self.lenience.unwrap_or(PATIENCE)).map(drop)
    }

    /// Stops those of these threads that are not stopped yet. Returns whether there were any to stop.
    fn hold(&mut self, tids: &[Tid], caution: Caution, patience: Duration) -> Result<bool> {
        let mut fresh = Vec::new();
        let mut delicate = Vec::new();
        for &tid in tids {
            let known = self.threads.contains_key(&tid)
                || self.unstoppable.contains(&tid)
                || self.spared.contains(&tid);
            if known {
                continue;
            }
            let noticed = noticed_by(self.pid, tid);
            if caution.spares(noticed) {
                self.spared.push(tid);
            } else if seize(self.pid, tid)? {
                if noticed == Disturbance::None { &mut fresh } else { &mut delicate }.push(tid);
            }
        }
        if fresh.is_empty() && delicate.is_empty() {
            return Ok(false);
        }
        for &tid in &fresh {
            // A failure means that the thread is gone; the next wait reports it.
            let _ = ptrace::interrupt(tid);
        }
        self.await_stops(fresh, patience)?;
        // What a stop does to these is repaired as soon as they have stopped; so one at a time,
        // and when the others leave the processors to them.
        for tid in delicate {
            let _ = ptrace::interrupt(tid);
            self.await_stops(vec![tid], patience)?;
        }
        Ok(true)
    }

    /// Stops one thread: the one that will notice least. Fails if all of them sleep in calls that
    /// would come back short, and go on to do so.
    pub fn stop_least_noticed(pid: Tid) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut threads = proc::threads(pid)?;
            threads.retain(|&tid| proc::is_alive(tid));
            if threads.is_empty() {
                // It waits for its parent, which may be held, and wait for this.
                return Err(Error::new(ErrorKind::TargetGone, format!("process {pid} ended")));
            }
            let mut candidates: Vec<(Disturbance, Tid)> =
                threads.into_iter().map(|tid| (noticed_by(pid, tid), tid)).collect();
            candidates.retain(|&(noticed, _)| noticed < Disturbance::ShortReturn);
            candidates.sort_unstable();
            for (_, tid) in candidates {
                match Self::stop_within(pid, tid, IMPATIENCE) {
                    Ok(stopped) if !stopped.threads.is_empty() => return Ok(stopped),
                    // Another may be quicker.
                    Ok(_) => {}
                    Err(error) if error.kind == ErrorKind::Timeout => {}
                    Err(error) => return Err(error),
                }
            }
            if Instant::now() > deadline {
                return Err(no_thread_to_stop(pid));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops one thread; none if it has ended, or sleeps where nothing can interrupt it.
    pub fn stop_one(pid: Tid, tid: Tid) -> Result<Self> {
        Self::stop_within(pid, tid, PATIENCE)
    }

    fn stop_within(pid: Tid, tid: Tid, patience: Duration) -> Result<Self> {
        let mut stopped = Self { pid, ..Self::default() };
        if proc::is_alive(tid) && seize(pid, tid)? {
            let _ = ptrace::interrupt(tid);
            stopped.await_stops(vec![tid], patience)?;
        }
        Ok(stopped)
    }

    /// Waits until these seized and interrupted threads are stopped.
    fn await_stops(&mut self, mut waiting: Vec<Tid>, patience: Duration) -> Result<()> {
        let mut limit = Limit::new(patience);
        if self.lenience.is_some() {
            limit.rounds = ROUNDS;
        }
        let began = Instant::now();
        while !waiting.is_empty() {
            let mut progress = false;
            let mut still = Vec::with_capacity(waiting.len());
            for tid in waiting {
                let answer = self.poll(tid)?;
                progress |= answer != Answer::Nothing;
                if answer != Answer::Done {
                    still.push(tid);
                }
            }
            waiting = still;
            if !progress && !waiting.is_empty() {
                if self.is_in_clone && began.elapsed() > AT_VFORK {
                    let late = waiting.extract_if(.., |tid| awaits_child(*tid));
                    self.unstoppable.extend(late);
                }
                if limit.is_reached(&waiting) {
                    let late = match self.lenience {
                        Some(_) => waiting,
                        None => in_the_kernel(self.pid, &waiting)?,
                    };
                    self.unstoppable.extend(late);
                    return Ok(());
                }
                if began.elapsed() > IMPATIENCE {
                    self.drop_ended()?;
                }
                nap_since(began);
            }
        }
        Ok(())
    }

    /// Collects stopped threads that were killed meanwhile: one in `execve` does not stop before they are gone.
    fn drop_ended(&mut self) -> Result<()> {
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            let event = ptrace::poll(tid).map_err(|e| ptrace::failed("wait for", tid, &e))?;
            if event == Some(Event::Gone) {
                self.threads.remove(&tid);
                self.has_lost = true;
            }
        }
        Ok(())
    }

    /// Takes what a thread has to report that was asked to stop.
    fn poll(&mut self, tid: Tid) -> Result<Answer> {
        let signal = match ptrace::poll(tid).map_err(|e| ptrace::failed("wait for", tid, &e))? {
            None => return Ok(Answer::Nothing),
            Some(Event::Gone) => {
                self.has_lost = true;
                return Ok(Answer::Done);
            }
            Some(Event::Stop(_)) => return self.admit(tid).map(|()| Answer::Done),
            // It was about to handle a signal: let it, and it stops right after.
            Some(Event::Signal(signal)) => signal,
            Some(Event::SystemCall | Event::Exec | Event::Other(_)) => 0,
        };
        let _ = ptrace::resume_asked(tid, signal);
        Ok(Answer::Other)
    }

    /// Waits until one of these threads has stopped that were late, see [`Stopped::stop_some`]. Whoever is stopped by then
    /// should have been let go, as it would wait as well. False if none is late any more, or stops in time.
    ///
    /// A thread that is let go before it has stopped may come back from its call early, with nothing to undo that.
    pub fn await_late(&mut self, tids: &[Tid], until: Instant) -> Result<bool> {
        let began = Instant::now();
        loop {
            let (waiting, mut late): (Vec<Tid>, Vec<Tid>) = std::mem::take(&mut self.unstoppable)
                .into_iter()
                .partition(|tid| tids.contains(tid));
            // One in execve waits until all others are gone, and those that weft holds go when the worker ends.
            let is_over = waiting.is_empty() || self.has_lost || Instant::now() > until;
            for tid in waiting {
                if !self.threads.is_empty() || self.poll(tid)? != Answer::Done {
                    late.push(tid);
                }
            }
            self.unstoppable = late;
            if is_over || !self.threads.is_empty() {
                return Ok(!self.threads.is_empty());
            }
            nap_since(began);
        }
    }

    fn admit(&mut self, tid: Tid) -> Result<()> {
        // On a busy machine it may have waited for a processor before it could stop.
        self.since.get_or_insert_with(Instant::now);
        let Some(registers) = settle_stop(tid) else { return Ok(()) };
        if !registers.is_64_bit() {
            return Err(Error::new(
                ErrorKind::UnsupportedTarget,
                format!("thread {tid} of process {} runs 32-bit code", self.pid),
            )
            .why("weft works on 64-bit x86 programs only"));
        }
        self.threads.insert(tid, registers);
        Ok(())
    }

    /// The process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// The stopped threads with their registers.
    pub fn threads(&self) -> &BTreeMap<Tid, Registers> {
        &self.threads
    }

    /// The threads that were not stopped, and the call that each sleeps in.
    pub fn not_stopped(&self) -> impl Iterator<Item = (Tid, &'static str)> {
        self.spared.iter().chain(&self.unstoppable).map(|&tid| {
            let call =
                proc::sleeping_call(tid).map_or("the kernel", |call| syscall_name(call.number));
            (tid, call)
        })
    }

    /// Whether who holds them has to end, as only that lets go of the rest: threads that were asked to stop and have not,
    /// and what has taken the id of one that has ended, by `execve`.
    pub fn must_end(&self) -> bool {
        !self.unstoppable.is_empty() || self.has_lost
    }

    /// Sets the registers with which a stopped thread goes on.
    pub fn redirect(&mut self, tid: Tid, registers: Registers) -> Result<()> {
        ptrace::set_registers(tid, &registers).map_err(|e| ptrace::failed("move", tid, &e))?;
        self.threads.insert(tid, registers);
        Ok(())
    }

    /// Lets a stopped thread execute instructions for as long as `go_on` holds of where it is. No signal
    /// reaches it meanwhile.
    pub fn step_while(&mut self, tid: Tid, go_on: impl Fn(TargetAddr) -> bool) -> Result<()> {
        /// A snippet with all that it calls has far fewer.
        const MOST: usize = 20_000;
        // A step ends with a signal that is forced: if it were blocked, the kernel would forget the program's handler.
        const NO_OTHER_SIGNAL: u64 = !(1 << (libc::SIGTRAP - 1));
        let failed = |e: std::io::Error| ptrace::failed("step", tid, &e);
        let mask = ptrace::signal_mask(tid).map_err(failed)?;
        ptrace::set_signal_mask(tid, NO_OTHER_SIGNAL).map_err(failed)?;
        let mut steps = 0;
        let registers = loop {
            let registers = ptrace::registers(tid).map_err(failed)?;
            if steps == MOST || !go_on(registers.instruction()) {
                break registers;
            }
            steps += 1;
            ptrace::step(tid).map_err(failed)?;
            // Where it can be stopped, it has been: by the step, or on its way out of the kernel.
            if ptrace::wait(tid).map_err(failed)? == Event::Gone {
                return Ok(());
            }
        };
        ptrace::set_signal_mask(tid, mask).map_err(failed)?;
        self.threads.insert(tid, registers);
        Ok(())
    }

    /// Makes threads that are let run stop before the system call that this instruction makes, if they come
    /// to it. One that makes it all the time, and waits in it or for its turn behind it, would hardly ever
    /// be found anywhere else.
    pub fn stop_before(&mut self, call: TargetAddr) {
        self.call = Some(call);
    }

    /// Lets some of the stopped threads run for a moment, and stops them again; where all threads are stopped, with those
    /// that they have started meanwhile.
    pub fn let_run(&mut self, some: Vec<Tid>) -> Result<()> {
        let mut running = Vec::with_capacity(some.len());
        for tid in some {
            running.push((tid, proc::turns(tid)));
            let place = self.threads.remove(&tid).map(|registers| registers.instruction());
            // A thread that stands before the call has to get behind it: it may hold a lock that others wait for.
            let is_there = place.is_some() && place == self.call;
            resume(tid, 0, self.call.filter(|_| !is_there));
        }
        let mut waiting = Vec::with_capacity(running.len());
        let patience = self.lenience.unwrap_or(PATIENCE);
        let deadline = Instant::now() + patience;
        loop {
            std::thread::sleep(MOMENT);
            let is_quiet = self.handle_events(&mut running, &mut waiting)?;
            // On a busy machine a thread can wait long for its turn, and one that is asked to stop before
            // stands where it stood.
            let is_due = |&(tid, turns): &(Tid, Option<u64>)| {
                turns.is_some() && proc::turns(tid) == turns && is_runnable(tid)
            };
            if (is_quiet && !running.iter().any(is_due)) || Instant::now() > deadline {
                break;
            }
        }
        for (tid, _) in running {
            let _ = ptrace::interrupt(tid);
            waiting.push(tid);
        }
        if self.lenience.is_none() {
            // They may have come out of the kernel since.
            waiting.append(&mut self.unstoppable);
        }
        self.await_stops(waiting, patience)?;
        if self.lenience.is_some() { Ok(()) } else { self.stop_others(Caution::StopAll) }
    }

    /// Lets running threads go on with what has come to them; those that come to the call before which
    /// they stop are about to. Returns whether nothing has come.
    fn handle_events(
        &mut self,
        running: &mut Vec<(Tid, Option<u64>)>,
        stopping: &mut Vec<Tid>,
    ) -> Result<bool> {
        let mut is_quiet = true;
        for (tid, turns) in std::mem::take(running) {
            let event = ptrace::poll(tid).map_err(|e| ptrace::failed("wait for", tid, &e))?;
            is_quiet &= matches!(event, None | Some(Event::Gone));
            match event {
                Some(Event::Stop(_)) => {
                    self.admit(tid)?;
                    continue;
                }
                Some(Event::SystemCall) if self.call.is_some_and(|call| take_back(tid, call)) => {
                    let _ = ptrace::resume_asked(tid, 0);
                    stopping.push(tid);
                    continue;
                }
                Some(Event::SystemCall | Event::Exec | Event::Other(_)) => {
                    resume(tid, 0, self.call);
                }
                Some(Event::Signal(signal)) => resume(tid, signal, self.call),
                None | Some(Event::Gone) => {}
            }
            running.push((tid, turns));
        }
        Ok(is_quiet)
    }

    /// The threads that sleep undisturbed, or cannot be stopped.
    pub fn sleepers(&self) -> impl Iterator<Item = Tid> {
        self.spared.iter().chain(&self.guarded).chain(&self.unstoppable).copied()
    }

    /// Takes note of the only thread of a process, which is stopped already.
    pub fn adopt(pid: Tid, registers: Registers) -> Self {
        Self::adopt_all(pid, BTreeMap::from([(pid, registers)]))
    }

    /// Takes note of threads that are stopped already.
    pub fn adopt_all(pid: Tid, threads: BTreeMap<Tid, Registers>) -> Self {
        Self { pid, threads, since: Some(Instant::now()), ..Self::default() }
    }

    /// Hands all threads over to the caller, still stopped.
    pub(crate) fn keep(&mut self) -> Vec<Tid> {
        std::mem::take(&mut self.threads).into_keys().collect()
    }

    /// Keeps other wefts from the process until its threads are let go.
    pub(crate) fn keep_turn(&mut self, turn: Option<Turn>) {
        self.turn = turn;
    }

    /// Gives back what keeps other wefts from the process.
    pub(crate) fn take_turn(&mut self) -> Option<Turn> {
        self.turn.take()
    }

    /// Lets all threads go.
    pub fn release(&mut self) -> Pause {
        let threads = std::mem::take(&mut self.threads);
        for &tid in threads.keys() {
            // A failure means that the thread was killed meanwhile.
            self.has_lost |= ptrace::detach(tid, 0).is_err();
        }
        for tid in std::mem::take(&mut self.newborn) {
            let _ = ptrace::detach(tid, 0);
        }
        self.turn = None;
        let duration = self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let began = proc::uptime().saturating_sub(duration);
        Pause { began, duration, threads: threads.len() }
    }
}

/// The registers of a thread that is stopped right behind a breakpoint of weft's, as they were before.
pub(crate) fn before_breakpoint(
    tid: Tid,
    is_ours: impl Fn(TargetAddr) -> bool,
) -> Option<Registers> {
    let registers = ptrace::registers(tid).ok()?.before_breakpoint();
    is_ours(registers.instruction()).then_some(registers)
}

/// Whether a thread runs, or would if it had its turn.
fn is_runnable(tid: Tid) -> bool {
    proc::stat(tid).is_ok_and(|stat| stat.state == 'R')
}

/// Whether a thread waits in the kernel for its vforked child.
fn awaits_child(tid: Tid) -> bool {
    proc::sleeping_call(tid).is_some_and(|call| waits_for_child(&call, |at| memory::word(tid, at)))
}

/// Sleeps when no thread has anything to report: each time that weft wakes it may take the processor from the very thread
/// that it waits for.
fn nap_since(began: Instant) {
    std::thread::sleep((began.elapsed() / UNSEEN).clamp(NAP, LONG_NAP));
}

/// How long threads may take to stop; longer, if one of them waits for nothing but its turn.
struct Limit {
    patience: Duration,
    deadline: Instant,
    rounds: u32,
}

impl Limit {
    fn new(patience: Duration) -> Self {
        Self { patience, deadline: Instant::now() + patience, rounds: 1 }
    }

    /// Whether these threads have had their time; those that get more are asked to stop once more.
    fn is_reached(&mut self, waiting: &[Tid]) -> bool {
        if Instant::now() <= self.deadline {
            return false;
        }
        if self.rounds == ROUNDS || !waiting.iter().any(|&tid| is_runnable(tid)) {
            return true;
        }
        self.rounds += 1;
        self.deadline += self.patience;
        for &tid in waiting {
            let _ = ptrace::interrupt(tid);
        }
        false
    }
}

/// Seizes a thread; false when it is gone or as good as gone.
pub(crate) fn seize(pid: Tid, tid: Tid) -> Result<bool> {
    seize_with(pid, tid, libc::PTRACE_O_TRACESYSGOOD)
}

/// The same, with options of ptrace's.
pub(crate) fn seize_with(pid: Tid, tid: Tid, options: i32) -> Result<bool> {
    let Err(error) = ptrace::seize(tid, options) else { return Ok(true) };
    if error.raw_os_error() == Some(libc::ESRCH) || !proc::is_alive(tid) {
        return Ok(false);
    }
    // One that could not be stopped before is still ours; only its tracer may ask it to stop.
    if ptrace::interrupt(tid).is_ok() {
        return Ok(true);
    }
    Err(cannot_seize(pid, tid, &error))
}

fn cannot_seize(pid: Tid, tid: Tid, error: &std::io::Error) -> Error {
    match status::tracer(tid) {
        Some(tracer) if is_weft(tracer) => {
            Error::new(ErrorKind::AlreadyTraced, format!("process {pid} is held by weft"))
                .why(format!("process {tracer}, which is weft at work on it, traces thread {tid}"))
                .advice("ask that weft, as with `session.stacks()`, or when it is done")
        }
        Some(tracer) => {
            Error::new(ErrorKind::AlreadyTraced, format!("process {pid} is held by another tracer"))
                .why(format!("process {tracer} traces its thread {tid}"))
                .advice("end that debugger or strace first")
        }
        None => Error::new(
            ErrorKind::PermissionDenied,
            format!("the kernel does not let weft hold thread {tid} of process {pid}"),
        )
        .why(error.to_string())
        .advice(format!("`weft doctor {pid}` says what stands in the way")),
    }
}

/// Whether a process is a weft at work: its threads that trace have names.
pub(crate) fn is_weft(pid: Tid) -> bool {
    let tids = proc::threads(pid).unwrap_or_default();
    tids.into_iter().any(|tid| proc::stat(tid).is_ok_and(|stat| stat.name.starts_with("weft-")))
}

/// Reads a just stopped thread's registers and undoes what the stop itself has done to it; nothing
/// when the thread was killed meanwhile.
pub(crate) fn settle_stop(tid: Tid) -> Option<Registers> {
    let mut registers = ptrace::registers(tid).ok()?;
    let mut is_spared = registers.spare_stopped_call();
    if registers.is_resumed_by_call() && !seccomp::permits_restart(tid) {
        // A sleep that lasts longer is better than one that the filter ends with the process.
        registers.begin_call_again();
        is_spared = true;
    }
    let is_outside = leave_rseq(tid, &mut registers);
    if is_spared || is_outside {
        ptrace::set_registers(tid, &registers).ok()?;
    }
    Some(registers)
}

/// Lets a thread run, with a signal or 0; no further than to a system call if it is to stop before one.
fn resume(tid: Tid, signal: i32, call: Option<TargetAddr>) {
    // A failure means that the thread was killed; the next wait reports it.
    let _ = match call {
        Some(_) => ptrace::resume_to_call(tid, signal),
        None => ptrace::resume(tid, signal),
    };
}

/// Takes a thread that is stopped on its way into a system call back before it, if this instruction makes
/// it: then nothing has happened. Returns whether it did.
fn take_back(tid: Tid, call: TargetAddr) -> bool {
    let Ok(CallSide::Entry(_, number)) = ptrace::call_side(tid) else { return false };
    ptrace::registers(tid).is_ok_and(|registers| {
        let before = registers.before_call(number);
        before.instruction() == call && ptrace::set_registers(tid, &before).is_ok()
    })
}

/// A thread inside a restartable sequence has lost it by being stopped: the kernel would send it to the
/// sequence's abort handler as soon as it goes on, but forgets to if it first goes on somewhere else. So it
/// is sent there at once. Returns whether it was inside.
fn leave_rseq(tid: Tid, registers: &mut Registers) -> bool {
    const CURRENT_OFFSET: u64 = 8;
    let word = |bytes: &[u8], at: usize| {
        u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap_or([0; 8]))
    };
    let abort = ptrace::rseq_area(tid).and_then(|(area, _)| {
        let current = word(&memory::read(tid, area + CURRENT_OFFSET, 8).ok()?, 0);
        if current == 0 {
            return None;
        }
        // version, flags, start, length, abort handler
        let section = memory::read(tid, TargetAddr(current), 32).ok()?;
        let (start, length, abort) = (word(&section, 8), word(&section, 16), word(&section, 24));
        (registers.instruction().0.wrapping_sub(start) < length).then_some(abort)
    });
    if let Some(abort) = abort {
        registers.set_instruction(abort);
    }
    abort.is_some()
}

/// Of threads that do not stop, those that sleep uninterruptibly in the kernel (a `vfork` that waits
/// for its child, a disk): they are no danger, they are not in the program. Any other is an error.
fn in_the_kernel(pid: Tid, waiting: &[Tid]) -> Result<Vec<Tid>> {
    let mut asleep = Vec::new();
    for &tid in waiting {
        match proc::stat(tid) {
            Ok(stat) if stat.state == 'D' => asleep.push(tid),
            Ok(stat) if !matches!(stat.state, 'Z' | 'X') => {
                return Err(Error::new(
                    ErrorKind::Timeout,
                    format!("thread {tid} of process {pid} did not stop in time"),
                )
                .why(format!("it is in state {}", stat.state))
                .advice("is the process frozen, or the machine overloaded? try again"));
            }
            _ => {}
        }
    }
    Ok(asleep)
}

fn no_thread_to_stop(pid: Tid) -> Error {
    let threads = proc::threads(pid).unwrap_or_default();
    let short = threads
        .iter()
        .filter_map(|&tid| proc::sleeping_call(tid))
        .find(|call| disturbance(call) == Disturbance::ShortReturn);
    match short {
        Some(call) => {
            let call = syscall_name(call.number);
            Error::new(ErrorKind::Timeout, format!("process {pid} cannot be stopped without harm"))
                .why(format!("its threads sleep in {call}, which would return half done"))
                .advice("try again when whoever reads from the process has read")
        }
        None => {
            Error::new(ErrorKind::Timeout, format!("no thread of process {pid} can be stopped"))
                .why(
                    "they all wait in the kernel where nothing interrupts them, for a disk perhaps",
                )
                .advice("try again")
        }
    }
}

/// Which threads an operation needs.
#[derive(Clone, Copy, Debug)]
pub enum Reach {
    /// At least one to send on a trip, and none of the others in the program meanwhile.
    Some,
    /// Those that are in the program, if any.
    Awake,
    /// All, except those that would notice.
    Every,
    /// This one.
    One(Tid),
}

impl Reach {
    /// Stops them.
    pub fn stop(self, pid: Tid) -> Result<Stopped> {
        match self {
            Self::Some => {
                let mut stopped = Stopped::stop_all(pid, Caution::SpareSleepers)?;
                if stopped.threads().is_empty() {
                    stopped.release();
                    stopped = Stopped::stop_least_noticed(pid)?;
                }
                Ok(stopped)
            }
            Self::Awake => Stopped::stop_all(pid, Caution::SpareSleepers),
            Self::Every => Stopped::stop_all(pid, Caution::SpareShortCalls),
            Self::One(tid) => Stopped::stop_one(pid, tid),
        }
    }
}
