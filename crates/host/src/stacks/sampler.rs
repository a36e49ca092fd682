//! Where the threads of a process are, again and again, at little cost.
//!
//! A thread that has not had its turn on a processor since the last look is where it was, and is not touched. One that
//! sleeps is read where it sleeps. One that runs is seen by a clock of the kernel's; where that is not permitted, or does
//! not show enough, it is stopped: all that are, at once, for as long as it takes to copy the tops of their stacks.

use super::capture::{AWAKE, Captured, sleeper};
use super::clock::Clocks;
use super::engine::{Cloning, Seen};
use super::python::{
    KnownCodes, PythonCode, PythonFrame, PythonLayout, PythonStacks, python_stacks,
};
use super::stack::{Frame, Stack};
use super::unwind::{NO_FRAME_POINTER, Unwinding};
use super::watched::{Sample, Times, Watched};
use super::{Stacks, TOP};
use crate::base::descriptors;
use crate::base::page::PAGE;
use crate::base::processors::Processors;
use crate::base::worker::{Worker, urgently};
use crate::process::modules::{self, Module};
use crate::process::noticed::may_stop;
use crate::process::proc::{self, Image, Switches, Tid};
use crate::process::stopped::{Caution, Pause, Stopped};
use crate::process::turn::Turn;
use crate::{Result, TargetAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

mod running;

/// How long what is known of modules and code is believed.
const FRESH: Duration = Duration::from_secs(1);
/// How many threads that sleep are read together: what is read of an interpreter has to be read for all of them.
const TOGETHER: usize = 128;
/// For how many places where a thread sleeps its frame pointer is kept.
const MOST_SLEEPS: usize = 64;

/// How long a thread that slept may take to stop while the others run: it may be in a call that fails when it is stopped,
/// and weft can have it make that again only when it has stopped.
const LATENESS: Duration = Duration::from_secs(2);
/// For how many threads that run it is found out on which processor.
const MOST_PLACED: usize = 32;

const LATE: &str = "it did not stop in time";

/// How much a look takes upon itself.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// How long a thread may take to stop while the others stand still: one that has just gone to a disk comes back when
    /// that is done.
    patience: Duration,
    /// How long it may take after that, while they run: on a busy machine, as long as it takes until it has its turn.
    lateness: Duration,
    /// How often threads are stopped at most, where what was copied of their stacks was not enough.
    rounds: usize,
    /// Whether one that was too late is stopped in the next round.
    is_patient: bool,
    /// How many pieces of memory beside the top of its stack are copied of a thread.
    most_pieces: usize,
    /// How long one of these is at most.
    longest_piece: u64,
}

/// For one look of many: what it misses, the next may find.
const BRIEF: Effort = Effort {
    patience: Duration::from_millis(2),
    lateness: Duration::from_millis(20),
    rounds: 3,
    is_patient: false,
    most_pieces: 4,
    longest_piece: TOP * GROWTH.pow(2),
};
/// For the only one.
const THOROUGH: Effort = Effort {
    patience: Duration::from_millis(5),
    lateness: LATENESS,
    rounds: 8,
    is_patient: true,
    most_pieces: 8,
    longest_piece: TOP * GROWTH.pow(5),
};
/// By how much a piece is longer than the one before, where that was not enough.
const GROWTH: u64 = 4;

/// Threads that have ended, with the times that were last seen.
pub type Ended = Vec<(Tid, Times)>;

/// One look at all threads.
#[derive(Clone, Debug)]
pub struct Look {
    /// When, on the clock that counts since the machine was started.
    pub time: Duration,
    /// The threads that run, and those that sleep elsewhere than at the look before. All others sleep where they did.
    pub samples: Vec<Sample>,
    /// The threads that have ended since.
    pub ended: Ended,
    /// For how long the threads that run stood still.
    pub pause: Duration,
    /// How many system calls may have come back with less than they were asked for, as their threads were stopped.
    pub shortened: usize,
    /// Whether the process has become another program since: then there are no samples, and stacks that are seen from now
    /// on are that program's.
    pub is_replaced: bool,
}

/// A stack that was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeenStack {
    /// Native frames, the innermost first.
    pub frames: Vec<Frame>,
    /// Why there may be more.
    pub cut: Option<&'static str>,
    /// Frames of an interpreter of Python; their code is a place in [`Sampler::code`].
    pub python: Vec<PythonFrame>,
    /// Whether there may be more of these.
    pub is_python_cut: bool,
}

/// What a look has found.
#[derive(Default)]
struct Found {
    /// Whether threads slept, and their stacks.
    stacks: BTreeMap<Tid, (bool, Stack)>,
    /// Their frames of Python, and whether there may be more of these.
    python: BTreeMap<Tid, (Vec<PythonFrame>, bool)>,
    /// Those that were found asleep, also if they woke before they were read.
    slept: BTreeSet<Tid>,
    /// Those that needed another turn to stop, without those that were taken off their processor.
    ready: BTreeSet<Tid>,
    pauses: Vec<Pause>,
    shortened: usize,
}

/// What was copied of threads that stood still together, and for how long they did.
type Copied = (Vec<Captured>, Option<PythonStacks>, Pause);

/// Which threads had to get their turn to stop, and how often each has given its processor away.
type Ready = BTreeMap<Tid, Option<Switches>>;

/// Looks at the threads of a process.
pub struct Sampler {
    pid: Tid,
    effort: Effort,
    worker: Worker<Stopped>,
    clocks: Clocks,
    /// Of how many threads a file may be kept open.
    most_files: usize,
    image: Image,
    modules: Vec<Module>,
    unwinding: Unwinding,
    cloning: Cloning,
    refreshed: Instant,
    python: Option<PythonLayout>,
    known_codes: KnownCodes,
    codes: Vec<Arc<PythonCode>>,
    /// By where they are kept here.
    code_ids: HashMap<usize, u64>,
    threads: BTreeMap<Tid, Watched>,
    stacks: Vec<SeenStack>,
    stack_ids: HashMap<SeenStack, usize>,
}

impl Sampler {
    /// For a process, with the frames of the interpreter of Python that is in it.
    pub fn new(pid: Tid, python: Option<PythonLayout>) -> Result<Self> {
        Self::with(pid, python, BRIEF)
    }

    /// For one look that takes its time.
    pub(super) fn thorough(pid: Tid, python: Option<PythonLayout>) -> Result<Self> {
        Self::with(pid, python, THOROUGH)
    }

    fn with(pid: Tid, python: Option<PythonLayout>, effort: Effort) -> Result<Self> {
        let descriptors = descriptors::spare();
        let image = proc::image(pid);
        let modules = modules::modules(pid)?;
        let unwinding = Unwinding::new(pid, &modules);
        let mut sampler = Self {
            pid,
            effort,
            worker: Worker::new(),
            clocks: Clocks::new(descriptors / 4),
            most_files: descriptors / 2,
            image,
            unwinding,
            modules,
            cloning: Cloning::No,
            refreshed: Instant::now(),
            python,
            known_codes: KnownCodes::default(),
            codes: Vec::new(),
            code_ids: HashMap::new(),
            threads: BTreeMap::new(),
            stacks: Vec::new(),
            stack_ids: HashMap::new(),
        };
        let _turn = Turn::take(pid)?;
        sampler.cloning = Cloning::of(pid)?;
        Ok(sampler)
    }

    /// A stack that a sample has.
    pub fn stack(&self, id: usize) -> Option<&SeenStack> {
        self.stacks.get(id)
    }

    /// The code of a frame of Python.
    pub fn code(&self, id: u64) -> Option<&PythonCode> {
        usize::try_from(id).ok().and_then(|id| self.codes.get(id)).map(AsRef::as_ref)
    }

    /// Whether the code at an address is in a loop that only waits for another thread.
    pub fn spins(&self, at: u64) -> bool {
        self.unwinding.spins(at)
    }

    /// The times of all threads, as they were at the last look.
    pub fn times(&self) -> impl Iterator<Item = (Tid, Times)> {
        self.threads.iter().map(|(&tid, thread)| (tid, thread.times))
    }

    /// Looks at all threads after a rest. Where weft may, it is woken at once: otherwise, on a busy machine, it would have
    /// its turn when the threads have given theirs away, and hardly ever see them run.
    pub fn look_after(&mut self, rest: Duration) -> Result<Look> {
        let look = |sampler: &mut Self| {
            std::thread::sleep(rest);
            sampler.look()
        };
        // What is not urgent would wait for its turn when it changes the processor.
        urgently(|| {
            let Some(all) = Processors::mine() else { return look(self) };
            let aside = self.aside(all);
            self.worker.keep_to(aside.as_ref().unwrap_or(&all));
            match aside {
                Some(aside) => aside.run(|| look(self)),
                None => look(self),
            }
        })
    }

    /// Those of some processors that the process does not use. Left to itself, the kernel puts what is urgent on the
    /// processor with the least urgent work: where another is idle, that is the program's own. It would wait there until
    /// weft is done, or lose its caches by going elsewhere.
    fn aside(&self, all: Processors) -> Option<Processors> {
        let is_awake = |thread: &Watched| thread.last.is_some_and(|last| !last.is_asleep);
        let awake = self.threads.iter().filter(|(_, thread)| is_awake(thread));
        let (mut used, mut aside) = (BTreeSet::new(), None);
        for (&tid, _) in awake.take(MOST_PLACED) {
            used.extend(proc::processor(self.pid, tid));
            aside = all.without(&used);
            if aside.is_none() {
                break;
            }
        }
        aside
    }

    /// Looks at all threads.
    fn look(&mut self) -> Result<Look> {
        let _turn = Turn::take(self.pid)?;
        let mut is_replaced = self.is_replaced()?;
        if self.refreshed.elapsed() > FRESH {
            self.refresh()?;
        }
        let time = proc::uptime();
        let (changed, ended) = self.changed()?;
        let found = self.inspect(&changed)?;
        let pause = found.pauses.iter().map(|pause| pause.duration).sum();
        let shortened = found.shortened;
        // Of one program nothing is right that was read by the tables of another.
        is_replaced |= self.is_replaced()?;
        let samples = if is_replaced { Vec::new() } else { self.samples(&changed, found) };
        Ok(Look { time, samples, ended, pause, shortened, is_replaced })
    }

    /// Whether the process has become another program since this was last asked: then nothing holds any more that is
    /// known of its code and its stacks.
    fn is_replaced(&mut self) -> Result<bool> {
        let now = proc::image(self.pid);
        // Nothing is known of one that has ended.
        if now == self.image || !now.is_known() {
            return Ok(false);
        }
        self.image = now;
        self.refresh()?;
        self.stack_ids.clear();
        self.known_codes = KnownCodes::default();
        for thread in self.threads.values_mut() {
            thread.forget_program();
        }
        Ok(true)
    }

    /// Where things are in the interpreter of Python of the program that the process has become.
    pub fn expect(&mut self, python: Option<PythonLayout>) {
        self.python = python;
    }

    /// Looks at all threads once, and returns their stacks as they are.
    pub(super) fn stacks(&mut self) -> Result<Stacks> {
        let _turn = Turn::take(self.pid)?;
        // Nobody brings it into a clone, or out of one, from here on.
        self.cloning = Cloning::of(self.pid)?;
        let (changed, _) = self.changed()?;
        let mut found = self.inspect(&changed)?;
        let stacks = changed.iter().filter_map(|&tid| taken(tid, &mut found));
        let threads = stacks.map(|(_, stack)| stack).collect();
        let python = self.python.map(|_| PythonStacks {
            threads: std::mem::take(&mut found.python)
                .into_iter()
                .map(|(tid, (frames, is_cut))| (tid as u64, frames, is_cut))
                .collect(),
            codes: (0..).zip(self.codes.iter().cloned()).collect(),
        });
        Ok(Stacks { threads, pauses: found.pauses, shortened: found.shortened, python })
    }

    /// Reads those of these threads that sleep where they sleep, and sees or stops those that run. One that sleeps is
    /// stopped only if more of its stack can be seen so, and if it does not notice.
    fn inspect(&mut self, tids: &[Tid]) -> Result<Found> {
        let mut found = Found::default();
        let mut running = self.read_asleep(tids, &mut found);
        // The first thread may have ended before the others.
        running.retain(|&tid| proc::is_alive(tid));
        let (mut covered, woken) = self.worth_a_stop(tids, &found);
        running.extend(woken);
        // Those of which the top of the stack was not enough.
        let mut deep = BTreeSet::new();
        for round in 1..=self.effort.rounds {
            if running.is_empty() && covered.is_empty() {
                break;
            }
            let asleep: Vec<Tid> = covered.keys().copied().collect();
            let (mut captured, to_stop, mut ready) = self.see(&running, &deep, &mut found);
            if !to_stop.is_empty() || !asleep.is_empty() {
                let (copied, more_ready) = self.stop(&to_stop, &asleep)?;
                ready.extend(more_ready);
                for (some, interpreted, pause) in copied {
                    for one in &some {
                        found.shortened += usize::from(one.is_shortened);
                        if let Some(thread) = self.threads.get_mut(&one.tid) {
                            thread.stops += 1;
                        }
                    }
                    captured.extend(some);
                    found.pauses.extend(Some(pause).filter(|pause| pause.threads > 0));
                    if let Some(interpreted) = interpreted {
                        self.take_python(interpreted, &mut found);
                    }
                }
            }
            if round == 1 {
                let mut is_ready = |tid: Tid, switches: Option<Switches>| {
                    let thread = self.threads.get_mut(&tid);
                    let was_taken_off =
                        thread.zip(switches).is_some_and(|(thread, now)| thread.was_taken_off(now));
                    // The kernel counts this as if it was taken off.
                    let yields = |one: &Captured| {
                        one.call.is_some_and(|(number, _)| number == libc::SYS_sched_yield as u64)
                    };
                    !was_taken_off || captured.iter().any(|one| one.tid == tid && yields(one))
                };
                let ready = ready.into_iter().filter(|&(tid, switches)| is_ready(tid, switches));
                found.ready = ready.map(|(tid, _)| tid).collect();
            }
            let (mut again, mut again_covered) = (Vec::new(), BTreeMap::new());
            for one in &captured {
                let (stack, missing) = self.unwinding.unwind(one);
                let slept_at = covered.get(&one.tid).copied();
                let place = slept_at.filter(|&place| place == (one.pc, one.sp));
                let Some(thread) = self.threads.get_mut(&one.tid) else { continue };
                if let (Some(place), Some(bp)) = (place, one.bp) {
                    if thread.frame_pointers.len() == MOST_SLEEPS {
                        thread.frame_pointers.clear();
                    }
                    thread.frame_pointers.insert(place, bp);
                }
                // One that was found asleep and has woken is where it runs now.
                found.stacks.insert(one.tid, (place.is_some(), stack));
                if let Some(at) = missing.filter(|_| round < self.effort.rounds) {
                    want(&mut thread.wanted, at, &self.effort);
                    deep.insert(one.tid);
                    match place {
                        Some(place) => drop(again_covered.insert(one.tid, place)),
                        None => again.push(one.tid),
                    }
                }
            }
            // Those that have gone to sleep just before they would have been stopped, or that are late; and those
            // that have woken.
            if self.effort.is_patient {
                running.extend(covered.into_keys());
            }
            running.retain(|tid| captured.iter().all(|one| one.tid != *tid));
            let late = self.read_asleep(&running, &mut found);
            let (mut still_covered, woken) = self.worth_a_stop(&running, &found);
            again_covered.append(&mut still_covered);
            again.extend(woken);
            if self.effort.is_patient {
                again.extend(late);
            }
            (running, covered) = (again, again_covered);
        }
        Ok(found)
    }

    /// The threads that have had their turn since the last look, or are new; and those that have ended.
    fn changed(&mut self) -> Result<(Vec<Tid>, Ended)> {
        let tids: BTreeSet<Tid> = proc::threads(self.pid)?.into_iter().collect();
        let mut changed = Vec::new();
        let mut ended = Vec::new();
        self.clocks.keep(|tid| tids.contains(&tid));
        self.threads.retain(|tid, thread| {
            let is_there = tids.contains(tid);
            if !is_there {
                ended.push((*tid, thread.times));
            }
            is_there
        });
        for tid in tids {
            let is_new = !self.threads.contains_key(&tid);
            if is_new {
                let kept = self.threads.values().filter(|thread| thread.keeps_file()).count();
                self.threads.insert(tid, Watched::new(tid, kept < self.most_files));
            }
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            let Some(times) = thread.times() else { continue };
            // A kernel that does not count turns has nought for all.
            let is_same = times == thread.times && times.turns > 0 && thread.last.is_some();
            thread.times = times;
            if !is_same {
                changed.push(tid);
            }
        }
        Ok((changed, ended))
    }

    /// Reads threads where they sleep. Returns those that do not.
    fn read_asleep(&mut self, tids: &[Tid], found: &mut Found) -> Vec<Tid> {
        let mut awake = Vec::new();
        for some in tids.chunks(TOGETHER) {
            let asleep: Vec<(Tid, Asleep)> =
                some.iter().filter_map(|&tid| Some((tid, self.asleep(tid)?))).collect();
            found.slept.extend(asleep.iter().map(|(tid, _)| tid));
            let own = asleep.iter().filter_map(|(tid, _)| Some(self.threads.get(tid)?.own));
            let own: BTreeSet<u64> = own.collect();
            let mut interpreted = self.python.filter(|_| !asleep.is_empty()).map(|layout| {
                python_stacks(self.pid, &layout, self.only(&own), &mut self.known_codes)
            });
            let (mut right, mut right_own) = (BTreeSet::new(), BTreeSet::new());
            for &(tid, before) in &asleep {
                // What was read is right if it has slept all the while.
                if let Some(stack) = self.read_sleeper(tid)
                    && self.asleep(tid) == Some(before)
                {
                    found.stacks.insert(tid, (true, stack));
                    right.insert(tid);
                    right_own.extend(self.threads.get(&tid).map(|thread| thread.own));
                }
            }
            if let Some(mut read) = interpreted.take() {
                if self.only(&own).is_some() {
                    read.threads.retain(|(own, ..)| right_own.contains(own));
                }
                self.take_python(read, found);
            }
            // Also those of which an earlier stop has shown a part.
            awake.extend(some.iter().filter(|tid| !right.contains(tid)));
        }
        awake
    }

    /// How a thread sleeps; nothing if it runs, or has ended.
    fn asleep(&self, tid: Tid) -> Option<Asleep> {
        let (pc, sp) = proc::sleeping_at(tid)?;
        // What the kernel shows of one that has ended is nought.
        if sp.0 == 0 && !proc::is_alive(tid) {
            return None;
        }
        Some(Asleep { pc: pc.0, sp: sp.0, turns: self.threads.get(&tid)?.times()?.turns })
    }

    /// Reads a thread that sleeps.
    fn read_sleeper(&mut self, tid: Tid) -> Option<Stack> {
        let mut round = 1;
        loop {
            let thread = self.threads.get_mut(&tid)?;
            let place = |seen: &Seen| self.cloning.place(seen);
            let mut one = sleeper(self.pid, tid, TOP, &thread.wanted, &place)?;
            if one.bp.is_none() {
                one.bp = thread.frame_pointers.get(&(one.pc, one.sp)).copied();
            }
            let (stack, missing) = self.unwinding.unwind(&one);
            match missing {
                Some(at) if round < self.effort.rounds => {
                    want(&mut thread.wanted, at, &self.effort)
                }
                _ => return Some(stack),
            }
            round += 1;
        }
    }

    /// Which threads of an interpreter are read, of those that are wanted. The only thread of a process that was forked may
    /// be known there by the id that it had before.
    fn only<'a>(&self, own: &'a BTreeSet<u64>) -> Option<&'a BTreeSet<u64>> {
        Some(own).filter(|_| self.threads.len() > 1)
    }

    /// Those of these threads of which a stop would show more, where they sleep; and those that have woken since.
    fn worth_a_stop(&self, tids: &[Tid], found: &Found) -> (BTreeMap<Tid, (u64, u64)>, Vec<Tid>) {
        let (mut covered, mut woken) = (BTreeMap::new(), Vec::new());
        for &tid in tids {
            let Some((true, stack)) = found.stacks.get(&tid) else { continue };
            if stack.cut != Some(NO_FRAME_POINTER) {
                continue;
            }
            match proc::sleeping_at(tid) {
                Some((pc, sp)) if may_stop(self.pid, tid) => {
                    covered.insert(tid, (pc.0, sp.0));
                }
                None if self.effort.is_patient && proc::is_alive(tid) => woken.push(tid),
                _ => {}
            }
        }
        (covered, woken)
    }

    /// Stops threads, and copies what unwinding needs of them. Returns as well which of those that run had to get their turn
    /// first.
    fn stop(&mut self, running: &[Tid], asleep: &[Tid]) -> Result<(Vec<Copied>, Ready)> {
        let (pid, cloning, python) = (self.pid, self.cloning.clone(), self.python);
        let (running, asleep) = (running.to_vec(), asleep.to_vec());
        let known = |tid: &Tid| self.threads.get(tid);
        let all: Vec<Tid> = running.iter().chain(&asleep).copied().collect();
        let wanted: BTreeMap<Tid, Vec<(TargetAddr, u64)>> =
            all.iter().filter_map(|tid| Some((*tid, known(tid)?.wanted.clone()))).collect();
        let own: BTreeSet<u64> = all.iter().filter_map(|tid| Some(known(tid)?.own)).collect();
        let own = self.only(&own).cloned();
        let Effort { patience, lateness, .. } = self.effort;
        let mut codes = std::mem::take(&mut self.known_codes);
        let (codes, must_end, result) = self.worker.run(move |stopped| {
            let mut copy = |stopped: &mut Stopped| -> Result<Copied> {
                let places = cloning.settle(stopped)?;
                let captured: Vec<Captured> = stopped
                    .threads()
                    .iter()
                    .map(|(&tid, registers)| {
                        let place = places.get(&tid).copied().unwrap_or_default();
                        let more = wanted.get(&tid).map_or(&[][..], Vec::as_slice);
                        Captured::stopped(pid, tid, registers, place, TOP, more)
                    })
                    .collect();
                let interpreted = python
                    .filter(|_| !captured.is_empty())
                    .map(|layout| python_stacks(pid, &layout, own.as_ref(), &mut codes));
                Ok((captured, interpreted, stopped.release()))
            };
            let result = (|| {
                let turns: Vec<Option<u64>> = running.iter().map(|&tid| proc::turns(tid)).collect();
                *stopped = Stopped::stop_some(pid, &running, Caution::SpareSleepers, patience)?;
                // One that runs stops at once; one that waits for its turn has to get it first.
                let turns = running.iter().zip(turns);
                let ready = turns.filter(|&(&tid, before)| proc::turns(tid) != before);
                let mut ready: BTreeSet<Tid> = ready.map(|(&tid, _)| tid).collect();
                stopped.stop_more(&asleep, Caution::SpareTimeouts)?;
                let mut copied = vec![copy(stopped)?];
                for (tids, lateness) in [(&all, lateness), (&asleep, LATENESS)] {
                    let until = Instant::now() + lateness;
                    while stopped.await_late(tids, until)? {
                        ready.extend(stopped.threads().keys());
                        copied.push(copy(stopped)?);
                    }
                }
                Ok((copied, ready))
            })();
            stopped.release();
            let must_end = stopped.must_end();
            let result = result.map(|(copied, ready): (_, BTreeSet<Tid>)| {
                (copied, ready.into_iter().map(|tid| (tid, proc::switches(tid))).collect())
            });
            (codes, must_end, result)
        });
        self.known_codes = codes;
        if must_end {
            self.worker = Worker::new();
        }
        result
    }

    /// Keeps frames of the interpreter for the threads that they belong to.
    fn take_python(&mut self, read: PythonStacks, found: &mut Found) {
        let ids: BTreeMap<u64, u64> =
            read.codes.into_iter().map(|(at, code)| (at, self.code_id(code))).collect();
        let is_only = self.threads.len() == 1 && read.threads.len() == 1;
        for (own, frames, is_cut) in read.threads {
            let mut known = self.threads.iter();
            let is_it = |thread: &Watched| thread.own == own || is_only;
            let tid = known.find(|(_, thread)| is_it(thread)).map(|(&tid, _)| tid);
            let Some(tid) = tid else { continue };
            let frames = frames.into_iter().map(|frame| {
                let code = ids.get(&frame.code).copied().unwrap_or(u64::MAX);
                PythonFrame { code, ..frame }
            });
            found.python.insert(tid, (frames.collect(), is_cut));
        }
    }

    fn code_id(&mut self, code: Arc<PythonCode>) -> u64 {
        let codes = &mut self.codes;
        // What is in the list stays there, so that no other is ever at the same address.
        *self.code_ids.entry(Arc::as_ptr(&code).addr()).or_insert_with(|| {
            codes.push(code);
            codes.len() as u64 - 1
        })
    }

    /// What all threads do that run, or have changed.
    fn samples(&mut self, changed: &[Tid], mut found: Found) -> Vec<Sample> {
        let mut samples = Vec::new();
        let tids: Vec<Tid> = self.threads.keys().copied().collect();
        for tid in tids {
            if changed.binary_search(&tid).is_err() {
                // It has waited for its turn all the while.
                let last = self.threads.get(&tid).and_then(|thread| thread.last);
                let last = last.filter(|last| !last.is_asleep);
                samples.extend(last.map(|last| Sample { is_ready: true, ..last }));
                continue;
            }
            let Some((is_asleep, stack)) = taken(tid, &mut found) else { continue };
            let (python, is_python_cut) = found.python.remove(&tid).unwrap_or_default();
            let (call, stack_cut) = (stack.call, stack.cut);
            let seen = SeenStack { frames: stack.frames, cut: stack.cut, python, is_python_cut };
            let stack = self.stack_id(seen);
            let Some(thread) = self.threads.get_mut(&tid) else { continue };
            // One that has not stopped has not had its turn.
            let is_late = stack_cut == Some(LATE);
            let is_ready = !is_asleep && (is_late || found.ready.contains(&tid));
            let sample = Sample { tid, is_asleep, is_ready, stack, call, times: thread.times };
            thread.last = Some(sample);
            samples.push(sample);
        }
        samples
    }

    fn stack_id(&mut self, stack: SeenStack) -> usize {
        let stacks = &mut self.stacks;
        *self.stack_ids.entry(stack).or_insert_with_key(|stack| {
            stacks.push(stack.clone());
            stacks.len() - 1
        })
    }

    /// Finds out what has changed of the process.
    fn refresh(&mut self) -> Result<()> {
        let now = modules::modules(self.pid)?;
        let is_same = now.len() == self.modules.len()
            && now.iter().zip(&self.modules).all(|(one, other)| one.is_same(other));
        if is_same {
            self.unwinding.forget_code();
        } else {
            self.unwinding = Unwinding::new(self.pid, &now);
            self.modules = now;
        }
        self.cloning = Cloning::of(self.pid)?;
        self.refreshed = Instant::now();
        Ok(())
    }
}

/// A thread that sleeps, as it was found: the same twice, if it has slept all the while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asleep {
    pc: u64,
    sp: u64,
    turns: u64,
}

/// The stack that was found of a thread, and whether it slept; that it was late, if there is none; nothing if it has
/// ended.
fn taken(tid: Tid, found: &mut Found) -> Option<(bool, Stack)> {
    found.stacks.remove(&tid).or_else(|| {
        let call = proc::sleeping_call(tid).map(|call| (call.number as u64, call.args));
        let is_asleep = call.is_some();
        let cut = Some(if is_asleep { AWAKE } else { LATE });
        let stack = Stack { tid, frames: Vec::new(), cut, call };
        proc::is_alive(tid).then_some((is_asleep, stack))
    })
}

/// Takes note of a piece of memory to copy: longer, each time that it was not enough.
fn want(wanted: &mut Vec<(TargetAddr, u64)>, at: TargetAddr, effort: &Effort) {
    let longest = wanted.iter().map(|&(_, length)| length).max().unwrap_or(TOP);
    if wanted.len() == effort.most_pieces {
        wanted.remove(0);
    }
    // From the start of its page on: a thread that runs is a little higher or lower on its stack the next time.
    wanted.push((TargetAddr(at.0 / PAGE * PAGE), (longest * GROWTH).min(effort.longest_piece)));
}
