//! A process whose threads weft holds while one of them becomes another program.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::proc::{self, Tid};
use super::stopped::{Caution, Stopped};
use crate::base::worker::Worker;

const PATIENCE: Duration = Duration::from_secs(20);

/// Has a second thread, and becomes another program when it is told to.
const PROGRAM: &str = "\
import os, sys, threading, time
threading.Thread(target=time.sleep, args=(100,), daemon=True).start()
sys.stdin.readline()
os.execvp('sleep', ['sleep', '100'])
";

fn await_that(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "it takes too long");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a thread of Python sleeps, and does not wait for the interpreter's lock: who stops it then, stops all.
fn is_asleep(tid: Tid) -> bool {
    let calls = [libc::SYS_clock_nanosleep, libc::SYS_select, libc::SYS_pselect6];
    proc::sleeping_call(tid).is_some_and(|call| calls.contains(&call.number))
}

/// The process, and its second thread once that sleeps.
fn start() -> (Child, Tid) {
    let mut command = Command::new("python3");
    let child = command.args(["-c", PROGRAM]).stdin(Stdio::piped()).spawn().unwrap();
    let pid = child.id() as Tid;
    let second = || proc::threads(pid).unwrap().into_iter().find(|&tid| tid != pid);
    await_that(|| second().is_some_and(is_asleep));
    (child, second().unwrap())
}

/// Has the process become another program.
fn execute(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
}

/// Waits until a thread has ended that is held: until then execve waits for it, and then for its tracer.
fn await_end(held: Tid) {
    await_that(|| proc::stat(held).is_ok_and(|stat| stat.state == 'Z'));
}

fn becomes_the_other(mut child: Child) {
    let name = || fs::read_to_string(format!("/proc/{}/comm", child.id())).unwrap();
    await_that(|| name() == "sleep\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Runs what may hang for ever on a thread of its own.
fn in_time(act: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        act();
        done.send(()).unwrap();
    });
    assert_ne!(is_done.recv_timeout(2 * PATIENCE), Err(mpsc::RecvTimeoutError::Timeout), "hangs");
    thread.join().unwrap();
}

#[test]
fn a_thread_that_ended_does_not_hold_up_the_seizing_of_another() {
    in_time(|| {
        let (mut child, second) = start();
        let pid = child.id() as Tid;
        let worker = Worker::<Stopped>::new();
        worker.run(move |stopped| {
            *stopped = Stopped::stop_some(pid, &[second], Caution::StopAll, PATIENCE).unwrap();
            assert!(stopped.threads().contains_key(&second));
        });
        execute(&mut child);
        await_end(second);
        // The kernel has the tracer wait for the end of execve, and that waits for the tracer.
        worker.run(move |stopped| {
            stopped.stop_more(&[pid], Caution::StopAll).unwrap();
            stopped.release();
            assert!(stopped.must_end());
        });
        drop(worker);
        becomes_the_other(child);
    });
}

#[test]
fn a_thread_that_ended_does_not_hold_up_the_stop_of_another() {
    in_time(|| {
        let (mut child, second) = start();
        let pid = child.id() as Tid;
        let worker = Worker::<Stopped>::new();
        let (told, tells) = mpsc::channel();
        let executing = thread::spawn(move || {
            tells.recv().unwrap();
            execute(&mut child);
            child
        });
        let began = worker.run(move |stopped| {
            super::ptrace::seize(pid, 0).unwrap();
            *stopped = Stopped::stop_some(pid, &[second], Caution::StopAll, PATIENCE).unwrap();
            told.send(()).unwrap();
            await_end(second);
            let began = Instant::now();
            stopped.stop_more(&[pid], Caution::StopAll).unwrap();
            stopped.release();
            began
        });
        assert!(began.elapsed() < PATIENCE / 2);
        drop(worker);
        becomes_the_other(executing.join().unwrap());
    });
}
