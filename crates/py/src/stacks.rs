//! The stacks of processes, for Python.

use crate::errors::to_python;
use pyo3::prelude::*;
use weft_host::stacks;

/// address, what it is, whether it is a guess.
type FrameRow = (u64, &'static str, bool);

/// thread, frames, why there may be more, system call with its arguments.
type StackRow = (i32, Vec<FrameRow>, Option<&'static str>, Option<(u64, [u64; 6])>);

/// The stacks of all threads of a process, and for how many seconds it stood still, each time.
#[pyfunction]
#[pyo3(name = "stacks")]
fn read(py: Python<'_>, pid: i32) -> PyResult<(Vec<StackRow>, Vec<f64>)> {
    let found = py.detach(|| stacks::stacks(pid)).map_err(to_python)?;
    let rows = found.threads.into_iter().map(|one| {
        let frames = one.frames.into_iter();
        let frames = frames.map(|frame| (frame.address, frame.kind.name(), frame.is_guess));
        let frames = frames.collect();
        (one.tid, frames, one.cut, one.call)
    });
    let pauses = found.pauses.iter().map(|pause| pause.duration.as_secs_f64()).collect();
    Ok((rows.collect(), pauses))
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read, module)?)
}
