//! The children that a target with probes has forked.
//!
//! A child has a copy of the woven code, and shares the memory of the probes: it measures into slabs of
//! its own there. So whatever is done to the code of the target is done to its children's too. But a
//! child has only the memory that was there when it was forked; code that leads to other memory must not
//! come to it.

use super::apply::leave_stones;
use super::arena::Arena;
use super::changes::{Changes, Next, differences};
use super::plan::Plan;
use super::values::Values;
use super::weaver::Weaver;
use super::woven::Active;
use crate::process::edit::{self, Edit};
use crate::process::proc::{self, FileId, Mapping, Tid, unless_ended};
use crate::process::stopped::{Caution, Stopped};
use crate::process::turn::Turn;
use crate::trip::sharing::take_out;
use crate::visited::inside::addresses_in;
use crate::{Result, TargetAddr};
use std::collections::BTreeSet;
use std::fs;

/// The processes, other than `pid`, that map this memory, and that were started at
/// `since` or later (in clock ticks since boot).
fn relatives(pid: Tid, memory: FileId, since: u64) -> Vec<Tid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<Tid>().ok())
        .filter(|&other| other != pid)
        // Cheaper than reading the maps of every process.
        .filter(|&other| proc::stat(other).is_ok_and(|stat| stat.start_time >= since))
        .filter(|&other| {
            proc::maps(other).is_ok_and(|maps| maps.iter().any(|m| m.shared && m.file() == memory))
        })
        .collect()
}

impl Weaver {
    /// The children that the target has forked since it has probes, and theirs.
    pub fn children(&self) -> Vec<Tid> {
        let Some(arena) = self.arenas.first() else { return Vec::new() };
        let mut children = relatives(self.pid, arena.file(), arena.since());
        // A vforked child runs in the target's own memory until it starts its program.
        children.retain(|&child| !proc::share_memory(self.pid, child));
        children
    }

    /// Stops them. Those of their threads that are better left alone are guarded. Of what the target has
    /// started while it was being stopped, children are handed over; others share its memory.
    pub(super) fn stop_children(&self, target: &mut Stopped) -> Result<Vec<Stopped>> {
        let mut children: Vec<Stopped> = Vec::new();
        // One may fork before it is stopped.
        loop {
            let mut fresh = self.children();
            fresh.retain(|&child| children.iter().all(|held| held.pid() != child));
            if fresh.is_empty() {
                return Ok(children);
            }
            for child in fresh {
                let mut parents = std::iter::once(&mut *target).chain(&mut children);
                // One that stands still already would not say once more that it does.
                let stopped = if parents.any(|parent| parent.disown(child)) {
                    Stopped::adopt_newborn(child)
                } else {
                    unless_ended(child, stop(child))?
                };
                children.extend(stopped);
            }
        }
    }

    /// Makes the changes in a child, as far as they fit it. Gives the children that were born meanwhile.
    pub(super) fn change_child(
        &self,
        held: &mut Stopped,
        changes: &Changes,
    ) -> Result<Vec<Stopped>> {
        match self.changes_for(held.pid(), changes)? {
            Some(own) => self.change(held, &own, None),
            None => self.change(held, changes, None),
        }
    }

    /// What is to be done to a child where that is something else than what is done to the target. A
    /// function has no probes in a child that has not the memory of all of them.
    fn changes_for(&self, child: Tid, changes: &Changes) -> Result<Option<Changes>> {
        let maps = proc::maps(child)?;
        let has_arena: Vec<bool> = self.arenas.iter().map(|arena| arena.is_in(&maps)).collect();
        let has_values: Vec<bool> = self.values.iter().map(|values| values.is_in(&maps)).collect();
        let has_tables = self.stack_tables.is_in(&maps);
        let fits = |next: &Next| {
            let mut strands = next.active.strands.values().flatten();
            next.active.pieces.iter().all(|piece| has_arena[piece.arena])
                && strands.all(|strand| {
                    let probe = &self.probes[&strand.probe];
                    has_values[probe.values] && (has_tables || !probe.weave.takes_stacks())
                })
        };
        let different = self.different_in(child, changes)?;
        if different.is_empty() && changes.functions.iter().all(fits) {
            return Ok(None);
        }
        let (mut undo, mut make, mut functions) = (Vec::new(), Vec::new(), Vec::new());
        for (index, next) in changes.functions.iter().enumerate() {
            let old = match different.contains(&index) {
                false => self.edits_of(next),
                true if self.is_bare(child, next)? => &[],
                // Another tool has changed it.
                true => continue,
            };
            let next = if fits(next) { next.clone() } else { bare(next.function) };
            differences(old, &next.active.edits, functions.len(), &mut undo, &mut make);
            functions.push(next);
        }
        Ok(Some(self.assemble(functions, undo, make)))
    }

    /// The changes that are in the code of a function.
    fn edits_of(&self, next: &Next) -> &[Edit] {
        self.woven.get(&next.function).map_or(&[], |woven| &woven.active.edits)
    }

    /// The functions that are not in a child what they are in the target: by their index.
    fn different_in(&self, child: Tid, changes: &Changes) -> Result<BTreeSet<usize>> {
        let before = changes.make.iter().map(|edit| edit.before(&changes.undo));
        let mut expected: Vec<(Edit, usize)> = before.zip(changes.owners.iter().copied()).collect();
        for (index, next) in changes.functions.iter().enumerate() {
            let there = self.edits_of(next).iter().cloned().map(Edit::reversed);
            expected.extend(there.map(|edit| (edit, index)));
        }
        expected.sort_unstable_by_key(|(edit, _)| edit.at);
        let (edits, owners): (Vec<Edit>, Vec<usize>) = expected.into_iter().unzip();
        Ok(edit::outdated(child, &edits)?.into_iter().map(|at| owners[at]).collect())
    }

    /// Whether a function is in a child as it was before all probes.
    fn is_bare(&self, child: Tid, next: &Next) -> Result<bool> {
        let mut edits = [self.edits_of(next), &next.active.edits].concat();
        edits.sort_unstable_by_key(|edit| edit.at);
        Ok(edit::outdated(child, &edits)?.is_empty())
    }

    /// Takes the probes and their memory out of children. Gives those where a thread is in the code of a
    /// probe, which is therefore still there.
    pub fn leave(&self, children: Vec<Tid>) -> Result<Vec<Tid>> {
        let (mut undo, mut make) = (Vec::new(), Vec::new());
        let functions: Vec<Next> = self.woven.keys().map(|&function| bare(function)).collect();
        for (index, next) in functions.iter().enumerate() {
            differences(self.edits_of(next), &[], index, &mut undo, &mut make);
        }
        let changes = self.assemble(functions, undo, make);
        let mut left = Vec::new();
        for child in children {
            if unless_ended(child, self.leave_one(child, &changes))? == Some(false) {
                left.push(child);
            }
        }
        Ok(left)
    }

    /// Whether it could be left.
    fn leave_one(&self, child: Tid, changes: &Changes) -> Result<bool> {
        let mut held = stop(child)?;
        self.step_out(&mut held, changes)?;
        leave_stones(&held, changes)?;
        for mut born in self.change_child(&mut held, changes)? {
            born.release();
        }
        // In the same stop: nobody can have come in since.
        let is_empty = addresses_in(&held, &self.code())?.is_some_and(|found| found.is_empty());
        if is_empty {
            self.take_memory(held)?;
        } else {
            held.release();
        }
        Ok(is_empty)
    }

    /// Takes the memory of the probes out of the target's children, whose code does not lead there.
    pub fn take_memory_out_of_children(&self) -> Result<()> {
        for held in self.stop_children(&mut Stopped::default())? {
            unless_ended(held.pid(), self.take_memory(held))?;
        }
        Ok(())
    }

    /// Takes the memory of the probes out of a child, as far as it has it, and lets it go.
    fn take_memory(&self, mut held: Stopped) -> Result<()> {
        if held.threads().is_empty() {
            let turn = held.take_turn();
            held = Stopped::stop_least_noticed(held.pid())?;
            held.keep_turn(turn);
        }
        let maps = proc::maps(held.pid())?;
        let outcome = take_out(&held, &self.memory_in(&maps));
        held.release();
        outcome
    }

    /// What a process with these mappings has of the memory of the probes. Where it has not all of it,
    /// something of its own may be in the place of the rest.
    fn memory_in(&self, maps: &[Mapping]) -> Vec<(TargetAddr, u64)> {
        let arenas = self.arenas.iter().filter(|arena| arena.is_in(maps)).map(Arena::all);
        let values = self.values.iter().filter(|values| values.is_in(maps)).map(Values::all);
        let tables = self.stack_tables.all().filter(|_| self.stack_tables.is_in(maps));
        arenas.chain(values).chain(tables).collect()
    }
}

/// A function without probes.
fn bare(function: u64) -> Next {
    Next { function, active: Active::default(), plan: Plan::default() }
}

/// Stops a child, which another weft may measure as well. Turns are taken from the parent down, so that no two
/// wefts wait for each other.
fn stop(child: Tid) -> Result<Stopped> {
    let turn = Turn::take(child)?;
    let mut held = Stopped::stop_all(child, Caution::SpareSleepers)?;
    held.keep_turn(Some(turn));
    held.guard()?;
    Ok(held)
}
