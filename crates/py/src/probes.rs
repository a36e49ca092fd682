//! What of `weft._native.Target` has to do with probes.

use crate::errors::to_python;
use crate::target::Target;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::collections::BTreeMap;
use std::time::Duration;
use weft_host::weave::{Item, Order, Point, ProbeId, Selection, Weaver, Whose, usual_costs};
use weft_host::{Error, ErrorKind};
use weft_snippet::{Diagnostic, PointKind, Weave};

/// lowest, highest, how many.
type BucketRow = (i64, i64, u64);

/// key, sum.
type EntryRow<'py> = (Bound<'py, PyAny>, i64);

/// number, snippet, kinds, addresses, targets, whether before others.
type ItemRow = (ProbeId, String, Vec<String>, Vec<u64>, Vec<u64>, bool);

/// first address, that after the last, bias, file, path.
type CodeRow = (u64, u64, u64, String, String);

/// kind, address, target.
type PlaceRow = (&'static str, u64, u64);

/// function index, address, and target of each point; and functions that may have more, each with
/// the address where that is not known.
type PointColumns = (Vec<usize>, Vec<u64>, Vec<u64>, Vec<(usize, u64)>);

fn kind(name: &str) -> PyResult<PointKind> {
    let found = PointKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| no_such_points(name, &PointKind::ALL.map(PointKind::name)))
}

fn selection(name: &str) -> PyResult<Selection> {
    let names = || Selection::names().collect::<Vec<_>>();
    Selection::named(name).ok_or_else(|| no_such_points(name, &names()))
}

fn no_such_points(name: &str, known: &[&str]) -> PyErr {
    to_python(
        Error::new(ErrorKind::InvalidArgument, format!("there are no points of kind {name:?}"))
            .advice(format!("there are {}", known.join(", "))),
    )
}

fn parse(snippet: &str) -> PyResult<Weave> {
    Weave::parse(snippet).map_err(|diagnostic| to_python(as_error(&diagnostic)))
}

fn item((id, snippet, kinds, addresses, targets, prepend): ItemRow) -> PyResult<Item> {
    let weave = parse(&snippet)?;
    let places = kinds.iter().zip(addresses.into_iter().zip(targets));
    let points = places
        .map(|(name, (address, target))| Ok(Point { kind: kind(name)?, address, target }))
        .collect::<PyResult<Vec<_>>>()?;
    let order = if prepend { Order::Prepend } else { Order::Append };
    Ok(Item { id, weave, points, order })
}

fn as_error(diagnostic: &Diagnostic) -> Error {
    let Diagnostic { line, column, what, hint } = diagnostic;
    Error::new(ErrorKind::BadSnippet, format!("line {line}, column {column}: {what}"))
        .advice(hint.clone())
}

/// The kinds of points that a snippet has sections for; none when it has one body for all.
#[pyfunction]
pub fn snippet_points(snippet: &str) -> PyResult<Vec<&'static str>> {
    let weave = parse(snippet)?;
    Ok(weave.sections.iter().filter_map(|section| section.at.map(PointKind::name)).collect())
}

#[pymethods]
impl Target {
    fn points(
        &self,
        py: Python<'_>,
        functions: Vec<u64>,
        selection_name: &str,
    ) -> PyResult<PointColumns> {
        let selection = selection(selection_name)?;
        let (found, unknown) = self.with(py, move |target| target.points(&functions, selection))?;
        Ok((
            found.iter().map(|(index, _)| *index).collect(),
            found.iter().map(|(_, point)| point.address).collect(),
            found.iter().map(|(_, point)| point.target).collect(),
            unknown,
        ))
    }

    fn insert(
        &self,
        py: Python<'_>,
        snippet: &str,
        kinds: Vec<String>,
        addresses: Vec<u64>,
        targets: Vec<u64>,
        prepend: bool,
    ) -> PyResult<ProbeId> {
        let Item { weave, points, order, .. } =
            item((0, snippet.into(), kinds, addresses, targets, prepend))?;
        self.with(py, move |target| target.insert(weave, points, order))
    }

    fn reserve_probes(&self, count: usize) -> PyResult<Vec<ProbeId>> {
        let target = self.lock()?;
        let mut weaver = target.weaver().map_err(to_python)?;
        Ok(weaver.reserve(count))
    }

    fn see_reloaded(&self, py: Python<'_>) -> PyResult<Vec<(u64, u64)>> {
        self.with(py, |target| {
            let found = target.see_reloaded()?;
            Ok(found.into_iter().map(|range| (range.start, range.end)).collect())
        })
    }

    #[pyo3(signature = (items, enabled = true))]
    fn insert_many(&self, py: Python<'_>, items: Vec<ItemRow>, enabled: bool) -> PyResult<()> {
        let items = items.into_iter().map(item).collect::<PyResult<Vec<_>>>()?;
        self.with(py, move |target| target.insert_many(items, enabled))
    }

    fn discard_probe(&self, probe: ProbeId) -> PyResult<()> {
        self.lock()?.discard(probe).map_err(to_python)
    }

    fn set_probes_enabled(
        &self,
        py: Python<'_>,
        probes: Vec<ProbeId>,
        enabled: bool,
    ) -> PyResult<()> {
        self.with(py, move |target| target.set_enabled(&probes, enabled))
    }

    fn enable_probes_for(
        &self,
        py: Python<'_>,
        probes: Vec<ProbeId>,
        seconds: f64,
    ) -> PyResult<f64> {
        let moment = Duration::from_secs_f64(seconds.clamp(0.0, 1.0));
        self.with(py, move |target| target.enable_for(&probes, moment)).map(|ran| ran.as_secs_f64())
    }

    fn remove_probes(&self, py: Python<'_>, probes: Vec<ProbeId>) -> PyResult<()> {
        self.with(py, move |target| target.remove(&probes))
    }

    fn probe_refused(&self, probe: ProbeId) -> PyResult<Vec<(PlaceRow, String)>> {
        self.weaver(|weaver| {
            let refused = weaver.probe(probe)?.refused().iter();
            Ok(refused
                .map(|refusal| {
                    let Point { kind, address, target } = refusal.point;
                    ((kind.name(), address, target), refusal.why.clone())
                })
                .collect())
        })
    }

    fn refusals(&self) -> PyResult<u64> {
        self.weaver(|weaver| Ok(weaver.refusals()))
    }

    fn probe_tactics(&self, probe: ProbeId) -> PyResult<BTreeMap<&'static str, usize>> {
        self.weaver(|weaver| Ok(weaver.probe(probe)?.tactics().clone()))
    }

    fn probe_calls_program(&self, probe: ProbeId) -> PyResult<bool> {
        self.weaver(|weaver| weaver.calls_program(probe))
    }

    fn probe_asm(&self, probe: ProbeId) -> PyResult<String> {
        self.weaver(|weaver| weaver.listing(probe))
    }

    fn probe_cost(&self, py: Python<'_>, probe: ProbeId) -> PyResult<f64> {
        self.with(py, move |target| target.weaver()?.cost(probe))
    }

    #[staticmethod]
    fn snippet_cost(py: Python<'_>, snippet: &str) -> PyResult<BTreeMap<&'static str, f64>> {
        let weave = parse(snippet)?;
        let costs = py.detach(|| usual_costs(&weave));
        Ok(costs.into_iter().map(|(kind, nanoseconds)| (kind.name(), nanoseconds)).collect())
    }

    fn probe_data(&self, probe: ProbeId) -> PyResult<Vec<(String, &'static str)>> {
        self.weaver(|weaver| {
            let data = weaver.probe(probe)?.data().iter();
            Ok(data.map(|datum| (datum.name.clone(), datum.kind.name())).collect())
        })
    }

    #[pyo3(signature = (probe, name, process = None, thread = None))]
    fn probe_counters(
        &self,
        probe: ProbeId,
        name: &str,
        process: Option<u32>,
        thread: Option<u32>,
    ) -> PyResult<Vec<i64>> {
        self.weaver(|weaver| weaver.counters(probe, name, whose(process, thread)))
    }

    #[pyo3(signature = (probe, name, process = None, thread = None))]
    fn probe_timer(
        &self,
        probe: ProbeId,
        name: &str,
        process: Option<u32>,
        thread: Option<u32>,
    ) -> PyResult<(u64, u64)> {
        let timer = self.weaver(|weaver| weaver.timer(probe, name, whose(process, thread)))?;
        Ok((timer.nanoseconds, timer.count))
    }

    #[pyo3(signature = (probe, name, process = None, thread = None))]
    fn probe_histogram(
        &self,
        probe: ProbeId,
        name: &str,
        process: Option<u32>,
        thread: Option<u32>,
    ) -> PyResult<(Vec<BucketRow>, i64)> {
        let histogram =
            self.weaver(|weaver| weaver.histogram(probe, name, whose(process, thread)))?;
        let lows = histogram.buckets.iter().map(|bucket| bucket.0);
        let highs = lows.clone().skip(1).map(|next| next.wrapping_sub(1)).chain([i64::MAX]);
        let rows = lows.zip(highs).zip(&histogram.buckets);
        let filled = rows.filter(|(_, bucket)| bucket.1 != 0);
        Ok((filled.map(|((low, high), bucket)| (low, high, bucket.1)).collect(), histogram.sum))
    }

    #[pyo3(signature = (probe, name, process = None, thread = None))]
    fn probe_map<'py>(
        &self,
        py: Python<'py>,
        probe: ProbeId,
        name: &str,
        process: Option<u32>,
        thread: Option<u32>,
    ) -> PyResult<(Vec<EntryRow<'py>>, u64)> {
        let (map, keys) = self.weaver(|weaver| weaver.map(probe, name, whose(process, thread)))?;
        let entries = map
            .entries
            .into_iter()
            .map(|([first, second], sum)| {
                let key = match keys {
                    1 => first.into_bound_py_any(py)?,
                    _ => (first, second).into_bound_py_any(py)?,
                };
                Ok((key, sum))
            })
            .collect::<PyResult<_>>()?;
        Ok((entries, map.lost))
    }

    fn probe_text_columns(&self, probe: ProbeId, name: &str) -> PyResult<Vec<bool>> {
        self.weaver(|weaver| weaver.text_columns(probe, name))
    }

    fn probe_texts<'py>(&self, py: Python<'py>) -> PyResult<BTreeMap<u64, Bound<'py, PyBytes>>> {
        let texts = self.weaver(|weaver| Ok(weaver.texts()))?;
        Ok(texts.into_iter().map(|(id, text)| (id, PyBytes::new(py, &text))).collect())
    }

    fn probe_stack_columns(&self, probe: ProbeId, name: &str) -> PyResult<Vec<bool>> {
        self.weaver(|weaver| weaver.stack_columns(probe, name))
    }

    fn probe_stacks(&self) -> PyResult<BTreeMap<u64, (Vec<u64>, bool)>> {
        let stacks = self.weaver(|weaver| Ok(weaver.stacks()))?;
        Ok(stacks.into_iter().map(|(id, one)| (id, (one.addresses, one.is_cut))).collect())
    }

    fn probe_stack_code(&self) -> PyResult<Vec<CodeRow>> {
        let code = self.weaver(|weaver| Ok(weaver.stack_code()))?;
        let rows = code.into_iter().map(|one| {
            let (major, minor) = one.file.device;
            let file = format!("{major:x}:{minor:x}:{}", one.file.inode);
            (one.start, one.end, one.bias, file, one.path)
        });
        Ok(rows.collect())
    }

    fn probe_records<'py>(
        &self,
        py: Python<'py>,
        probe: ProbeId,
        name: &str,
    ) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let records = self.weaver(|weaver| weaver.records(probe, name))?;
        records.into_iter().map(|record| PyTuple::new(py, record)).collect()
    }

    fn probe_processes(&self) -> PyResult<Vec<u32>> {
        self.weaver(|weaver| Ok(weaver.processes()))
    }

    fn probe_threads(&self) -> PyResult<Vec<(u32, u32)>> {
        self.weaver(|weaver| Ok(weaver.threads()))
    }

    fn is_current(&self) -> PyResult<bool> {
        Ok(self.lock()?.is_current())
    }

    fn leave_children(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, weft_host::Target::leave_children)
    }

    fn survivors(&self, py: Python<'_>, patience: f64) -> PyResult<Vec<i32>> {
        let patience = Duration::try_from_secs_f64(patience).unwrap_or_default();
        self.with(py, |target| target.survivors(patience))
    }

    fn is_probe_crowded(&self, probe: ProbeId) -> PyResult<bool> {
        self.weaver(|weaver| weaver.is_crowded(probe))
    }

    fn probe_lost(&self, probe: ProbeId, name: &str) -> PyResult<u64> {
        self.weaver(|weaver| weaver.lost(probe, name))
    }
}

/// Whose values are asked for; 0, which is no process, stands for all.
fn whose(process: Option<u32>, thread: Option<u32>) -> Whose {
    match (process, thread) {
        (process, Some(thread)) => Whose::Thread { process, thread },
        (None, None) => Whose::Target,
        (Some(0), None) => Whose::All,
        (Some(process), None) => Whose::Process(process),
    }
}

impl Target {
    pub(crate) fn weaver<R>(
        &self,
        read: impl FnOnce(&Weaver) -> weft_host::Result<R>,
    ) -> PyResult<R> {
        let target = self.lock()?;
        let weaver = target.weaver().map_err(to_python)?;
        read(&weaver).map_err(to_python)
    }
}
