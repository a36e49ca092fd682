//! The stacks of processes, for Python.

use crate::errors::to_python;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weft_host::stacks::{self, PythonCode, PythonLayout};

/// address, what it is, whether it is a guess.
type FrameRow = (u64, &'static str, bool);

/// thread, frames, why there may be more, system call with its arguments.
type StackRow = (i32, Vec<FrameRow>, Option<&'static str>, Option<(u64, [u64; 6])>);

/// thread, frames of the interpreter (code, offset, whether C code has called it), whether there may be more.
type PythonRow = (u64, Vec<(u64, i64, bool)>, bool);

/// Name, file, first line, table of lines.
type CodeRow = (String, String, i32, Vec<u8>);

/// What was read of an interpreter: its threads, and the code of their frames.
type PythonRows = (Vec<PythonRow>, BTreeMap<u64, CodeRow>);

/// Stacks, seconds for which threads stood still, what was read of an interpreter, calls that may have been cut short.
type StacksRow = (Vec<StackRow>, Vec<f64>, Option<PythonRows>, usize);

/// Where things are in an interpreter of Python.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Layout {
    runtime: u64,
    interpreters: u64,
    next_interpreter: u64,
    threads: u64,
    next_thread: u64,
    tid: u64,
    frame: u64,
    frame_behind: Option<u64>,
    code: u64,
    previous: u64,
    instruction: u64,
    owner: u64,
    has_entry_frames: bool,
    file: u64,
    name: u64,
    first_line: u64,
    line_table: u64,
    first_instruction: u64,
    ascii: u64,
    compact: u64,
}

impl From<Layout> for PythonLayout {
    fn from(layout: Layout) -> Self {
        Self {
            runtime: layout.runtime,
            interpreters: layout.interpreters,
            next_interpreter: layout.next_interpreter,
            threads: layout.threads,
            next_thread: layout.next_thread,
            tid: layout.tid,
            frame: layout.frame,
            frame_behind: layout.frame_behind,
            code: layout.code,
            previous: layout.previous,
            instruction: layout.instruction,
            owner: layout.owner,
            has_entry_frames: layout.has_entry_frames,
            file: layout.file,
            name: layout.name,
            first_line: layout.first_line,
            line_table: layout.line_table,
            first_instruction: layout.first_instruction,
            ascii: layout.ascii,
            compact: layout.compact,
        }
    }
}

/// The stacks of all threads of a process, and for how many seconds it stood still, each time.
#[pyfunction]
#[pyo3(name = "stacks", signature = (pid, python=None))]
fn read(py: Python<'_>, pid: i32, python: Option<Layout>) -> PyResult<StacksRow> {
    let layout = python.map(PythonLayout::from);
    let found = py.detach(|| stacks::stacks(pid, layout)).map_err(to_python)?;
    let rows = found.threads.into_iter().map(|one| {
        let frames = one.frames.into_iter();
        let frames = frames.map(|frame| (frame.address, frame.kind.name(), frame.is_guess));
        let frames = frames.collect();
        (one.tid, frames, one.cut, one.call)
    });
    let pauses = found.pauses.iter().map(|pause| pause.duration.as_secs_f64()).collect();
    let python = found.python.map(|read| {
        let threads = read.threads.into_iter().map(|(tid, frames, is_cut)| {
            let frames = frames.into_iter();
            let frames = frames.map(|frame| (frame.code, frame.offset, frame.is_entry));
            (tid, frames.collect(), is_cut)
        });
        let codes = read.codes.into_iter().map(|(at, code)| (at, code_row(&code)));
        (threads.collect(), codes.collect())
    });
    Ok((rows.collect(), pauses, python, found.shortened))
}

fn code_row(code: &PythonCode) -> CodeRow {
    (code.name.clone(), code.file.clone(), code.first_line, code.line_table.clone())
}

/// Unwinds states of a process that stands still.
#[pyclass(unsendable)]
struct StateUnwinder(stacks::StateUnwinder);

#[pymethods]
impl StateUnwinder {
    #[new]
    fn new(pid: i32) -> PyResult<Self> {
        stacks::StateUnwinder::new(pid).map(Self).map_err(to_python)
    }

    fn stack(&self, pc: u64, sp: u64, bp: u64) -> (Vec<FrameRow>, Option<&'static str>) {
        let found = self.0.stack(pc, sp, bp);
        let frames = found.frames.into_iter();
        (frames.map(|one| (one.address, one.kind.name(), one.is_guess)).collect(), found.cut)
    }
}

/// thread, whether it sleeps, whether it waits for its turn, stack, system call with its arguments, nanoseconds run, nanoseconds waited for a processor.
type SampleRow = (i32, bool, bool, usize, Option<(u64, [u64; 6])>, u64, u64);

/// time, samples, ended threads with nanoseconds run and waited, seconds for which threads stood still, calls that may have
/// been cut short, whether it has become another program.
type LookRow = (f64, Vec<SampleRow>, Vec<(i32, u64, u64)>, f64, usize, bool);

/// frames, why there may be more, frames of Python, whether there may be more of these, their code.
type SeenStackRow =
    (Vec<FrameRow>, Option<&'static str>, Vec<(u64, i64, bool)>, bool, BTreeMap<u64, CodeRow>);

/// Looks at the threads of a process, again and again.
#[pyclass(frozen)]
struct StackSampler(Mutex<stacks::Sampler>);

#[pymethods]
impl StackSampler {
    #[new]
    #[pyo3(signature = (pid, python=None))]
    fn new(py: Python<'_>, pid: i32, python: Option<Layout>) -> PyResult<Self> {
        let layout = python.map(PythonLayout::from);
        let sampler = py.detach(|| stacks::Sampler::new(pid, layout)).map_err(to_python)?;
        Ok(Self(Mutex::new(sampler)))
    }

    #[pyo3(signature = (rest=0.0))]
    fn look(&self, py: Python<'_>, rest: f64) -> PyResult<LookRow> {
        let rest = Duration::try_from_secs_f64(rest).unwrap_or_default();
        let look = py.detach(|| self.lock().look_after(rest)).map_err(to_python)?;
        let samples = look.samples.into_iter().map(|one| {
            let times = one.times;
            (one.tid, one.is_asleep, one.is_ready, one.stack, one.call, times.ran, times.waited)
        });
        let ended = look.ended.into_iter().map(|(tid, times)| (tid, times.ran, times.waited));
        let pause = look.pause.as_secs_f64();
        let (samples, ended) = (samples.collect(), ended.collect());
        let time = look.time.as_secs_f64();
        Ok((time, samples, ended, pause, look.shortened, look.is_replaced))
    }

    #[pyo3(signature = (python))]
    fn expect(&self, python: Option<Layout>) {
        self.lock().expect(python.map(PythonLayout::from));
    }

    fn times(&self) -> Vec<(i32, u64, u64)> {
        let sampler = self.lock();
        sampler.times().map(|(tid, times)| (tid, times.ran, times.waited)).collect()
    }

    fn spins(&self, address: u64) -> bool {
        self.lock().spins(address)
    }

    fn stack(&self, id: usize) -> Option<SeenStackRow> {
        let sampler = self.lock();
        let seen = sampler.stack(id)?;
        let frames = seen.frames.iter().map(|one| (one.address, one.kind.name(), one.is_guess));
        let python = seen.python.iter().map(|one| (one.code, one.offset, one.is_entry));
        let codes = seen
            .python
            .iter()
            .filter_map(|one| Some((one.code, code_row(sampler.code(one.code)?))));
        Some((frames.collect(), seen.cut, python.collect(), seen.is_python_cut, codes.collect()))
    }
}

impl StackSampler {
    fn lock(&self) -> MutexGuard<'_, stacks::Sampler> {
        // One that has panicked has said so, and what it has counted is still true.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<StateUnwinder>()?;
    module.add_class::<StackSampler>()?;
    module.add_function(wrap_pyfunction!(read, module)?)
}
