//! Which processes an engine is in: as the kernel knows it.
//!
//! What the engine says of itself is in memory that the program can write, and in the ids of the program's own PID
//! namespace. So nothing is done to a process because of what is said there: it has to map the memory of that very
//! engine, at its place.

use crate::process::proc::{self, Mapping, Tid};
use crate::process::ptrace;
use crate::visited::engine::is_control;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread that asks for something may take until it waits for the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to sleep between two looks at it.
const REST: Duration = Duration::from_micros(100);

/// The memory of a process, shared or not: it outlives the process id, and ends with `execve`.
#[derive(Debug)]
struct AddressSpace(File);

impl AddressSpace {
    fn of(pid: Tid) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }

    /// Whether anybody still has it, with something at an address.
    fn holds(&self, at: TargetAddr) -> bool {
        matches!(self.0.read_at(&mut [0], at.0), Ok(1))
    }
}

/// By what the kernel knows the memory that an engine shares with weft, and who has it.
#[derive(Debug)]
pub struct Members {
    /// Where it is mapped, in all of them.
    at: TargetAddr,
    device: (u32, u32),
    inode: u64,
    /// No process of them was started before, in clock ticks since boot.
    since: u64,
    /// One that was among them at the last look.
    known: Mutex<Option<AddressSpace>>,
}

impl Members {
    /// Those who have the memory that a process has at an address. None of them was started before a time.
    pub fn of(pid: Tid, at: TargetAddr, since: u64) -> Result<Self> {
        let maps = proc::maps(pid)?;
        let mapping = maps.iter().find(|mapping| mapping.start == at && is_control(mapping));
        let Some(&Mapping { device, inode, .. }) = mapping else {
            return Err(Error::new(ErrorKind::Internal, "the engine's memory is not there"));
        };
        let space = AddressSpace::of(pid).map_err(|e| proc::unreadable(pid, "mem", &e))?;
        Ok(Self { at, device, inode, since, known: Mutex::new(Some(space)) })
    }

    /// Whether a process is one of them: not one that has become another program.
    pub fn has(&self, pid: Tid) -> bool {
        let is_it = |mapping: &Mapping| {
            mapping.start == self.at
                && (mapping.device, mapping.inode) == (self.device, self.inode)
                && is_control(mapping)
        };
        proc::maps(pid).is_ok_and(|maps| maps.iter().any(is_it))
    }

    /// All of them: those that share their memory with another one as well.
    pub fn all(&self) -> impl Iterator<Item = Tid> {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries
            .filter_map(|entry| entry.file_name().to_str()?.parse::<Tid>().ok())
            // Cheaper than reading the maps of every process.
            .filter(|&pid| proc::stat(pid).is_ok_and(|stat| stat.start_time >= self.since))
            .filter(|&pid| self.has(pid))
    }

    /// Whether there is any left. If the one that was known has ended, others are looked for, provided that there
    /// may be some.
    pub fn are_left(&self, may_be_more: bool) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_some_and(|space| space.holds(self.at)) {
            return true;
        }
        // The kernel lists processes by id: one that is forked during the listing may have been passed over, and its
        // parent gone. A second listing has it.
        let look = || self.all().find_map(|pid| AddressSpace::of(pid).ok());
        *known = if may_be_more { look().or_else(look) } else { None };
        known.is_some()
    }

    /// The thread that calls itself by these ids, and waits for the word at an address of its memory: its id, and
    /// that of its process, in weft's PID namespace.
    pub fn find(&self, own_tid: u32, own_pid: u32, word: TargetAddr) -> Option<(Tid, Tid)> {
        let is_waiting = |&(tid, _): &(Tid, Tid)| {
            proc::sleeping_call(tid)
                .is_some_and(|call| call.number == libc::SYS_futex && call.args[0] == word.0)
        };
        let is_it = |&(tid, pid): &(Tid, Tid)| {
            let same = |id: Tid, own: u32| proc::own_pid(id).is_ok_and(|id| id as u32 == own);
            same(tid, own_tid) && same(pid, own_pid)
        };
        // Most are in weft's own namespace.
        let direct = (own_tid as Tid, own_pid as Tid);
        let is_thread = proc::threads(direct.1).is_ok_and(|all| all.contains(&direct.0));
        if is_thread && is_it(&direct) && self.has(direct.1) && is_waiting(&direct) {
            return Some(direct);
        }
        let threads = |pid| proc::threads(pid).unwrap_or_default().into_iter();
        let of_process = |pid| threads(pid).map(move |tid| (tid, pid));
        let found: Vec<(Tid, Tid)> = self.all().flat_map(of_process).filter(is_it).collect();
        if let [only] = found[..] {
            return Some(only);
        }
        // Two of them, in different namespaces, call themselves the same. One waits there.
        let deadline = Instant::now() + PATIENCE;
        while !found.is_empty() && Instant::now() < deadline {
            if let Some(&waiting) = found.iter().find(|it| is_waiting(it)) {
                return Some(waiting);
            }
            thread::sleep(REST);
        }
        None
    }

    /// Makes the calling thread the tracer of one that was found. If that is not one of them, because its id
    /// was given to another meanwhile, says so: the caller has to end, by which the kernel lets it go.
    pub fn seize(&self, tid: Tid, pid: Tid, options: i32) -> bool {
        if ptrace::seize(tid, options).is_err() {
            return false;
        }
        // From now on nobody else can have its id.
        proc::threads(pid).is_ok_and(|all| all.contains(&tid)) && self.has(pid)
    }
}
