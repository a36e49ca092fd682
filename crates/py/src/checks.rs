//! What can stand in the way of attaching.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use weft_host::checks;

use crate::errors::to_python;

/// Raises what attaching to the process would fail with.
#[pyfunction]
fn preflight(py: Python<'_>, pid: i32) -> PyResult<()> {
    py.detach(|| checks::preflight(pid)).map_err(to_python)
}

/// Everything that was looked at, as dictionaries.
#[pyfunction]
#[pyo3(signature = (pid=None))]
fn doctor(py: Python<'_>, pid: Option<i32>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let report = py.detach(|| checks::report(pid)).map_err(to_python)?;
    report
        .into_iter()
        .map(|check| {
            let dict = PyDict::new(py);
            dict.set_item("name", check.name)?;
            dict.set_item("status", check.status.name())?;
            dict.set_item("detail", check.detail)?;
            dict.set_item("fix", check.fix)?;
            Ok(dict)
        })
        .collect()
}

/// Every process that weft can see, as dictionaries.
#[pyfunction]
fn processes(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let candidates = py.detach(checks::processes).map_err(to_python)?;
    candidates
        .into_iter()
        .map(|candidate| {
            let dict = PyDict::new(py);
            dict.set_item("pid", candidate.pid)?;
            dict.set_item("user", candidate.user)?;
            dict.set_item("comm", candidate.comm)?;
            dict.set_item("cmdline", candidate.cmdline)?;
            dict.set_item("threads", candidate.threads)?;
            dict.set_item("kernel", candidate.is_kernel_thread)?;
            dict.set_item("attachable", candidate.obstacle.is_none())?;
            let (reason, advice) =
                candidate.obstacle.map_or_else(Default::default, |error| (error.why, error.advice));
            dict.set_item("reason", reason)?;
            dict.set_item("advice", advice)?;
            dict.set_item("wefts", candidate.wefts)?;
            Ok(dict)
        })
        .collect()
}

/// Adds the functions to `weft._native`.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(preflight, m)?)?;
    m.add_function(wrap_pyfunction!(doctor, m)?)?;
    m.add_function(wrap_pyfunction!(processes, m)?)
}
