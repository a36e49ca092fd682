//! `weft._native.Trace`: a trace that was written, as tables whose columns are bytes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weft_host::clone::Losses;
use weft_host::{Error, ErrorKind};
use weft_trace::replay::Replay;
use weft_trace::views::{Table, Values, View};
use weft_trace::{Detail, Shape, file};

use crate::errors::to_python;

/// thread, process, program, name, items, accesses, bytes.
type TotalRow = (u32, u32, u32, String, u64, u64, u64);
/// program, time, start, end, offset, path.
type ModuleRow<'trace> = (u32, u64, u64, u64, u64, &'trace str);
/// name, type, values, which are known (nothing if all are).
type ColumnRow<'py> =
    (&'static str, &'static str, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// A trace that can be read.
#[pyclass(frozen, module = "weft._native")]
pub struct Trace {
    path: PathBuf,
    trace: Arc<file::Trace>,
}

fn failed(path: &std::path::Path, error: weft_trace::Error) -> PyErr {
    let what = format!("cannot read the trace {}", path.display());
    let advice = match error.is_bad_file {
        true => "record it again; if weft has written it so, please report that",
        false => "",
    };
    to_python(Error::new(ErrorKind::BadFile, what).why(error.what).advice(advice))
}

#[pymethods]
impl Trace {
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let trace = py.detach(|| file::Trace::open(&path));
        let trace = Arc::new(trace.map_err(|error| failed(&path, error))?);
        Ok(Self { path, trace })
    }

    #[getter]
    fn is_cut(&self) -> bool {
        self.trace.is_cut
    }

    #[getter]
    fn has_values(&self) -> bool {
        self.trace.detail == Detail::Values
    }

    #[getter]
    fn notes(&self) -> Vec<(&str, &str)> {
        self.trace.notes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
    }

    #[getter]
    fn modules(&self) -> Vec<ModuleRow<'_>> {
        let row = |module| {
            let module: &file::Module = module;
            (
                module.program,
                module.time,
                module.start,
                module.end,
                module.offset,
                module.path.as_str(),
            )
        };
        self.trace.modules.iter().map(row).collect()
    }

    fn totals(&self) -> PyResult<Vec<TotalRow>> {
        let totals = self.trace.totals().map_err(|error| failed(&self.path, error))?;
        let row = |total: file::Total| {
            let file::Total { thread, process, program, name, items, accesses, bytes } = total;
            (thread, process, program, name, items, accesses, bytes)
        };
        Ok(totals.into_iter().map(row).collect())
    }

    fn blocks(&self) -> Vec<(u32, u64, usize, u16, u32)> {
        let row = |(number, block): (u32, &weft_trace::Block)| {
            let (program, _) = weft_trace::program_and_number(number);
            (number, block.address, block.bytes.len(), block.plan.instructions, program)
        };
        self.trace.all_blocks().map(row).collect()
    }

    fn code<'py>(&self, py: Python<'py>, number: u32) -> Option<Bound<'py, PyBytes>> {
        self.trace.block(number).map(|block| PyBytes::new(py, &block.bytes))
    }

    fn table(&self, view: &str, threads: Vec<u32>) -> PyResult<TraceTable> {
        let known = View::ALL.iter().find(|(name, _)| *name == view);
        let Some(&(_, view)) = known else {
            let what = format!("a trace has no table {view}");
            return Err(to_python(Error::new(ErrorKind::InvalidArgument, what)));
        };
        let replay = Replay::new(self.trace.clone(), &threads);
        let table = Mutex::new(Table::new(view, replay));
        Ok(TraceTable { path: self.path.clone(), table })
    }
}

/// One of a trace's tables, as it is gone through.
#[pyclass(frozen, module = "weft._native")]
pub struct TraceTable {
    path: PathBuf,
    table: Mutex<Table>,
}

#[pymethods]
impl TraceTable {
    fn next<'py>(&self, py: Python<'py>, rows: usize) -> PyResult<(usize, Vec<ColumnRow<'py>>)> {
        let read = || self.table.lock().unwrap_or_else(PoisonError::into_inner).next(rows);
        let (count, columns) = py.detach(read).map_err(|error| failed(&self.path, error))?;
        let row = |column: weft_trace::views::Column| {
            let (kind, values) = match &column.values {
                Values::Bytes(values) => ("u8", PyBytes::new(py, values)),
                Values::Words(values) => ("u32", PyBytes::new(py, bytes_of(values))),
                Values::Longs(values) => ("u64", PyBytes::new(py, bytes_of(values))),
                Values::Signed(values) => ("i64", PyBytes::new(py, bytes_of(values))),
            };
            let known = (!column.unknown.is_empty()).then(|| {
                let mut bits = vec![0xff_u8; count.div_ceil(8)];
                column.unknown.iter().for_each(|row| bits[row / 8] &= !(1 << (row % 8)));
                PyBytes::new(py, &bits)
            });
            (column.name, kind, values, known)
        };
        Ok((count, columns.into_iter().map(row).collect()))
    }
}

/// A type of which every bit pattern is a value, and which has no padding.
trait Number {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for i64 {}

fn bytes_of<T: Number>(values: &[T]) -> &[u8] {
    // SAFETY: numbers are bytes, all of them.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// A cache that is asked many times at once.
#[pyclass(frozen, module = "weft._native")]
pub struct Cache(Mutex<weft_trace::Cache>);

#[pymethods]
impl Cache {
    #[new]
    fn new(sets: usize, ways: usize, line: u64) -> PyResult<Self> {
        let cache = weft_trace::Cache::new(Shape { sets, ways, line });
        cache.map(|cache| Self(Mutex::new(cache))).ok_or_else(|| {
            let what = format!("no cache has {sets} sets of {ways} lines of {line} bytes");
            let advice = "sizes are powers of two, and a cache has at least one line";
            to_python(Error::new(ErrorKind::InvalidArgument, what).advice(advice))
        })
    }

    fn touch<'py>(&self, py: Python<'py>, addresses: &[u8], sizes: &[u8]) -> Bound<'py, PyBytes> {
        let missed: Vec<u32> = py.detach(|| {
            let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let touch = |(address, size): (&[u8; 8], &[u8; 4])| {
                cache.touch(u64::from_le_bytes(*address), u32::from_le_bytes(*size).into())
            };
            addresses.as_chunks().0.iter().zip(sizes.as_chunks().0).map(touch).collect()
        });
        PyBytes::new(py, bytes_of(&missed))
    }
}

/// A file that a trace is being written to.
#[pyclass(frozen, module = "weft._native")]
pub struct Tracer(Mutex<Option<weft_host::clone::Tracer>>);

impl Tracer {
    pub(crate) fn new(tracer: weft_host::clone::Tracer) -> Self {
        Self(Mutex::new(Some(tracer)))
    }
}

#[pymethods]
impl Tracer {
    fn finish(&self, py: Python<'_>) -> PyResult<Vec<LossRow>> {
        let tracer = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let finish = || tracer.map_or(Ok(Losses::default()), weft_host::clone::Tracer::finish);
        Ok(py.detach(finish).map_err(to_python)?.named())
    }
}

/// What is missing, and how often.
pub(crate) type LossRow = (&'static str, u64);
