//! Probes in a program that runs from a clone.

use super::{Target, calls_of_snippets, counter_forbidden, poisoned};
use crate::clone::{CloneOptions, Cloned, Family};
use crate::process::proc::{self, Tid, unless_ended};
use crate::process::seccomp;
use crate::process::stopped::Pause;
use crate::visited::loading::{STRAGGLER_REST, STRAGGLER_TRIES};
use crate::weave::{Item, ProbeId, Weaver, refusal_in_clone};
use crate::{Error, ErrorKind, Result};
use std::sync::{Arc, Mutex};
use weft_abi::weaving;

/// The error for a process that has become another program.
fn not_there(pid: Tid) -> Error {
    Error::new(ErrorKind::TargetGone, format!("process {pid} is not the program that was measured"))
        .why("it has ended, or has become another program")
        .advice("measure that one in a session of its own")
}

impl Target {
    /// A program that runs from a clone, to be measured there.
    pub fn in_clone(cloned: &Cloned) -> Result<Self> {
        let mut target = Self::new(cloned.pid(), None)?;
        target.weaver = Arc::new(Mutex::new(Weaver::in_clone(cloned.pid())));
        target.family = Some(cloned.family());
        target.hold = cloned.take_worker();
        Ok(target)
    }

    /// Takes everything out of the program that weft brought, and has it run from a clone. One that is held
    /// stays so, for the [`Target`] that measures it there.
    pub fn move_to_clone(&mut self, options: CloneOptions) -> Result<Cloned> {
        self.unload_agent()?;
        let hold = self.hold.take();
        self.turn = None;
        match hold {
            Some(hold) => Cloned::take_over(self.pid, hold, options),
            None => Cloned::attach(self.pid, options),
        }
    }

    pub(super) fn insert_in_clone(&mut self, family: &Family, items: Vec<Item>) -> Result<()> {
        if let Some(error) = items.iter().find_map(|item| refusal_in_clone(&item.weave)) {
            return Err(error);
        }
        if !self.is_current() {
            return Err(not_there(self.pid));
        }
        if items.iter().any(|item| item.weave.reads_counter())
            && family.presence(self.pid).is_some_and(|presence| presence.is_counter_forbidden())
        {
            return Err(counter_forbidden(self.pid));
        }
        if family.presence(self.pid).is_some_and(|presence| presence.is_filtered())
            && let Some(call) = calls_of_snippets(&items, true).first()
        {
            return Err(seccomp::not_asked(self.pid, call));
        }
        let mut batch = self.weaver()?.draft(items)?;
        let ids = batch.ids();
        let missing = self.weaver()?.missing(&mut batch)?;
        let weaver = self.weaver.clone();
        let (outcome, pause) = family.with_engine(self.pid, self.hold.as_ref(), move |engine| {
            let mut weaver = weaver.lock().map_err(poisoned)?;
            let message =
                weaver.weave_in_clone(batch, &missing, &mut |sharing| engine.share(sharing))?;
            engine.weave(&message).map(|_| ())
        });
        self.pauses.extend(pause);
        if let Err(error) = outcome {
            self.weaver()?.forget_new(&ids);
            return Err(error);
        }
        self.keep();
        for id in ids {
            let message = self.weaver()?.probe_message(id)?;
            self.send_to_relatives(family, &message)?;
        }
        Ok(())
    }

    pub(super) fn switch_in_clone(
        &mut self,
        family: &Family,
        id: ProbeId,
        is_on: bool,
    ) -> Result<()> {
        let message = self.weaver()?.switch_in_clone(id, is_on)?;
        if message.is_empty() {
            return Ok(());
        }
        let outcome = self.send(family, &message);
        if outcome.is_err() {
            self.weaver()?.switch_in_clone(id, !is_on)?;
            return outcome;
        }
        self.send_to_relatives(family, &message)
    }

    pub(super) fn send(&mut self, family: &Family, message: &[u64]) -> Result<()> {
        let message = message.to_vec();
        let weaver = self.weaver.clone();
        let (outcome, pause) = family.with_engine(self.pid, self.hold.as_ref(), move |engine| {
            // A thread that is in what was woven before may still measure.
            if engine.weave(&message)? {
                weaver.lock().map_err(poisoned)?.settle();
            }
            Ok(())
        });
        self.pauses.extend(pause);
        outcome
    }

    /// Sends the same to children that have all the memory for it.
    fn send_to_relatives(&self, family: &Family, message: &[u64]) -> Result<()> {
        for child in family.relatives(self.pid) {
            if !proc::maps(child).is_ok_and(|maps| self.has_values(&maps)) {
                continue;
            }
            let message = message.to_vec();
            let (outcome, _) =
                family.with_engine(child, None, move |engine| engine.weave(&message).map(drop));
            unless_ended(child, outcome)?;
        }
        Ok(())
    }

    pub(super) fn has_values(&self, maps: &[proc::Mapping]) -> bool {
        self.weaver().is_ok_and(|weaver| weaver.has_all_values(maps))
    }

    /// Takes all probes out of the clone, and their memory out of the program.
    pub(super) fn leave_clone(&mut self, family: &Family) -> Result<()> {
        self.take_values(family, self.pid)?;
        // What it has forked before it was stopped.
        loop {
            let has_values = |child: &Tid| {
                let maps = proc::maps(*child);
                maps.is_ok_and(|maps| self.weaver().is_ok_and(|w| !w.values_in(&maps).is_empty()))
            };
            let children = family.relatives(self.pid).into_iter().filter(has_values);
            let children: Vec<Tid> = children.collect();
            if children.is_empty() {
                return Ok(());
            }
            for child in children {
                unless_ended(child, self.take_values(family, child))?;
            }
        }
    }

    fn take_values(&self, family: &Family, pid: Tid) -> Result<()> {
        for _ in 0..STRAGGLER_TRIES {
            let weaver = self.weaver.clone();
            let hold = self.hold.as_ref().filter(|_| pid == self.pid);
            let (outcome, _): (Result<bool>, Option<Pause>) =
                family.with_engine(pid, hold, move |engine| {
                    let is_free = engine.weave(&[weaving::LEAVE])?;
                    if is_free {
                        let maps = proc::maps(pid)?;
                        engine.take_out(&weaver.lock().map_err(poisoned)?.values_in(&maps))?;
                    }
                    Ok(is_free)
                });
            if !proc::is_alive(pid) || outcome? {
                return Ok(());
            }
            std::thread::sleep(STRAGGLER_REST);
        }
        Err(Error::new(ErrorKind::Timeout, "a thread does not leave the code of a probe")
            .advice("let it run for a moment and try again"))
    }
}
