//! `weft._native.Cloned`: a program that runs from a clone of its code.

use crate::child::Waited;
use crate::errors::to_python;
use crate::target::{Environment, Target, launch_of};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use weft_host::clone::{CloneOptions, Cloned as Host};
use weft_host::{Error, ErrorKind};

#[pyclass(frozen, module = "weft._native")]
pub struct Cloned {
    host: Host,
    /// Nothing for one that weft has not started.
    child: Option<Arc<Waited>>,
}

impl Cloned {
    pub(crate) fn new(host: Host, child: Option<Arc<Waited>>) -> Self {
        Self { host, child }
    }
}

#[pymethods]
impl Cloned {
    #[staticmethod]
    #[pyo3(signature = (command, environment, directory, streams, cache_size, sees_changes, follows))]
    #[expect(clippy::too_many_arguments, reason = "Python names them")]
    fn launch(
        py: Python<'_>,
        command: Vec<OsString>,
        environment: Option<Environment>,
        directory: Option<PathBuf>,
        streams: [Option<i32>; 3],
        cache_size: Option<u64>,
        sees_changes: bool,
        follows: bool,
    ) -> PyResult<Self> {
        let launch = launch_of(command, environment, directory, streams)?;
        let options = options(cache_size, sees_changes, follows);
        let (host, child) = py.detach(|| Host::launch(launch, options)).map_err(to_python)?;
        Ok(Self { host, child: Some(Arc::new(Waited::new(child))) })
    }

    #[staticmethod]
    #[pyo3(signature = (pid, cache_size, follows))]
    fn attach(py: Python<'_>, pid: i32, cache_size: Option<u64>, follows: bool) -> PyResult<Self> {
        let options = options(cache_size, true, follows);
        let host = py.detach(|| Host::attach(pid, options)).map_err(to_python)?;
        Ok(Self { host, child: None })
    }

    fn target(&self) -> PyResult<Target> {
        Ok(Target::new(weft_host::Target::in_clone(&self.host).map_err(to_python)?, None))
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.host.release()).map_err(to_python)
    }

    #[getter]
    fn pid(&self) -> i32 {
        self.host.pid()
    }

    #[pyo3(signature = (timeout))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<i32>> {
        match &self.child {
            Some(child) => child.wait(py, timeout),
            None => Err(to_python(
                Error::new(ErrorKind::InvalidArgument, "weft has not started this program")
                    .why("only who has started a program learns how it ends"),
            )),
        }
    }

    #[expect(clippy::unused_self, reason = "a method for Python")]
    fn cycles(&self) -> u64 {
        weft_host::clone::cycles()
    }

    fn leave(&self) {
        self.host.leave();
    }

    fn reports(&self) -> Vec<PathBuf> {
        self.host.reports()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.host.stats()
    }
}

pub(crate) fn options(cache_size: Option<u64>, sees_changes: bool, follows: bool) -> CloneOptions {
    let cache_size = cache_size.unwrap_or(CloneOptions::default().cache_size);
    CloneOptions { cache_size, sees_changes, follows, ..CloneOptions::default() }
}
