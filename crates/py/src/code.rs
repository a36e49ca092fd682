//! Machine code as text.

use pyo3::prelude::*;

/// The instructions of a piece of code: of each its address, its length, and its text.
#[pyfunction]
pub fn disassemble(code: &[u8], address: u64) -> Vec<(u64, usize, String)> {
    weft_symbols::disassemble(code, address)
}
