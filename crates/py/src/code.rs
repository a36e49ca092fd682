//! Machine code as text.

use pyo3::prelude::*;

/// The instructions of a piece of code: of each its address, its length, and its text.
#[pyfunction]
pub fn disassemble(code: &[u8], address: u64) -> Vec<(u64, usize, String)> {
    weft_symbols::disassemble(code, address)
}

/// The name that the linker gave to a shared library; empty if there is none.
#[pyfunction]
pub fn soname(path: std::path::PathBuf) -> String {
    weft_symbols::soname(&path).unwrap_or_default()
}
