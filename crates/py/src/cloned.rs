//! `weft._native.Cloned`: a program that runs from a clone of its code.

use crate::child::Waited;
use crate::errors::to_python;
use crate::target::{Environment, Target, launch_of};
use crate::trace::Tracer;
use pyo3::prelude::*;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use weft_host::clone::{CloneOptions, Cloned as Host, EdgeKind, Grip, Records};
use weft_host::{Error, ErrorKind};

/// path, build-id, bias, start, size.
type ModuleRow = (String, Option<String>, u64, u64, u64);
/// module, offset, size, instructions, count.
type BlockRow = (u32, u64, u32, u32, u64);
/// module, source, module, target, kind, count.
type EdgeRow = (u32, u64, u32, u64, &'static str, u64);
/// Modules, blocks, edges, how many counters were executed, what was lost.
type FlowRows = (Vec<ModuleRow>, Vec<BlockRow>, Vec<EdgeRow>, u64, u64);

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

    pub(crate) fn grip(&self) -> weft_host::Result<Grip> {
        self.host.grip()
    }
}

#[pymethods]
impl Cloned {
    #[staticmethod]
    #[pyo3(signature = (command, environment, directory, streams, cache_size, sees_changes, follows, records))]
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
    ) -> PyResult<Self> {
        let launch = launch_of(command, environment, directory, streams)?;
        let options = options(cache_size, sees_changes, follows, records)?;
        let (host, child) = py.detach(|| Host::launch(launch, options)).map_err(to_python)?;
        Ok(Self { host, child: Some(Arc::new(Waited::new(child))) })
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

    fn flow(&self, py: Python<'_>) -> FlowRows {
        let flow = py.detach(|| self.host.flow());
        let modules = flow.modules.into_iter().map(|module| {
            let build_id =
                module.build_id.map(|id| id.iter().map(|b| format!("{b:02x}")).collect());
            (module.path, build_id, module.bias, module.start, module.size)
        });
        let blocks = flow.blocks.into_iter();
        let blocks = blocks.map(|b| (b.module, b.offset, b.size, b.instructions, b.count));
        let edges = flow.edges.into_iter().map(|edge| {
            let kind = match edge.kind {
                EdgeKind::Fall => "fall",
                EdgeKind::Taken => "taken",
                EdgeKind::Jump => "jump",
                EdgeKind::Call => "call",
            };
            let ((module, source), (to_module, target)) = (edge.source, edge.target);
            (module, source, to_module, target, kind, edge.count)
        });
        (modules.collect(), blocks.collect(), edges.collect(), flow.counted, flow.lost)
    }

    fn trace_to(&self, path: PathBuf, notes: Vec<(String, String)>) -> PyResult<Tracer> {
        let tracer = self.host.trace_to(&path, &notes).map_err(to_python)?;
        Ok(Tracer::new(tracer))
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
