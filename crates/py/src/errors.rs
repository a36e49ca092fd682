//! The one place where native errors become Python exceptions.

use pyo3::prelude::*;
use weft_host::Error;

/// The exception of `weft.errors` that has the name of the error's kind.
pub fn to_python(error: impl Into<Error>) -> PyErr {
    let error: Error = error.into();
    Python::attach(|py| {
        let build = || -> PyResult<PyErr> {
            let class = py.import("weft.errors")?.getattr(error.kind.name())?;
            let value = class.call1((error.what, error.why, error.advice))?;
            Ok(PyErr::from_value(value))
        };
        build().unwrap_or_else(|failure| failure)
    })
}
