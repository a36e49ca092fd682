//! Signals: the kernel delivers them to the engine, and the engine to the program, with the state that the program
//! would have had.
//!
//! All handlers of the program are the engine's to the kernel. A signal that interrupts the clone is passed on at
//! once: any place in the clone has a state of the program's. One that interrupts the agent waits, with all others
//! blocked, until the thread goes back.

pub mod calls;
pub mod frames;
pub mod handler;
pub mod leading_out;
