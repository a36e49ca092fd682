//! A system call, as a filter sees it.

use crate::arch::syscall_name;

/// A system call that weft wants the target to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its name, for messages.
    pub name: &'static str,
    /// Its number.
    pub number: i32,
    /// Its arguments. A filter sees the numbers only, never what they point to.
    pub args: [u64; 6],
    /// Where the instruction after the `syscall` instruction is, which a filter sees as well.
    pub instruction_pointer: u64,
}

impl Call {
    /// A call of which nothing is known but its number and first arguments.
    pub fn new(number: i64, known: &[u64]) -> Self {
        let mut args = [0; 6];
        args[..known.len()].copy_from_slice(known);
        Self { name: syscall_name(number), number: number as i32, args, instruction_pointer: 0 }
    }
}
