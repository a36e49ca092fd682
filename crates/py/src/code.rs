//! Machine code as text.

use pyo3::prelude::*;

/// The instructions of a piece of code: of each its address, its length, and its text.
#[pyfunction]
pub fn disassemble(code: &[u8], address: u64) -> Vec<(u64, usize, String)> {
    weft_symbols::disassemble(code, address)
}

/// Of each module and offset, the place of the block that contains it. Blocks are modules, offsets and sizes, in the
/// order of modules and offsets.
#[pyfunction]
pub fn blocks_at(blocks: Vec<(u32, u64, u64)>, wanted: Vec<(u32, u64)>) -> Vec<Option<usize>> {
    let at = |place: (u32, u64)| weft_symbols::block_at(&blocks, place);
    wanted.into_iter().map(at).collect()
}

/// The name that the linker gave to a shared library; empty if there is none.
#[pyfunction]
pub fn soname(path: std::path::PathBuf) -> String {
    weft_symbols::soname(&path).unwrap_or_default()
}
