//! All probes of one target.

use super::apply::{Changes, Next};
use super::arena::Arena;
use super::edit::{self, Edit};
use super::plan::{JUMP, Plan, Spot};
use super::points::{self, Point, Selection};
use super::site::{EnvironmentKey, compile_strand, environment};
use super::text::{FunctionTerrain, Known, ModuleText};
use super::trampoline::{self, Insertions, Trampoline};
use super::values::{Needs, Values};
use super::woven::{Active, Piece, Probe, ProbeId, Refusal, Strand, Woven};
use crate::agent::Agent;
use crate::modules;
use crate::proc::{self, Tid};
use crate::stopped::Stopped;
use crate::{Error, ErrorKind, Result, TargetAddr, memory};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_code::{Liveness, Program};
use weft_snippet::layout::{Place, salt};
use weft_snippet::{Env, PointKind, Weave, verify};

/// Where among the probes of one point a new one goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Before those that are there.
    Prepend,
    /// After them.
    Append,
}

/// A probe that is about to be woven.
#[derive(Debug)]
pub struct Draft {
    weave: Arc<Weave>,
    points: Vec<Point>,
    order: Order,
    /// The module and the function of each point; why not, if there is none.
    homes: Vec<Result<(usize, Known, Spot), &'static str>>,
    needs: Needs,
}

/// What a weaver has to have before it can weave a draft.
#[derive(Debug, Default)]
pub struct Missing {
    /// Code that no arena reaches.
    arenas: Vec<TargetAddr>,
    values: Option<Needs>,
}

impl Missing {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty() && self.values.is_none()
    }
}

/// Points, each with the index of its function; and functions that may have more, by their index, each
/// with the place where that is not known.
pub type FoundPoints = (Vec<(usize, Point)>, Vec<(usize, u64)>);

/// All probes of one target.
#[derive(Debug)]
pub struct Weaver {
    pub(super) pid: Tid,
    /// What the target itself calls its id.
    pub(super) own_pid: u32,
    pub(super) arenas: Vec<Arena>,
    pub(super) values: Vec<Values>,
    /// The routines that snippets call, by arena and values.
    pub(super) environments: HashMap<EnvironmentKey, Env>,
    pub(super) texts: Vec<ModuleText>,
    pub(super) woven: HashMap<u64, Woven>,
    pub(super) probes: BTreeMap<ProbeId, Probe>,
    pub(super) next_probe: ProbeId,
    /// Trampolines that nothing leads to any more, but that a thread may still be in.
    pub(super) limbo: Vec<Piece>,
    pub(super) bmi2: bool,
    /// Whether the word at each thread's `fs` base is the `fs` base, as where a C library runs.
    pub(super) thread_pointer: bool,
    /// Whether there was a snippet that calls functions of the program.
    pub(super) calls_program: bool,
}

impl Weaver {
    /// A weaver without probes.
    pub fn new(pid: Tid) -> Self {
        Self {
            pid,
            own_pid: proc::own_pid(pid).unwrap_or(pid) as u32,
            arenas: Vec::new(),
            values: Vec::new(),
            environments: HashMap::new(),
            texts: Vec::new(),
            woven: HashMap::new(),
            probes: BTreeMap::new(),
            next_probe: 1,
            limbo: Vec::new(),
            bmi2: std::arch::is_x86_feature_detected!("bmi2"),
            thread_pointer: false,
            calls_program: false,
        }
    }

    /// The module that an address belongs to.
    fn text_of(&mut self, at: u64) -> Result<usize> {
        let is_in = |text: &ModuleText| !text.is_gone && text.range().contains(&TargetAddr(at));
        if let Some(index) = self.texts.iter().position(is_in) {
            return Ok(index);
        }
        let module = modules::modules(self.pid)?
            .into_iter()
            .find(|m| m.start <= TargetAddr(at) && TargetAddr(at) < m.end)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidArgument,
                    format!("no module of process {} has code at {at:#x}", self.pid),
                )
            })?;
        self.texts.push(ModuleText::read(self.pid, module)?);
        Ok(self.texts.len() - 1)
    }

    /// Points that these functions have, each with the index of its function, and functions that may
    /// have more: their index, and where that is not known.
    pub fn points(&mut self, functions: &[u64], selection: Selection) -> Result<FoundPoints> {
        let mut found = Vec::with_capacity(functions.len());
        let mut unknown = Vec::new();
        for (index, &start) in functions.iter().enumerate() {
            let text = self.text_of(start)?;
            let text = &self.texts[text];
            let Some(known) = text.function(start).filter(|f| f.start == start && !f.is_cold)
            else {
                continue;
            };
            let (points, uncertain) = points::points(text, &known, selection);
            found.extend(points.into_iter().map(|point| (index, point)));
            unknown.extend(uncertain.into_iter().map(|at| (index, at)));
        }
        Ok((found, unknown))
    }

    /// Looks at what is to be woven where.
    pub fn draft(&mut self, weave: Weave, points: Vec<Point>, order: Order) -> Result<Draft> {
        verify(&weave).map_err(|problem| bad_snippet(&problem.to_string()))?;
        self.forget_unloaded()?;
        self.calls_program |= weave.calls_program();
        let mut homes = Vec::with_capacity(points.len());
        for point in &points {
            let text = self.text_of(point.address)?;
            homes.push(self.home(text, point, &weave));
        }
        self.forget_reloaded(homes.iter().flatten().map(|home| home.1.start).collect())?;
        let mut needs = Needs::default();
        for datum in &weave.data {
            for _ in 0..if datum.is_per_point() { points.len() } else { 1 } {
                needs.add(datum);
            }
        }
        if !needs.fit() {
            return Err(Error::new(ErrorKind::LimitReached, "the probe has too many values")
                .why("one thread's values of one probe must fit into 16 megabytes")
                .advice("split it, or let the points share their counters"));
        }
        Ok(Draft { weave: Arc::new(weave), points, order, homes, needs })
    }

    /// Forgets modules that are no longer there, and the probes in them.
    fn forget_unloaded(&mut self) -> Result<()> {
        let modules = modules::modules(self.pid)?;
        for (index, text) in self.texts.iter_mut().enumerate() {
            if text.is_gone || modules.contains(&text.module) {
                continue;
            }
            text.is_gone = true;
            let inside: Vec<u64> =
                self.woven.iter().filter(|(_, w)| w.text == index).map(|(&f, _)| f).collect();
            for function in inside {
                forget(&mut self.woven, &mut self.limbo, &mut self.arenas, function);
            }
        }
        Ok(())
    }

    /// Forgets functions whose module was unloaded and loaded again at the same place.
    fn forget_reloaded(&mut self, mut functions: Vec<u64>) -> Result<()> {
        functions.sort_unstable();
        functions.dedup();
        let mut edits: Vec<(Edit, u64)> = functions
            .iter()
            .filter_map(|function| Some((function, self.woven.get(function)?)))
            .flat_map(|(&function, woven)| {
                woven.active.edits.iter().map(move |edit| (edit.clone().reversed(), function))
            })
            .collect();
        edits.sort_unstable_by_key(|(edit, _)| edit.at);
        let only_edits: Vec<Edit> = edits.iter().map(|(edit, _)| edit.clone()).collect();
        for index in edit::outdated(self.pid, &only_edits)? {
            let function = edits[index].1;
            if let Some(woven) = self.woven.get(&function) {
                self.texts[woven.text].claim(function, &woven.plan.claims(), Vec::new());
            }
            forget(&mut self.woven, &mut self.limbo, &mut self.arenas, function);
        }
        Ok(())
    }

    fn home(
        &self,
        text: usize,
        point: &Point,
        weave: &Weave,
    ) -> Result<(usize, Known, Spot), &'static str> {
        let module = &self.texts[text];
        let known = module.function(point.address).ok_or("no function is known there")?;
        if point.kind == PointKind::Entry && (known.is_cold || known.start != point.address) {
            return Err("it is a part of another function, not a function");
        }
        if known.is_entered_inside {
            return Err("it is entered elsewhere than at its start");
        }
        if module.is_signal_return(point.address) {
            return Err("signal handlers return there");
        }
        if module.module.path == "[vdso]" {
            return Err("the kernel shares this code with all processes");
        }
        if weave.body(point.kind).is_none() {
            return Err("the snippet says nothing for points of this kind");
        }
        Ok((text, known, point.spot(module)?))
    }

    /// What has to be brought into the target before the draft can be woven.
    pub fn missing(&mut self, draft: &Draft) -> Missing {
        let mut missing = Missing::default();
        let used: BTreeSet<usize> = draft.homes.iter().flatten().map(|home| home.0).collect();
        for text in used {
            let range = self.texts[text].range();
            let near = |at: &TargetAddr| range.start.0.abs_diff(at.0) < 1 << 29;
            if !self.arenas.iter().any(|arena| arena.reaches(&range))
                && !missing.arenas.iter().any(near)
            {
                missing.arenas.push(range.start);
            }
        }
        if !self.values.last().is_some_and(|values| values.has_room(&draft.needs)) {
            missing.values = Some(draft.needs);
        }
        missing
    }

    /// Brings it in.
    pub fn supply(
        &mut self,
        agent: &mut Agent,
        stopped: &Stopped,
        pidfd: RawFd,
        missing: &Missing,
    ) -> Result<()> {
        self.look_at_threads(stopped);
        for &near in &missing.arenas {
            let maps = proc::maps(self.pid)?;
            let salt = salt(self.own_pid);
            self.arenas.push(Arena::create(agent, stopped, &maps, near, pidfd, salt)?);
        }
        if let Some(needs) = missing.values {
            let maps = proc::maps(self.pid)?;
            let is_go = self.texts.iter().any(ModuleText::is_go);
            let values = Values::create(agent, stopped, &maps, pidfd, needs, is_go)?;
            self.values.push(values);
        }
        for arena in &self.arenas {
            for (piece, values) in arena.head().values.iter().zip(&self.values) {
                let (start, length) = values.all();
                piece.start.store(start.0, Relaxed);
                piece.length.store(length, Relaxed);
            }
        }
        Ok(())
    }

    /// Finds out whether a thread can learn its `fs` base from memory, which is much faster than by the
    /// instruction for it. The ABI of thread-local storage asks for that; Go does not follow it, and a
    /// program that is just starting not yet.
    pub(super) fn look_at_threads(&mut self, stopped: &Stopped) {
        let mut bases = stopped.threads().values().map(|registers| registers.0.fs_base).peekable();
        self.thread_pointer = bases.peek().is_some()
            && !self.texts.iter().any(ModuleText::is_go)
            && bases.all(|base| {
                let word = memory::read(self.pid, TargetAddr(base), 8);
                word.is_ok_and(|word| word == base.to_ne_bytes())
            });
    }

    /// Prepares everything for a draft's probe, but changes nothing that runs.
    pub fn weave(&mut self, draft: Draft) -> Result<(ProbeId, Changes)> {
        let Draft { weave, points, order, homes, .. } = draft;
        let values = self.values.len() - 1;
        let full = || Error::new(ErrorKind::Internal, "there is less room than there should be");
        let memory = &mut self.values[values];
        let mut places = Vec::with_capacity(weave.data.len());
        for datum in &weave.data {
            let place = if datum.is_per_point() {
                Place::default()
            } else {
                memory.place(datum).ok_or_else(full)?
            };
            places.push(place);
        }
        let mut own = Vec::new();
        for _ in &points {
            for datum in Probe::own_data(&weave) {
                own.push(memory.place(datum).ok_or_else(full)?);
            }
        }
        let id = self.next_probe;
        self.next_probe += 1;
        let mut refused = Vec::new();
        let mut touched = Vec::new();
        for (index, home) in homes.into_iter().enumerate() {
            let (text, known, spot) = match home {
                Ok(home) => home,
                Err(why) => {
                    refused.push(Refusal { point: points[index], why: why.into() });
                    continue;
                }
            };
            let woven = self.woven.entry(known.start).or_insert_with(|| Woven {
                text,
                known,
                strands: BTreeMap::new(),
                plan: Plan::default(),
                active: Active::default(),
            });
            let strand = Strand { probe: id, point: index };
            let strands = woven.strands.entry(spot).or_default();
            match order {
                Order::Append => strands.push(strand),
                Order::Prepend => strands.insert(0, strand),
            }
            touched.push(known.start);
        }
        let probe = Probe {
            weave,
            points,
            values,
            places,
            own,
            refused,
            tactics: BTreeMap::new(),
            enabled: true,
        };
        self.probes.insert(id, probe);
        let changes = self.reweave(touched)?;
        self.count_tactics(id, &changes);
        Ok((id, changes))
    }

    /// How the windows of a new probe's points were found.
    fn count_tactics(&mut self, id: ProbeId, changes: &Changes) {
        let mut tactics = BTreeMap::new();
        for next in &changes.functions {
            let strands = &self.woven[&next.function].strands;
            for (spot, _) in strands.iter().filter(|(_, all)| all.iter().any(|s| s.probe == id)) {
                if let Some(window) = next.plan.window_of(spot.instruction()) {
                    *tactics.entry(window.tactic).or_default() += 1;
                }
            }
        }
        if let Some(probe) = self.probes.get_mut(&id) {
            probe.tactics = tactics;
        }
    }

    /// Prepares the new shape of functions whose probes have changed.
    fn reweave(&mut self, mut functions: Vec<u64>) -> Result<Changes> {
        functions.sort_unstable();
        functions.dedup();
        let mut changes = Vec::with_capacity(functions.len());
        for function in functions {
            changes.push(self.reweave_one(function)?);
        }
        self.compare(changes)
    }

    fn reweave_one(&mut self, function: u64) -> Result<Next> {
        loop {
            let refusals = match self.try_reweave(function)? {
                Ok(next) => return Ok(next),
                Err(refusals) => refusals,
            };
            // Without what could not be woven, the rest can be.
            let woven = self.woven.get_mut(&function).ok_or_else(lost)?;
            for (spot, why) in refusals {
                for strand in woven.strands.remove(&spot).unwrap_or_default() {
                    if let Some(probe) = self.probes.get_mut(&strand.probe) {
                        probe.refuse(strand.point, &why);
                    }
                }
            }
        }
    }

    /// The new shape of a function, or the places where something is in the way.
    fn try_reweave(&mut self, function: u64) -> Result<Result<Next, Vec<(Spot, String)>>> {
        let woven = &self.woven[&function];
        let text = &self.texts[woven.text];
        let is_enabled = |strand: &&Strand| self.probes[&strand.probe].enabled;
        let enabled: Vec<(Spot, Vec<Strand>)> = woven
            .strands
            .iter()
            .map(|(&spot, all)| (spot, all.iter().filter(is_enabled).copied().collect()))
            .filter(|(_, all): &(Spot, Vec<Strand>)| !all.is_empty())
            .collect();
        let spots: Vec<Spot> = enabled.iter().map(|(spot, _)| *spot).collect();
        let is_entry = |spot: &Spot| matches!(spot, Spot::Entry(_));
        let needs_graph = !spots.iter().all(is_entry) || text.jumps_indirectly(&woven.known);
        let whole = text.whole(&woven.known);
        let graph = needs_graph.then(|| text.graph(&whole));
        let liveness = graph.as_ref().filter(|_| !spots.iter().all(is_entry));
        let liveness = liveness.map(|graph| Liveness::of(graph, graph.function.convention));
        let graph = graph.as_ref();
        let terrain = FunctionTerrain { text, whole, graph };
        let reserved: Vec<Range<u64>> = self
            .limbo
            .iter()
            .filter(|piece| piece.function == function)
            .map(|piece| piece.window.clone())
            .collect();
        let plan =
            woven.plan.reduced(&terrain, &spots).extended(&terrain, &spots, &spots, &reserved);
        if !plan.refused.is_empty() {
            let refused = plan.refused.into_iter().map(|r| (r.spot, r.why.to_string()));
            return Ok(Err(refused.collect()));
        }
        if enabled.is_empty() {
            let text = woven.text;
            let before = woven.plan.claims();
            self.texts[text].claim(function, &before, Vec::new());
            return Ok(Ok(Next { function, active: Active::default(), plan }));
        }

        let arena = self
            .arenas
            .iter()
            .position(|arena| arena.reaches(&text.range()))
            .ok_or_else(|| Error::new(ErrorKind::Internal, "no arena reaches the code"))?;
        let mut insertions = Insertions::new();
        for (spot, strands) in &enabled {
            for strand in strands {
                let values = self.probes[&strand.probe].values;
                let env = environment(
                    &mut self.environments,
                    (arena, values, self.thread_pointer),
                    &mut self.arenas[arena],
                    &self.values[values],
                    self.bmi2,
                )?;
                let probe = &self.probes[&strand.probe];
                match compile_strand(probe, strand, *spot, &terrain, liveness.as_ref(), &env) {
                    Ok(compiled) => insertions.entry(*spot).or_default().push(compiled),
                    Err(why) => return Ok(Err(vec![(*spot, why)])),
                }
            }
        }

        let arena_index = arena;
        let arena = &mut self.arenas[arena_index];
        let mut places = BTreeMap::new();
        let mut rooms = BTreeMap::new();
        for window in plan.windows.values() {
            let room = Trampoline::room(window, &insertions);
            let at = arena.allocate(room)?;
            places.insert(window.start, at.0);
            rooms.insert(window.start, room);
        }
        let built = trampoline::build(&plan, &insertions, &places, |at| terrain.text.bytes(at));
        let trampolines = match built {
            Ok(trampolines) => trampolines,
            Err(immovable) => {
                for (start, &at) in &places {
                    arena.release(TargetAddr(at), rooms[start]);
                }
                let window = plan.window_of(immovable.address);
                let blamed = spots
                    .iter()
                    .filter(|spot| window.is_none_or(|w| w.has(spot.instruction())))
                    .map(|&spot| (spot, immovable.to_string()));
                return Ok(Err(blamed.collect()));
            }
        };
        let mut active = Active {
            edits: edits(&plan, &trampolines, terrain.text),
            strands: enabled.into_iter().collect(),
            ..Active::default()
        };
        for (start, trampoline) in trampolines {
            let at = TargetAddr(trampoline.at);
            arena.write(at, &trampoline.bytes);
            arena.shrink(at, rooms[&start], trampoline.bytes.len());
            let window = &plan.windows[&start];
            active.pieces.push(Piece {
                arena: arena_index,
                at,
                length: trampoline.bytes.len(),
                function,
                window: window.start..window.end(),
                moved: trampoline.moved,
                contents: trampoline.contents,
            });
        }
        let woven = &self.woven[&function];
        self.texts[woven.text].claim(function, &woven.plan.claims(), plan.claims());
        Ok(Ok(Next { function, active, plan }))
    }

    /// Prepares to enable or disable a probe.
    pub fn set_enabled(&mut self, id: ProbeId, enabled: bool) -> Result<Changes> {
        let probe = self.probes.get_mut(&id).ok_or_else(|| no_such_probe(id))?;
        if probe.enabled == enabled {
            return Ok(Changes::default());
        }
        probe.enabled = enabled;
        let functions = self.functions_of(id);
        self.reweave(functions)
    }

    /// Prepares to take a probe out.
    pub fn remove(&mut self, id: ProbeId) -> Result<Changes> {
        if !self.probes.contains_key(&id) {
            return Err(no_such_probe(id));
        }
        let functions = self.functions_of(id);
        for function in &functions {
            let Some(woven) = self.woven.get_mut(function) else { continue };
            woven.strands.retain(|_, strands| {
                strands.retain(|strand| strand.probe != id);
                !strands.is_empty()
            });
        }
        let changes = self.reweave(functions);
        if let Some(probe) = self.probes.get_mut(&id) {
            probe.enabled = false;
        }
        changes
    }

    /// Prepares to take all probes out.
    pub fn remove_all(&mut self) -> Result<Changes> {
        let functions: Vec<u64> = self.woven.keys().copied().collect();
        for woven in self.woven.values_mut() {
            woven.strands.clear();
        }
        for probe in self.probes.values_mut() {
            probe.enabled = false;
        }
        self.reweave(functions)
    }

    fn functions_of(&self, id: ProbeId) -> Vec<u64> {
        let has = |woven: &Woven| woven.strands.values().flatten().any(|s| s.probe == id);
        self.woven.iter().filter(|(_, woven)| has(woven)).map(|(&start, _)| start).collect()
    }

    /// After what [`Weaver::memory`] names was taken out. What was measured stays readable.
    pub fn forget_memory(&mut self) {
        self.arenas.clear();
        self.environments.clear();
    }

    /// A probe.
    pub fn probe(&self, id: ProbeId) -> Result<&Probe> {
        self.probes.get(&id).ok_or_else(|| no_such_probe(id))
    }

    /// What a probe measures into.
    pub(super) fn values_of(&self, probe: &Probe) -> Result<&Values> {
        self.values.get(probe.values).ok_or_else(|| {
            Error::new(ErrorKind::InvalidArgument, "the values are gone")
                .why("weft has left the target")
        })
    }

    /// Where the code of probes is.
    pub(super) fn code(&self) -> Vec<Range<TargetAddr>> {
        self.arenas.iter().map(Arena::code).collect()
    }

    /// Everything that is mapped in the target for probes.
    pub fn memory(&self) -> Vec<(TargetAddr, u64)> {
        // Where there is no code, there are no values that it could write to.
        let values = self.values.iter().filter(|_| !self.arenas.is_empty());
        self.arenas.iter().map(Arena::all).chain(values.map(Values::all)).collect()
    }
}

/// Forgets a function whose code is gone, with its probes; threads may still be in their code.
fn forget(
    woven: &mut HashMap<u64, Woven>,
    limbo: &mut Vec<Piece>,
    arenas: &mut [Arena],
    function: u64,
) {
    if let Some(woven) = woven.remove(&function) {
        limbo.extend(woven.active.pieces);
        for note in woven.active.notes {
            arenas[0].strike(note);
        }
    }
}

/// The changes to the code that a plan comes to.
fn edits(plan: &Plan, trampolines: &BTreeMap<u64, Trampoline>, text: &ModuleText) -> Vec<Edit> {
    let edit = |at: u64, new: Vec<u8>| Edit {
        at: TargetAddr(at),
        old: text.bytes(at)[..new.len()].to_vec(),
        new,
    };
    let long = |at: u64, to: u64| {
        let distance = to.wrapping_sub(at + JUMP) as u32;
        [&[0xe9][..], &distance.to_le_bytes()].concat()
    };
    let copy_of = |original: u64| {
        let mut moved = trampolines.values().flat_map(|t| &t.moved);
        moved.find(|moved| moved.original == original).map_or(original, |moved| moved.entered)
    };
    let mut edits = Vec::new();
    for (start, trampoline) in trampolines {
        let window = &plan.windows[start];
        match window.hole {
            None => {
                let mut jumps = long(*start, trampoline.start);
                if let Some(target) = window.second {
                    jumps.extend(long(start + JUMP, copy_of(target)));
                }
                edits.push(edit(*start, jumps));
            }
            Some(hole) => {
                edits.push(edit(hole, long(hole, trampoline.start)));
                edits.push(edit(*start, vec![0xeb, hole.wrapping_sub(start + 2) as u8]));
            }
        }
    }
    for reaim in &plan.reaims {
        let target = copy_of(reaim.jump.target);
        let (source, length) = (reaim.jump.source, u64::from(reaim.jump.length));
        match reaim.hole {
            None => {
                let mut new = text.bytes(source)[..length as usize - 4].to_vec();
                let distance = target.wrapping_sub(source + length) as u32;
                new.extend(distance.to_le_bytes());
                edits.push(edit(source, new));
            }
            Some(hole) => {
                if plan.padding_of(reaim).is_some() {
                    edits.push(edit(hole, long(hole, target)));
                }
                let distance = hole.wrapping_sub(source + length) as u8;
                edits.push(edit(source + length - 1, vec![distance]));
            }
        }
    }
    edits
}

fn bad_snippet(why: &str) -> Error {
    Error::new(ErrorKind::BadSnippet, why)
}

fn no_such_probe(id: ProbeId) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("there is no probe {id}"))
        .why("it was removed, or belongs to another session")
}

fn lost() -> Error {
    Error::new(ErrorKind::Internal, "a function with probes was lost")
}
