//! Direct branches in the clone: linked to a block, or to a stub that leaves the clone.

use crate::clone::cache::arena::Arena;
use crate::clone::cache::emit;
use crate::clone::cache::pieces::{Cold, stub};
use alloc::vec::Vec;

/// A branch that is linked to a block.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Where its distance is.
    pub site: u64,
    /// Where it leads in the program.
    pub target: u64,
}

/// What leads to code, and has to be led elsewhere when that is forgotten.
#[derive(Debug, Default)]
pub struct Arrivals {
    /// Branches that are linked to it.
    pub links: Vec<Link>,
    /// Blocks that go on in the middle of it: they are forgotten with it, since they would go on at their own beginning.
    pub dependents: Vec<u32>,
}

impl Arrivals {
    /// Takes those of other code, too.
    pub fn append(&mut self, other: &mut Self) {
        self.links.append(&mut other.links);
        self.dependents.append(&mut other.dependents);
    }
}

/// In the place of a branch that is to be linked: a jump that is taken once, and does nothing afterwards.
pub const ONE_SHOT: u64 = 1 << 63;

/// Writes a stub that leaves the clone for an address.
pub fn stub_for(arena: &mut Arena, target: u64, site: u64) -> u64 {
    let gate = arena.gates().exit;
    let mut out = arena.cold(stub::SIZE, Cold::Stub);
    emit::leave(&mut out, gate);
    out.bytes(&[0xcc; stub::TARGET as usize - emit::LEAVE]);
    out.say(target);
    out.u64(site);
    out.u64(0);
    out.rx
}
