//! A thread of weft's own that holds a target.
//!
//! ptrace obeys only the operating-system thread that seized the tracee, while users of a session call
//! from any. And when that thread ends, the kernel lets go of everything it held, stopped or not: so
//! whatever goes wrong, ending the worker ends the hold.

use super::maker::Maker;
use super::processors::Processors;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a job may take before the caller assists, and until it does so again.
const ASSIST: Duration = Duration::from_millis(10);

/// What a worker keeps between its jobs.
pub trait State: Default + 'static {
    /// Does what the worker may have to wait for. The caller of a job does so while it waits for the answer.
    fn assist(_worker: libc::pid_t) {}
}

impl State for () {}

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread with a state of its own, that does what it is sent.
#[derive(Debug)]
pub struct Worker<S> {
    jobs: Option<mpsc::Sender<Job<S>>>,
    thread: Option<JoinHandle<()>>,
    tid: libc::pid_t,
    maker: Maker,
}

impl<S: State> Worker<S> {
    /// Starts the thread.
    pub fn new() -> Self {
        let (jobs, inbox) = mpsc::channel::<Job<S>>();
        let (name, named) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("weft-tracer".into())
            .spawn(move || {
                hurry();
                // SAFETY: a plain question.
                let _ = name.send(unsafe { libc::gettid() });
                let mut state = S::default();
                while let Ok(job) = inbox.recv() {
                    job(&mut state);
                }
            })
            .expect("a thread can be started");
        let tid = named.recv().expect("the thread says its id before anything else");
        Self { jobs: Some(jobs), thread: Some(thread), tid, maker: Maker::this() }
    }

    /// Has it work on these processors from now on.
    pub fn keep_to(&self, processors: &Processors) {
        processors.keep(self.tid);
    }

    /// Runs a function on the worker and waits for what it returns.
    pub fn run<R: Send + 'static>(&self, job: impl FnOnce(&mut S) -> R + Send + 'static) -> R {
        let (reply, answer) = mpsc::channel();
        let jobs = self.jobs.as_ref().expect("only drop takes it");
        jobs.send(Box::new(move |state| {
            // The receiver waits below; it cannot have gone.
            let _ = reply.send(job(state));
        }))
        .expect("the worker lives as long as its handle");
        loop {
            match answer.recv_timeout(ASSIST) {
                Err(mpsc::RecvTimeoutError::Timeout) => S::assist(self.tid),
                result => break result.expect("a job answers unless it panics, and then so do we"),
            }
        }
    }
}

/// Asks the kernel to run this thread as soon as it can: while it works, a target stands still. Where
/// weft is not privileged to ask for it, it takes its turn like everybody else.
fn hurry() {
    // What this thread starts must not inherit the urgency.
    schedule(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
    slacken(1);
}

/// Does something on this thread that must not take longer than it has to.
pub fn urgently<R>(act: impl FnOnce() -> R) -> R {
    // SAFETY: plain questions.
    let (before, slack) = unsafe {
        (
            libc::syscall(libc::SYS_sched_getscheduler, 0) as i32,
            libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0),
        )
    };
    // One that is urgent already stays as it is.
    let is_usual =
        matches!(before & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER | libc::SCHED_BATCH);
    if !is_usual {
        return act();
    }
    hurry();
    let result = act();
    schedule(before, 0);
    slacken(slack);
    result
}

/// Sets how the kernel schedules this thread, if weft is privileged to.
fn schedule(policy: i32, priority: i32) {
    // Not by the library: musl's function always refuses.
    // SAFETY: it takes numbers, and one that outlives the call. Its failure does not matter.
    unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, policy, &raw const priority) };
}

/// Sets by how many nanoseconds this thread may be woken late.
fn slacken(nanoseconds: i32) {
    // SAFETY: it takes numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds, 0, 0, 0) };
}

impl<S> Drop for Worker<S> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            if !self.maker.is_here() {
                // A forked child has no such thread to wait for.
                return std::mem::forget(thread);
            }
            // It can only have failed by a panic, which was passed on when it happened.
            let _ = thread.join();
            // The kernel says that a thread has ended before it lets go of what the thread held.
            while is_there(self.tid) {
                thread::yield_now();
            }
        }
    }
}

/// Whether the kernel still knows a thread of this process.
fn is_there(tid: libc::pid_t) -> bool {
    // SAFETY: no signal is sent, it is only looked whether one could be.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) == 0 }
}
