//! `weft._native.Target`: one process with weft's agent in it.

use crate::child::Waited;
use crate::errors::to_python;
use crate::holding::Holding;
use crate::launching::{Environment, launch_of};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard};
use weft_debug::GENERAL_ORDER;
use weft_host::{Error, ErrorKind, Maker, TargetAddr, memory};

#[pyclass(frozen, module = "weft._native")]
pub struct Target {
    pid: i32,
    maker: Maker,
    inner: Mutex<weft_host::Target>,
    pub(crate) child: Option<Arc<Waited>>,
    /// Nothing for one that runs from a clone, which is held as that.
    holding: Option<Holding>,
}

impl Target {
    pub(crate) fn in_clone(target: weft_host::Target) -> Self {
        let (pid, maker) = (target.pid(), target.maker());
        Self { pid, maker, inner: Mutex::new(target), child: None, holding: None }
    }

    fn new(target: weft_host::Target, child: Option<Child>, holding: Holding) -> Self {
        let child = child.map(|child| Arc::new(Waited::new(child)));
        Self { child, holding: Some(holding), ..Self::in_clone(target) }
    }

    pub(crate) fn lock(&self) -> PyResult<MutexGuard<'_, weft_host::Target>> {
        // First: in a forked child the lock may be held by a thread of the parent, which is not there to release it.
        self.check_here()?;
        self.inner.lock().map_err(|_| PyRuntimeError::new_err("an earlier call has panicked"))
    }

    pub(crate) fn mark_returned(&self) {
        if let Some(holding) = &self.holding {
            holding.end();
        }
    }

    /// Does something with the target while other Python threads run.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut weft_host::Target) -> weft_host::Result<R> + Send,
    ) -> PyResult<R> {
        py.detach(|| act(&mut *self.lock()?).map_err(to_python))
    }
}

#[pymethods]
impl Target {
    #[staticmethod]
    fn attach(py: Python<'_>, pid: i32) -> PyResult<Self> {
        let holding = Holding::begin();
        let target = py.detach(|| weft_host::Target::attach(pid)).map_err(to_python)?;
        Ok(Self::new(target, None, holding))
    }

    #[staticmethod]
    #[pyo3(signature = (command, environment, directory, streams))]
    fn launch(
        py: Python<'_>,
        command: Vec<OsString>,
        environment: Option<Environment>,
        directory: Option<PathBuf>,
        streams: [Option<i32>; 3],
    ) -> PyResult<Self> {
        let launch = launch_of(command, environment, directory, streams)?;
        let holding = Holding::begin();
        let launched = py.detach(|| weft_host::Target::launch(launch));
        let (target, child) = launched.map_err(to_python)?;
        Ok(Self::new(target, Some(child), holding))
    }

    #[getter]
    fn pid(&self) -> i32 {
        self.pid
    }

    fn is_here(&self) -> bool {
        self.maker.is_here()
    }

    fn check_here(&self) -> PyResult<()> {
        self.maker.check().map_err(to_python)
    }

    fn ping(&self, py: Python<'_>) -> PyResult<Vec<(i32, Option<String>)>> {
        let pongs = self.with(py, weft_host::Target::ping)?;
        Ok(pongs.into_iter().map(|pong| (pong.tid, pong.unasked)).collect())
    }

    fn syscall(&self, py: Python<'_>, number: i64, args: Vec<u64>) -> PyResult<i64> {
        self.with(py, move |target| target.syscall(number, args))
    }

    fn cpu(&self) -> PyResult<(Vec<&'static str>, u32)> {
        let cpu = self.lock()?.cpu().map_err(to_python)?;
        Ok((cpu.features, cpu.vector_state_size))
    }

    fn registers<'py>(&self, py: Python<'py>, tid: i32) -> PyResult<Bound<'py, PyDict>> {
        let (general, vector) = self.with(py, move |target| target.registers(tid))?;
        let registers = PyDict::new(py);
        let g = general.0;
        for name in GENERAL_ORDER {
            registers.set_item(name, general.named(name))?;
        }
        for (name, value) in [
            ("rip", g.rip),
            ("eflags", g.eflags),
            ("cs", g.cs),
            ("ss", g.ss),
            ("ds", g.ds),
            ("es", g.es),
            ("fs", g.fs),
            ("gs", g.gs),
            ("fs_base", g.fs_base),
            ("gs_base", g.gs_base),
            ("orig_rax", g.orig_rax),
        ] {
            registers.set_item(name, value)?;
        }
        let zmm: Vec<_> = vector.zmm().iter().map(|bytes| PyBytes::new(py, bytes)).collect();
        registers.set_item("zmm", zmm)?;
        registers.set_item("opmask", vector.opmask())?;
        registers.set_item("xsave", PyBytes::new(py, &vector.raw))?;
        Ok(registers)
    }

    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, weft_host::Target::stop)
    }

    fn run_to_entry(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, weft_host::Target::run_to_entry)
    }

    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |target| {
            target.resume();
            Ok(())
        })
    }

    fn is_stopped(&self) -> PyResult<bool> {
        Ok(self.lock()?.is_stopped())
    }

    #[pyo3(signature = (timeout))]
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<i32>> {
        self.check_here()?;
        let child = self.child.as_ref().ok_or_else(|| {
            to_python(
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("process {} is not weft's child", self.pid),
                )
                .why("only a program that weft has started can be waited for"),
            )
        })?;
        child.wait(py, timeout)
    }

    fn last_words(&self, file: &str) -> Option<String> {
        self.child.as_ref()?.last_words(file)
    }

    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let outcome = self.with(py, weft_host::Target::detach);
        self.mark_returned();
        outcome
    }

    #[pyo3(signature = (first=0))]
    fn pauses(&self, first: usize) -> PyResult<Vec<(f64, usize, f64)>> {
        let target = self.lock()?;
        let row =
            |p: &weft_host::Pause| (p.duration.as_secs_f64(), p.threads, p.began.as_secs_f64());
        Ok(target.pauses().iter().skip(first).map(row).collect())
    }

    fn read<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        size: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.check_here()?;
        let bytes =
            py.detach(|| memory::read(self.pid, TargetAddr(address), size)).map_err(to_python)?;
        Ok(PyBytes::new(py, &bytes))
    }

    fn read_many<'py>(
        &self,
        py: Python<'py>,
        pieces: Vec<(u64, usize)>,
    ) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        self.check_here()?;
        let pieces: Vec<_> = pieces.into_iter().map(|(a, size)| (TargetAddr(a), size)).collect();
        let read = py.detach(|| memory::read_many(self.pid, &pieces)).map_err(to_python)?;
        Ok(read.into_iter().map(|bytes| bytes.map(|b| PyBytes::new(py, &b))).collect())
    }

    fn write(&self, py: Python<'_>, address: u64, data: Vec<u8>) -> PyResult<()> {
        self.check_here()?;
        py.detach(|| memory::write(self.pid, TargetAddr(address), &data)).map_err(to_python)
    }
}
