//! An index of the names of a module's functions. Metrics of one target ask for a thousand names.

use crate::table::{Function, FunctionTable};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The functions by the hashes of all that they may be called.
#[derive(Debug)]
pub struct Names {
    /// Hashes, each with a function; sorted.
    hashes: Vec<(u32, u32)>,
}

impl Names {
    /// The index of a table.
    pub fn of(table: &FunctionTable) -> Self {
        let mut hashes = Vec::with_capacity(2 * table.len());
        for function in table.iter() {
            let index = function.index() as u32;
            each_name(function, |name| hashes.push((hash(name), index)));
        }
        hashes.sort_unstable();
        hashes.dedup();
        hashes.shrink_to_fit();
        Self { hashes }
    }

    /// The functions that may be called so, in their order; some may be called otherwise.
    pub fn candidates(&self, name: &str) -> impl Iterator<Item = u32> {
        let wanted = hash(name);
        let first = self.hashes.partition_point(|&(hash, _)| hash < wanted);
        let same = self.hashes[first..].iter().take_while(move |&&(hash, _)| hash == wanted);
        same.map(|&(_, index)| index)
    }
}

/// Everything that a function is found by: its names, those without their versions, and the demangled one
/// with and without its parameters.
fn each_name(function: Function<'_>, mut take: impl FnMut(&str)) {
    for name in std::iter::once(function.name()).chain(function.aliases()) {
        take(name);
        name.match_indices('@').for_each(|(at, _)| take(&name[..at]));
    }
    if let Some(demangled) = function.demangled() {
        take(demangled);
        demangled.match_indices('(').for_each(|(at, _)| take(&demangled[..at]));
    }
}

fn hash(name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() as u32
}
