//! `weft._native.CloneFolder`: a folder of clones that are kept in files.

use crate::errors::to_python;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use weft_host::clone::USUAL_TABLES;
use weft_host::store::ahead;
use weft_host::store::folder::Folder;

/// path, size, last used, blocks, bytes of code, whether it is whole, what it is the clone of.
type EntryRow = (PathBuf, u64, f64, u64, u64, bool, PathBuf);

#[pyclass(frozen, module = "weft._native")]
pub struct CloneFolder(pub Arc<Folder>);

#[pymethods]
impl CloneFolder {
    #[staticmethod]
    fn open(
        path: PathBuf,
        limit: u64,
        shared: Option<PathBuf>,
        is_for_all: bool,
    ) -> PyResult<Self> {
        let opened = Folder::open(&path, limit, shared.as_deref(), is_for_all);
        let folder = opened.map_err(to_python)?;
        Ok(Self(Arc::new(folder)))
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn entries(&self, py: Python<'_>) -> Vec<EntryRow> {
        let entries = py.detach(|| self.0.entries());
        let row = |entry: weft_host::store::folder::Entry| {
            let used = entry.used.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let (header, is_whole) = (entry.header.unwrap_or_default(), entry.header.is_some());
            let code = header.hot + (header.code_length - header.cold);
            let seconds = used.as_secs_f64();
            let blocks = header.blocks.count;
            (entry.path, entry.size, seconds, blocks, code, is_whole, entry.original)
        };
        entries.into_iter().map(row).collect()
    }

    fn clear(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        py.detach(|| self.0.clear()).map_err(to_python)
    }

    fn prepare(&self, py: Python<'_>, path: PathBuf) -> PyResult<u64> {
        py.detach(|| ahead::prepare(&self.0, &path, USUAL_TABLES)).map_err(to_python)
    }
}
