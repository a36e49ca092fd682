//! Answering the requests of a cloned program's processes: above all when they are about to call `execve`.
//!
//! Each program has memory that it shares with weft, and with the processes that it forks. A thread that
//! wants to call `execve` rings; weft holds it through the call, brings the engine into what it has become,
//! and lets it go. One that cannot go on in the clone rings as well; weft gives its process back to the
//! program's own code.
//!
//! The program can write to that memory. So the requesting thread is looked for among the processes that map it, see
//! [`Members`](super::members::Members), and each place for a request is served by one thread at a time.

use super::family::{Family, take_out};
use super::presence::Presence;
use super::{futex, inject};
use crate::Result;
use crate::process::launch::leave_exec;
use crate::process::proc::Tid;
use crate::process::ptrace::{self, Event};
use crate::process::stopped::Stopped;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};
use weft_abi::{EXEC_COUNT, ExecRequest, exec};

/// How long to sleep between two looks at a thread that is on its way.
const REST: Duration = Duration::from_micros(50);
/// How often to look whether anybody is left.
const ROUND: Duration = Duration::from_millis(200);
/// How long to try to have a process leave its clone.
const PATIENCE: Duration = Duration::from_secs(5);
/// After how many rounds a request is checked for a thread that is gone.
const STALE: u32 = 10;

/// Brings the engine into a process that is stopped, and answers the requests of its programs from now on: see
/// [`inject::bring_in`].
pub fn bring_in(family: &Arc<Family>, stopped: &mut Stopped) -> Result<Arc<Presence>> {
    let number = family.next_number();
    let presence = Arc::new(inject::bring_in(stopped, family.options(), number)?);
    family.add(stopped.pid(), presence.clone());
    let (family, attended) = (Arc::downgrade(family), presence.clone());
    thread::spawn(move || attend(&family, &attended));
    Ok(presence)
}

/// A request that is being served: nobody else serves it meanwhile.
struct Served {
    presence: Arc<Presence>,
    index: usize,
}

impl Served {
    fn begin(presence: &Arc<Presence>, index: usize) -> Option<Self> {
        let is_free = !presence.serving[index].swap(true, AcqRel);
        is_free.then(|| Self { presence: presence.clone(), index })
    }

    fn request(&self) -> &ExecRequest {
        &self.presence.get().requests[self.index]
    }

    /// The thread that requests something, and its process; `None` if there is no such thread.
    fn asker(&self) -> Option<(Tid, Tid)> {
        let request = self.request();
        let (tid, pid) = (request.tid.load(Relaxed), request.pid.load(Relaxed));
        self.presence.members.find(tid, pid, self.presence.request_at(self.index))
    }

    /// Answers, and wakes the thread that waits.
    fn answer(&self, state: u32) {
        self.request().state.store(state, Release);
        futex::wake(&self.request().state);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.presence.serving[self.index].store(false, Release);
    }
}

/// Waits for the doorbell, until no process is left that could ring it.
fn attend(family: &Weak<Family>, presence: &Arc<Presence>) {
    let shared = presence.get();
    let mut ages = [(exec::FREE, 0); EXEC_COUNT];
    loop {
        let rung = shared.doorbell.load(Acquire);
        let Some(family) = family.upgrade() else { return };
        for index in 0..EXEC_COUNT {
            serve(&family, presence, index);
        }
        let may_be_more = shared.processes.load(Relaxed) > 1;
        if !presence.members.are_left(may_be_more) {
            return family.settle(presence);
        }
        if !family.report_presence(shared) {
            return;
        }
        drop(family);
        let began = Instant::now();
        futex::wait_for(&shared.doorbell, rung);
        if began.elapsed() >= ROUND / 2 {
            free_stale(presence, &mut ages);
        } else {
            // However often it is rung.
            thread::sleep(REST);
        }
    }
}

/// Sees to a request, if there is one.
fn serve(family: &Arc<Family>, presence: &Arc<Presence>, index: usize) {
    let state = presence.get().requests[index].state.load(Acquire);
    if !matches!(state, exec::ASKED | exec::LEAVING | exec::NAMING) {
        return;
    }
    let Some(served) = Served::begin(presence, index) else { return };
    let family = family.clone();
    match state {
        // On a thread of its own: only that one can hold it, and others shall not wait.
        exec::ASKED => {
            let (ready, is_held) = channel();
            thread::spawn(move || follow(&family, &served, &ready));
            let _ = is_held.recv();
        }
        exec::LEAVING => {
            let held = served.request().state.compare_exchange(state, exec::HELD, AcqRel, Acquire);
            if held.is_ok() {
                thread::spawn(move || have_leave(&family, &served));
            }
        }
        _ => {
            let held = served.request().state.compare_exchange(state, exec::HELD, AcqRel, Acquire);
            if held.is_ok() {
                name_files(&served);
            }
        }
    }
}

/// Frees requests whose threads were killed.
fn free_stale(presence: &Arc<Presence>, ages: &mut [(u32, u32); EXEC_COUNT]) {
    for (index, (last, age)) in ages.iter_mut().enumerate() {
        let state = presence.get().requests[index].state.load(Acquire);
        *age = if state == *last && state != exec::FREE { *age + 1 } else { 0 };
        *last = state;
        if *age < STALE {
            continue;
        }
        *age = 0;
        let Some(served) = Served::begin(presence, index) else { continue };
        if served.asker().is_none() {
            let _ = served.request().state.compare_exchange(state, exec::FREE, AcqRel, Acquire);
        }
    }
}

/// Takes a process out of its clone, of which a thread cannot go on.
fn have_leave(family: &Family, served: &Served) {
    let deadline = Instant::now() + PATIENCE;
    if served.asker().is_some() {
        // Before it goes on: a parent that sees it end finds this counted. If it cannot be taken out, it leaves by
        // itself.
        family.count_left();
    }
    while let Some((_, pid)) = served.asker() {
        match take_out(pid, &served.presence) {
            // The thread that requested it is gone.
            Ok(()) => return served.request().state.store(exec::FREE, Release),
            // Another tracer may hold a thread of it for a moment.
            Err(_) if Instant::now() < deadline => thread::sleep(ROUND),
            Err(_) => break,
        }
    }
    served.answer(exec::RELEASED);
}

/// Remembers the names of the files that the requesting process has mapped.
fn name_files(served: &Served) {
    if let Some((_, pid)) = served.asker()
        && let Some(recording) = &*served.presence.recording()
    {
        recording.name_files(pid);
    }
    served.answer(exec::RELEASED);
}

/// Holds a thread through `execve`. Says through `ready` when it may call. What this thread holds is let go when it
/// ends.
fn follow(family: &Arc<Family>, served: &Served, ready: &Sender<()>) {
    let (presence, request) = (&served.presence, served.request());
    let held = served
        .asker()
        .filter(|&(tid, pid)| presence.members.seize(tid, pid, libc::PTRACE_O_TRACEEXEC));
    let next = if held.is_some() { exec::HELD } else { exec::RELEASED };
    let granted = request.state.compare_exchange(exec::ASKED, next, AcqRel, Acquire).is_ok();
    futex::wake(&request.state);
    let _ = ready.send(());
    // One that does not wait any more does not count on it.
    let Some((tid, pid)) = held.filter(|_| granted) else { return };
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
                bring_in_executed(family, who);
                // The thread is another program's now, and perhaps no process executes the old one.
                request.state.store(exec::FREE, Release);
                return ring(presence);
            }
            Event::Gone => {
                request.state.store(exec::FREE, Release);
                return;
            }
            Event::Stop(_) if is_asked_to_stop => {
                let _ = ptrace::detach(who, 0);
                return served.answer(exec::RELEASED);
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
fn bring_in_executed(family: &Arc<Family>, pid: Tid) {
    // What it does for weft is seen by its system calls.
    let _ = ptrace::set_options(pid, libc::PTRACE_O_TRACESYSGOOD);
    match leave_exec(pid) {
        Ok(Some(registers)) => {
            let mut stopped = Stopped::adopt(pid, registers);
            if bring_in(family, &mut stopped).is_err() {
                family.count_native();
            }
            stopped.release();
        }
        Ok(None) => {}
        Err(_) => {
            family.count_native();
            let _ = ptrace::detach(pid, 0);
        }
    }
}

fn ring(presence: &Presence) {
    let doorbell = &presence.get().doorbell;
    doorbell.fetch_add(1, Release);
    futex::wake(doorbell);
}
