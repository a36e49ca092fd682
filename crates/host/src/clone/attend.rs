//! Being there for the processes of a cloned program when they are about to become another one.
//!
//! Each program has memory that it shares with weft, and with the processes that it forks. A thread that
//! wants to call `execve` rings; weft holds it through the call, brings the engine into what it has become,
//! and lets it go. One that cannot go on in the clone rings as well; weft gives its process back to the
//! program's own code.

use super::CloneOptions;
use super::flow::{Flow, Sum};
use super::inject::{Presence, bring_in};
use super::recording::Recording;
use super::release;
use crate::Result;
use crate::launch::leave_exec;
use crate::proc::{self, Tid};
use crate::ptrace::{self, Event};
use crate::stopped::Stopped;
use crate::worker::Worker;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};
use weft_abi::{CloneControl, ExecRequest, exec};

/// How long to sleep between two looks at a thread that is on its way.
const REST: Duration = Duration::from_micros(50);
/// How often to look whether anybody is left.
const ROUND: Duration = Duration::from_millis(200);
/// How long to try to have a process leave its clone.
const PATIENCE: Duration = Duration::from_secs(5);

/// All programs that have come of one.
#[derive(Debug)]
pub struct Family {
    options: CloneOptions,
    /// Each program, with the process that it began in.
    members: Mutex<Vec<(Tid, Arc<Presence>)>>,
    is_left: AtomicBool,
    /// What programs have executed of which nothing is left.
    past: Mutex<Sum>,
    /// Where the engine puts its reports: where weft was when it began.
    folder: PathBuf,
}

impl Family {
    pub fn new(options: CloneOptions) -> Self {
        let folder = std::env::current_dir().unwrap_or_default();
        Self {
            options,
            members: Mutex::default(),
            is_left: AtomicBool::new(false),
            past: Mutex::default(),
            folder,
        }
    }

    /// Brings the engine into a process that is stopped; see [`bring_in`].
    pub fn bring_in(self: &Arc<Self>, stopped: &mut Stopped) -> Result<()> {
        let pid = stopped.pid();
        let presence = Arc::new(bring_in(stopped, &self.options)?);
        presence.put_reports_into(&self.folder);
        self.members().push((pid, presence.clone()));
        let family = Arc::downgrade(self);
        thread::spawn(move || attend(&family, &presence, pid));
        Ok(())
    }

    /// What all programs have executed, as far as that is recorded.
    pub fn flow(&self) -> Flow {
        // Nothing becomes the past meanwhile.
        let past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sum = past.clone();
        for (_, presence) in self.members().iter() {
            if let Some(recording) = &*presence.recording() {
                sum.add(recording);
            }
        }
        drop(past);
        sum.flow()
    }

    /// Nobody adds to what a program has executed any more: its memory can go.
    fn settle(&self, presence: &Presence) {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        presence.be_over();
        // What is traced is for others to take.
        let is_sum = |recording: &mut Arc<Recording>| recording.records().trace_detail().is_none();
        if let Some(recording) = presence.recording().take_if(is_sum) {
            past.add(&recording);
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<(Tid, Arc<Presence>)>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engines that were brought in, the newest last.
    pub fn presences(&self) -> Vec<Arc<Presence>> {
        self.members().iter().map(|(_, presence)| presence.clone()).collect()
    }

    /// Does something with what each program shares.
    pub fn each(&self, mut act: impl FnMut(&CloneControl)) {
        self.members().iter().for_each(|(_, presence)| act(presence.get()));
    }

    /// The reports of all programs.
    pub fn reports(&self) -> Vec<PathBuf> {
        self.members().iter().flat_map(|(_, presence)| presence.reports()).collect()
    }

    /// Takes the engine out of every process that it is in.
    pub fn release(&self) -> Result<()> {
        self.leave();
        let members = self.members().clone();
        for (pid, presence) in members {
            release(pid, &presence)?;
            // What one has forked before it was stopped.
            loop {
                let relatives = presence.relatives(pid);
                if relatives.is_empty() {
                    break;
                }
                for relative in relatives {
                    release(relative, &presence)?;
                }
            }
        }
        Ok(())
    }

    /// Answers no more.
    pub fn leave(&self) {
        self.is_left.store(true, Relaxed);
        self.each(|control| control.is_host_gone.store(1, Relaxed));
    }
}

/// Takes the engine out of a process, if it is in there.
fn release(pid: Tid, presence: &Arc<Presence>) -> Result<()> {
    let presence = presence.clone();
    let outcome = Worker::<Stopped>::new().run(move |stopped| {
        *stopped = release::stop(pid)?;
        if !presence.is_in(pid) {
            return Ok(());
        }
        let outcome = release::take_out(stopped, &presence);
        stopped.release();
        outcome
    });
    // One that has ended has left the engine as well.
    if proc::is_alive(pid) { outcome } else { Ok(()) }
}

/// Waits for the bell, until nobody is left who could ring it.
fn attend(family: &Weak<Family>, control: &Arc<Presence>, pid: Tid) {
    let shared = control.get();
    loop {
        let rung = shared.doorbell.load(Acquire);
        for (index, request) in shared.requests.iter().enumerate() {
            let state = request.state.load(Acquire);
            let is_asked = matches!(state, exec::ASKED | exec::LEAVING);
            let Some(family) = family.upgrade().filter(|_| is_asked) else { continue };
            let (tid, pid) = (request.tid.load(Relaxed), request.pid.load(Relaxed));
            // On a thread of its own: only that one can hold it, and others shall not wait.
            let (control, (tid, pid)) = (control.clone(), (tid as Tid, pid as Tid));
            if state == exec::LEAVING {
                let held = request.state.compare_exchange(state, exec::HELD, AcqRel, Acquire);
                if held.is_ok() {
                    thread::spawn(move || have_leave(&control, index, pid));
                }
                continue;
            }
            let (ready, held) = std::sync::mpsc::channel();
            thread::spawn(move || {
                follow(&family, &control.get().requests[index], tid, pid, &ready);
            });
            let _ = held.recv();
        }
        let is_left = family.upgrade().is_none_or(|family| family.is_left.load(Relaxed));
        let is_alone = shared.processes.load(Relaxed) <= 1;
        if is_alone && proc::stat(pid).is_err() {
            if let Some(family) = family.upgrade() {
                family.settle(control);
            }
            return;
        }
        if is_left {
            return;
        }
        wait_for(&shared.doorbell, rung);
    }
}

/// Has a process leave its clone, of which a thread cannot go on.
fn have_leave(presence: &Arc<Presence>, index: usize, pid: Tid) {
    let request = &presence.get().requests[index];
    let deadline = Instant::now() + PATIENCE;
    loop {
        match release(pid, presence) {
            // Whoever asked is not there any more.
            Ok(()) => return request.state.store(exec::FREE, Release),
            // Somebody else may hold a thread of it for a moment.
            Err(_) if Instant::now() < deadline => thread::sleep(ROUND),
            Err(_) => {
                request.state.store(exec::RELEASED, Release);
                return wake(&request.state);
            }
        }
    }
}

/// Holds a thread through `execve`. Says through `ready` when it may call.
fn follow(
    family: &Arc<Family>,
    request: &ExecRequest,
    tid: Tid,
    pid: Tid,
    ready: &std::sync::mpsc::Sender<()>,
) {
    let is_held = ptrace::seize(tid, libc::PTRACE_O_TRACEEXEC).is_ok();
    let next = if is_held { exec::HELD } else { exec::RELEASED };
    let granted = request.state.compare_exchange(exec::ASKED, next, AcqRel, Acquire).is_ok();
    wake(&request.state);
    let _ = ready.send(());
    if !is_held || !granted {
        return;
    }
    let mut is_asked_to_stop = false;
    loop {
        let (who, event) = match ptrace::poll(tid) {
            Ok(Some(event)) => (tid, event),
            // A thread that is not its process' first takes the first one's place.
            _ if tid != pid => match ptrace::poll(pid) {
                Ok(Some(event)) => (pid, event),
                _ => (tid, Event::Other(0)),
            },
            Err(_) => return,
            Ok(None) => (tid, Event::Other(0)),
        };
        match event {
            Event::Exec => {
                settle_and_bring_in(family, who);
                // Whoever asked is no more.
                request.state.store(exec::FREE, Release);
                return;
            }
            Event::Gone => {
                request.state.store(exec::FREE, Release);
                return;
            }
            Event::Stop(_) if is_asked_to_stop => {
                let _ = ptrace::detach(who, 0);
                request.state.store(exec::RELEASED, Release);
                wake(&request.state);
                return;
            }
            Event::Signal(signal) => drop(ptrace::resume(who, signal)),
            Event::Stop(_) | Event::SystemCall => drop(ptrace::resume(who, 0)),
            Event::Other(_) => {
                if !is_asked_to_stop && request.state.load(Acquire) == exec::FAILED {
                    is_asked_to_stop = ptrace::interrupt(tid).is_ok();
                }
                thread::sleep(REST);
            }
        }
    }
}

/// Brings the engine into a program that was just executed. What cannot have it runs natively.
fn settle_and_bring_in(family: &Arc<Family>, pid: Tid) {
    // What it does for weft is seen by its system calls.
    let _ = ptrace::set_options(pid, libc::PTRACE_O_TRACESYSGOOD);
    match leave_exec(pid) {
        Ok(Some(registers)) => {
            let mut stopped = Stopped::adopt(pid, registers);
            let _ = family.bring_in(&mut stopped);
            stopped.release();
        }
        _ => drop(ptrace::detach(pid, 0)),
    }
}

pub fn wait_for(word: &AtomicU32, value: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ROUND.subsec_nanos().into() };
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time);
    }
}

pub fn wake(word: &AtomicU32) {
    // SAFETY: the call takes an address, and reads nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
