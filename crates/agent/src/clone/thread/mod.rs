//! What the engine keeps of a thread, and the registers that the kernel lays out for it.

pub mod record;
pub mod vectors;
