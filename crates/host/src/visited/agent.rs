//! The agent in a target: bringing it in, asking it, taking it out.
//!
//! Everything here runs on the thread that holds the target ([`crate::base::worker`]).

use super::leftovers::is_wefts;
use super::owner::sign;
use crate::arch::{self, Step, Trip, Value};
use crate::process::proc::{self, FileId, Mapping, Tid};
use crate::process::seccomp;
use crate::process::stopped::Stopped;
use crate::trip::image::{AgentImage, Layout};
use crate::trip::journey::{self, Traveller};
use crate::trip::place;
use crate::trip::room::Room;
use crate::trip::sharing::{
    MemoryRange, Sharing, calls_of, counter_question, map_shared, permitted_traveller, removing,
    run_by, run_checked,
};
use crate::{Error, ErrorKind, Result, TargetAddr};
use memmap2::MmapMut;
use std::mem::offset_of;
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
    /// Why it was not asked; `None` when it was asked and answered.
    pub unasked: Option<String>,
}

impl Agent {
    /// Loads the agent through one of the stopped threads, and takes out what earlier ones left. When
    /// it fails, the target is as it was.
    pub fn load(
        stopped: &Stopped,
        maps: &[Mapping],
        room: &Room,
        leftovers: &[MemoryRange],
    ) -> Result<Self> {
        let pid = stopped.pid();
        let image = AgentImage::get()?;
        let base = place::find(pid, maps, image.layout.length)?;
        let sharing = loading(base, &image.layout);
        let traveller = permitted_traveller(stopped, &sharing.steps)?;
        for &(start, length) in leftovers {
            run_by(stopped, &traveller, room, &removing(start, length))?;
        }

        let (memory, _) = sharing.make(stopped, room)?;
        let layout = image.layout;
        let file = FileId::default();
        let mut agent = Self { base, file, layout, memory, visits: Vec::new(), questions: 0 };
        if let Err(error) = agent.initialise(stopped, &traveller, image) {
            // The first error is the one to report.
            let _ = run_by(stopped, &traveller, room, &removing(base, layout.length));
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
        answer == answer_to(question)
            && (!knows_thread || fs_base == traveller.home().thread_pointer())
    }

    /// Makes a system call by one of the stopped threads, and returns what the kernel did: negative
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

    /// Maps memory that one of the stopped threads shares with weft.
    pub fn share(&mut self, stopped: &Stopped, sharing: &Sharing) -> Result<MmapMut> {
        let made = sharing.make_by(
            stopped,
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
        let maps = proc::maps(stopped.pid())?;
        if !self.is_in(&maps) {
            return Ok(());
        }
        let room = Room::find(stopped.pid(), &maps)?;
        run_checked(stopped, &room, &removing(self.base, self.layout.length))
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

/// That a thread ends is no failure.
fn unless_ended(tid: Tid, error: Error) -> Result<()> {
    if proc::is_alive(tid) { Err(error) } else { Ok(()) }
}

fn no_answer(tid: Tid) -> Error {
    Error::new(ErrorKind::Internal, format!("thread {tid} did not answer"))
        .why("it came back from the agent with someone else's answer, or none")
}
