//! Threads that run, as the kernel's clock sees them.
//!
//! What the clock copies is of one moment: registers and the top of the stack. More of a thread's memory is read later, and
//! is right only if the thread has not run in the program meanwhile. To be found at the same place in the kernel again does
//! not show that: a loop gets there again. So such a thread is stopped, unless that would cut its call short; then the
//! count of its completed calls has to show that it is still in the same one.

use super::{Ready, Sampler};
use crate::TargetAddr;
use crate::arch::{is_counted, may_end_short};
use crate::process::proc::{self, Tid};
use crate::stacks::capture::Captured;
use crate::stacks::clock::Interrupted;
use crate::stacks::engine::{Cloning, Seen};
use crate::stacks::python::python_stacks;
use crate::stacks::stack::UNKNOWN_CALL;
use std::collections::{BTreeMap, BTreeSet};

/// Why nothing is known of a thread in a clone.
const AT_WORK: &str = "its system call is at work, and a stop would cut that short";

/// What a thread does that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// It may be stopped.
    Stoppable,
    /// It is in a call that would come back with part of its work done; whether the kernel counts such calls.
    Call { is_counted: bool },
}

impl Sampler {
    /// Sees threads that run, without stopping them. Returns what unwinding needs of them, who has to be stopped, and which of
    /// those that were seen had to get their turn first.
    pub(super) fn see(
        &mut self,
        running: &[Tid],
        deep: &BTreeSet<Tid>,
        found: &mut super::Found,
    ) -> (Vec<Captured>, Vec<Tid>, Ready) {
        let reached = self.clocks.reach(running);
        let is_reached = |tid: &Tid| reached.contains(tid);
        let mut to_stop: Vec<Tid> =
            running.iter().copied().filter(|tid| !is_reached(tid)).collect();
        let turns: BTreeMap<Tid, Option<u64>> =
            reached.iter().map(|&tid| (tid, proc::turns(tid))).collect();
        let is_plain = self.python.is_none() && matches!(self.cloning, Cloning::No);
        let is_enough = |tid: Tid| is_plain && !deep.contains(&tid);
        // Before they are seen: who is seen in a call, and has completed none since, is in it still.
        let transfers: BTreeMap<Tid, u64> = reached
            .iter()
            .filter(|&&tid| !is_enough(tid))
            .filter_map(|&tid| Some((tid, proc::transfers(self.pid, tid)?)))
            .collect();
        let seen = self.clocks.see(&reached, self.effort.patience + self.effort.lateness);
        let waited = |tid: &Tid| turns.get(tid).is_some_and(|&before| proc::turns(*tid) != before);
        let ready = seen.keys().filter(|tid| waited(tid));
        let ready = ready.map(|&tid| (tid, proc::switches(tid))).collect();
        let (mut captured, mut at_work) = (Vec::new(), Vec::new());
        for (tid, seen) in seen {
            match self.captured(tid, seen) {
                Some((one, _)) if is_enough(tid) => captured.push(one),
                Some((one, Work::Call { is_counted })) => {
                    let before = transfers.get(&tid).copied().filter(|_| is_counted);
                    at_work.push((one, before));
                }
                _ => to_stop.push(tid),
            }
        }
        captured.extend(self.read_at_work(at_work, found));
        (captured, to_stop, ready)
    }

    /// What unwinding needs of a thread that was interrupted, and whether it may be stopped. Nothing if it runs code that is
    /// not understood.
    fn captured(&self, tid: Tid, seen: Interrupted) -> Option<(Captured, Work)> {
        let registers = seen.registers?;
        let (call, work) = match self.unwinding.call_before(registers.pc) {
            Some(number) if seen.is_in_kernel => {
                // One of which the number is not known may be any.
                let is_short = number.is_none_or(|number| may_end_short(number.into()));
                let is_counted = number.is_some_and(|number| is_counted(number.into()));
                let work = if is_short { Work::Call { is_counted } } else { Work::Stoppable };
                (Some((number.map_or(UNKNOWN_CALL, Into::into), registers.arguments)), work)
            }
            _ => (None, Work::Stoppable),
        };
        let pieces = vec![(TargetAddr(registers.sp), seen.stack)];
        let (pc, sp, bp) = (registers.pc, registers.sp, Some(registers.bp));
        Some((Captured { tid, pc, sp, bp, pieces, call, ..Captured::default() }, work))
    }

    /// Reads the memory of threads whose calls are at work, with how many each had completed before it was seen. Where that has
    /// changed, or is not known, there is what the clock has copied.
    fn read_at_work(
        &mut self,
        at_work: Vec<(Captured, Option<u64>)>,
        found: &mut super::Found,
    ) -> Vec<Captured> {
        if at_work.is_empty() {
            return Vec::new();
        }
        let own_of = |tid: Tid| self.threads.get(&tid).map(|thread| thread.own);
        let own: BTreeSet<u64> = at_work.iter().filter_map(|(one, _)| own_of(one.tid)).collect();
        let only = self.only(&own).cloned();
        let codes = &mut self.known_codes;
        let interpreted =
            self.python.map(|layout| python_stacks(self.pid, &layout, only.as_ref(), codes));
        let (mut captured, mut right) = (Vec::new(), BTreeSet::new());
        for (one, before) in at_work {
            let place = self.cloning.place(&Seen::asleep(one.pc, one.sp));
            let wanted = self.threads.get(&one.tid).map_or(&[][..], |thread| &thread.wanted);
            let mut read = one.clone();
            read.copy_at(place, self.pid, super::TOP, wanted);
            let is_same = before.is_some() && proc::transfers(self.pid, one.tid) == before;
            if is_same {
                right.insert(one.tid);
                captured.push(read);
            } else {
                if self.python.is_some() {
                    found.python.insert(one.tid, (Vec::new(), true));
                }
                let is_hidden = !matches!(self.cloning, Cloning::No);
                captured.push(if is_hidden { hidden(one) } else { one });
            }
        }
        if let Some(mut read) = interpreted.filter(|_| !right.is_empty()) {
            let right: BTreeSet<u64> = right
                .iter()
                .filter_map(|&tid| self.threads.get(&tid))
                .map(|thread| thread.own)
                .collect();
            if only.is_some() {
                read.threads.retain(|(own, ..)| right.contains(own));
            }
            self.take_python(read, found);
        }
        captured
    }
}

fn hidden(mut one: Captured) -> Captured {
    (one.hidden, one.call) = (Some(AT_WORK), None);
    one
}
