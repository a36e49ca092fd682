//! Traces of programs: what cannot be computed again is kept, compressed; the rest is computed again when it is read.
//!
//! A program that is traced appends one [record] for each block of instructions that it executes: the block's number
//! and the registers that its addresses depend on (`weft_code::accesses::plan`). An [`Encoder`] keeps in what
//! they differ from those that came after the same blocks before; a [`Writer`] puts that into a [file]; a [`Trace`] reads it; a [`Replay`] computes
//! every access, branch, call and system call of it.

pub mod blocks;
mod bytes;
mod cache;
mod chunk;
mod decode;
mod differences;
mod encode;
mod error;
pub mod file;
mod history;
pub mod record;
pub mod replay;
pub mod views;
mod writer;

pub use blocks::{Block, Blocks, program_and_number};
pub use cache::{Cache, Shape};
pub use chunk::{Chunk, Start};
pub use decode::decode;
pub use encode::Encoder;
pub use error::{Error, Result};
pub use file::{Module, Trace};
pub use replay::Replay;
pub use weft_code::accesses::Detail;
pub use writer::Writer;
