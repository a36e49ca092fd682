//! Where the clone stops for a debugger.

use crate::clone::base::program;
use crate::clone::cache::emit;
use crate::clone::thread::record::Thread;
use crate::clone::tools::conditions::World;
use crate::clone::tools::watches::{WatchCheck, Watches};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use iced_x86::Instruction;

/// A version that the debugger never sets.
pub const UNKNOWN: u32 = 0;

/// Where the clone stops for a debugger.
#[derive(Debug, Default)]
pub struct Halts {
    pub addresses: Vec<u64>,
    /// Where the conditions of those are that have any, in the memory that the debugger shares.
    pub conditions: BTreeMap<u64, u32>,
    pub watches: Watches,
    pub version: u32,
    /// Return addresses of calls that were made by a step, or whose code was flushed.
    pub returns: BTreeSet<u64>,
}

impl Halts {
    /// Whether an address is one of them.
    pub fn contains(&self, address: u64) -> bool {
        !self.addresses.is_empty() && self.addresses.binary_search(&address).is_ok()
    }

    /// Writes a check of what an instruction stores, if memory is watched: see [`Watches::write_check`].
    #[inline(always)]
    pub fn watch_check(
        &self,
        out: &mut emit::Out,
        instruction: &Instruction,
    ) -> Option<WatchCheck> {
        if self.watches.is_empty() { None } else { self.watches.write_check(out, instruction) }
    }

    /// Whether an address is one of those return addresses.
    pub fn is_return(&self, address: u64) -> bool {
        self.returns.contains(&address)
    }
}

/// A thread as the conditions of a breakpoint see it.
pub struct HaltedThread<'a>(pub &'a Thread);

impl World for HaltedThread<'_> {
    fn register(&self, number: u16) -> Option<u64> {
        /// Which register of the machine each of GDB's first is.
        const ORDER: [usize; 16] = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
        match number {
            0..16 => Some(self.0.general[ORDER[usize::from(number)]].get()),
            16 => Some(self.0.pc.get()),
            17 => Some(self.0.flags.get()),
            _ => None,
        }
    }

    fn memory(&self, address: u64, length: usize) -> Option<u64> {
        match length {
            1 => program::read::<u8>(address).map(u64::from),
            2 => program::read::<u16>(address).map(u64::from),
            4 => program::read::<u32>(address).map(u64::from),
            _ => program::read::<u64>(address),
        }
    }
}
