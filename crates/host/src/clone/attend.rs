//! Being there for the processes of a cloned program when they are about to become another one.
//!
//! Each program has memory that it shares with weft, and with the processes that it forks. A thread that
//! wants to call `execve` rings; weft holds it through the call, brings the engine into what it has become,
//! and lets it go.

use super::CloneOptions;
use super::inject::{Control, inject};
use crate::Result;
use crate::launch::leave_exec;
use crate::proc::{self, Tid};
use crate::ptrace::{self, Event};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;
use weft_abi::{CloneControl, ExecRequest, exec};

/// How long to sleep between two looks at a thread that is on its way.
const REST: Duration = Duration::from_micros(50);
/// How often to look whether anybody is left.
const ROUND: Duration = Duration::from_millis(200);

/// All programs that have come of one.
#[derive(Debug)]
pub struct Family {
    options: CloneOptions,
    controls: Mutex<Vec<Arc<Control>>>,
    is_left: AtomicBool,
}

impl Family {
    pub fn new(options: CloneOptions) -> Self {
        Self { options, controls: Mutex::default(), is_left: AtomicBool::new(false) }
    }

    /// Brings the engine into a held process that stands before its first instruction.
    pub fn bring_in(self: &Arc<Self>, pid: Tid) -> Result<()> {
        let control = Arc::new(inject(pid, &self.options)?);
        self.controls.lock().unwrap_or_else(PoisonError::into_inner).push(control.clone());
        let family = Arc::downgrade(self);
        thread::spawn(move || attend(&family, &control, pid));
        Ok(())
    }

    /// Does something with what each program shares.
    pub fn each(&self, mut act: impl FnMut(&CloneControl)) {
        let controls = self.controls.lock().unwrap_or_else(PoisonError::into_inner);
        controls.iter().for_each(|control| act(control.get()));
    }

    /// Answers no more.
    pub fn leave(&self) {
        self.is_left.store(true, Relaxed);
        self.each(|control| control.is_host_gone.store(1, Relaxed));
    }
}

/// Waits for the bell, until nobody is left who could ring it.
fn attend(family: &Weak<Family>, control: &Arc<Control>, pid: Tid) {
    let shared = control.get();
    loop {
        let rung = shared.doorbell.load(Acquire);
        for (index, request) in shared.requests.iter().enumerate() {
            let asked = request.state.load(Acquire) == exec::ASKED;
            let Some(family) = family.upgrade().filter(|_| asked) else { continue };
            let (tid, pid) = (request.tid.load(Relaxed), request.pid.load(Relaxed));
            // On a thread of its own: only that one can hold it, and others shall not wait.
            let (control, (tid, pid)) = (control.clone(), (tid as Tid, pid as Tid));
            let (ready, held) = std::sync::mpsc::channel();
            thread::spawn(move || {
                follow(&family, &control.get().requests[index], tid, pid, &ready);
            });
            let _ = held.recv();
        }
        let is_left = family.upgrade().is_none_or(|family| family.is_left.load(Relaxed));
        let is_alone = shared.processes.load(Relaxed) <= 1;
        if is_left || (is_alone && proc::stat(pid).is_err()) {
            return;
        }
        wait_for(&shared.doorbell, rung);
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
                let _ = ptrace::detach(who);
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
    if let Ok(Some(home)) = leave_exec(pid)
        && family.bring_in(pid).is_err()
    {
        let _ = ptrace::set_registers(pid, &home);
    }
    let _ = ptrace::detach(pid);
}

fn wait_for(word: &AtomicU32, value: u32) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ROUND.subsec_nanos().into() };
    // SAFETY: the word and the time outlive the call.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &raw const time);
    }
}

fn wake(word: &AtomicU32) {
    // SAFETY: the call takes an address, and reads nothing there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
