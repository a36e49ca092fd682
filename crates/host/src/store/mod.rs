//! Clones that are kept in files, so that what is executed again need not be translated again: see
//! [`weft_abi::stored`] for what a file holds.
//!
//! A process notes in memory that it shares with weft where in a file's code it has been. Nothing else is taken from it:
//! weft reads the file itself, and makes the clone of that. So no process can put anything into a clone but what is in
//! the file.

pub mod ahead;
pub mod folder;
pub mod keep;
pub mod learnt;
