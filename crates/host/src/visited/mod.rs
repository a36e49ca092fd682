//! What there is of weft's in a process: this weft's agent, and what other wefts have there or have left.

pub mod agent;
pub mod engine;
pub mod inside;
pub mod leftovers;
pub mod loading;
pub mod others;
pub mod owner;
