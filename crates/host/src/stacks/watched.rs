//! What is kept of a thread from look to look.

use crate::TargetAddr;
use crate::process::proc::{self, Switches, Tid};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// For how long a thread has run, and was ready to run but had to wait for its turn, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Nanoseconds on a processor.
    pub ran: u64,
    /// Nanoseconds for which it waited for one.
    pub waited: u64,
    /// How often it had its turn.
    pub turns: u64,
}

/// What a thread was found to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The thread.
    pub tid: Tid,
    /// Whether it slept in the kernel; otherwise it ran, or waited for its turn.
    pub is_asleep: bool,
    /// Whether it waited for its turn when it was looked at; also where it is weft that had its processor.
    pub is_ready: bool,
    /// Which of the stacks that were seen so far it has, see [`Sampler::stack`](super::Sampler::stack).
    pub stack: usize,
    /// The system call that it is in, and its arguments, if the kernel shows it.
    pub call: Option<(u64, [u64; 6])>,
    /// Until now.
    pub times: Times,
}

/// What is kept of a thread.
pub struct Watched {
    tid: Tid,
    /// Kept open while there are descriptors to spare.
    schedstat: Option<File>,
    /// The id that it has in its own namespace.
    pub own: u64,
    pub times: Times,
    pub last: Option<Sample>,
    /// How often it had given its processor away when that was last looked at, and how often it was stopped since.
    switches: Switches,
    pub stops: u64,
    /// What to copy of its memory beside the top of its stack.
    pub wanted: Vec<(TargetAddr, u64)>,
    /// Its frame pointers where it was stopped while it slept, by instruction and stack pointer: asleep there again, it
    /// is not stopped again.
    pub frame_pointers: BTreeMap<(u64, u64), u64>,
}

impl Watched {
    pub fn new(tid: Tid, keeps_file: bool) -> Self {
        Self {
            tid,
            schedstat: schedstat(tid).filter(|_| keeps_file),
            own: proc::own_pid(tid).unwrap_or(tid) as u64,
            times: Times::default(),
            last: None,
            switches: proc::switches(tid).unwrap_or_default(),
            stops: 0,
            wanted: Vec::new(),
            frame_pointers: BTreeMap::new(),
        }
    }

    /// Whether another took its processor, and it has not slept since this was last asked: then it was taken off wherever
    /// it ran, be that in a system call. A stop of weft's counts as a sleep, and is not meant.
    pub fn was_taken_off(&mut self, now: Switches) -> bool {
        let slept = now.voluntary.saturating_sub(self.switches.voluntary + self.stops);
        let taken = now.involuntary.saturating_sub(self.switches.involuntary);
        (self.switches, self.stops) = (now, 0);
        slept == 0 && taken > 0
    }

    /// Forgets what was seen of the program that its process no longer runs.
    pub fn forget_program(&mut self) {
        self.last = None;
        self.wanted.clear();
        self.frame_pointers.clear();
    }

    /// Whether it keeps a file open.
    pub fn keeps_file(&self) -> bool {
        self.schedstat.is_some()
    }

    /// Nothing if it has ended.
    pub fn times(&self) -> Option<Times> {
        let opened = if self.keeps_file() { None } else { schedstat(self.tid) };
        let Some(schedstat) = self.schedstat.as_ref().or(opened.as_ref()) else {
            // Not every kernel has it.
            return proc::is_alive(self.tid).then(Times::default);
        };
        let mut bytes = [0; 96];
        let length = schedstat.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(bytes.get(..length)?).ok()?;
        let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
        Some(Times { ran: words.next()??, waited: words.next()??, turns: words.next()?? })
    }
}

fn schedstat(tid: Tid) -> Option<File> {
    File::open(format!("/proc/{tid}/schedstat")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_same_without_a_file_that_is_kept() {
        // A child that has ended and was not waited for: its times stay as they are.
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let tid = child.id() as Tid;
        while proc::stat(tid).is_ok_and(|stat| stat.state != 'Z') {
            std::thread::yield_now();
        }
        let (with, without) = (Watched::new(tid, true), Watched::new(tid, false));
        assert!(with.keeps_file() && !without.keeps_file());
        assert_eq!(with.times(), without.times());
        assert!(with.times().is_some());
        child.wait().unwrap();
        assert_eq!(without.times(), None);
    }

    #[test]
    fn who_has_slept_was_not_taken_off() {
        let mut thread = Watched::new(std::process::id() as Tid, true);
        thread.switches = Switches { voluntary: 10, involuntary: 20 };
        thread.stops = 3;
        // Each stop is one more.
        assert!(thread.was_taken_off(Switches { voluntary: 13, involuntary: 21 }));
        assert!(!thread.was_taken_off(Switches { voluntary: 13, involuntary: 21 }));
        assert!(!thread.was_taken_off(Switches { voluntary: 14, involuntary: 29 }));
        assert!(thread.was_taken_off(Switches { voluntary: 14, involuntary: 30 }));
    }
}
