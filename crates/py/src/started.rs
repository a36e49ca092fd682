//! A program that was started to be looked at, with nothing put into it.

use crate::child::Waited;
use crate::errors::to_python;
use crate::holding::Holding;
use crate::launching::launch_of;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::sync::Mutex;
use weft_host::Entered;

#[pyclass(frozen, module = "weft._native")]
pub struct Started {
    pid: i32,
    entered: Mutex<Entered>,
    child: Waited,
}

#[pymethods]
impl Started {
    #[new]
    fn new(py: Python<'_>, command: Vec<OsString>) -> PyResult<Self> {
        let launch = launch_of(command, None, None, [None; 3])?;
        // A signal that ended weft before the program is at its entry would leave a breakpoint there.
        let _holding = Holding::begin();
        let (entered, child) = py.detach(|| Entered::launch(launch)).map_err(to_python)?;
        Ok(Self { pid: entered.pid(), entered: Mutex::new(entered), child: Waited::new(child) })
    }

    #[getter]
    fn pid(&self) -> i32 {
        self.pid
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.entered.lock().map(|mut entered| entered.release()).ok())
            .ok_or_else(|| PyRuntimeError::new_err("an earlier call has panicked"))
    }

    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<i32>> {
        self.child.wait(py, timeout)
    }
}
