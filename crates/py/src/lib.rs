//! The Python face of weft's native core: one file per type, one file that maps errors.

use pyo3::prelude::*;

mod errors;
mod symbols;

/// `weft._native`: see `_native.pyi` for its documentation.
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<symbols::ModuleSymbols>()?;
    Ok(())
}
