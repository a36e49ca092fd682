//! All programs that have come of one.

use super::flow::{Flow, Sum};
use super::keeping::Keeper;
use super::losses::Losses;
use super::options::CloneOptions;
use super::presence::Presence;
use super::recording::Recording;
use super::release;
use crate::Result;
use crate::base::worker::Worker;
use crate::process::proc::{self, Tid};
use crate::process::stopped::Stopped;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_abi::{CloneControl, CloneStats};

/// How long to wait for processes that end together with the first one.
pub const MOMENT: Duration = Duration::from_millis(250);

/// All programs that have come of one.
#[derive(Debug)]
pub struct Family {
    options: CloneOptions,
    /// Each program that anybody still executes, with the process that it began in.
    members: Mutex<Vec<(Tid, Arc<Presence>)>>,
    is_left: AtomicBool,
    /// Whether a tracer takes what is traced.
    is_traced: AtomicBool,
    past: Mutex<Past>,
    /// The process that it begins with; 0 before there is one.
    first: AtomicI32,
    /// How many programs were brought in.
    count: AtomicU64,
    /// What weft itself could not do.
    native: AtomicU64,
    left: AtomicU64,
    /// Where the engine puts its reports: where weft was when it began.
    folder: PathBuf,
    /// What keeps clones for the next time, if that is wanted.
    keeper: Option<Keeper>,
}

/// What is left of programs that nobody executes any more.
#[derive(Debug, Default)]
struct Past {
    sum: Sum,
    stats: BTreeMap<&'static str, u64>,
    reports: Vec<PathBuf>,
    losses: Losses,
}

impl Past {
    fn add_stats(&mut self, stats: &CloneStats) {
        for (name, value) in named(stats) {
            let sum = self.stats.entry(name).or_default();
            *sum = sum.wrapping_add(value);
        }
    }
}

impl Family {
    pub fn new(options: CloneOptions) -> Self {
        let folder = std::env::current_dir().unwrap_or_default();
        Self {
            keeper: options.folder.clone().map(Keeper::new),
            options,
            members: Mutex::default(),
            is_left: AtomicBool::new(false),
            is_traced: AtomicBool::new(false),
            past: Mutex::default(),
            first: AtomicI32::new(0),
            count: AtomicU64::new(0),
            native: AtomicU64::new(0),
            left: AtomicU64::new(0),
            folder,
        }
    }

    /// How its programs are cloned.
    pub fn options(&self) -> &CloneOptions {
        &self.options
    }

    /// The number of the next program.
    pub fn next_number(&self) -> u64 {
        self.count.fetch_add(1, Relaxed)
    }

    /// Takes a program in that begins with a process.
    pub fn add(&self, pid: Tid, presence: Arc<Presence>) {
        let _ = self.first.compare_exchange(0, pid, Relaxed, Relaxed);
        presence.put_reports_into(&self.folder);
        self.members().push((pid, presence));
    }

    /// What all programs have executed, as far as that is recorded.
    pub fn flow(&self) -> Flow {
        // What they execute while they are waited for belongs to it.
        let outlived = self.survivors(MOMENT).len() as u64;
        // Nothing becomes the past meanwhile.
        let past = self.past();
        let mut sum = past.sum.clone();
        for (_, presence) in self.members().iter() {
            if let Some(recording) = &*presence.recording() {
                sum.add(recording);
            }
        }
        let mut losses = self.losses_since(&past);
        losses.garbled = losses.garbled.saturating_add(sum.garbled());
        drop(past);
        losses.outlived = outlived;
        sum.flow(losses)
    }

    /// What is missing from that, and from what is traced.
    pub fn losses(&self) -> Losses {
        self.losses_since(&self.past())
    }

    /// The same at the end of it all.
    pub fn last_losses(&self) -> Losses {
        let outlived = self.survivors(MOMENT).len() as u64;
        Losses { outlived, ..self.losses() }
    }

    /// The processes that the first one has left behind when it ended, those of other programs included. Those that are
    /// about to end are given so much time for it.
    pub fn survivors(&self, patience: Duration) -> Vec<Tid> {
        let first = self.first.load(Relaxed);
        if first == 0 || proc::has_living_threads(first) {
            return Vec::new();
        }
        proc::lasting(patience, || {
            let all = self.presences().into_iter().flat_map(|presence| presence.relatives(first));
            all.collect::<BTreeSet<Tid>>().into_iter().collect()
        })
    }

    fn losses_since(&self, past: &Past) -> Losses {
        let mut losses = past.losses;
        losses.native = losses.native.saturating_add(self.native.load(Relaxed));
        losses.left = losses.left.saturating_add(self.left.load(Relaxed));
        self.members().iter().for_each(|(_, presence)| losses.add(&presence.losses()));
        losses
    }

    /// A program runs natively.
    pub fn count_native(&self) {
        self.native.fetch_add(1, Relaxed);
    }

    /// A process goes on natively.
    pub fn count_left(&self) {
        self.left.fetch_add(1, Relaxed);
    }

    /// Nobody executes a program any more. What is traced of it is for the tracer to take.
    pub fn settle(&self, presence: &Arc<Presence>) {
        presence.mark_over();
        let is_traced = |recording: &Arc<Recording>| recording.records().trace_detail().is_some();
        let is_for_tracer = presence.recording().as_ref().is_some_and(is_traced);
        if !(is_for_tracer && self.is_traced.load(SeqCst)) {
            self.become_past(presence);
        }
    }

    /// A tracer takes what is traced from now on, or does so no longer.
    pub fn set_traced(&self, is_traced: bool) {
        self.is_traced.store(is_traced, SeqCst);
        if !is_traced {
            let over = self.presences().into_iter().filter(|presence| presence.is_over());
            over.for_each(|presence| self.become_past(&presence));
        }
    }

    /// Keeps of a program what is left to say of it.
    pub fn become_past(&self, presence: &Arc<Presence>) {
        let mut past = self.past();
        let mut members = self.members();
        let Some(place) = members.iter().position(|(_, one)| Arc::ptr_eq(one, presence)) else {
            return;
        };
        members.remove(place);
        drop(members);
        if let Some(keeper) = &self.keeper {
            keeper.add(presence);
        }
        past.add_stats(&presence.get().stats);
        past.reports.extend(presence.reports());
        past.losses.add(&presence.losses());
        let recording = presence.recording().take();
        if let Some(recording) = recording.filter(|it| it.records().trace_detail().is_none()) {
            past.sum.add(&recording);
        }
    }

    /// Keeps what was translated so far for the next time, and waits until that is done. Returns why something could
    /// not be kept.
    pub fn keep(&self) -> Option<&str> {
        let keeper = self.keeper.as_ref()?;
        self.presences().iter().for_each(|presence| keeper.add(presence));
        keeper.finish()
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn members(&self) -> MutexGuard<'_, Vec<(Tid, Arc<Presence>)>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engines that are in a process, or were a moment ago: the newest last.
    pub fn presences(&self) -> Vec<Arc<Presence>> {
        self.members().iter().map(|(_, presence)| presence.clone()).collect()
    }

    /// Does something with what each program shares.
    pub fn each(&self, mut act: impl FnMut(&CloneControl)) {
        self.members().iter().for_each(|(_, presence)| act(presence.get()));
    }

    /// The reports of all programs.
    pub fn reports(&self) -> Vec<PathBuf> {
        let past = self.past();
        let current = self.presences().into_iter().flat_map(|presence| presence.reports());
        past.reports.iter().cloned().chain(current).collect()
    }

    /// What the engines have counted, each with its name.
    pub fn stats(&self) -> Vec<(&'static str, u64)> {
        let past = self.past();
        let mut sums = Past { stats: past.stats.clone(), ..Past::default() };
        sums.add_stats(&CloneStats::default());
        self.each(|control| sums.add_stats(&control.stats));
        sums.stats.into_iter().collect()
    }

    /// Takes the engine out of every process that it is in.
    pub fn release(&self) -> Result<()> {
        self.leave();
        let members = self.members().clone();
        for (pid, presence) in members {
            take_out(pid, &presence)?;
            // What one has forked before it was stopped.
            loop {
                let relatives = presence.relatives(pid);
                if relatives.is_empty() {
                    break;
                }
                for relative in relatives {
                    take_out(relative, &presence)?;
                }
            }
        }
        Ok(())
    }

    /// Answers no more.
    pub fn leave(&self) {
        self.is_left.store(true, SeqCst);
        self.each(|control| control.is_host_gone.store(1, SeqCst));
    }

    /// Reports to a program whether its requests are answered: it may have taken weft for gone that was only slow.
    pub fn report_presence(&self, control: &CloneControl) -> bool {
        control.is_host_gone.store(0, SeqCst);
        // `leave` may have run in between, and its store must not be lost.
        let is_left = self.is_left.load(SeqCst);
        if is_left {
            control.is_host_gone.store(1, SeqCst);
        }
        !is_left
    }
}

/// Takes the engine out of a process, if it is in there.
pub fn take_out(pid: Tid, presence: &Arc<Presence>) -> Result<()> {
    // Its id may have been given to another process, which is not to be stopped.
    if !presence.is_in(pid) {
        return Ok(());
    }
    let presence = presence.clone();
    let outcome = Worker::<Stopped>::new().run(move |stopped| {
        *stopped = release::stop(pid)?;
        if !presence.is_in(pid) {
            return Ok(());
        }
        let outcome = release::take_out(stopped, &presence);
        stopped.release();
        outcome
    });
    // One that has ended has left the engine as well.
    if proc::is_alive(pid) { outcome } else { Ok(()) }
}

fn named(stats: &CloneStats) -> [(&'static str, u64); 16] {
    let value = |counter: &AtomicU64| counter.load(Relaxed);
    [
        ("blocks", value(&stats.blocks)),
        ("bytes", value(&stats.bytes)),
        ("record_bytes", value(&stats.record_bytes)),
        ("links", value(&stats.links)),
        ("lookups", value(&stats.lookups)),
        ("misses", value(&stats.misses)),
        ("protection_faults", value(&stats.protection_faults)),
        ("flushes", value(&stats.flushes)),
        ("agent_entries", value(&stats.agent_entries)),
        ("signals", value(&stats.signals)),
        ("system_calls", value(&stats.system_calls)),
        ("agent_cycles", value(&stats.agent_cycles)),
        ("threads", value(&stats.threads)),
        ("forks", value(&stats.forks)),
        ("files", value(&stats.files)),
        ("file_blocks", value(&stats.file_blocks)),
    ]
}
