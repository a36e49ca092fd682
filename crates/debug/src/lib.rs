//! An unmodified debugger on a program that runs from its clone: a GDB remote server, and the debug engine
//! behind it.
//!
//! The protocol is `gdbstub`'s. What it does not know is in `beyond.rs`; what a program must be able to do
//! to be debugged is in `debuggee.rs`, and how one does it that runs from its clone in `session.rs`.

mod beyond;
pub mod debuggee;
mod files;
mod libraries;
mod program;
mod registers;
mod server;
pub mod session;
mod signals;
mod watch;
mod wire;

pub use program::{Monitored, Owner, Program, Start};
pub use registers::ORDER as GENERAL_ORDER;
pub use server::{Ending, serve};
