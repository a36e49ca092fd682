//! Direct branches in the clone: linked to a block, or to a stub that leaves the clone.

use crate::clone::cache::arena::Arena;
use crate::clone::cache::emit;
use crate::clone::cache::pieces::{Cold, stub};

/// A branch that is linked to a block.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Where its distance is.
    pub site: u64,
    /// Where it leads in the program.
    pub target: u64,
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
