//! One weft at a time at work on a process.
//!
//! Several wefts, or several sessions of one, may measure a process at once, as long as each has functions of
//! its own (see [`crate::visited::others`]). What they must not do at once is to look at its code and change it: so who
//! does takes its turn.

use super::proc::{self, Tid};
use crate::{Error, ErrorKind, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// How long to wait for another weft, which is at work for some milliseconds; or for seconds, where it weaves
/// very many probes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long to rest between two tries.
const REST: Duration = Duration::from_millis(1);

/// The right to look at and change the code of a process.
///
/// It is a lock on the process' `/proc/PID/mem`. To open that, one has to be allowed to trace the process, so
/// nobody can keep weft waiting who could not stop the process for good; the kernel ends it with who has it;
/// and nothing is left behind in any folder. Where wefts see the process through different mounts of `/proc`,
/// it does not hold between them: then it is left to the kernel, which lets only one of them trace a thread,
/// and to the comparison of the code with what is expected right before it is changed.
#[derive(Debug)]
pub struct Turn(File);

impl Turn {
    /// Waits for it.
    pub fn take(pid: Tid) -> Result<Self> {
        let path = format!("/proc/{pid}/mem");
        let file = File::open(path).map_err(|e| proc::unreadable(pid, "mem", &e))?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            // SAFETY: a descriptor that is open, and a number.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Self(file));
            }
            let error = std::io::Error::last_os_error();
            if error.kind() != std::io::ErrorKind::WouldBlock {
                return Err(proc::unreadable(pid, "mem", &error));
            }
            if Instant::now() > deadline {
                return Err(Error::new(
                    ErrorKind::AlreadyTraced,
                    format!("another weft is at work on process {pid}"),
                )
                .why("it holds the process, and did not let go in half a minute")
                .advice("end that one first, or try again"));
            }
            std::thread::sleep(REST);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the file open, too, and would keep the lock.
        // SAFETY: as above.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let me = std::process::id() as Tid;
        let first = Turn::take(me).unwrap();
        let waiting = std::thread::spawn(move || {
            let _second = Turn::take(me).unwrap();
            Instant::now()
        });
        std::thread::sleep(Duration::from_millis(20));
        let end = Instant::now();
        drop(first);
        assert!(waiting.join().unwrap() >= end);
        assert_eq!(Turn::take(-1).unwrap_err().kind, ErrorKind::NoSuchProcess);
    }
}
