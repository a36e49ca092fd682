//! The agent in a target: bringing it in, asking it, taking it out.
//!
//! Everything here runs on the thread that holds the target ([`crate::worker`]).

use crate::agent_image::{AgentImage, Layout};
use crate::arch::{Step, Trip, Value, syscall_name};
use crate::checks::limits::{self, Needs};
use crate::checks::seccomp;
use crate::journey::{self, Outcome, Traveller};
use crate::leftovers::{Range, sign};
use crate::proc::{self, FileId, Mapping, Tid};
use crate::room::Room;
use crate::stopped::Stopped;
use crate::{Error, ErrorKind, Result, TargetAddr, arch, place};
use memmap2::MmapMut;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use weft_abi::{
    COUNTER_FORBIDDEN, ControlBlock, MAGIC, MEMORY_NAME, SLOT_COUNT, SLOT_SIZE, Slot, VERSION,
    answer_to, request, state,
};

/// The agent that was loaded into a target.
#[derive(Debug)]
pub struct Agent {
    base: TargetAddr,
    /// By what the kernel knows its memory: another weft's may be at the same place later.
    file: FileId,
    layout: Layout,
    memory: MmapMut,
    /// The trips into the agent, by slot.
    visits: Vec<Trip>,
    questions: u64,
}

/// What the agent saw of the processor from inside the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuFacts {
    /// The names of the features that matter to weft.
    pub features: Vec<&'static str>,
    /// How many bytes the vector state of a thread takes.
    pub vector_state_size: u32,
}

/// One thread's answer to a ping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pong {
    /// The thread.
    pub tid: Tid,
    /// Why it was not asked; nothing when it was asked and answered.
    pub unasked: Option<String>,
}

impl Agent {
    /// Loads the agent through one of the stopped threads, and takes out what earlier ones left. When
    /// it fails, the target is as it was.
    pub fn load(
        stopped: &Stopped,
        maps: &[Mapping],
        room: &Room,
        leftovers: &[Range],
        pidfd: RawFd,
    ) -> Result<Self> {
        let pid = stopped.pid();
        let image = AgentImage::get()?;
        let base = place::find(pid, maps, image.layout.length)?;
        let sharing = loading(base, &image.layout);
        let traveller = permitted_traveller(stopped, &sharing.steps)?;
        for &(start, length) in leftovers {
            remove(stopped, &traveller, room, start, length)?;
        }

        let (memory, _) = sharing.make(stopped, room, pidfd)?;
        let layout = image.layout;
        let file = FileId::default();
        let mut agent = Self { base, file, layout, memory, visits: Vec::new(), questions: 0 };
        if let Err(error) = agent.initialise(stopped, &traveller, image) {
            // The first error is the one to report.
            let _ = remove(stopped, &traveller, room, base, layout.length);
            return Err(error);
        }
        Ok(agent)
    }

    fn initialise(
        &mut self,
        stopped: &Stopped,
        traveller: &Traveller,
        image: &AgentImage,
    ) -> Result<()> {
        let maps = proc::maps(stopped.pid())?;
        self.file =
            maps.iter().find(|m| m.start == self.base).map(Mapping::file).unwrap_or_default();
        image.place(&mut self.memory, self.base);
        let control = self.control();
        control.version.store(VERSION, Relaxed);
        control.size.store(size_of::<ControlBlock>() as u32, Relaxed);
        control.slot_size.store(SLOT_SIZE as u32, Relaxed);
        let hwcap2 = proc::auxiliary_value(stopped.pid(), libc::AT_HWCAP2).unwrap_or(0);
        control.may_read_fs_base.store(u32::from(arch::cpu::enables_fsgsbase(hwcap2)), Relaxed);
        sign(&control.owner)?;
        // Last: a block with the magic number is complete, and can be asked whose it is.
        control.magic.store(MAGIC, Release);

        let trip = self.visit(traveller, 0, request::INIT)?;
        traveller.travel(&trip, |_, _| Ok(()))?;
        let control = self.control();
        match control.state.load(Acquire) {
            state::READY => Ok(()),
            other => {
                Err(Error::new(ErrorKind::Internal, "the agent did not become ready").why(format!(
                    "state {other}, layout version {} here and {} there",
                    VERSION,
                    control.agent_version.load(Relaxed)
                )))
            }
        }
    }

    /// Plans visits to the agent for that many threads at a time, which is better done before they are
    /// stopped.
    pub fn plan_visits(&mut self, threads: usize) -> Result<()> {
        for slot in self.visits.len()..threads.min(SLOT_COUNT) {
            let step = Step::Visit {
                entry: self.base + self.layout.entry(),
                control: self.base + self.layout.control(),
                slot: self.base + self.layout.slot(slot),
                stack: self.base + self.layout.slot(slot + 1),
            };
            self.visits.push(journey::plan(self.base + self.layout.trip(slot), &[step])?);
        }
        Ok(())
    }

    /// Prepares a thread's visit to the agent through a slot.
    fn visit(&mut self, traveller: &Traveller, slot: usize, asked: u32) -> Result<Trip> {
        self.plan_visits(slot + 1)?;
        self.slot(slot).request.store(asked, Release);
        let trip = self.visits[slot].clone();
        self.put(slot, &traveller.pack(&trip));
        Ok(trip)
    }

    /// Writes the packed trip of a slot.
    fn put(&mut self, slot: usize, bytes: &[u8]) {
        self.memory[self.layout.trip(slot) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Asks every stopped thread for an answer. `filtered` says that seccomp filters are in the way of
    /// some, so that each has to be looked at.
    pub fn ping(&mut self, stopped: &Stopped, filtered: bool) -> Result<Vec<Pong>> {
        let mut pongs = Vec::with_capacity(stopped.threads().len());
        let mut askable = Vec::with_capacity(stopped.threads().len());
        for &tid in stopped.threads().keys() {
            if filtered && let Err(error) = seccomp::examine(tid, &calls_of(&[])) {
                pongs.push(Pong { tid, unasked: Some(error.to_string()) });
            } else {
                askable.push(tid);
            }
        }
        for group in askable.chunks(SLOT_COUNT) {
            pongs.extend(self.ping_group(stopped, group)?);
        }
        pongs.extend(stopped.not_stopped().map(|(tid, call)| Pong {
            tid,
            unasked: Some(format!("asleep in {call}, which cannot be interrupted without a trace")),
        }));
        Ok(pongs)
    }

    /// Asks as many threads as there are slots, all at the same time.
    fn ping_group(&mut self, stopped: &Stopped, group: &[Tid]) -> Result<Vec<Pong>> {
        let mut away = Vec::with_capacity(group.len());
        let mut first_failure = Ok(());
        for (slot, &tid) in group.iter().enumerate() {
            self.questions += 1;
            let question = self.questions;
            self.slot(slot).question.store(question, Relaxed);
            let departed = Traveller::new(stopped, tid).and_then(|traveller| {
                let trip = self.visit(&traveller, slot, request::PING)?;
                traveller.depart(&trip)?;
                Ok((traveller, trip))
            });
            match departed {
                Ok((traveller, trip)) => away.push((slot, question, traveller, trip)),
                Err(error) => first_failure = first_failure.and(unless_ended(tid, error)),
            }
        }
        // All have to be met, whatever happens to one of them.
        let mut pongs = Vec::with_capacity(away.len());
        for (slot, question, traveller, trip) in away {
            let tid = traveller.tid();
            match traveller.arrive(&trip, |_, _| Ok(())) {
                Ok(_) if self.has_answered(slot, question, &traveller) => {
                    pongs.push(Pong { tid, unasked: None });
                }
                Ok(_) => first_failure = first_failure.and(Err(no_answer(tid))),
                Err(error) => first_failure = first_failure.and(unless_ended(tid, error)),
            }
        }
        first_failure.map(|()| pongs)
    }

    fn has_answered(&self, slot: usize, question: u64, traveller: &Traveller) -> bool {
        let slot = self.slot(slot);
        let (answer, fs_base) = (slot.answer.load(Acquire), slot.fs_base.load(Relaxed));
        let knows_thread = self.control().may_read_fs_base.load(Relaxed) != 0;
        answer == answer_to(question) && (!knows_thread || fs_base == traveller.home().0.fs_base)
    }

    /// Has one of the stopped threads make a system call, and returns what the kernel did: negative
    /// for an error.
    pub fn call(&mut self, stopped: &Stopped, number: i64, args: &[u64]) -> Result<i64> {
        let steps = [Step::Call(number, args.iter().copied().map(Value::Const).collect())];
        let traveller = permitted_traveller(stopped, &steps)?;
        // The room of a visit: visits are packed anew each time.
        let trip = journey::plan(self.base + self.layout.trip(0), &steps)?;
        self.put(0, &traveller.pack(&trip));
        let outcomes = traveller.travel(&trip, |_, _| Ok(()))?;
        outcomes.first().map(|outcome| outcome.value).ok_or_else(|| {
            Error::new(ErrorKind::Internal, "a system call of the target left no result")
        })
    }

    /// Whether the program has forbidden itself to read the time stamp counter. One thread is asked: who
    /// forbids it does so before it makes others. One that a seccomp filter does not let ask counts as not
    /// having done so.
    pub fn is_counter_forbidden(&mut self, stopped: &Stopped) -> Result<bool> {
        let place = self.base + self.layout.slot(0) + offset_of!(Slot, answer) as u64;
        self.slot(0).answer.store(0, Relaxed);
        match self.call(stopped, libc::SYS_prctl, &counter_question(place)) {
            Err(error) if error.kind == ErrorKind::SeccompForbids => return Ok(false),
            outcome => outcome?,
        };
        Ok(self.slot(0).answer.load(Relaxed) == COUNTER_FORBIDDEN.into())
    }

    /// Has one of the stopped threads get memory that it shares with weft.
    pub fn share(&mut self, stopped: &Stopped, sharing: &Sharing, pidfd: RawFd) -> Result<MmapMut> {
        let made = sharing.make_by(
            stopped,
            pidfd,
            |_| Ok(()),
            |traveller, steps, before| {
                // The room of the visits, all of it: they are packed anew each time.
                let trip = journey::plan(self.base + self.layout.trip(0), steps)?;
                self.put(0, &traveller.pack(&trip));
                traveller.travel(&trip, before)
            },
        );
        made.map(|(memory, _)| memory)
    }

    /// Takes the agent out through one of the stopped threads.
    pub fn unload(&self, stopped: &Stopped) -> Result<()> {
        let traveller = permitted_traveller(stopped, &removing(self.base, self.layout.length))?;
        let maps = proc::maps(stopped.pid())?;
        if !self.is_in(&maps) {
            return Ok(());
        }
        let room = Room::find(stopped.pid(), &maps)?;
        remove(stopped, &traveller, &room, self.base, self.layout.length)
    }

    /// Fails if the target has lost the agent.
    pub fn check_in(&self, pid: Tid) -> Result<()> {
        if self.is_in(&proc::maps(pid)?) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::TargetGone, format!("process {pid} is another program now"))
            .why("it called execve, which takes everything out of a process")
            .advice("attach again"))
    }

    /// Whether the target still has the agent: a program that replaced itself has not.
    pub fn is_in(&self, maps: &[Mapping]) -> bool {
        maps.iter().any(|m| m.start == self.base && m.file() == self.file && is_wefts(m))
    }

    /// What the agent saw of the processor.
    pub fn cpu(&self) -> CpuFacts {
        let cpu = &self.control().cpu;
        let (ecx1, ebx7) = (cpu.leaf1_ecx.load(Relaxed), cpu.leaf7_ebx.load(Relaxed));
        let features = [
            ("sse4.2", ecx1 & 1 << 20 != 0),
            ("avx", ecx1 & 1 << 28 != 0),
            ("avx2", ebx7 & 1 << 5 != 0),
            ("avx512f", ebx7 & 1 << 16 != 0),
            ("xsave", ecx1 & 1 << 27 != 0),
            ("fsgsbase", self.control().may_read_fs_base.load(Relaxed) != 0),
        ];
        CpuFacts {
            features: features.iter().filter(|(_, has)| *has).map(|(name, _)| *name).collect(),
            vector_state_size: cpu.vector_state_size.load(Relaxed),
        }
    }

    fn control(&self) -> &ControlBlock {
        // SAFETY: the layout puts it on a page of its own inside the memory; all of its fields are
        // atomics, for which every bit pattern is a value.
        unsafe { &*self.memory.as_ptr().add(self.layout.control() as usize).cast() }
    }

    fn slot(&self, slot: usize) -> &Slot {
        // SAFETY: as above; the stack, which is not atomic, is never looked at here.
        unsafe { &*self.memory.as_ptr().add(self.layout.slot(slot) as usize).cast() }
    }
}

/// What a thread does to get weft its memory.
fn loading(base: TargetAddr, layout: &Layout) -> Sharing {
    let map = |offset: u64, end: u64, protection: i32| {
        map_shared(base + offset, end - offset, protection, offset)
    };
    let steps = vec![
        map(0, layout.executable, libc::PROT_READ | libc::PROT_EXEC),
        map(layout.executable, layout.length, libc::PROT_READ | libc::PROT_WRITE),
        // Children have no use for it, and nobody would take it out of them.
        Step::Call(
            libc::SYS_madvise,
            [base.0, layout.length, libc::MADV_DONTFORK as u64].map(Value::Const).to_vec(),
        ),
    ];
    Sharing::new(MEMORY_NAME, layout.length, steps)
}

/// Memory that a thread of the target makes and shares with weft.
///
/// The thread creates a file without a size and maps it; weft gives it its size. A thread that did that itself
/// would get SIGXFSZ, and by default die of it, where its files may not be that long (RLIMIT_FSIZE).
#[derive(Debug)]
pub struct Sharing {
    /// What the thread does. Each call after one that failed fails as well and does nothing, so no test is
    /// needed in between.
    steps: Vec<Step>,
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

    /// Has one of the stopped threads make it, from room that the target has; returns a descriptor of it, too.
    /// When it fails, nothing of it is left in the target.
    pub fn make(&self, stopped: &Stopped, room: &Room, pidfd: RawFd) -> Result<(MmapMut, File)> {
        self.make_signed(stopped, room, pidfd, |_| Ok(()))
    }

    /// The same; `sign` writes to it before the target has it mapped.
    pub fn make_signed(
        &self,
        stopped: &Stopped,
        room: &Room,
        pidfd: RawFd,
        sign: impl Fn(&MmapMut) -> Result<()>,
    ) -> Result<(MmapMut, File)> {
        self.make_by(stopped, pidfd, sign, |traveller, steps, before| {
            away_trip(stopped, traveller, room, steps, before)
        })
    }

    /// The same by any trip, which `travel` makes.
    fn make_by(
        &self,
        stopped: &Stopped,
        pidfd: RawFd,
        sign: impl Fn(&MmapMut) -> Result<()>,
        mut travel: impl FnMut(&Traveller, &[Step], Before<'_>) -> Result<Vec<Outcome>>,
    ) -> Result<(MmapMut, File)> {
        limits::check(stopped.pid(), self.needs())?;
        let back = removing(TargetAddr(0), 0);
        let traveller = permitted_traveller(stopped, &[&self.steps[..], &back].concat())?;
        let mut fetched = None;
        let outcomes = travel(&traveller, &self.steps, &mut |_, done| {
            // The target has the descriptor until the end of the trip.
            if let [created] = done
                && created.value >= 0
            {
                let shared = share_memory(pidfd, created.value as RawFd, self.length);
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

/// Takes weft's memory at this place out of the target.
fn remove(
    stopped: &Stopped,
    traveller: &Traveller,
    room: &Room,
    start: TargetAddr,
    length: u64,
) -> Result<()> {
    let outcomes = away_trip(stopped, traveller, room, &removing(start, length), |_, _| Ok(()))?;
    check_outcomes(stopped.pid(), &outcomes)
}

/// Takes memory of weft's out of a process that has no agent: a child of one that has.
pub fn take_out(stopped: &Stopped, ranges: &[Range]) -> Result<()> {
    let pid = stopped.pid();
    let maps = proc::maps(pid)?;
    let room = Room::find(pid, &maps)?;
    for &(start, length) in ranges {
        let traveller = permitted_traveller(stopped, &removing(start, length))?;
        remove(stopped, &traveller, &room, start, length)?;
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
pub fn away_trip(
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
fn calls_of(steps: &[Step]) -> Vec<seccomp::Call> {
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

/// Whether a mapping is the memory of some weft.
pub fn is_wefts(mapping: &Mapping) -> bool {
    mapping.shared && mapping.path == format!("/memfd:{MEMORY_NAME} (deleted)")
}

/// That a thread ends is no failure.
fn unless_ended(tid: Tid, error: Error) -> Result<()> {
    if proc::is_alive(tid) { Err(error) } else { Ok(()) }
}

fn no_answer(tid: Tid) -> Error {
    Error::new(ErrorKind::Internal, format!("thread {tid} did not answer"))
        .why("it came back from the agent with someone else's answer, or none")
}
