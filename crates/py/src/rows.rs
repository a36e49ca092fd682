//! `weft._native.FlowRows` and `ProfileRows`: what a program has executed, of which Python sees the rows that it asks for.

use crate::errors::to_python;
use crate::symbols::ModuleSymbols;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use weft_host::clone::{EdgeKind, FlowBlock};
use weft_symbols::Line;
use weft_symbols::profile::{Block, Edge, Profile, Written};

/// offset, size, instructions, count.
type BlockRow = (u64, u64, u64, u64);
/// module, source, module, target, kind, count.
type EdgeRow = (u32, u64, u32, u64, &'static str, u64);
/// The same as Python has it.
type GivenEdge = (u32, u64, u32, u64, String, u64);
/// function, offset, size, instructions, count, code, lines.
type ProfiledRow<'py> =
    (u32, u64, u64, u64, u64, Bound<'py, PyBytes>, Vec<(u64, Bound<'py, PyString>, u32)>);
/// The module; the same as Python has it.
type GivenBlock = (u32, (u32, u64, u64, u64, u64, Vec<u8>, Vec<(u64, String, u32)>));
/// source, target, whether it is the first instruction of that, whether it is a call, how often.
type WayRow = (u32, u32, bool, bool, u128);

const KINDS: [&str; 4] = ["fall", "taken", "jump", "call"];

fn edge_row(edge: &Edge) -> EdgeRow {
    let (module, source) = edge.source;
    let (to_module, target) = edge.target;
    (module, source, to_module, target, edge.kind, edge.count)
}

fn edges_of(given: Vec<GivenEdge>) -> PyResult<Arc<Vec<Edge>>> {
    let edge = |(module, source, to_module, target, kind, count): GivenEdge| {
        let kind = KINDS.into_iter().find(|known| *known == kind);
        let kind = kind.ok_or_else(|| PyValueError::new_err("there is no edge of this kind"))?;
        Ok(Edge { source: (module, source), target: (to_module, target), kind, count })
    };
    given.into_iter().map(edge).collect::<PyResult<_>>().map(Arc::new)
}

/// The part of a sequence that is asked for.
fn part<T>(all: &[T], from: usize, to: usize) -> PyResult<&[T]> {
    all.get(from..to).ok_or_else(|| PyIndexError::new_err("there are not as many"))
}

/// A block of a flow.
#[derive(Clone, Copy)]
struct Executed {
    offset: u64,
    size: u64,
    instructions: u64,
    count: u64,
}

/// What was executed: the blocks of each module, and the ways between them.
#[pyclass(frozen, module = "weft._native")]
pub struct FlowRows {
    blocks: Vec<Vec<Executed>>,
    edges: Arc<Vec<Edge>>,
}

impl FlowRows {
    pub(crate) fn new(flow: &weft_host::clone::Flow) -> Self {
        let mut blocks = vec![Vec::new(); flow.modules.len()];
        for &FlowBlock { module, offset, size, instructions, count } in &flow.blocks {
            let [size, instructions] = [size, instructions].map(u64::from);
            blocks[module as usize].push(Executed { offset, size, instructions, count });
        }
        let edge = |edge: &weft_host::clone::EdgeCount| Edge {
            source: edge.source,
            target: edge.target,
            kind: match edge.kind {
                EdgeKind::Fall => "fall",
                EdgeKind::Taken => "taken",
                EdgeKind::Jump => "jump",
                EdgeKind::Call => "call",
            },
            count: edge.count,
        };
        Self { blocks, edges: Arc::new(flow.edges.iter().map(edge).collect()) }
    }

    fn of_module(&self, module: usize) -> PyResult<&[Executed]> {
        let blocks = self.blocks.get(module);
        blocks.map(Vec::as_slice).ok_or_else(|| PyIndexError::new_err("there is no such module"))
    }
}

#[pymethods]
impl FlowRows {
    #[staticmethod]
    fn of(blocks: Vec<Vec<BlockRow>>, edges: Vec<GivenEdge>) -> PyResult<Self> {
        let block =
            |(offset, size, instructions, count)| Executed { offset, size, instructions, count };
        let blocks = blocks.into_iter().map(|own| own.into_iter().map(block).collect());
        Ok(Self { blocks: blocks.collect(), edges: edges_of(edges)? })
    }

    fn only(&self, py: Python<'_>, modules: Vec<u32>) -> PyResult<Self> {
        let new: HashMap<u32, u32> = modules.iter().copied().zip(0..).collect();
        let blocks = modules.iter().map(|&old| Ok(self.of_module(old as usize)?.to_vec()));
        let blocks: PyResult<Vec<_>> = blocks.collect();
        let edge = |edge: &Edge| {
            let [source, target] = [edge.source, edge.target];
            let source = (*new.get(&source.0)?, source.1);
            Some(Edge { source, target: (*new.get(&target.0)?, target.1), ..*edge })
        };
        let edges = py.detach(|| self.edges.iter().filter_map(edge).collect());
        Ok(Self { blocks: blocks?, edges: Arc::new(edges) })
    }

    fn block_count(&self, module: usize) -> PyResult<usize> {
        Ok(self.of_module(module)?.len())
    }

    fn blocks(&self, module: usize, from: usize, to: usize) -> PyResult<Vec<BlockRow>> {
        let row = |block: &Executed| (block.offset, block.size, block.instructions, block.count);
        Ok(part(self.of_module(module)?, from, to)?.iter().map(row).collect())
    }

    fn edge_count(&self) -> usize {
        self.edges.len()
    }

    fn edges(&self, from: usize, to: usize) -> PyResult<Vec<EdgeRow>> {
        Ok(part(&self.edges, from, to)?.iter().map(edge_row).collect())
    }

    /// Where the blocks of a module begin and end.
    fn extents(&self, module: usize) -> PyResult<(Vec<u64>, Vec<u64>)> {
        let end = |block: &Executed| block.offset.saturating_add(block.size);
        let blocks = self.of_module(module)?;
        Ok((blocks.iter().map(|block| block.offset).collect(), blocks.iter().map(end).collect()))
    }

    /// The ways within a module that are no calls and lead to some places: these, and where they come from.
    fn ways_to(&self, py: Python<'_>, module: u32, places: HashSet<u64>) -> Vec<(u64, u64)> {
        let leads = |edge: &&Edge| {
            let is_within = edge.target.0 == module && edge.source.0 == module;
            is_within && edge.kind != "call" && places.contains(&edge.target.1)
        };
        let row = |edge: &Edge| (edge.target.1, edge.source.1);
        py.detach(|| self.edges.iter().filter(leads).map(row).collect())
    }

    /// How often each function of a module was entered, at least 1 for one of which something was executed, given where
    /// functions begin and their sizes.
    fn function_counts(
        &self,
        py: Python<'_>,
        module: u32,
        functions: Vec<(u64, u64)>,
    ) -> PyResult<Vec<u64>> {
        let blocks = self.of_module(module as usize)?;
        Ok(py.detach(|| function_counts(blocks, &self.edges, module, &functions)))
    }

    /// The same with the functions of all blocks, and with what the files of modules have of them.
    fn profile(
        &self,
        py: Python<'_>,
        modules: Vec<(Option<PyRef<'_, ModuleSymbols>>, Vec<u32>)>,
    ) -> PyResult<ProfileRows> {
        let files: Vec<_> =
            modules.iter().map(|(symbols, _)| symbols.as_ref().map(|it| it.inner())).collect();
        let functions: Vec<&[u32]> = modules.iter().map(|(_, functions)| &functions[..]).collect();
        let read = || -> weft_symbols::Result<Profile> {
            let mut found = Vec::new();
            let mut names = Names::default();
            for (module, blocks) in self.blocks.iter().enumerate() {
                let written = match files.get(module) {
                    Some(Some(file)) => {
                        let rows =
                            blocks.iter().map(|one| (one.offset, one.size, one.instructions));
                        Some(file.written(&rows.collect::<Vec<_>>())?)
                    }
                    _ => None,
                };
                let (tables, mut written) = written.unwrap_or_default();
                let mut places = vec![None; tables.len()];
                let functions = functions.get(module).copied().unwrap_or_default();
                for (number, (block, &function)) in blocks.iter().zip(functions).enumerate() {
                    let own = written.get_mut(number).map(std::mem::take).unwrap_or_default();
                    let line = |(offset, place): Line| {
                        let named = place.map(|(file, line)| {
                            let place = &mut places[file as usize];
                            (
                                *place.get_or_insert_with(|| names.number(&tables[file as usize])),
                                line,
                            )
                        });
                        (offset, named)
                    };
                    found.push(Block {
                        function,
                        at: (module as u32, block.offset),
                        size: block.size,
                        instructions: block.instructions,
                        count: block.count,
                        code: own.code,
                        lines: own.lines.into_iter().map(line).collect(),
                    });
                }
            }
            Ok(Profile::new(found, self.edges.clone(), names.all))
        };
        py.detach(read).map(ProfileRows).map_err(to_python)
    }
}

fn function_counts(
    blocks: &[Executed],
    edges: &[Edge],
    module: u32,
    functions: &[(u64, u64)],
) -> Vec<u64> {
    let sizes: HashMap<u64, u64> = functions.iter().copied().collect();
    let mut back: HashMap<u64, u64> = HashMap::new();
    for edge in edges.iter().filter(|edge| edge.source.0 == module && edge.target.0 == module) {
        let (target, size) = (edge.target.1, sizes.get(&edge.target.1).copied().unwrap_or(0));
        let is_inside = edge.source.1.checked_sub(target).is_some_and(|distance| distance < size);
        if is_inside && edge.kind != "call" {
            // A jump back to the first instruction does not enter the function.
            let count = back.entry(target).or_default();
            *count = count.saturating_add(edge.count);
        }
    }
    let count = |&(offset, size): &(u64, u64)| {
        let after = blocks.partition_point(|block| block.offset <= offset);
        let before = after.checked_sub(1).map(|place| &blocks[place]);
        match before.filter(|block| offset - block.offset < block.size) {
            Some(block) => {
                let again = back.get(&offset).copied().unwrap_or(0);
                block.count.saturating_sub(again).max(1)
            }
            None => {
                let next = blocks.get(after).filter(|block| block.offset - offset < size);
                next.is_some().into()
            }
        }
    };
    functions.iter().map(count).collect()
}

/// Names of files, each once.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    numbers: HashMap<String, u32>,
}

impl Names {
    fn number(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.numbers.get(name) {
            return known;
        }
        let number = self.all.len() as u32;
        self.all.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        number
    }
}

/// A profile: see [`Profile`].
#[pyclass(frozen, module = "weft._native")]
pub struct ProfileRows(Profile);

impl ProfileRows {
    fn block_row<'py>(
        &self,
        py: Python<'py>,
        block: &Block,
        files: &[Bound<'py, PyString>],
    ) -> ProfiledRow<'py> {
        let line = |&(offset, place): &Line| {
            let (file, line) = place.unwrap_or((self.0.files.len() as u32, 0));
            (offset, files[file as usize].clone(), line)
        };
        let Block { function, at: (_, offset), size, instructions, count, ref code, ref lines } =
            *block;
        let lines = lines.iter().map(line).collect();
        (function, offset, size, instructions, count, PyBytes::new(py, code), lines)
    }

    /// The names of all files, and that of none behind them.
    fn names<'py>(&self, py: Python<'py>) -> Vec<Bound<'py, PyString>> {
        let names = self.0.files.iter().map(String::as_str).chain([""]);
        names.map(|name| PyString::new(py, name)).collect()
    }
}

#[pymethods]
impl ProfileRows {
    #[staticmethod]
    fn of(blocks: Vec<GivenBlock>, edges: Vec<GivenEdge>) -> PyResult<Self> {
        let mut names = Names::default();
        let block =
            |(module, (function, offset, size, instructions, count, code, lines)): GivenBlock| {
                let line = |(offset, file, line): (u64, String, u32)| {
                    (offset, (!file.is_empty()).then(|| (names.number(&file), line)))
                };
                let lines = lines.into_iter().map(line).collect();
                Block { function, at: (module, offset), size, instructions, count, code, lines }
            };
        let blocks = blocks.into_iter().map(block).collect();
        Ok(Self(Profile::new(blocks, edges_of(edges)?, names.all)))
    }

    #[getter]
    fn files(&self) -> &[String] {
        &self.0.files
    }

    fn block_count(&self) -> usize {
        self.0.blocks.len()
    }

    fn blocks<'py>(
        &self,
        py: Python<'py>,
        from: usize,
        to: usize,
    ) -> PyResult<Vec<ProfiledRow<'py>>> {
        let files = self.names(py);
        let row = |block: &Block| self.block_row(py, block, &files);
        Ok(part(&self.0.blocks, from, to)?.iter().map(row).collect())
    }

    fn edge_count(&self) -> usize {
        self.0.edges.len()
    }

    fn edges(&self, from: usize, to: usize) -> PyResult<Vec<EdgeRow>> {
        Ok(part(&self.0.edges, from, to)?.iter().map(edge_row).collect())
    }

    fn costs(&self, functions: usize) -> Vec<u128> {
        self.0.costs(functions)
    }

    fn entries(&self, offsets: Vec<u64>) -> Vec<u128> {
        self.0.entries(&offsets)
    }

    fn line_costs<'py>(&self, py: Python<'py>) -> Vec<(u32, Bound<'py, PyString>, u32, u128)> {
        let costs = py.detach(|| self.0.line_costs());
        let files = self.names(py);
        let row = |(function, place, cost): (u32, Written, u128)| {
            let (file, line) = place.unwrap_or((self.0.files.len() as u32, 0));
            (function, files[file as usize].clone(), line, cost)
        };
        costs.into_iter().map(row).collect()
    }

    fn block_at(&self, module: u32, offset: u64) -> Option<usize> {
        self.0.block_at((module, offset))
    }

    fn ends(&self, py: Python<'_>) -> Vec<(Option<usize>, Option<usize>)> {
        py.detach(|| self.0.ends().to_vec())
    }

    fn ways(&self, py: Python<'_>, offsets: Vec<u64>) -> Vec<WayRow> {
        let ways = py.detach(|| self.0.ways(&offsets));
        ways.into_iter().map(|w| (w.source, w.target, w.is_entry, w.is_call, w.count)).collect()
    }

    fn leaving(&self, module: u32, start: u64, end: u64) -> Vec<usize> {
        self.0.leaving(module, &Range { start, end })
    }

    fn hottest(&self, most: usize) -> Vec<usize> {
        self.0.hottest(most)
    }

    fn json<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let (blocks, edges) = py.detach(|| (self.0.blocks_as_json(), self.0.edges_as_json()));
        (PyBytes::new(py, blocks.as_bytes()), PyBytes::new(py, edges.as_bytes()))
    }
}
