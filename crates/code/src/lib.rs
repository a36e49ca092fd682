//! Facts about x86-64 code: bytes in, facts out. Knows nothing of processes.
#![no_std]

extern crate alloc;

mod state;

pub use state::{Convention, FlagSet, Register, RegisterSet};
