//! What can be learnt of a process without touching it.

use crate::errors::to_python;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use weft_host::{TargetAddr, memory, modules as host, proc, sockets};
use weft_symbols::hex;

#[pyfunction]
pub fn maps<'py>(py: Python<'py>, pid: i32) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let maps = py.detach(|| proc::maps(pid)).map_err(to_python)?;
    maps.into_iter()
        .map(|m| {
            let flag = |set: bool, letter: char| if set { letter } else { '-' };
            let permissions: String = [
                flag(m.read, 'r'),
                flag(m.write, 'w'),
                flag(m.execute, 'x'),
                if m.shared { 's' } else { 'p' },
            ]
            .iter()
            .collect();
            let entry = PyDict::new(py);
            entry.set_item("start", m.start.0)?;
            entry.set_item("end", m.end.0)?;
            entry.set_item("permissions", permissions)?;
            entry.set_item("offset", m.offset)?;
            entry.set_item("inode", m.inode)?;
            entry.set_item("path", m.path)?;
            Ok(entry)
        })
        .collect()
}

#[pyfunction]
pub fn threads(py: Python<'_>, pid: i32) -> PyResult<Vec<(i32, String, String)>> {
    let tids = py.detach(|| proc::threads(pid)).map_err(to_python)?;
    // A thread that ends while the list is made is not in it.
    let stats = tids.into_iter().filter_map(|tid| Some((tid, proc::stat(tid).ok()?)));
    Ok(stats.map(|(tid, stat)| (tid, stat.name, stat.state.to_string())).collect())
}

/// As `os.pidfd_open`, which not every Python has: it depends on the headers that it was built with.
#[pyfunction]
pub fn pidfd_open(pid: i32) -> PyResult<i32> {
    // SAFETY: plain numbers in, a new descriptor out.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if descriptor == -1 {
        let error = std::io::Error::last_os_error();
        // By its number, Python finds the class of its own.
        return Err(PyOSError::new_err((error.raw_os_error(), error.to_string())));
    }
    Ok(descriptor as i32)
}

#[pyfunction]
pub fn socket_timeouts(py: Python<'_>, pid: i32, descriptor: i32) -> Option<(f64, f64)> {
    let [read, write] = py.detach(|| sockets::timeouts(pid, descriptor))?;
    Some((read.as_secs_f64(), write.as_secs_f64()))
}

#[pyfunction]
pub fn modules<'py>(py: Python<'py>, pid: i32) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let modules = py.detach(|| host::modules(pid)).map_err(to_python)?;
    modules
        .into_iter()
        .map(|m| {
            let entry = PyDict::new(py);
            let build_id = m.build_id.map(|id| hex(&id));
            entry.set_item("path", m.path)?;
            entry.set_item("open_path", m.open_path)?;
            let (major, minor) = m.file.device;
            entry.set_item("file", format!("{major:x}:{minor:x}:{}", m.file.inode))?;
            entry.set_item("is_program", m.is_program)?;
            entry.set_item("start", m.start.0)?;
            entry.set_item("end", m.end.0)?;
            entry.set_item("bias", m.bias)?;
            entry.set_item("build_id", build_id)?;
            Ok(entry)
        })
        .collect()
}

#[pyfunction]
pub fn program(py: Python<'_>, pid: i32) -> Option<String> {
    py.detach(|| host::program_path(pid))
}

#[pyfunction]
pub fn module_image<'py>(
    py: Python<'py>,
    pid: i32,
    start: u64,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let image = py
        .detach(|| {
            let modules = host::modules(pid)?;
            modules.iter().find(|m| m.start.0 == start).map(|m| host::image(pid, m)).transpose()
        })
        .map_err(to_python)?;
    Ok(image.map(|bytes| PyBytes::new(py, &bytes)))
}

#[pyfunction]
pub fn read_words(py: Python<'_>, pid: i32, addresses: Vec<u64>) -> PyResult<Vec<Option<u64>>> {
    let pieces: Vec<_> =
        addresses.into_iter().map(|at| (TargetAddr(at), size_of::<u64>())).collect();
    let found = py.detach(|| memory::read_many(pid, &pieces)).map_err(to_python)?;
    let word = |bytes: Option<Vec<u8>>| Some(u64::from_le_bytes(bytes?.try_into().ok()?));
    Ok(found.into_iter().map(word).collect())
}
