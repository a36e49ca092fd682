//! `weft._native.Cloned`: a program that runs from a clone of its code.

use crate::child::Waited;
use crate::errors::to_python;
use crate::folder::CloneFolder;
use crate::holding::Holding;
use crate::launching::{Environment, launch_of};
use crate::rows::FlowRows;
use crate::target::Target;
use crate::trace::{LossRow, Tracer};
use pyo3::prelude::*;
use std::ffi::OsString;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;
use weft_host::clone::{CloneOptions, Cloned as Host, DebugHold, Records};
use weft_host::{Error, ErrorKind};
use weft_symbols::hex;

/// path, build-id, bias, start, size.
type ModuleRow = (String, Option<String>, u64, u64, u64);
/// Modules, what was executed of them, how many counters were executed, what is missing.
type FlowParts = (Vec<ModuleRow>, FlowRows, u64, Vec<LossRow>);

#[pyclass(frozen, module = "weft._native")]
pub struct Cloned {
    host: Host,
    /// Nothing for one that weft has not started.
    child: Option<Arc<Waited>>,
    /// Nothing for one that is held by a debugger.
    holding: Option<Holding>,
}

impl Cloned {
    pub(crate) fn new(host: Host, child: Option<Arc<Waited>>, holding: Holding) -> Self {
        Self { host, child, holding: Some(holding) }
    }

    pub(crate) fn debugged(host: Host) -> Self {
        Self { host, child: None, holding: None }
    }

    fn mark_returned(&self) {
        if let Some(holding) = &self.holding {
            holding.end();
        }
    }

    pub(crate) fn hold(&self) -> weft_host::Result<DebugHold> {
        self.host.maker().check()?;
        DebugHold::of(&self.host)
    }

    fn host(&self) -> PyResult<&Host> {
        self.host.maker().check().map_err(to_python)?;
        Ok(&self.host)
    }
}

#[pymethods]
impl Cloned {
    #[staticmethod]
    #[pyo3(signature = (command, environment, directory, streams, cache_size, sees_changes, follows, records, folder))]
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
        records: &str,
        folder: Option<&CloneFolder>,
    ) -> PyResult<Self> {
        let launch = launch_of(command, environment, directory, streams)?;
        let mut options = options(cache_size, sees_changes, follows, records)?;
        options.folder = folder.map(|folder| folder.0.clone());
        let holding = Holding::begin();
        let (host, child) = py.detach(|| Host::launch(launch, options)).map_err(to_python)?;
        Ok(Self::new(host, Some(Arc::new(Waited::new(child))), holding))
    }

    #[staticmethod]
    #[pyo3(signature = (pid, cache_size, follows, records))]
    fn attach(
        py: Python<'_>,
        pid: i32,
        cache_size: Option<u64>,
        follows: bool,
        records: &str,
    ) -> PyResult<Self> {
        let options = options(cache_size, true, follows, records)?;
        let holding = Holding::begin();
        let host = py.detach(|| Host::attach(pid, options)).map_err(to_python)?;
        Ok(Self::new(host, None, holding))
    }

    fn target(&self) -> PyResult<Target> {
        Ok(Target::in_clone(weft_host::Target::in_clone(self.host()?).map_err(to_python)?))
    }

    fn keep(&self, py: Python<'_>) -> PyResult<Option<String>> {
        let host = self.host()?;
        Ok(py.detach(|| host.keep().map(String::from)))
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let outcome = py.detach(|| self.host.release()).map_err(to_python);
        self.mark_returned();
        outcome
    }

    fn is_here(&self) -> bool {
        self.host.maker().is_here()
    }

    fn check_here(&self) -> PyResult<()> {
        self.host().map(drop)
    }

    #[getter]
    fn pid(&self) -> i32 {
        self.host.pid()
    }

    fn last_words(&self, file: &str) -> Option<String> {
        self.child.as_ref()?.last_words(file)
    }

    #[pyo3(signature = (timeout))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<i32>> {
        self.check_here()?;
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

    fn flow(&self, py: Python<'_>) -> PyResult<FlowParts> {
        let host = self.host()?;
        let (flow, rows) = py.detach(|| {
            let flow = host.flow();
            let rows = FlowRows::new(&flow);
            (flow, rows)
        });
        let modules = flow.modules.into_iter().map(|module| {
            let build_id = module.build_id.map(|id| hex(&id));
            (module.path, build_id, module.bias, module.start, module.size)
        });
        Ok((modules.collect(), rows, flow.counted, flow.losses.named()))
    }

    fn trace_to(
        &self,
        descriptor: RawFd,
        path: PathBuf,
        notes: Vec<(String, String)>,
    ) -> PyResult<Tracer> {
        // SAFETY: it is borrowed for this line only, by a caller that has the file open.
        let file = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        let tracer = self.host()?.trace_to(file.into(), &path, &notes).map_err(to_python)?;
        Ok(Tracer::new(tracer))
    }

    fn leave(&self) {
        self.host.leave();
        self.mark_returned();
    }

    fn losses(&self) -> PyResult<Vec<LossRow>> {
        Ok(self.host()?.losses().named())
    }

    fn last_losses(&self, py: Python<'_>) -> PyResult<Vec<LossRow>> {
        let host = self.host()?;
        Ok(py.detach(|| host.last_losses()).named())
    }

    fn reports(&self) -> PyResult<Vec<PathBuf>> {
        Ok(self.host()?.reports())
    }

    fn stats(&self) -> PyResult<Vec<(&'static str, u64)>> {
        Ok(self.host()?.stats())
    }
}

impl Drop for Cloned {
    fn drop(&mut self) {
        // For callers that do not give a process back which they have taken over, or are interrupted before they
        // can. There is nobody left to tell of a failure.
        let is_held = self.holding.as_ref().is_some_and(Holding::is_held);
        if is_held && self.child.is_none() && self.host.maker().is_here() {
            let _ = Python::attach(|py| py.detach(|| self.host.release()));
        }
    }
}

pub(crate) fn options(
    cache_size: Option<u64>,
    sees_changes: bool,
    follows: bool,
    records: &str,
) -> PyResult<CloneOptions> {
    let cache_size = cache_size.unwrap_or(CloneOptions::default().cache_size);
    let records = match records {
        "nothing" => Records::Nothing,
        "hits" => Records::Hits,
        "counts" => Records::Counts,
        "every block" => Records::EveryBlock,
        "trace" => Records::Trace,
        "trace with values" => Records::TraceValues,
        other => {
            return Err(to_python(Error::new(
                ErrorKind::InvalidArgument,
                format!("{other:?} cannot be recorded"),
            )));
        }
    };
    Ok(CloneOptions { cache_size, sees_changes, follows, records, ..CloneOptions::default() })
}

#[pymethods]
impl Target {
    #[pyo3(signature = (cache_size, sees_changes, follows, records))]
    fn move_to_clone(
        &self,
        py: Python<'_>,
        cache_size: Option<u64>,
        sees_changes: bool,
        follows: bool,
        records: &str,
    ) -> PyResult<Cloned> {
        let options = options(cache_size, sees_changes, follows, records)?;
        let holding = Holding::begin();
        let cloned = self.with(py, move |target| target.move_to_clone(options))?;
        self.mark_returned();
        Ok(Cloned::new(cloned, self.child.clone(), holding))
    }
}
