//! Parts of functions that the compiler has placed elsewhere, and that no name ties to them: in a program
//! without symbols, or where the function goes by another name.

use super::functions::Known;
use super::text::ModuleText;
use std::collections::{HashMap, HashSet};
use weft_code::{Branch, BranchKind};

/// The functions that unclaimed parts belong to, by the starts of the parts.
pub fn owners(text: &ModuleText, unclaimed: impl Iterator<Item = Known>) -> HashMap<u64, u64> {
    let mut found: HashMap<u64, u64> =
        unclaimed.filter_map(|part| Some((part.start, owner(text, &part)?))).collect();
    // Where two seem to be parts of each other, nothing is known.
    let parts: HashSet<u64> = found.keys().copied().collect();
    found.retain(|_, owner| !parts.contains(owner));
    found
}

/// A part is come to by jumps of one function, and is not called. So are functions that one other calls
/// last, and those that are only called through pointers and have parts of their own. What finds a frame
/// at its start is none of these, nor is what is entered at its start and elsewhere, or jumps back.
fn owner(text: &ModuleText, part: &Known) -> Option<u64> {
    let range = part.start..part.end;
    let sweep = text.sweep(part.start)?;
    let outside = |branch: &&Branch| !range.contains(&branch.source);
    let mut ways = sweep.branches_into(range.clone()).filter(outside).peekable();
    let owner = text.function(ways.peek()?.source)?;
    if owner.is_cold || text.starts_in_frame(owner.start) {
        return None;
    }
    let (mut at_start, mut elsewhere) = (false, false);
    for way in ways {
        let from = text.function(way.source)?;
        if way.kind == BranchKind::Call || from.start != owner.start {
            return None;
        }
        at_start |= way.target == part.start;
        elsewhere |= way.target != part.start;
    }
    let comes_back = |branch: &Branch| {
        branch.kind != BranchKind::Call && (owner.start + 1..owner.end).contains(&branch.target)
    };
    let is_part = part.is_cold
        || text.starts_in_frame(part.start)
        || at_start && (elsewhere || sweep.branches_from(range.clone()).iter().any(comes_back));
    is_part.then_some(owner.start)
}
