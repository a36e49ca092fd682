//! A program that weft has started, to be waited for.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::fs;
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use weft_host::{ended, exit_code};

/// How often a waiting call looks whether the user has pressed Ctrl-C.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// The program, for one who waits at a time.
pub struct Waited {
    child: Mutex<Child>,
    last_words: Mutex<HashMap<&'static str, String>>,
}

/// The files below `/proc/PID` in which the kernel says what it has counted for a process, and what its limits are.
const COUNTS: [&str; 4] = ["io", "limits", "stat", "status"];

impl Drop for Waited {
    fn drop(&mut self) {
        // Its end may have been left to a tracer, which has gone by now.
        if let Ok(child) = self.child.get_mut() {
            let _ = child.try_wait();
        }
    }
}

impl Waited {
    pub fn new(child: Child) -> Self {
        Self { child: Mutex::new(child), last_words: Mutex::default() }
    }

    /// What the kernel said in a file of the program's when it had ended; nothing before.
    pub fn last_words(&self, file: &str) -> Option<String> {
        self.last_words.lock().ok()?.get(file).cloned()
    }

    fn keep_last_words(&self, pid: i32) {
        let Ok(mut words) = self.last_words.lock() else { return };
        for file in COUNTS {
            if let Ok(text) = fs::read_to_string(format!("/proc/{pid}/{file}")) {
                words.insert(file, text);
            }
        }
    }

    /// Waits until it has ended, for at most some seconds; returns its exit code.
    pub fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<i32>> {
        let deadline =
            timeout.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.max(0.0)));
        loop {
            let ended = py.detach(|| self.wait_a_little(deadline))?;
            if ended.is_some() || deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(ended);
            }
            py.check_signals()?;
        }
    }

    fn wait_a_little(&self, deadline: Option<Instant>) -> PyResult<Option<i32>> {
        let mut child = self
            .child
            .lock()
            .map_err(|_| PyRuntimeError::new_err("an earlier call has panicked"))?;
        let until = Instant::now() + SIGNAL_CHECK;
        let until = deadline.map_or(until, |d| until.min(d));
        loop {
            if let Some(status) = ended(&mut child, |pid| self.keep_last_words(pid))? {
                return Ok(Some(exit_code(status)));
            }
            if Instant::now() >= until {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
