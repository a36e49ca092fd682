//! A thread of weft's own that holds a target.
//!
//! ptrace obeys only the operating-system thread that seized the tracee, while users of a session call
//! from any. And when that thread ends, the kernel lets go of everything it held, stopped or not: so
//! whatever goes wrong, ending the worker ends the hold.

use crate::proc::Tid;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// A thread with a state of its own, that does what it is sent.
#[derive(Debug)]
pub struct Worker<S> {
    jobs: Option<mpsc::Sender<Job<S>>>,
    thread: Option<JoinHandle<()>>,
    tid: Tid,
}

impl<S: Default + 'static> Worker<S> {
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
        Self { jobs: Some(jobs), thread: Some(thread), tid }
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
        answer.recv().expect("a job answers unless it panics, and then so do we")
    }
}

/// Asks the kernel to run this thread as soon as it can: while it works, a target stands still. Where
/// weft is not privileged to ask for it, it takes its turn like everybody else.
fn hurry() {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: both calls take numbers, and a structure that outlives the call. Neither's failure
    // matters. What this thread starts must not inherit the urgency.
    unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const lowest,
        );
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
}

impl<S> Drop for Worker<S> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
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
fn is_there(tid: Tid) -> bool {
    // SAFETY: no signal is sent, it is only looked whether one could be.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, 0) == 0 }
}
