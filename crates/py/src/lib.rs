//! The Python face of weft's native core: one file per type, one file that maps errors.

use pyo3::prelude::*;

mod checks;
mod child;
mod cloned;
mod code;
mod debug;
mod errors;
mod folder;
mod holding;
mod launching;
mod probes;
mod process;
mod rows;
mod sampler;
mod stacks;
mod started;
mod symbols;
mod target;
mod trace;

/// `weft._native`: see `_native.pyi` for its documentation.
#[pymodule]
fn _native(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<target::Target>()?;
    m.add_class::<cloned::Cloned>()?;
    m.add_class::<folder::CloneFolder>()?;
    m.add_class::<debug::Debugger>()?;
    m.add_class::<sampler::Sampler>()?;
    m.add_class::<started::Started>()?;
    m.add_function(wrap_pyfunction!(holding::is_holding, m)?)?;
    m.add_function(wrap_pyfunction!(process::maps, m)?)?;
    m.add_function(wrap_pyfunction!(process::threads, m)?)?;
    m.add_function(wrap_pyfunction!(process::pidfd_open, m)?)?;
    m.add_function(wrap_pyfunction!(process::socket_timeouts, m)?)?;
    m.add_function(wrap_pyfunction!(process::modules, m)?)?;
    m.add_function(wrap_pyfunction!(process::module_image, m)?)?;
    m.add_function(wrap_pyfunction!(process::read_words, m)?)?;
    m.add_function(wrap_pyfunction!(process::program, m)?)?;
    m.add_function(wrap_pyfunction!(probes::snippet_points, m)?)?;
    m.add_function(wrap_pyfunction!(code::disassemble, m)?)?;
    m.add_function(wrap_pyfunction!(code::soname, m)?)?;
    checks::register(m)?;
    stacks::register(m)?;
    m.add_class::<rows::FlowRows>()?;
    m.add_class::<rows::ProfileRows>()?;
    m.add_class::<symbols::ModuleSymbols>()?;
    m.add_class::<trace::Trace>()?;
    m.add_class::<trace::TraceTable>()?;
    m.add_class::<trace::Tracer>()?;
    m.add_class::<trace::Cache>()?;
    Ok(())
}
