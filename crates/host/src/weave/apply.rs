//! Putting prepared changes into the held target, and freeing what nobody runs any more.

use super::changes::{Changes, Done, Next, differences};
use super::weaver::Weaver;
use super::window::{JUMP, Window};
use super::woven::{Active, Piece, ProbeId};
use crate::arch::Registers;
use crate::process::edit::{self, Edit, Found};
use crate::process::memory;
use crate::process::proc::{self, Tid, unless_ended};
use crate::process::stacks::{Stack, near_stacks};
use crate::process::stopped::Stopped;
use crate::visited::inside::addresses_in;
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::collections::{BTreeMap, BTreeSet};
use weft_abi::Change;

impl Weaver {
    /// The edits that lead from what is in the target to what is to be there.
    pub(super) fn compare(&mut self, mut functions: Vec<Next>) -> Result<Changes> {
        let (mut undo, mut make) = (Vec::new(), Vec::new());
        for (index, next) in functions.iter().enumerate() {
            let old = &self.woven[&next.function].active.edits;
            differences(old, &next.active.edits, index, &mut undo, &mut make);
        }
        if let Err(error) = self.note(&mut functions) {
            functions.iter().for_each(|next| self.withdraw(next));
            return Err(error);
        }
        Ok(self.assemble(functions, undo, make))
    }

    /// The changes that edits come to; those to make come with the index of their function.
    pub(super) fn assemble(
        &self,
        functions: Vec<Next>,
        mut undo: Vec<Edit>,
        mut make: Vec<(Edit, usize)>,
    ) -> Changes {
        undo.sort_unstable_by_key(|edit| edit.at);
        make.sort_unstable_by_key(|(edit, _)| edit.at);
        let (make, owners) = make.into_iter().unzip();
        let stones = self.stepping_stones(&functions);
        let mut changes = Changes { functions, undo, make, owners, stones, ..Changes::default() };
        for (index, next) in changes.functions.iter().enumerate() {
            let before = self.woven.get(&next.function).map(|woven| &woven.plan.windows);
            let is_new = |window: &Window| {
                let there = before.and_then(|before| before.get(&window.start));
                there.is_none_or(|there| there.is_relocated() != window.is_relocated())
            };
            if next.plan.windows.values().any(is_new)
                && self.pieces_of(next.function).next().is_some()
            {
                changes.widened.push(index);
            }
            for (piece, found) in next.active.pieces.iter().enumerate() {
                changes.runs.extend(found.runs.iter().map(|run| (run.start, index, piece)));
            }
        }
        changes.runs.sort_unstable();
        changes
    }

    /// Notes what is about to change, so that a weft which comes after this one was killed can undo it.
    fn note(&mut self, functions: &mut [Next]) -> Result<()> {
        for Next { function, active, .. } in functions {
            if active.edits.is_empty() && !self.woven[function].strands.is_empty() {
                // Its probes are disabled; nobody else may change it meanwhile.
                active.notes.push(self.arenas[0].note(Change::claim(*function))?);
            }
            for edit in &active.edits {
                let change = Change::new(edit.at.0, &edit.old, &edit.new)
                    .ok_or_else(|| Error::new(ErrorKind::Internal, "a change is too long"))?;
                active.notes.push(self.arenas[0].note(change)?);
            }
        }
        Ok(())
    }

    /// Makes the changes in the held target.
    pub fn apply(&mut self, stopped: &mut Stopped, changes: &mut Changes) -> Result<Done> {
        if !self.thread_pointer {
            // A program that has been started meanwhile may have its C library by now.
            self.look_at_threads(stopped);
        }
        // From here on weft hears of every child that is born: those that are there already are found.
        stopped.guard()?;
        let mut children = self.stop_children(stopped)?;
        note_others(stopped, &mut children);
        self.step_out(stopped, changes)?;
        for held in &mut children {
            unless_ended(held.pid(), self.step_out(held, changes))?;
        }
        let all = || std::iter::once(&*stopped).chain(&children);
        for held in all() {
            unless_ended(held.pid(), leave_stones(held, changes))?;
        }
        let mut unmoved = self.interrupted_in(all(), changes)?;
        unmoved.extend(all().flat_map(|held| slept_in(held, changes)));
        // Where code only becomes what it was, nobody can be in the middle of anything new.
        if !changes.make.is_empty() {
            unmoved.extend(all().flat_map(|held| returned_into(held, changes)));
            unmoved.extend(all().flat_map(|held| self.waited_in(held, changes)));
        }
        let found = self.drop_stale(changes, &unmoved)?;
        // From here on the code changes, and whatever happens, weft must know of it.
        let mut failure = None;
        let mut born = self.change(stopped, changes, found).unwrap_or_else(|error| {
            failure = Some(error);
            Vec::new()
        });
        for held in &mut children {
            let newborn = self.change_child(held, changes);
            match unless_ended(held.pid(), newborn) {
                Ok(newborn) => born.extend(newborn.unwrap_or_default()),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        children.extend(born);
        self.forget_running(&changes.switched);
        let has_old = |next: &Next| self.pieces_of(next.function).next().is_some();
        let is_needed = !self.limbo.is_empty() || changes.functions.iter().any(has_old);
        let busy = match is_needed {
            _ if failure.is_some() => None,
            false => Some(Vec::new()),
            true => self
                .busy(std::iter::once(&*stopped).chain(&children))
                .inspect_err(|error| failure = Some(error.clone()))
                .unwrap_or_default(),
        };
        for held in &mut children {
            held.release();
        }
        Ok(Done { functions: std::mem::take(&mut changes.functions), busy, failure })
    }

    /// Takes note of what has changed. The target may run again.
    pub fn finish(&mut self, done: Done) -> Result<()> {
        for next in done.functions {
            let Some(woven) = self.woven.get_mut(&next.function) else { continue };
            let old = std::mem::replace(&mut woven.active, next.active);
            woven.plan = next.plan;
            for note in old.notes {
                self.arenas[0].strike(note);
            }
            self.limbo.extend(Some(old.pieces).filter(|pieces| !pieces.is_empty()));
            if woven.strands.is_empty() {
                self.woven.remove(&next.function);
            }
        }
        match done.busy {
            Some(busy) => self.free_limbo(&busy),
            None => self.claim_limbo(),
        }
        done.failure.map_or(Ok(()), Err)
    }

    /// Makes the changes in one of the processes. Gives the children that were born meanwhile: their
    /// code has changed, too.
    pub(super) fn change(
        &self,
        held: &mut Stopped,
        changes: &Changes,
        found: Option<Found>,
    ) -> Result<Vec<Stopped>> {
        self.follow(held, changes)?;
        let stopped: BTreeSet<Tid> = held.threads().keys().copied().collect();
        // Half of it would be neither what was there nor what weft takes note of.
        let undone = edit::apply(held, &changes.undo);
        let made = match found {
            Some(found) => edit::write(held, &changes.make, found),
            None => edit::apply(held, &changes.make),
        };
        let mut born = held.take_newborn();
        self.move_out(held, changes)?;
        if held.threads().keys().any(|tid| !stopped.contains(tid)) {
            // A thread that woke meanwhile may be in a handler that was not looked for.
            leave_stones(held, changes)?;
            move_returns(held, changes)?;
        }
        for child in &mut born {
            unless_ended(child.pid(), self.move_out(child, changes))?;
        }
        undone.and(made).map(|()| born)
    }

    /// Moves threads out of what has just changed. One that woke meanwhile may have got as far as one of
    /// weft's jumps, or behind it.
    fn move_out(&self, held: &mut Stopped, changes: &Changes) -> Result<()> {
        for (tid, mut registers) in held.threads().clone() {
            if let Some(&target) = changes.stones.get(&registers.instruction().0) {
                registers.set_instruction(target);
                held.redirect(tid, registers)?;
            }
        }
        self.step_out(held, changes)?;
        self.follow(held, changes)?;
        move_threads(held, changes)
    }

    /// See [`Changes`].
    fn stepping_stones(&self, functions: &[Next]) -> BTreeMap<u64, u64> {
        let mut stones = BTreeMap::new();
        for woven in functions.iter().filter_map(|next| self.woven.get(&next.function)) {
            for stone in woven.plan.stepping_stones() {
                let jump = woven.active.edits.iter().find_map(|edit| {
                    let offset = stone.checked_sub(edit.at.0)? as usize;
                    edit.new.get(offset..offset + JUMP as usize)
                });
                if let Some([_, distance @ ..]) = jump {
                    let distance = i32::from_le_bytes(distance.try_into().unwrap_or_default());
                    stones.insert(stone, (stone + JUMP).wrapping_add_signed(distance.into()));
                }
            }
        }
        stones
    }

    /// The trampolines that nothing leads to any more.
    pub(super) fn left_pieces(&self) -> impl Iterator<Item = &Piece> {
        self.limbo.iter().flatten()
    }

    /// The trampolines of a function that threads may be in.
    fn pieces_of(&self, function: u64) -> impl Iterator<Item = &Piece> {
        let active = self.woven.get(&function).into_iter().flat_map(|woven| &woven.active.pieces);
        active.chain(self.left_pieces().filter(move |piece| piece.function == function))
    }

    /// Steps threads out of the trampolines of functions that change: from there they would go on as the code
    /// around was. A thread in a snippet first ends it.
    pub(super) fn step_out(&self, held: &mut Stopped, changes: &Changes) -> Result<()> {
        let code = self.code();
        let is_ours = |at: TargetAddr| code.iter().any(|range| range.contains(&at));
        let stones = &changes.stones;
        let mut inside: Vec<(Tid, Registers)> = held
            .threads()
            .iter()
            .filter(|(_, registers)| {
                let at = registers.instruction();
                is_ours(at) || stones.contains_key(&at.0)
            })
            .map(|(&tid, &registers)| (tid, registers))
            .collect();
        if inside.is_empty() {
            return Ok(());
        }
        let pieces: Vec<&Piece> =
            changes.functions.iter().flat_map(|next| self.pieces_of(next.function)).collect();
        // One that was stopped in a system call of the program would only wait there again.
        let new = changes.functions.iter().flat_map(|next| &next.active.pieces);
        let all: Vec<&Piece> = pieces.iter().copied().chain(new).collect();
        inside.retain(|(_, registers)| all.iter().all(|piece| piece.call_of(registers).is_none()));
        let piece_at = |at: TargetAddr| pieces.iter().find(|piece| piece.contains(at));
        let is_runtime = |at: TargetAddr| {
            let mut all = self.woven.values().flat_map(|woven| &woven.active.pieces);
            is_ours(at)
                && !all.any(|piece| piece.contains(at))
                && !self.left_pieces().any(|piece| piece.contains(at))
        };
        for (tid, _) in inside {
            held.step_while(tid, |at| match piece_at(at) {
                Some(piece) => piece.original_of(at.0).is_none(),
                None => stones.contains_key(&at.0) || is_runtime(at),
            })?;
        }
        Ok(())
    }

    /// Moves threads from copies of instructions to where these will be.
    fn follow(&self, held: &mut Stopped, changes: &Changes) -> Result<()> {
        let code = self.code();
        let is_ours = |at| code.iter().any(|range| range.contains(&at));
        for (tid, mut registers) in held.threads().clone() {
            let at = registers.instruction();
            if !is_ours(at) {
                continue;
            }
            let from = |next: &&Next| self.pieces_of(next.function).any(|p| p.contains(at));
            let Some(next) = changes.functions.iter().find(from) else { continue };
            let copy_of = |original: u64| {
                let mut moved = next.active.pieces.iter().flat_map(|piece| &piece.moved);
                moved.find(|moved| moved.original == original).map_or(original, |moved| moved.copy)
            };
            let mut pieces = self.pieces_of(next.function);
            if let Some(call) = pieces.find_map(|p| p.call_of(&registers)) {
                held.redirect(tid, registers.called_from(copy_of(call)))?;
                continue;
            }
            let original = self.pieces_of(next.function).find_map(|p| p.original_of(at.0));
            let Some(original) = original else { continue };
            registers.set_instruction(copy_of(original));
            held.redirect(tid, registers)?;
        }
        Ok(())
    }

    /// Functions that get new windows while a signal handler runs that has interrupted one of their
    /// trampolines: by their index.
    fn interrupted_in<'a>(
        &self,
        held: impl Iterator<Item = &'a Stopped>,
        changes: &Changes,
    ) -> Result<BTreeSet<usize>> {
        let widened = &changes.widened;
        let mut busy = BTreeSet::new();
        if widened.is_empty() {
            return Ok(busy);
        }
        let code = self.code();
        for held in held {
            let Some(found) = unless_ended(held.pid(), addresses_in(held, &code))? else {
                continue;
            };
            let Some(mut found) = found else {
                busy.extend(widened);
                continue;
            };
            for registers in held.threads().values() {
                // A thread at the copy of an instruction goes on at the new copy, see `follow`.
                let at = registers.instruction();
                let mut pieces = changes.functions.iter().flat_map(|f| self.pieces_of(f.function));
                if let Some(index) = found.iter().position(|&found| found == at)
                    && pieces.any(|piece| piece.home_of(registers).is_some())
                {
                    found.swap_remove(index);
                }
            }
            for at in found {
                let is_in = |index: &&usize| {
                    self.pieces_of(changes.functions[**index].function).any(|p| p.contains(at))
                };
                busy.extend(widened.iter().filter(is_in));
            }
        }
        Ok(busy)
    }

    /// Functions that get a window with an instruction in its middle at which a goroutine waits: by their
    /// index.
    fn waited_in(&self, held: &Stopped, changes: &Changes) -> Vec<usize> {
        let programs = self.texts.iter().filter_map(|text| text.goroutines.as_ref());
        let waiting = programs.flat_map(|goroutines| goroutines.interrupted(held));
        waiting.filter_map(|at| changes.function_around(at)).collect()
    }

    /// Leaves functions alone whose code was unloaded, or changed by others, since weft has read it, and
    /// those that are busy. Gives the code that the rest is to be made to, if it is seen already.
    fn drop_stale(
        &mut self,
        changes: &mut Changes,
        busy: &BTreeSet<usize>,
    ) -> Result<Option<Found>> {
        let busy: BTreeSet<u64> = busy.iter().map(|&at| changes.functions[at].function).collect();
        loop {
            let found = if changes.undo.is_empty() {
                edit::look(self.pid, &changes.make)?
            } else {
                let before = |edit: &Edit| edit.before(&changes.undo);
                let expected: Vec<Edit> = changes.make.iter().map(before).collect();
                edit::look(self.pid, &expected)?
            };
            let stale: BTreeSet<usize> =
                found.outdated.iter().map(|&at| changes.owners[at]).collect();
            let is_busy = |next: &Next| busy.contains(&next.function);
            if stale.is_empty() && !changes.functions.iter().any(is_busy) {
                return Ok(changes.undo.is_empty().then_some(found));
            }
            let functions = std::mem::take(&mut changes.functions);
            let mut kept = Vec::with_capacity(functions.len());
            for (index, next) in functions.into_iter().enumerate() {
                if is_busy(&next) {
                    self.give_up(
                        &next,
                        "something waits there: a system call, a signal handler or a goroutine",
                    );
                } else if stale.contains(&index) {
                    self.give_up(&next, "the code has changed since weft has read it");
                } else {
                    for &note in &next.active.notes {
                        self.arenas[0].strike(note);
                    }
                    kept.push(Next { active: Active { notes: Vec::new(), ..next.active }, ..next });
                }
            }
            // What stays as it is may be in the way of others.
            let switched = std::mem::take(&mut changes.switched);
            *changes = Changes { switched, ..self.compare(kept)? };
        }
    }

    /// Takes back changes that could not be made.
    pub fn take_back(&mut self, changes: &Changes, new: &[ProbeId]) {
        changes.functions.iter().for_each(|next| self.withdraw(next));
        for id in &changes.switched {
            if let Some(probe) = self.probes.get_mut(id) {
                probe.enabled = !probe.enabled;
            }
        }
        self.forget_new(new);
    }

    /// Takes back what was prepared for a function.
    pub(super) fn withdraw(&mut self, next: &Next) {
        let Some(woven) = self.woven.get(&next.function) else { return };
        for piece in &next.active.pieces {
            self.arenas[piece.arena].release(piece.at, piece.length);
        }
        for &note in &next.active.notes {
            self.arenas[0].strike(note);
        }
        self.texts[woven.text].claim(next.function, &next.plan.claims(), woven.plan.claims());
    }

    /// Leaves a function as it is, without what was prepared for it.
    fn give_up(&mut self, next: &Next, why: &str) {
        self.withdraw(next);
        let Some(woven) = self.woven.get_mut(&next.function) else { return };
        let kept = &woven.active.strands;
        for (spot, strands) in &mut woven.strands {
            strands.retain(|strand| {
                let probe = self.probes.get_mut(&strand.probe).filter(|probe| probe.enabled);
                let is_kept = kept.get(spot).is_some_and(|all| all.contains(strand));
                if let (Some(probe), false) = (probe, is_kept) {
                    probe.refuse(strand.point, why);
                    return false;
                }
                true
            });
        }
        woven.strands.retain(|_, strands| !strands.is_empty());
    }

    /// Frees trampolines that nothing leads to and no thread is in any more.
    pub fn clear_limbo(&mut self, stopped: &mut Stopped) -> Result<()> {
        // One that wakes and forks stays where it does so, and is seen there.
        stopped.guard()?;
        let mut children = self.stop_children(stopped)?;
        let busy = self.busy(std::iter::once(&*stopped).chain(&children));
        for held in &mut children {
            held.release();
        }
        if let Some(busy) = busy? {
            self.free_limbo(&busy);
        }
        Ok(())
    }

    /// Where threads are in weft's code, or will come back to, if that is known.
    fn busy<'a>(&self, held: impl Iterator<Item = &'a Stopped>) -> Result<Option<Vec<TargetAddr>>> {
        let code = self.code();
        let mut busy = Vec::new();
        for held in held {
            match unless_ended(held.pid(), addresses_in(held, &code))? {
                Some(Some(found)) => busy.extend(found),
                Some(None) => return Ok(None),
                None => {}
            }
        }
        Ok(Some(busy))
    }

    fn free_limbo(&mut self, busy: &[TargetAddr]) {
        let arenas = &mut self.arenas;
        self.limbo.retain(|pieces| {
            // A thread in one may come to the others.
            let is_busy = busy.iter().any(|&at| pieces.iter().any(|piece| piece.contains(at)));
            if !is_busy {
                pieces.iter().for_each(|piece| arenas[piece.arena].release(piece.at, piece.length));
            }
            is_busy
        });
        self.claim_limbo();
        self.settle();
    }

    /// Keeps other wefts from changing functions that threads will come back to from trampolines which
    /// nothing leads to any more: they come back to the middle of them.
    fn claim_limbo(&mut self) {
        for claim in std::mem::take(&mut self.limbo_claims) {
            self.arenas[0].strike(claim);
        }
        let functions: BTreeSet<u64> = self.left_pieces().map(|piece| piece.function).collect();
        for function in functions {
            // There is room for it: that of the changes which are undone.
            self.limbo_claims.extend(self.arenas[0].note(Change::claim(function)));
        }
    }

    /// Whether a thread may still be in code that is no longer led to.
    pub fn has_busy_code(&self) -> bool {
        !self.limbo.is_empty()
    }

    /// Takes threads out of trampolines that sleep there in a system call which was copied.
    pub fn evict_sleepers(&mut self, stopped: &mut Stopped) -> Result<()> {
        for piece in self.left_pieces() {
            for (tid, registers) in stopped.threads().clone() {
                let at = registers.instruction();
                if !piece.contains(at) {
                    continue;
                }
                let home = piece.home_of(&registers).ok_or_else(|| still_inside(tid))?;
                stopped.redirect(tid, home)?;
            }
        }
        self.clear_limbo(stopped)?;
        match self.limbo.first() {
            None => Ok(()),
            Some(_) => Err(still_inside(self.pid)),
        }
    }
}

/// Functions that get windows over a system call in which a thread sleeps that is not stopped, and so
/// cannot be moved: by their index.
fn slept_in(held: &Stopped, changes: &Changes) -> Vec<usize> {
    let sleeping = held.sleepers().filter_map(proc::sleeping_at);
    sleeping
        .filter_map(|(at, _)| {
            let around =
                [at.0.wrapping_sub(1), at.0].into_iter().filter_map(|at| changes.piece_at(at));
            let mut disturbed = around.filter(|(_, piece)| piece.disturbs_sleeper(at.0));
            disturbed.next().map(|(function, _)| function)
        })
        .collect()
}

/// Moves threads that stand in the middle of code that was just overwritten to its copy.
fn move_threads(stopped: &mut Stopped, changes: &Changes) -> Result<()> {
    let threads: Vec<_> = stopped.threads().iter().map(|(&tid, &r)| (tid, r)).collect();
    for (tid, mut registers) in threads {
        let at = registers.instruction().0;
        let call = registers.call();
        let made = call.and_then(|call| changes.piece_at(call)?.1.copied(call));
        if let Some(made) = made {
            stopped.redirect(tid, registers.called_from(made.copy))?;
            continue;
        }
        let successor = changes.piece_at(at).and_then(|(_, piece)| piece.successor(at));
        let Some(moved) = successor else { continue };
        registers.set_instruction(moved.before);
        stopped.redirect(tid, registers)?;
    }
    Ok(())
}

/// Functions that get a window with an instruction in its middle that a thread will return to from a signal
/// handler: by their index.
fn returned_into(held: &Stopped, changes: &Changes) -> Vec<usize> {
    let found = returns_of_handlers(held, |at| changes.function_around(at));
    found.into_iter().map(|(_, function)| function).collect()
}

/// Makes signal handlers return to the copy of what they have interrupted, where that was just
/// overwritten.
fn move_returns(held: &Stopped, changes: &Changes) -> Result<()> {
    let copy_of = |at: u64| {
        let (_, piece) = changes.piece_at(at)?;
        piece.successor(at).map(|moved| moved.before)
    };
    for (place, copy) in returns_of_handlers(held, copy_of) {
        memory::write(held.pid(), place, &copy.to_ne_bytes())?;
    }
    Ok(())
}

/// Makes signal handlers return to the targets of weft's jumps that they have interrupted: what only
/// such jumps lead to may go.
pub(super) fn leave_stones(held: &Stopped, changes: &Changes) -> Result<()> {
    if changes.stones.is_empty() {
        return Ok(());
    }
    for (place, target) in returns_of_handlers(held, |at| changes.stones.get(&at).copied()) {
        memory::write(held.pid(), place, &target.to_ne_bytes())?;
    }
    Ok(())
}

/// Where threads will return to from signal handlers, if that is wanted: the place of the address on the
/// stack, and what is wanted of it.
fn returns_of_handlers<T>(
    held: &Stopped,
    wanted: impl Fn(u64) -> Option<T>,
) -> Vec<(TargetAddr, T)> {
    let mut found = Vec::new();
    for Stack { start, words, returns } in near_stacks(held) {
        for index in returns {
            if let Some(what) = wanted(words[index]) {
                found.push((start + 8 * index as u64, what));
            }
        }
    }
    found
}

fn still_inside(tid: Tid) -> Error {
    Error::new(ErrorKind::Timeout, format!("thread {tid} does not leave the code of a probe"))
        .why("it sleeps there, or a signal handler that interrupted it does not return")
        .advice("let the process run for a moment and try again")
}

/// Makes each held process know the others, so that none of them is taken for a newborn child.
fn note_others(stopped: &mut Stopped, children: &mut [Stopped]) {
    let all: Vec<Tid> = children.iter().map(Stopped::pid).collect();
    for held in std::iter::once(stopped).chain(children) {
        held.note_others(&all);
    }
}
