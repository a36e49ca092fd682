//! `weft._native.ModuleSymbols`: the functions of a module, many per call.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use weft_symbols::{
    Cache, Frame, Function, FunctionKind, Glob, Layout, ModuleFile, ModuleImage, Result,
};

use crate::errors::to_python;

/// name, demangled, offset, size, kind, binding, visibility, origin, aliases.
type FunctionRow<'table> = (
    &'table str,
    Option<&'table str>,
    u64,
    u64,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Vec<&'table str>,
);

/// function, file, line, column, inlined.
type FrameRow = (Option<String>, Option<String>, Option<u32>, Option<u32>, bool);

/// files; offset, size, file, line, column, statement.
type LineColumns<'py> = (
    Vec<String>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
    Bound<'py, PyBytes>,
);

/// offset, size, transfer, target.
type InstructionColumns<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>);

/// The functions of one module.
/// Where a slot is, its resolver, and the name and the version of its symbol.
type SlotRow = (u64, Option<u64>, String, String);

#[pyclass(frozen, module = "weft._native")]
pub struct ModuleSymbols(weft_symbols::ModuleSymbols);

impl ModuleSymbols {
    pub(crate) fn inner(&self) -> &weft_symbols::ModuleSymbols {
        &self.0
    }
}

fn cache(use_cache: bool) -> Cache {
    if use_cache { Cache::of_user() } else { Cache::disabled() }
}

fn wrap(symbols: Result<weft_symbols::ModuleSymbols>) -> PyResult<ModuleSymbols> {
    symbols.map(ModuleSymbols).map_err(to_python)
}

#[pymethods]
impl ModuleSymbols {
    #[staticmethod]
    #[pyo3(signature = (path, *, open_path=None, root=None, use_cache=true))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        open_path: Option<PathBuf>,
        root: Option<PathBuf>,
        use_cache: bool,
    ) -> PyResult<Self> {
        let file = match (open_path, root) {
            (None, None) => ModuleFile::here(&path),
            (open_path, root) => ModuleFile {
                open_path: open_path.unwrap_or_else(|| path.clone()),
                root: root.unwrap_or_else(|| "/".into()),
                path,
            },
        };
        wrap(py.detach(|| weft_symbols::ModuleSymbols::open(file, &cache(use_cache))))
    }

    #[staticmethod]
    #[pyo3(signature = (path, data, *, bias=None, root=None, use_cache=true))]
    fn from_image(
        py: Python<'_>,
        path: PathBuf,
        data: &[u8],
        bias: Option<u64>,
        root: Option<PathBuf>,
        use_cache: bool,
    ) -> PyResult<Self> {
        let image = ModuleImage {
            path,
            bytes: Arc::from(data),
            layout: bias.map_or(Layout::File, |bias| Layout::Memory { bias }),
            root: root.unwrap_or_else(|| "/".into()),
        };
        wrap(py.detach(|| weft_symbols::ModuleSymbols::from_image(image, &cache(use_cache))))
    }

    #[getter]
    fn path(&self) -> OsString {
        self.0.path().into()
    }

    #[getter]
    fn build_id(&self) -> Option<String> {
        self.0.build_id()
    }

    #[getter]
    fn problems(&self) -> Vec<&str> {
        self.0.problems().collect()
    }

    #[getter(from_cache)]
    fn is_from_cache(&self) -> bool {
        self.0.is_from_cache()
    }

    fn __len__(&self) -> usize {
        self.0.functions().len()
    }

    #[pyo3(signature = (names="*"))]
    fn select(&self, py: Python<'_>, names: &str) -> Vec<u32> {
        let names = Glob::new(names);
        py.detach(|| self.0.select(&names))
    }

    fn find(&self, py: Python<'_>, name: &str) -> Vec<u32> {
        py.detach(|| self.0.find(name))
    }

    fn variables(&self, py: Python<'_>, name: &str) -> PyResult<Vec<(u64, u64)>> {
        py.detach(|| self.0.variables(name)).map_err(to_python)
    }

    fn variable_at(&self, py: Python<'_>, offset: u64) -> PyResult<Option<(String, u64)>> {
        py.detach(|| self.0.variable_at(offset)).map_err(to_python)
    }

    fn other_results(
        &self,
        py: Python<'_>,
        offsets: Vec<u64>,
    ) -> PyResult<Vec<Option<&'static str>>> {
        py.detach(|| self.0.other_results(&offsets)).map_err(to_python)
    }

    fn slots(&self, py: Python<'_>, names: Vec<String>) -> PyResult<Vec<SlotRow>> {
        let names = names.iter().map(String::as_str).collect();
        let slots = py.detach(|| self.0.slots(&names)).map_err(to_python)?;
        Ok(slots.into_iter().map(|s| (s.offset, s.resolver, s.name, s.version)).collect())
    }

    fn candidates(&self, py: Python<'_>, resolver: u32) -> PyResult<(Vec<u64>, Vec<u64>, bool)> {
        let found = py.detach(|| self.0.candidates(resolver)).map_err(to_python)?;
        Ok((found.functions, found.slots, found.is_open))
    }

    fn users_of(&self, py: Python<'_>, text: &str) -> PyResult<Vec<u64>> {
        py.detach(|| self.0.users_of(text)).map_err(to_python)
    }

    fn containing(&self, offsets: Vec<u64>) -> Vec<Option<usize>> {
        let functions = self.0.functions();
        let index = |offset: &u64| functions.containing(*offset).map(Function::index);
        offsets.iter().map(index).collect()
    }

    fn endless_before(&self, offsets: Vec<u64>) -> Vec<Option<usize>> {
        let functions = self.0.functions();
        let index = |offset: &u64| functions.endless_before(*offset).map(Function::index);
        offsets.iter().map(index).collect()
    }

    fn local_numbers(&self, indexes: Vec<u32>) -> Vec<u32> {
        let all = self.0.functions().local_numbers();
        indexes.iter().map(|&index| all.get(index as usize).copied().unwrap_or_default()).collect()
    }

    fn chosen_at_start(&self) -> Vec<&str> {
        let chosen = self.0.functions().iter().filter(|it| it.kind() == FunctionKind::Ifunc);
        chosen.flat_map(|it| [it.name()].into_iter().chain(it.aliases())).collect()
    }

    fn at(&self, py: Python<'_>, offset: u64) -> PyResult<(Option<usize>, Vec<FrameRow>)> {
        let function = self.0.functions().containing(offset).map(Function::index);
        let frames = py.detach(|| self.0.frames_at(offset)).map_err(to_python)?;
        Ok((function, frames.into_iter().map(frame_row).collect()))
    }

    fn rows(&self, indexes: Vec<u32>) -> Vec<FunctionRow<'_>> {
        let functions = self.0.functions();
        indexes.iter().filter_map(|&index| functions.get(index as usize)).map(row).collect()
    }

    fn sources(&self, py: Python<'_>, indexes: Vec<u32>) -> PyResult<Vec<Option<(&str, u32)>>> {
        let sources = py.detach(|| self.0.sources()).map_err(to_python)?;
        Ok(indexes.iter().map(|&index| sources.of(index as usize)).collect())
    }

    fn source_files(&self, py: Python<'_>) -> PyResult<Vec<&str>> {
        Ok(py.detach(|| self.0.sources()).map_err(to_python)?.files().collect())
    }

    fn in_source(&self, py: Python<'_>, file: usize) -> PyResult<Vec<u32>> {
        let select = || -> Result<Vec<u32>> {
            let sources = self.0.sources()?;
            let all = 0..self.0.functions().len();
            let inside = all.filter(|&index| sources.file_index(index) == Some(file));
            Ok(inside.map(|index| index as u32).collect())
        };
        py.detach(select).map_err(to_python)
    }

    fn line_table<'py>(&self, py: Python<'py>) -> PyResult<LineColumns<'py>> {
        let table = py.detach(|| self.0.line_table()).map_err(to_python)?;
        let words = |column: &[u32]| column_of(py, column.iter().map(|word| word.to_ne_bytes()));
        Ok((
            table.files,
            column_of(py, table.offsets.iter().map(|offset| offset.to_ne_bytes())),
            words(&table.sizes),
            words(&table.file_of),
            words(&table.lines),
            words(&table.columns),
            PyBytes::new(py, &table.statements),
        ))
    }

    fn instructions<'py>(
        &self,
        py: Python<'py>,
        pieces: Vec<(u64, u64)>,
    ) -> PyResult<InstructionColumns<'py>> {
        let found = py.detach(|| self.0.instructions(&pieces)).map_err(to_python)?;
        Ok((
            column_of(py, found.offsets.iter().map(|offset| offset.to_ne_bytes())),
            PyBytes::new(py, &found.sizes),
            PyBytes::new(py, &found.transfers),
            column_of(py, found.targets.iter().map(|target| target.to_ne_bytes())),
        ))
    }

    fn jump_tables(
        &self,
        py: Python<'_>,
        functions: Vec<(u64, u64)>,
    ) -> PyResult<Vec<(u64, Vec<u64>)>> {
        py.detach(|| self.0.jump_tables(&functions)).map_err(to_python)
    }

    fn code<'py>(
        &self,
        py: Python<'py>,
        pieces: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let found = py.detach(|| self.0.code(&pieces)).map_err(to_python)?;
        Ok(found.iter().map(|bytes| PyBytes::new(py, bytes)).collect())
    }

    fn disassemble(
        &self,
        py: Python<'_>,
        pieces: Vec<(u64, u64)>,
    ) -> PyResult<Vec<Vec<(u64, String)>>> {
        py.detach(|| self.0.disassemble(&pieces)).map_err(to_python)
    }

    #[pyo3(signature = (indexes, *, lines=false))]
    fn json<'py>(
        &self,
        py: Python<'py>,
        indexes: Vec<u32>,
        lines: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let render = || -> Result<_> {
            let sources = if lines { Some(self.0.sources()?) } else { None };
            Ok(self.0.json(&indexes, sources))
        };
        let text = py.detach(render).map_err(to_python)?;
        Ok(PyBytes::new(py, text.as_bytes()))
    }
}

/// Numbers as Python's `memoryview.cast` reads them.
fn column_of<'py, const SIZE: usize>(
    py: Python<'py>,
    numbers: impl Iterator<Item = [u8; SIZE]>,
) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &numbers.flatten().collect::<Vec<u8>>())
}

fn row(function: Function<'_>) -> FunctionRow<'_> {
    (
        function.name(),
        function.demangled(),
        function.offset(),
        function.size(),
        function.kind().name(),
        function.binding().name(),
        function.visibility().name(),
        function.origin().name(),
        function.aliases().collect(),
    )
}

fn frame_row(frame: Frame) -> FrameRow {
    (frame.function, frame.file, frame.line, frame.column, frame.inlined)
}
