//! Why there is no code for a snippet at a site.

use crate::verify::Problem;
use core::fmt;

/// Why a body cannot be compiled for a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body is wrong, or wrong for this kind of point.
    Problem(Problem),
    /// There are not as many places as data, or a datum is not inside the slab.
    Places,
    /// The region or the clock is not as documented.
    Env,
    /// The frame is too far away.
    StackShift,
    /// It is not known what is read or written there.
    Access,
    /// It is not a place in the code: see [`crate::interpret`].
    Kernel,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Problem(problem) => problem.fmt(f),
            Self::Places => f.write_str("every datum needs a place inside the slab"),
            Self::Env => f.write_str("the region's shape or the clock's shift is out of range"),
            Self::Access => f.write_str("it is not known what is read or written there"),
            Self::Kernel => f.write_str("what is done at system calls is not compiled"),
            Self::StackShift => f.write_str("the return address is too far from the stack pointer"),
        }
    }
}

impl core::error::Error for Refusal {}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}
