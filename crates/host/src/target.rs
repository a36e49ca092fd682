//! One target under control: attach, ask, detach, each a transaction.

mod cloned;

use crate::arch::{Registers, VectorState};
use crate::base::worker::{Worker, urgently};
use crate::clone::{Family, reclaim};
use crate::process::launch::{self, Launch};
use crate::process::proc::{self, Mapping, Tid};
use crate::process::stopped::{Caution, Pause, Reach, Stopped};
use crate::process::turn::Turn;
use crate::process::{ptrace, seccomp};
use crate::visited::agent::{Agent, CpuFacts, Pong};
use crate::visited::leftovers::abandoned_probes;
use crate::visited::loading::{self, SLEEPER_TRIES, STRAGGLER_REST, STRAGGLER_TRIES, restore};
use crate::weave::{Changes, FoundPoints, Item, Order, Point, ProbeId, Selection, Weaver, keep};
use crate::{Error, ErrorKind, Maker, Result, TargetAddr, checks};
use std::collections::BTreeSet;
use std::ops::Range;
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_snippet::Weave;

/// A process with weft's agent in it.
///
/// Between the operations nothing holds the process: it runs at full speed, signals reach it directly,
/// a debugger can attach, and if weft dies nothing happens to it.
#[derive(Debug)]
pub struct Target {
    pid: Tid,
    maker: Maker,
    /// Shared with the thread that holds the target, for as long as it does.
    agent: Option<Arc<Mutex<Agent>>>,
    /// Shared with the thread that holds the target, too.
    weaver: Arc<Mutex<Weaver>>,
    /// Whether its slabs are looked after.
    is_kept: bool,
    /// Where the probes of killed wefts are that a thread sleeps in.
    slept_in: BTreeSet<TargetAddr>,
    /// Whether the program was asked, and has not forbidden it.
    may_read_counter: bool,
    /// Where the program runs from a clone: the programs that have come of it.
    family: Option<Arc<Family>>,
    /// The thread that holds the target while it is to stay stopped.
    hold: Option<Worker<Stopped>>,
    /// What keeps other wefts from it meanwhile, and while something is done to it.
    turn: Option<Turn>,
    pauses: Vec<Pause>,
}

impl Target {
    /// Attaches to a running process, which runs on.
    pub fn attach(pid: Tid) -> Result<Self> {
        reclaim(pid)?;
        // Before the checks: one of them is whether it is traced. Of a process that cannot be attached
        // to, they can say more.
        let turn = Turn::take(pid);
        checks::preflight(pid)?;
        let mut target = Self::new(pid, None)?;
        target.turn = Some(turn?);
        target.load_agent()?;
        target.turn = None;
        Ok(target)
    }

    fn new(pid: Tid, hold: Option<Worker<Stopped>>) -> Result<Self> {
        // Fails where there is no such process.
        proc::stat(pid)?;
        let weaver = Arc::new(Mutex::new(Weaver::new(pid)));
        Ok(Self {
            pid,
            maker: Maker::this(),
            agent: None,
            weaver,
            is_kept: false,
            slept_in: BTreeSet::new(),
            may_read_counter: false,
            family: None,
            hold,
            turn: None,
            pauses: Vec::new(),
        })
    }

    /// Starts a program, which stays stopped before its first instruction until it is resumed.
    pub fn launch(launch: Launch) -> Result<(Self, Child)> {
        let hold = Worker::<Stopped>::new();
        let mut child = hold.run(move |state| {
            launch::launch(launch).map(|(child, stopped)| {
                *state = stopped;
                child
            })
        })?;
        let mut target = Self::new(child.id() as Tid, Some(hold))?;
        let loaded = Turn::take(target.pid).and_then(|turn| {
            target.turn = Some(turn);
            target.load_agent()
        });
        if let Err(error) = loaded {
            // It has not run a single instruction: as good as never started.
            let _ = child.kill();
            target.hold = None;
            let _ = child.wait();
            return Err(error);
        }
        Ok((target, child))
    }

    fn load_agent(&mut self) -> Result<()> {
        let agent = loading::load(self.pid, |number| {
            self.held(Reach::Some, move |stopped| loading::try_load(stopped, number))
        })?;
        self.agent = Some(Arc::new(Mutex::new(agent)));
        Ok(())
    }

    /// The process.
    pub fn pid(&self) -> Tid {
        self.pid
    }

    /// Asks every thread for an answer, from inside the process.
    pub fn ping(&mut self) -> Result<Vec<Pong>> {
        let agent = self.agent.clone().ok_or_else(|| detached(self.pid))?;
        let filtered = seccomp::is_over_any_thread(self.pid);
        let threads = proc::threads(self.pid)?.len();
        agent.lock().map_err(poisoned)?.plan_visits(threads)?;
        self.held(Reach::Every, move |stopped| {
            let mut agent = agent.lock().map_err(poisoned)?;
            agent.check_in(stopped.pid())?;
            agent.ping(stopped, filtered)
        })
    }

    /// Makes a system call by a thread of the target. It must not block: all threads stand still
    /// meanwhile. Returns what the kernel did, negative for an error.
    pub fn syscall(&mut self, number: i64, args: Vec<u64>) -> Result<i64> {
        let agent = self.agent.clone().ok_or_else(|| detached(self.pid))?;
        self.held(Reach::Some, move |stopped| {
            let mut agent = agent.lock().map_err(poisoned)?;
            agent.check_in(stopped.pid())?;
            agent.call(stopped, number, &args)
        })
    }

    /// What the agent saw of the processor.
    pub fn cpu(&self) -> Result<CpuFacts> {
        let agent = self.agent.as_ref().ok_or_else(|| detached(self.pid))?;
        Ok(agent.lock().map_err(poisoned)?.cpu())
    }

    /// The registers of a thread, general and vector. Stops the thread for the moment of reading.
    pub fn registers(&mut self, tid: Tid) -> Result<(Registers, VectorState)> {
        self.held(Reach::One(tid), move |stopped| {
            let registers = stopped.threads().get(&tid).copied().ok_or_else(|| {
                Error::new(ErrorKind::TargetGone, format!("thread {tid} cannot be read"))
                    .why("it has ended, or sleeps where nothing can interrupt it")
            })?;
            let raw = ptrace::vector_state(tid).map_err(|e| ptrace::failed("read", tid, &e))?;
            Ok((registers, VectorState { raw }))
        })
    }

    /// Points that functions have, each with the index of its function; and functions
    /// that may have more of them, each with the place where that is not known.
    pub fn points(&self, functions: &[u64], selection: Selection) -> Result<FoundPoints> {
        // Code is read that other wefts may be changing.
        let _turn = self.turn.is_none().then(|| Turn::take(self.pid)).transpose()?;
        self.weaver()?.points(functions, selection)
    }

    /// Weaves a snippet into the target at points, all of them in one short stop.
    pub fn insert(&mut self, weave: Weave, points: Vec<Point>, order: Order) -> Result<ProbeId> {
        let id = self.weaver()?.reserve(1)[0];
        self.insert_many(vec![Item { id, weave, points, order }], true)?;
        Ok(id)
    }

    /// Weaves several snippets into the target, all of them in one short stop; or none, if one of them
    /// cannot be. A snippet may use the data of those before it. Unless they are to be enabled, no code
    /// changes, and nothing is stopped except to bring in memory.
    pub fn insert_many(&mut self, items: Vec<Item>, enabled: bool) -> Result<()> {
        if let Some(family) = self.family.clone() {
            let ids: Vec<ProbeId> = items.iter().map(|item| item.id).collect();
            self.insert_in_clone(&family, items)?;
            return if enabled { Ok(()) } else { self.set_enabled(&ids, false) };
        }
        self.exclusively(|target| target.insert_in_code(items, enabled))
    }

    fn insert_in_code(&mut self, items: Vec<Item>, enabled: bool) -> Result<()> {
        self.clear_abandoned()?;
        let agent = self.agent.clone().ok_or_else(|| detached(self.pid))?;
        if !self.may_read_counter && items.iter().any(|item| item.weave.reads_counter()) {
            let agent = agent.clone();
            let is_forbidden = self.held(Reach::Some, move |stopped| {
                let mut agent = agent.lock().map_err(poisoned)?;
                agent.check_in(stopped.pid())?;
                agent.is_counter_forbidden(stopped)
            })?;
            if is_forbidden {
                return Err(counter_forbidden(self.pid));
            }
            self.may_read_counter = true;
        }
        let calls = calls_of_snippets(&items, false);
        let mut batch = self.weaver()?.draft(items)?;
        let ids = batch.ids();
        let missing = self.weaver()?.missing(&mut batch)?;
        if !missing.is_empty() {
            let weaver = self.weaver.clone();
            let supplied = self.held(Reach::Some, move |stopped| {
                let mut agent = agent.lock().map_err(poisoned)?;
                agent.check_in(stopped.pid())?;
                weaver.lock().map_err(poisoned)?.supply(&mut agent, stopped, &missing)
            });
            if let Err(error) = supplied {
                self.weaver()?.give_back(&mut batch);
                return Err(error);
            }
            self.keep();
        }
        if seccomp::is_over_any_thread(self.pid)
            && let Err(error) = self.examine_filters(calls)
        {
            self.weaver()?.give_back(&mut batch);
            return Err(error);
        }
        let mut weaver = self.weaver()?;
        let changes = if enabled { weaver.weave(batch)? } else { weaver.weave_disabled(batch)? };
        drop(weaver);
        self.apply(changes, &ids)
    }

    /// Fails if a filter over a thread forbids what snippets ask the kernel.
    fn examine_filters(&mut self, mut calls: Vec<seccomp::Call>) -> Result<()> {
        // By the first probe of a forked child.
        calls.push(call_of_snippet(weft_snippet::GETPID));
        if self.weaver()?.asks_for_ids() {
            calls.push(call_of_snippet(weft_snippet::GETTID));
        }
        self.held(Reach::Every, move |stopped| {
            stopped.threads().keys().try_for_each(|&tid| seccomp::examine(tid, &calls))
        })
    }

    /// Starts the thread that frees the slabs of children which have ended.
    fn keep(&mut self) {
        if !std::mem::replace(&mut self.is_kept, true) {
            keep(&self.weaver);
        }
    }

    /// Forgets a probe that was removed, and lets others have its room.
    pub fn discard(&mut self, probe: ProbeId) -> Result<()> {
        match self.family {
            Some(_) => self.weaver()?.discard_in_clone(probe),
            None => self.weaver()?.discard(probe),
        }
    }

    /// Puts disabled probes back into the code, or takes enabled ones out of it, in one short stop. What
    /// they have measured stays; calls that are running when a probe is taken out are not measured.
    pub fn set_enabled(&mut self, probes: &[ProbeId], enabled: bool) -> Result<()> {
        if let Some(family) = self.family.clone() {
            for &probe in probes {
                self.switch_in_clone(&family, probe, enabled)?;
            }
            self.weaver()?.forget_running(&probes.iter().copied().collect());
            return Ok(());
        }
        self.exclusively(|target| {
            let changes = target.weaver()?.set_enabled(probes, enabled)?;
            target.apply(changes, &[])
        })
    }

    /// Enables disabled probes for a moment, and returns how long the threads of the target ran on
    /// processors meanwhile.
    pub fn enable_for(&mut self, probes: &[ProbeId], moment: Duration) -> Result<Duration> {
        urgently(|| {
            self.set_enabled(probes, true)?;
            let began = proc::run_time(self.pid);
            std::thread::sleep(moment);
            self.set_enabled(probes, false)?;
            Ok(proc::run_time(self.pid).saturating_sub(began))
        })
    }

    /// Takes probes out for good, all of them in one short stop. Their last values can still be read.
    pub fn remove(&mut self, probes: &[ProbeId]) -> Result<()> {
        if let Some(family) = self.family.clone() {
            for &probe in probes {
                self.switch_in_clone(&family, probe, false)?;
                self.weaver()?.remove_from_clone(probe);
            }
            return Ok(());
        }
        self.exclusively(|target| {
            let changes = target.weaver()?.remove(&probes.iter().copied().collect())?;
            target.apply(changes, &[])
        })
    }

    /// Where libraries are that were loaded again since probes were woven into them, so that they are there no
    /// longer. A clone has them there still, unless something else was loaded in the place: then it forgets them.
    pub fn see_reloaded(&mut self) -> Result<Vec<Range<u64>>> {
        let Some(family) = self.family.clone() else { return self.weaver()?.see_reloaded() };
        let message = self.weaver()?.unloaded_message()?;
        if !message.is_empty() {
            self.send(&family, &message)?;
        }
        Ok(Vec::new())
    }

    /// Takes the probes out of the children that the target has forked.
    pub fn leave_children(&mut self) -> Result<()> {
        let mut children = self.weaver()?.children();
        for _ in 0..STRAGGLER_TRIES {
            let weaver = self.weaver.clone();
            // Children are held by a worker of their own: the target runs on. What it forks meanwhile has
            // its probes, and keeps them.
            let worker = Worker::<()>::new();
            children = worker.run(move |()| weaver.lock().map_err(poisoned)?.leave(children))?;
            if children.is_empty() {
                return Ok(());
            }
            std::thread::sleep(STRAGGLER_REST);
        }
        Err(Error::new(ErrorKind::Timeout, "a child does not leave the code of a probe")
            .advice("let it run for a moment and try again"))
    }

    /// The children that measure on although the target itself has ended; none while it runs. Those that are about to
    /// end are given so much time for it.
    pub fn survivors(&self, patience: Duration) -> Result<Vec<Tid>> {
        if proc::has_living_threads(self.pid) {
            return Ok(Vec::new());
        }
        let Some(family) = &self.family else {
            let weaver = self.weaver()?;
            return Ok(proc::lasting(patience, || weaver.children()));
        };
        let mut left = family.survivors(patience);
        left.retain(|&child| proc::maps(child).is_ok_and(|maps| self.has_values(&maps)));
        Ok(left)
    }

    /// Whether the target still runs the program that weft was brought into.
    pub fn is_current(&self) -> bool {
        let maps = proc::maps(self.pid);
        if let Some(family) = &self.family {
            // One that has become another runs from a clone as well, but has not what was woven.
            return family.is_in(self.pid) && maps.is_ok_and(|maps| self.has_values(&maps));
        }
        let is_in = |agent: &Arc<Mutex<Agent>>| {
            maps.is_ok_and(|maps| agent.lock().is_ok_and(|agent| agent.is_in(&maps)))
        };
        self.agent.as_ref().is_some_and(is_in)
    }

    /// The probes; reading their values stops nothing.
    pub fn weaver(&self) -> Result<MutexGuard<'_, Weaver>> {
        self.weaver.lock().map_err(poisoned)
    }

    /// Makes changes, which bring in these probes.
    fn apply(&mut self, changes: Changes, new: &[ProbeId]) -> Result<()> {
        if changes.is_empty() {
            return Ok(());
        }
        if !changes.change_code() {
            return self.weaver()?.finish(changes.into());
        }
        let weaver = self.weaver.clone();
        // If the target cannot be held, they are to be taken back.
        let changes = Arc::new(Mutex::new(changes));
        let shared = changes.clone();
        let done = self.held(Reach::Awake, move |stopped| {
            let mut changes = shared.lock().map_err(poisoned)?;
            weaver.lock().map_err(poisoned)?.apply(stopped, &mut changes)
        });
        match done {
            Ok(done) => self.weaver()?.finish(done),
            Err(error) => {
                self.weaver()?.take_back(&*changes.lock().map_err(poisoned)?, new);
                Err(error)
            }
        }
    }

    /// Takes all probes out, and then their memory.
    fn remove_probes(&mut self) -> Result<()> {
        if self.weaver()?.memory().is_empty() {
            return Ok(());
        }
        let changes = self.weaver()?.remove_all()?;
        self.apply(changes, &[])?;
        for _ in 0..STRAGGLER_TRIES {
            if !self.weaver()?.has_busy_code() {
                break;
            }
            std::thread::sleep(STRAGGLER_REST);
            let weaver = self.weaver.clone();
            self.held(Reach::Awake, move |stopped| {
                weaver.lock().map_err(poisoned)?.clear_limbo(stopped)
            })?;
        }
        if self.weaver()?.has_busy_code() {
            let weaver = self.weaver.clone();
            self.held(Reach::Every, move |stopped| {
                weaver.lock().map_err(poisoned)?.evict_sleepers(stopped)
            })?;
        }
        let agent = self.agent.clone().ok_or_else(|| detached(self.pid))?;
        let weaver = self.weaver.clone();
        self.held(Reach::Some, move |stopped| {
            let mut weaver = weaver.lock().map_err(poisoned)?;
            let mut agent = agent.lock().map_err(poisoned)?;
            weaver.take_memory_out_of_children()?;
            for (start, length) in weaver.memory() {
                agent.call(stopped, libc::SYS_munmap, &[start.0, length])?;
            }
            weaver.forget_memory();
            Ok(())
        })
    }

    /// Stops every thread until [`Target::resume`].
    pub fn stop(&mut self) -> Result<()> {
        if self.hold.is_none() {
            let pid = self.pid;
            let turn = Turn::take(pid)?;
            let hold = Worker::<Stopped>::new();
            hold.run(move |state| -> Result<()> {
                *state = Stopped::stop_all(pid, Caution::StopAll)?;
                Ok(())
            })?;
            self.hold = Some(hold);
            self.turn = Some(turn);
        }
        Ok(())
    }

    /// Lets a program that was just started run through its dynamic loader, and stops it before its own
    /// first instruction, with all its libraries loaded. Returns whether it got there.
    pub fn run_to_entry(&mut self) -> Result<bool> {
        let entry = proc::entry(self.pid)?;
        match &self.hold {
            Some(hold) => hold.run(move |stopped| launch::run_to(stopped, entry)),
            None => Err(Error::new(ErrorKind::InvalidArgument, "the program runs already")
                .advice("ask for it before the program is resumed")),
        }
    }

    /// Lets a stopped target run.
    pub fn resume(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.pauses.push(hold.run(Stopped::release));
            self.turn = None;
        }
    }

    /// Whether the target is stopped until it is resumed.
    pub fn is_stopped(&self) -> bool {
        self.hold.is_some()
    }

    /// Takes everything out that weft brought, and lets a stopped target run. A target that has ended,
    /// or has become another program, has nothing of weft's any more.
    pub fn detach(&mut self) -> Result<()> {
        let outcome = self.unload_agent();
        self.resume();
        outcome
    }

    fn unload_agent(&mut self) -> Result<()> {
        if let Some(family) = self.family.take() {
            return match self.leave_clone(&family) {
                Err(e) if matches!(e.kind, ErrorKind::TargetGone | ErrorKind::NoSuchProcess) => {
                    Ok(())
                }
                outcome => outcome,
            };
        }
        let Some(agent) = self.agent.clone() else { return Ok(()) };
        let is_in = |maps: &[Mapping]| agent.lock().is_ok_and(|agent| agent.is_in(maps));
        if proc::maps(self.pid).is_ok_and(|maps| is_in(&maps)) {
            let outcome = self.exclusively(|target| {
                target.remove_probes()?;
                target.held(Reach::Some, move |stopped| {
                    agent.lock().map_err(poisoned)?.unload(stopped)
                })
            });
            match outcome {
                Err(e) if matches!(e.kind, ErrorKind::TargetGone | ErrorKind::NoSuchProcess) => {}
                other => other?,
            }
        }
        // Only now: if it could not be taken out, one can try again.
        self.agent = None;
        Ok(())
    }

    /// Every time that threads of the target stood still because of weft.
    pub fn pauses(&self) -> &[Pause] {
        &self.pauses
    }

    /// Stops threads, does something with them, and lets them go, whatever happens. A target that is
    /// stopped anyway stays so.
    fn held<R: Send + 'static>(
        &mut self,
        reach: Reach,
        act: impl FnOnce(&mut Stopped) -> Result<R> + Send + 'static,
    ) -> Result<R> {
        if let Some(hold) = &self.hold {
            return hold.run(move |stopped| act(stopped));
        }
        let pid = self.pid;
        let _turn = self.turn.is_none().then(|| Turn::take(pid)).transpose()?;
        let worker = Worker::<Stopped>::new();
        let (result, pause) = worker.run(move |stopped| {
            match reach.stop(pid) {
                Ok(held) => *stopped = held,
                Err(error) => return (Err(error), None),
            }
            let result = act(stopped);
            (result, Some(stopped.release()))
        });
        self.pauses.extend(pause);
        result
    }

    /// Does several things to the target with no other weft in between: what one looks at is what the next
    /// changes.
    fn exclusively<R>(&mut self, act: impl FnOnce(&mut Self) -> Result<R>) -> Result<R> {
        if self.turn.is_some() {
            return act(self);
        }
        self.turn = Some(Turn::take(self.pid)?);
        let outcome = act(self);
        self.turn = None;
        outcome
    }

    /// Takes the probes of wefts out that were killed since this one is here: they may be where this one's are
    /// to go.
    fn clear_abandoned(&mut self) -> Result<()> {
        let pid = self.pid;
        let agent = self.agent.clone().ok_or_else(|| detached(pid))?;
        for _ in 0..SLEEPER_TRIES {
            let found = abandoned_probes(pid, &proc::maps(pid)?);
            if found.iter().all(|probes| self.slept_in.contains(&probes.code.start)) {
                return Ok(());
            }
            let agent = agent.clone();
            self.held(Reach::Some, move |stopped| {
                let mut agent = agent.lock().map_err(poisoned)?;
                agent.check_in(pid)?;
                for probes in abandoned_probes(pid, &proc::maps(pid)?) {
                    if restore(stopped, &probes)? {
                        for (start, length) in probes.memory {
                            agent.call(stopped, libc::SYS_munmap, &[start.0, length])?;
                        }
                    }
                }
                Ok(())
            })?;
            std::thread::sleep(STRAGGLER_REST);
        }
        let found = abandoned_probes(pid, &proc::maps(pid)?);
        self.slept_in.extend(found.iter().map(|probes| probes.code.start));
        Ok(())
    }

    /// The process that it belongs to.
    pub fn maker(&self) -> Maker {
        self.maker
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if !self.maker.is_here() {
            return;
        }
        // For callers that do not detach. A failure cannot be reported from here.
        let _ = self.detach();
    }
}

/// The exit code that a shell would report.
pub fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1)
}

/// The system calls that snippets make, as a seccomp filter sees them.
fn calls_of_snippets(items: &[Item], in_clone: bool) -> Vec<seccomp::Call> {
    let calls = items.iter().flat_map(|item| item.weave.system_calls(in_clone));
    calls.map(call_of_snippet).collect()
}

fn call_of_snippet(number: i64) -> seccomp::Call {
    match number {
        libc::SYS_clock_gettime => {
            seccomp::Call::new(number, &[libc::CLOCK_THREAD_CPUTIME_ID as u64])
        }
        _ => seccomp::Call::new(number, &[]),
    }
}

/// The error where times cannot be measured.
fn counter_forbidden(pid: Tid) -> Error {
    let what = format!("process {pid} may not read the time stamp counter");
    Error::new(ErrorKind::UnsupportedTarget, what)
        .why("it has forbidden it itself (PR_SET_TSC): a snippet that reads it would end it by SIGSEGV")
        .advice("measure what needs no clock: calls, values, or times of the processor (cpu)")
}

fn poisoned<T>(_: PoisonError<T>) -> Error {
    Error::new(ErrorKind::Internal, "an earlier operation on this target has panicked")
}

fn detached(pid: Tid) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("weft is no longer attached to process {pid}"))
        .advice("attach again")
}
