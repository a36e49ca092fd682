//! Addresses in the target, kept apart from addresses in weft itself.

use std::fmt;
use std::ops::{Add, Sub};

/// An address in the target's memory. It has no way to become a pointer here, so that the two
/// address spaces cannot be mixed up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TargetAddr(pub u64);

impl Add<u64> for TargetAddr {
    type Output = Self;
    fn add(self, offset: u64) -> Self {
        Self(self.0.wrapping_add(offset))
    }
}

impl Sub<TargetAddr> for TargetAddr {
    type Output = u64;
    fn sub(self, other: TargetAddr) -> u64 {
        self.0.wrapping_sub(other.0)
    }
}

impl fmt::Debug for TargetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for TargetAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
