//! Memory of weft's in a target: getting it, sharing it, and giving it back, by trips of the target's own threads.

use super::journey::{self, Outcome, Traveller};
use super::room::Room;
use crate::arch::{Step, Value, syscall_name};
use crate::process::limits::{self, Needs};
use crate::process::proc::{self, Tid};
use crate::process::seccomp;
use crate::process::stopped::Stopped;
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};

/// A range of the target's memory.
pub type MemoryRange = (TargetAddr, u64);

/// Memory that a thread of the target makes and shares with weft.
///
/// The thread creates a file without a size and maps it; weft gives it its size. A thread that did that itself
/// would get SIGXFSZ, and by default die of it, where its files may not be that long (RLIMIT_FSIZE).
#[derive(Debug)]
pub struct Sharing {
    /// What the thread does. Each call after one that failed fails as well and does nothing, so no test is
    /// needed in between.
    pub steps: Vec<Step>,
    length: u64,
}

impl Sharing {
    /// That much memory with a name, which `map` maps.
    pub fn new(name: &'static str, length: u64, map: Vec<Step>) -> Self {
        use Value::{Const, FirstResult, Text};
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        let create = vec![Text(name), Const(flags.into())];
        let mut steps = vec![Step::Call(libc::SYS_memfd_create, create)];
        steps.extend(map);
        steps.push(Step::Call(libc::SYS_close, vec![FirstResult]));
        Self { steps, length }
    }

    /// Makes it by one of the stopped threads, from room that the target has; returns a descriptor of it, too.
    /// When it fails, nothing of it is left in the target.
    pub fn make(&self, stopped: &Stopped, room: &Room) -> Result<(MmapMut, File)> {
        self.make_signed(stopped, room, |_| Ok(()))
    }

    /// The same; `sign` writes to it before the target has it mapped.
    pub fn make_signed(
        &self,
        stopped: &Stopped,
        room: &Room,
        sign: impl Fn(&MmapMut) -> Result<()>,
    ) -> Result<(MmapMut, File)> {
        self.make_by(stopped, sign, |traveller, steps, before| {
            away_trip(stopped, traveller, room, steps, before)
        })
    }

    /// The same by any trip, which `travel` makes.
    pub fn make_by(
        &self,
        stopped: &Stopped,
        sign: impl Fn(&MmapMut) -> Result<()>,
        mut travel: impl FnMut(&Traveller, &[Step], Before<'_>) -> Result<Vec<Outcome>>,
    ) -> Result<(MmapMut, File)> {
        limits::check(stopped.pid(), self.needs())?;
        let pidfd = proc::open_pidfd(stopped.pid())?;
        let back = removing(TargetAddr(0), 0);
        let traveller = permitted_traveller(stopped, &[&self.steps[..], &back].concat())?;
        let mut fetched = None;
        let outcomes = travel(&traveller, &self.steps, &mut |_, done| {
            // The target has the descriptor until the end of the trip.
            if let [created] = done
                && created.value >= 0
            {
                let shared = share_memory(pidfd.as_raw_fd(), created.value as RawFd, self.length);
                fetched = Some(shared.and_then(|made| sign(&made.0).map(|()| made)));
            }
            Ok(())
        })?;
        let made = check_outcomes(stopped.pid(), &outcomes).and_then(|()| {
            fetched.unwrap_or_else(|| {
                Err(Error::new(ErrorKind::Internal, "the target made no memory"))
            })
        });
        if made.is_err() {
            let back = self.undoing(&outcomes);
            if !back.is_empty() {
                // The first error is the one to report.
                let _ = travel(&traveller, &back, &mut |_, _| Ok(()));
            }
        }
        made
    }

    /// What it takes of the target.
    fn needs(&self) -> Needs {
        /// What is used of it at once, roughly.
        const MEMORY: u64 = 1 << 20;
        let mapped: Vec<Mapped> = self.steps.iter().filter_map(Mapped::by).collect();
        Needs {
            address_space: mapped.iter().map(|it| it.length).sum(),
            data: mapped.iter().filter(|it| it.is_private).map(|it| it.length).sum(),
            mappings: mapped.len() as u64,
            memory: self.length.min(MEMORY),
        }
    }

    /// What a thread does to give back what it has mapped.
    fn undoing(&self, outcomes: &[Outcome]) -> Vec<Step> {
        let calls = self.steps.iter().zip(outcomes).filter(|(_, outcome)| outcome.value >= 0);
        calls
            .filter_map(|(step, outcome)| Some((Mapped::by(step)?.length, outcome)))
            .flat_map(|(length, outcome)| removing(TargetAddr(outcome.value as u64), length))
            .collect()
    }
}

/// What a step maps.
struct Mapped {
    length: u64,
    is_private: bool,
}

impl Mapped {
    fn by(step: &Step) -> Option<Self> {
        let Step::Call(libc::SYS_mmap, args) = step else { return None };
        let [_, Value::Const(length), _, Value::Const(flags), ..] = args[..] else { return None };
        Some(Self { length, is_private: flags & libc::MAP_PRIVATE as u64 != 0 })
    }
}

/// What is told of each system call of a trip before it is made: see [`Traveller::arrive`].
type Before<'a> = &'a mut dyn FnMut(i64, &[Outcome]) -> Result<()>;

/// Maps part of the memory of a [`Sharing`].
pub fn map_shared(at: TargetAddr, length: u64, protection: i32, offset: u64) -> Step {
    let flags = (libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE) as u64;
    let args = [at.0, length, protection as u64, flags].map(Value::Const);
    let file = [Value::FirstResult, Value::Const(offset)];
    Step::Call(libc::SYS_mmap, [&args[..], &file].concat())
}

/// Sends a thread that may make them on a trip of these steps, from room that the target has. Returns what its system
/// calls came to.
pub fn run(stopped: &Stopped, room: &Room, steps: &[Step]) -> Result<Vec<Outcome>> {
    let traveller = permitted_traveller(stopped, steps)?;
    away_trip(stopped, &traveller, room, steps, |_, _| Ok(()))
}

/// Does the same, and fails if one of the calls does.
pub fn run_checked(stopped: &Stopped, room: &Room, steps: &[Step]) -> Result<()> {
    check_outcomes(stopped.pid(), &run(stopped, room, steps)?)
}

/// Does the same with a thread of the caller's choice.
pub fn run_by(stopped: &Stopped, traveller: &Traveller, room: &Room, steps: &[Step]) -> Result<()> {
    let outcomes = away_trip(stopped, traveller, room, steps, |_, _| Ok(()))?;
    check_outcomes(stopped.pid(), &outcomes)
}

/// Takes memory of weft's out of a process that has no agent: a child of one that has.
pub fn take_out(stopped: &Stopped, ranges: &[MemoryRange]) -> Result<()> {
    let pid = stopped.pid();
    let maps = proc::maps(pid)?;
    let room = Room::find(pid, &maps)?;
    for &(start, length) in ranges {
        run_checked(stopped, &room, &removing(start, length))?;
    }
    Ok(())
}

/// What a thread asks `prctl` to learn whether it may read the time stamp counter; the answer is written to a place.
pub fn counter_question(place: TargetAddr) -> [u64; 2] {
    [libc::PR_GET_TSC as u64, place.0]
}

/// What a thread does to give memory back.
pub fn removing(start: TargetAddr, length: u64) -> [Step; 1] {
    [Step::Call(libc::SYS_munmap, vec![Value::Const(start.0), Value::Const(length)])]
}

/// Makes a trip outside of weft's own memory, in room that the target has.
fn away_trip(
    stopped: &Stopped,
    traveller: &Traveller,
    room: &Room,
    steps: &[Step],
    before: impl FnMut(i64, &[Outcome]) -> Result<()>,
) -> Result<Vec<Outcome>> {
    let pid = stopped.pid();
    let trip = journey::plan(room.code(), steps)?;
    room.fill(pid, traveller.tid(), &traveller.pack(&trip))?;
    let outcome = traveller.travel(&trip, before);
    room.wipe(pid, traveller.tid())?;
    outcome
}

pub fn check_outcomes(pid: Tid, outcomes: &[Outcome]) -> Result<()> {
    let Some(failed) = outcomes.iter().find(|o| o.value < 0) else { return Ok(()) };
    let error = io::Error::from_raw_os_error(-failed.value as i32);
    let name = syscall_name(failed.number);
    Err(Error::new(
        ErrorKind::SystemCall,
        format!("process {pid} cannot get the memory that weft needs"),
    )
    .why(format!("its {name} failed: {error}"))
    .advice(match error.raw_os_error() {
        Some(libc::EMFILE) => {
            format!("let it have more descriptors: prlimit --pid {pid} --nofile=1024")
        }
        Some(libc::ENFILE) => "the machine has no descriptors left: sysctl fs.file-nr".into(),
        _ => format!("`weft doctor {pid}` shows limits and filters that forbid it"),
    }))
}

/// A thread that may make the trip: any will do, unless a seccomp filter is over it. The last born is
/// the least likely to be one that others wait for.
pub fn permitted_traveller(stopped: &Stopped, steps: &[Step]) -> Result<Traveller> {
    let mut refusal =
        Error::new(ErrorKind::TargetGone, format!("process {} has no thread left", stopped.pid()));
    for &tid in stopped.threads().keys().rev() {
        match seccomp::examine(tid, &calls_of(steps)) {
            Ok(()) => return Traveller::new(stopped, tid),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// The system calls of a trip, as a seccomp filter sees them, with the farewell that every trip has.
pub fn calls_of(steps: &[Step]) -> Vec<seccomp::Call> {
    let call = |number: i64, args: &[Value]| {
        let mut numbers = [0; 6];
        for (number, value) in numbers.iter_mut().zip(args) {
            // Neither a descriptor nor the address of a text is known yet; no filter can depend on it.
            *number = if let Value::Const(constant) = *value { constant } else { 0 };
        }
        seccomp::Call::new(number, &numbers)
    };
    let steps = steps.iter().filter_map(|step| match step {
        Step::Call(number, args) => Some(call(*number, args)),
        Step::Visit { .. } => None,
    });
    let farewell = [libc::SIG_SETMASK as u64, 0, 0, 8].map(Value::Const);
    steps.chain([call(libc::SYS_rt_sigprocmask, &farewell)]).collect()
}

/// Gives the memory behind a descriptor of the target its size, and maps it into weft.
fn share_memory(pidfd: RawFd, descriptor: RawFd, length: u64) -> Result<(MmapMut, File)> {
    let failed = |e: io::Error| {
        Error::new(ErrorKind::SystemCall, "weft cannot share memory with the target")
            .why(e.to_string())
            .advice("weft needs Linux 5.6 or later, and the right to trace the process")
    };
    // SAFETY: plain numbers in, a new descriptor out.
    let fetched = unsafe { libc::syscall(libc::SYS_pidfd_getfd, pidfd, descriptor, 0) };
    if fetched < 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: the call just made it, and nobody else knows of it.
    let file = unsafe { File::from_raw_fd(fetched as RawFd) };
    file.set_len(length).map_err(failed)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // The target could open it again, and make it so short that weft faults where it reads.
    // SAFETY: plain numbers.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } == -1 {
        return Err(failed(io::Error::last_os_error()));
    }
    // SAFETY: the file has no name; the target and weft are the only ones that map it, and both go
    // through the layout of `weft_abi`, whose shared fields are atomics.
    let memory = unsafe { MmapMut::map_mut(&file) }.map_err(failed)?;
    Ok((memory, file))
}

/// What a thread does to get memory of its own.
pub fn map_private(at: TargetAddr, length: u64) -> Step {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;
    let args = [at.0, length, protection, flags, u64::MAX, 0].map(Value::Const);
    Step::Call(libc::SYS_mmap, args.to_vec())
}
