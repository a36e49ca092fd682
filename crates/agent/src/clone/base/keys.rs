//! How addresses of the program are known to the engine: as they are, or as the start of a function that is reached
//! from within.

pub use weft_abi::pieces::{inner, is_inner, real};
