//! What is about to change in the target, and what has.

use super::plan::Plan;
use super::woven::{Active, Piece, ProbeId};
use crate::process::edit::Edit;
use crate::{Error, TargetAddr};
use std::collections::{BTreeMap, BTreeSet};

/// A function that is about to change: what is to be there.
#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) function: u64,
    pub(super) active: Active,
    pub(super) plan: Plan,
}

/// What is about to change.
#[derive(Debug, Default)]
pub struct Changes {
    pub(super) functions: Vec<Next>,
    /// In the order of their addresses, as all edits here.
    pub(super) undo: Vec<Edit>,
    /// Made after the former.
    pub(super) make: Vec<Edit>,
    /// The index of the function of each of them.
    pub(super) owners: Vec<usize>,
    /// Where jumps stand, in functions that change, that only weft's own jumps lead to, and where they
    /// lead.
    pub(super) stones: BTreeMap<u64, u64>,
    /// The indexes of functions that get new windows while they have others.
    pub(super) widened: Vec<usize>,
    /// The starts of all runs of instructions that move, in their order, with the function and the piece
    /// of each.
    pub(super) runs: Vec<(u64, usize, usize)>,
    /// Probes that are enabled or disabled by this.
    pub(super) switched: BTreeSet<ProbeId>,
}

/// What has changed, and what is still to be noted of it.
#[derive(Debug, Default)]
pub struct Done {
    pub(super) functions: Vec<Next>,
    /// Where threads are in weft's code, or will come back to; `None` if that is not known.
    pub(super) busy: Option<Vec<TargetAddr>>,
    /// What went wrong once there was no way back.
    pub(super) failure: Option<Error>,
}

impl From<Changes> for Done {
    /// Of changes that change no code.
    fn from(changes: Changes) -> Self {
        Self { functions: changes.functions, ..Self::default() }
    }
}

impl Changes {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Whether the code of the target becomes different by it.
    pub fn change_code(&self) -> bool {
        !self.undo.is_empty() || !self.make.is_empty()
    }

    /// The index of the function that is changed around an address, from the byte before on, or does not
    /// run the instruction there any more.
    pub(super) fn function_around(&self, at: u64) -> Option<usize> {
        let after = self.make.partition_point(|edit| edit.at.0 < at);
        let before = after.checked_sub(1).filter(|&index| at < self.make[index].end().0);
        let left = || self.piece_at(at).filter(|(_, piece)| piece.successor(at).is_some());
        before.map(|index| self.owners[index]).or_else(|| left().map(|(function, _)| function))
    }

    /// The trampoline of the run of instructions that an address belongs to, if it belongs to one, and the
    /// index of the function.
    pub(super) fn piece_at(&self, at: u64) -> Option<(usize, &Piece)> {
        let after = self.runs.partition_point(|run| run.0 <= at);
        let &(_, function, piece) = &self.runs[after.checked_sub(1)?];
        Some((function, &self.functions[function].active.pieces[piece]))
    }
}

/// The edits that lead from what is in the code of a function to what is to be there; those to make
/// with the index of the function.
pub(super) fn differences(
    old: &[Edit],
    new: &[Edit],
    index: usize,
    undo: &mut Vec<Edit>,
    make: &mut Vec<(Edit, usize)>,
) {
    let same_place = |a: &Edit, b: &Edit| a.at == b.at && a.old.len() == b.old.len();
    for edit in old.iter().filter(|o| !new.iter().any(|n| same_place(n, o))) {
        undo.push(edit.clone().reversed());
    }
    for edit in new {
        let there = old.iter().find(|o| same_place(o, edit));
        if there != Some(edit) {
            let now = there.map_or(&edit.old, |there| &there.new);
            make.push((Edit { old: now.clone(), ..edit.clone() }, index));
        }
    }
}
