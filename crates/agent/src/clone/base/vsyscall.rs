//! The kernel's page of old system calls, which are called like functions.

use crate::clone::base::system;

const START: u64 = 0xffff_ffff_ff60_0000;

/// The system call that is at an address.
pub fn number_at(address: u64) -> Option<usize> {
    match address.wrapping_sub(START) {
        0x000 => Some(system::GETTIMEOFDAY),
        0x400 => Some(system::TIME),
        0x800 => Some(system::GETCPU),
        _ => None,
    }
}

/// Whether there may be such a call at an address.
pub fn is_at(address: u64) -> bool {
    number_at(address).is_some()
}
