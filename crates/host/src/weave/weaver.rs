//! All probes of one target.

use super::arena::Arena;
use super::changes::{Changes, Next};
use super::plan::Plan;
use super::points::{self, Point, Selection};
use super::shared;
use super::site::{EnvironmentKey, compile_strand, environment, site};
use super::stack_tables::StackTables;
use super::terrain::FunctionTerrain;
use super::text::ModuleText;
use super::trampoline::{self, Insertions, Trampoline};
use super::values::Values;
use super::window::{JUMP, Reentry, Spot};
use super::woven::{Active, Leaving, Piece, Probe, ProbeId, Strand, Woven};
use crate::arch::instructions::{hop, jump};
use crate::process::edit::Edit;
use crate::process::proc::{self, Tid};
use crate::process::stopped::Stopped;
use crate::process::{memory, modules};
use crate::visited::others::{OtherChange, changes_of_others};
use crate::{Error, ErrorKind, Result, TargetAddr};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use weft_code::{Program, RegisterSet};
use weft_snippet::read::Slab;
use weft_snippet::{Env, ThreadId};

/// Points, each with the index of its function; and functions that may have more, by their index, each
/// with the place where that is not known.
pub type FoundPoints = (Vec<(usize, Point)>, Vec<(usize, u64)>);

/// Where C libraries keep what a [`ThreadId`] says, counted from the `fs` base: glibc and musl. It is looked at in
/// every thread before it is believed.
const THREAD_IDS: [(i32, i32); 2] = [(0x10, 0x2d0), (0, 0x30)];

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
    pub(super) stack_tables: StackTables,
    pub(super) texts: Vec<ModuleText>,
    pub(super) woven: HashMap<u64, Woven>,
    pub(super) probes: BTreeMap<ProbeId, Probe>,
    /// Registers that snippets read by their names: no other snippet uses them for something else.
    pub(super) named: RegisterSet,
    pub(super) next_probe: ProbeId,
    /// Numbers that were given out for probes that are not there yet.
    pub(super) reserved: BTreeSet<ProbeId>,
    /// Trampolines that nothing leads to any more, but that a thread may still be in. Those that were a
    /// function's at one time are together: they lead to each other.
    pub(super) limbo: Vec<Vec<Piece>>,
    /// The claims to the functions that these belong to, by their places in the list of changes.
    pub(super) limbo_claims: Vec<u32>,
    /// Room of discarded probes that a thread may still be measuring into.
    pub(super) leaving: Vec<Leaving>,
    pub(super) bmi2: bool,
    /// Whether the word at each thread's `fs` base is the `fs` base, as where a C library runs.
    pub(super) thread_pointer: bool,
    /// Where threads find their ids, if a C library is known to keep them.
    pub(super) thread_id: Option<ThreadId>,
    /// Whether the program runs from a clone, where its probes are.
    pub(super) is_clone: bool,
    /// Probes that a clone still has in modules that are gone.
    pub(super) unloaded: BTreeSet<ProbeId>,
    /// Modules that were loaded again, of which nobody was told yet.
    pub(super) reloaded: BTreeSet<usize>,
    refusals: u64,
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
            stack_tables: StackTables::default(),
            texts: Vec::new(),
            woven: HashMap::new(),
            probes: BTreeMap::new(),
            named: RegisterSet::NONE,
            next_probe: 1,
            reserved: BTreeSet::new(),
            limbo: Vec::new(),
            limbo_claims: Vec::new(),
            leaving: Vec::new(),
            bmi2: std::arch::is_x86_feature_detected!("bmi2"),
            thread_pointer: false,
            thread_id: None,
            is_clone: false,
            unloaded: BTreeSet::new(),
            reloaded: BTreeSet::new(),
            refusals: 0,
        }
    }

    /// How often a point was refused: what is known of a probe's refused points may be old when it has grown.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// The same for a program that runs from a clone.
    pub fn in_clone(pid: Tid) -> Self {
        Self { is_clone: true, ..Self::new(pid) }
    }

    /// The module that an address belongs to.
    pub(super) fn text_of(&mut self, at: u64) -> Result<usize> {
        let is_in = |text: &ModuleText| !text.is_gone && text.range().contains(&TargetAddr(at));
        if let Some(index) = self.texts.iter().position(is_in) {
            return Ok(index);
        }
        let module = modules::modules(self.pid)?
            .into_iter()
            .find(|m| m.start <= TargetAddr(at) && TargetAddr(at) < m.end)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::CodeGone,
                    format!("no module of process {} has code at {at:#x}", self.pid),
                )
                .why("if there was a library, it was unloaded meanwhile")
                .advice("try again")
            })?;
        let others = self.others()?;
        self.texts.push(ModuleText::read(self.pid, module, &others)?);
        Ok(self.texts.len() - 1)
    }

    /// What other wefts have changed in the code. In a clone there is none: its code is the engine's.
    fn others(&self) -> Result<Vec<OtherChange>> {
        if self.is_clone {
            return Ok(Vec::new());
        }
        let is_own = |head| self.arenas.iter().any(|arena| arena.head_at() == head);
        changes_of_others(self.pid, &proc::maps(self.pid)?, is_own)
    }

    /// Takes note of what other wefts have changed since.
    pub(super) fn see_others(&mut self) -> Result<()> {
        let others = self.others()?;
        self.texts.iter_mut().for_each(|text| text.see_others(&others));
        Ok(())
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
            let find = || points::points(text, &known, selection);
            let (points, uncertain) =
                shared::points(text.code_id(), text.module.bias, start, selection, find);
            found.extend(points.into_iter().map(|point| (index, point)));
            unknown.extend(uncertain.into_iter().map(|at| (index, at)));
        }
        Ok((found, unknown))
    }

    /// Forgets modules that are no longer there, and the probes in them.
    pub(super) fn forget_unloaded(&mut self) -> Result<()> {
        let modules = modules::modules(self.pid)?;
        for (index, text) in self.texts.iter_mut().enumerate() {
            if text.is_gone || modules.iter().any(|module| module.is_same(&text.module)) {
                continue;
            }
            text.is_gone = true;
            let inside: Vec<u64> =
                self.woven.iter().filter(|(_, w)| w.text == index).map(|(&f, _)| f).collect();
            for function in inside {
                if self.is_clone
                    && let Some(woven) = self.woven.get(&function)
                {
                    let strands = woven.strands.values().flatten();
                    self.unloaded.extend(strands.map(|strand| strand.probe));
                }
                forget(&mut self.woven, &mut self.limbo, &mut self.arenas, function);
            }
        }
        Ok(())
    }

    /// Finds out whether a thread can learn its `fs` base from memory, which is much faster than by the
    /// instruction for it. The ABI of thread-local storage asks for that; Go does not follow it, and a
    /// program that is just starting not yet. Finds out where threads have their ids as well.
    pub(super) fn look_at_threads(&mut self, stopped: &Stopped) {
        let mut bases =
            stopped.threads().values().map(|registers| registers.thread_pointer()).peekable();
        self.thread_pointer = bases.peek().is_some()
            && !self.texts.iter().any(ModuleText::is_go)
            && bases.all(|base| {
                let word = memory::read(self.pid, TargetAddr(base), 8);
                word.is_ok_and(|word| word == base.to_ne_bytes())
            });
        let process = self.own_pid;
        let places = THREAD_IDS.map(|(own_address, id)| ThreadId { own_address, id, process });
        let is_right = |place: &ThreadId| {
            let mut threads = stopped.threads().iter();
            threads.all(|(&tid, registers)| self.has_id_at(tid, registers.thread_pointer(), place))
        };
        self.thread_id = places.into_iter().find(|place| self.thread_pointer && is_right(place));
    }

    /// Whether the first probe of a thread asks the kernel for its id.
    pub fn asks_for_ids(&self) -> bool {
        self.thread_id.is_none()
    }

    /// Whether a thread has its id, as it knows it, at a place.
    fn has_id_at(&self, tid: Tid, base: u64, place: &ThreadId) -> bool {
        let word = |offset: i32, size| {
            memory::read(self.pid, TargetAddr(base.wrapping_add(offset as u64)), size)
        };
        // Ids differ only where the process has a namespace of its own.
        let is_same = self.own_pid == self.pid as u32;
        let own = if is_same { Ok(tid) } else { proc::own_pid(tid) };
        word(place.own_address, 8).is_ok_and(|word| word == base.to_ne_bytes())
            && own.is_ok_and(|own| word(place.id, 4).is_ok_and(|word| word == own.to_ne_bytes()))
    }

    /// Prepares the new shape of functions whose probes have changed.
    pub(super) fn reweave(&mut self, mut functions: Vec<u64>) -> Result<Changes> {
        functions.sort_unstable();
        functions.dedup();
        let mut changes = Vec::with_capacity(functions.len());
        for function in functions {
            match self.reweave_one(function) {
                Ok(next) => changes.push(next),
                Err(error) => {
                    changes.iter().for_each(|next| self.withdraw(next));
                    return Err(error);
                }
            }
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
            self.refuse(function, refusals);
        }
    }

    /// Refuses some places of a function to the probes that have them.
    pub(super) fn refuse(&mut self, function: u64, refusals: Vec<(Spot, String)>) {
        let Some(woven) = self.woven.get_mut(&function) else { return };
        for (spot, why) in refusals {
            for strand in woven.strands.remove(&spot).unwrap_or_default() {
                if let Some(probe) = self.probes.get_mut(&strand.probe) {
                    self.refusals += 1;
                    probe.refuse(strand.point, &why);
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
        let liveness = liveness.map(|graph| text.liveness(graph));
        let graph = graph.as_ref();
        let terrain = FunctionTerrain { text, whole, graph };
        let mixed = terrain.mixed(&spots);
        if !mixed.is_empty() {
            return Ok(Err(mixed));
        }
        let reserved: Vec<Range<u64>> = self
            .left_pieces()
            .filter(|piece| piece.function == function)
            .map(|piece| piece.window.clone())
            .collect();
        let mut plan =
            woven.plan.reduced(&terrain, &spots).extended(&terrain, &spots, &spots, &reserved);
        if !plan.refused.is_empty() {
            let has_all =
                |plan: &Plan| spots.iter().all(|spot| plan.window_of(spot.instruction()).is_some());
            let relocated = (!woven.is_immovable).then(|| Plan::relocated(&terrain, &reserved));
            match relocated {
                Some(Ok(relocated)) if has_all(&relocated) => plan = relocated,
                _ => {
                    let refused = plan.refused.into_iter().map(|r| (r.spot, r.why.to_string()));
                    return Ok(Err(refused.collect()));
                }
            }
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
        let probes = &self.probes;
        for (spot, strands) in &enabled {
            // What another snippet reads has to be what the program has, whether the program needs it or not.
            let convention = terrain.whole.convention;
            let read = strands.iter();
            let read =
                read.map(|s| probes[&s.probe].registers_read(s.point, terrain.text, convention));
            let read = read.fold(self.named, |all, some| all | some);
            for strand in strands {
                let values = probes[&strand.probe].values;
                let env = environment(
                    &mut self.environments,
                    (arena, values, self.thread_pointer, self.thread_id, self.stack_tables.base()),
                    &mut self.arenas[arena],
                    &self.values[values],
                    self.bmi2,
                )?;
                let probe = &probes[&strand.probe];
                let mut site = site(probe.points[strand.point], *spot, &terrain, liveness.as_ref());
                site.dead = site.dead & !read;
                match compile_strand(probe, strand, &site, &env) {
                    Ok(compiled) => insertions.entry(*spot).or_default().push(compiled),
                    Err(why) => return Ok(Err(vec![(*spot, why)])),
                }
            }
        }

        let arena_index = arena;
        let arena = &mut self.arenas[arena_index];
        let mut places = BTreeMap::new();
        let mut rooms = BTreeMap::new();
        let release =
            |arena: &mut Arena, places: &BTreeMap<u64, u64>, rooms: &BTreeMap<u64, usize>| {
                for (start, &at) in places {
                    arena.release(TargetAddr(at), rooms[start]);
                }
            };
        for window in plan.windows.values() {
            let room = Trampoline::room(window, &insertions);
            match arena.allocate(room) {
                Ok(at) => places.insert(window.start, at.0),
                Err(error) => {
                    release(arena, &places, &rooms);
                    return Err(error);
                }
            };
            rooms.insert(window.start, room);
        }
        let built = trampoline::build(&plan, &insertions, &places, |at| terrain.text.bytes(at));
        let trampolines = match built {
            Ok(trampolines) => trampolines,
            Err(immovable) => {
                release(arena, &places, &rooms);
                if plan.is_relocated() {
                    if let Some(woven) = self.woven.get_mut(&function) {
                        woven.is_immovable = true;
                    }
                    return self.try_reweave(function);
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
            edits: edits(function, &plan, &trampolines, terrain.text),
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
                runs: window.runs(),
                entered_at: window.entered_at(),
                stays: window.steps.iter().filter(|s| s.stays).map(|s| s.at..s.end()).collect(),
                moved: trampoline.moved,
                contents: trampoline.contents,
            });
        }
        let woven = &self.woven[&function];
        self.texts[woven.text].claim(function, &woven.plan.claims(), plan.claims());
        Ok(Ok(Next { function, active, plan }))
    }

    /// Prepares to enable or disable probes.
    pub fn set_enabled(&mut self, ids: &[ProbeId], enabled: bool) -> Result<Changes> {
        if enabled {
            // While they were disabled, the padding that they used was free for other wefts.
            self.see_others()?;
        }
        let mut switched = BTreeSet::new();
        for &id in ids {
            if self.probe(id)?.enabled != enabled {
                switched.insert(id);
            }
        }
        self.switch(&switched, enabled);
        let functions = self.functions_of(&switched);
        let mut changes =
            self.reweave(functions).inspect_err(|_| self.switch(&switched, !enabled))?;
        changes.switched = switched;
        Ok(changes)
    }

    /// Notes whether probes are to be in the code.
    pub(super) fn switch(&mut self, ids: &BTreeSet<ProbeId>, enabled: bool) {
        for id in ids {
            if let Some(probe) = self.probes.get_mut(id) {
                probe.enabled = enabled;
            }
        }
    }

    /// Forgets what disabled probes among these keep of calls that are running: timers that run, marks,
    /// and variables of threads. Their ends would not be seen, so they would run until exit. No thread
    /// may be in the code of the probes.
    pub(crate) fn forget_running(&self, ids: &BTreeSet<ProbeId>) {
        let off = ids.iter().filter_map(|id| self.probes.get(id)).filter(|probe| !probe.enabled);
        for probe in off {
            let states: Vec<(u32, u32)> = probe
                .placed()
                .map(|(datum, place)| (place.state, datum.state_size()))
                .filter(|&(_, size)| size > 0)
                .collect();
            let Some(values) = self.values.get(probe.values).filter(|_| !states.is_empty()) else {
                continue;
            };
            for slab in values.all_slabs().filter(Slab::was_used) {
                states.iter().for_each(|&(at, size)| slab.clear(at, size));
            }
        }
    }

    /// Prepares to take probes out.
    pub fn remove(&mut self, ids: &BTreeSet<ProbeId>) -> Result<Changes> {
        if let Some(&unknown) = ids.iter().find(|id| !self.probes.contains_key(id)) {
            return Err(no_such_probe(unknown));
        }
        let functions = self.functions_of(ids);
        for function in &functions {
            let Some(woven) = self.woven.get_mut(function) else { continue };
            woven.strands.retain(|_, strands| {
                strands.retain(|strand| !ids.contains(&strand.probe));
                !strands.is_empty()
            });
        }
        let changes = self.reweave(functions);
        self.switch(ids, false);
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

    /// Forgets a probe that was removed. Its room is for others, once no thread can be in its code.
    pub fn discard(&mut self, id: ProbeId) -> Result<()> {
        let mut functions = self.probe(id)?.functions.iter().filter_map(|f| self.woven.get(f));
        let is_in = |woven: &Woven| {
            let mut all = [&woven.strands, &woven.active.strands].into_iter();
            all.any(|strands| strands.values().flatten().any(|s| s.probe == id))
        };
        if functions.any(is_in) {
            return Err(Error::new(ErrorKind::InvalidArgument, format!("probe {id} is in use"))
                .why("only what was removed can be discarded")
                .advice("remove it first"));
        }
        if let Some(probe) = self.probes.remove(&id) {
            let waits = self.left_pieces().map(|piece| piece.at).collect();
            self.leaving.push(Leaving { rooms: probe.rooms, waits });
            self.settle();
        }
        Ok(())
    }

    /// Gives the room of discarded probes to others, where that can be done by now.
    pub(crate) fn settle(&mut self) {
        let limbo = &self.limbo;
        for leaving in &mut self.leaving {
            leaving.waits.retain(|&at| limbo.iter().flatten().any(|piece| piece.at == at));
        }
        let is_out = |leaving: &mut Leaving| leaving.waits.is_empty();
        for room in self.leaving.extract_if(.., is_out).flat_map(|leaving| leaving.rooms) {
            // What other probes use too is given up by the last of them.
            if let Some(room) = Arc::into_inner(room) {
                self.values[room.values].recycle(room);
            }
        }
    }

    /// The functions that probes are in, or would be if they were enabled.
    pub(super) fn functions_of(&self, ids: &BTreeSet<ProbeId>) -> Vec<u64> {
        let has = |woven: &Woven| woven.strands.values().flatten().any(|s| ids.contains(&s.probe));
        let known = ids.iter().filter_map(|id| self.probes.get(id));
        let known: BTreeSet<u64> =
            known.flat_map(|probe| probe.functions.iter().copied()).collect();
        known.into_iter().filter(|start| self.woven.get(start).is_some_and(has)).collect()
    }

    /// After what [`Weaver::memory`] names was taken out. What was measured stays readable.
    pub fn forget_memory(&mut self) {
        self.arenas.clear();
        self.limbo_claims.clear();
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
        let tables = self.stack_tables.all().filter(|_| !self.arenas.is_empty());
        self.arenas.iter().map(Arena::all).chain(values.map(Values::all)).chain(tables).collect()
    }
}

/// Forgets a function whose code is gone, with its probes; threads may still be in their code.
pub(super) fn forget(
    woven: &mut HashMap<u64, Woven>,
    limbo: &mut Vec<Vec<Piece>>,
    arenas: &mut [Arena],
    function: u64,
) {
    if let Some(woven) = woven.remove(&function) {
        limbo.extend(Some(woven.active.pieces).filter(|pieces| !pieces.is_empty()));
        for note in woven.active.notes {
            arenas[0].strike(note);
        }
    }
}

/// The changes to the code of the function with this entry that a plan comes to.
fn edits(
    entry: u64,
    plan: &Plan,
    trampolines: &BTreeMap<u64, Trampoline>,
    text: &ModuleText,
) -> Vec<Edit> {
    let edit = |at: u64, new: Vec<u8>| Edit {
        at: TargetAddr(at),
        old: text.bytes(at)[..new.len()].to_vec(),
        new,
    };
    let copy_of = |original: u64| {
        let moved = trampolines.values().find_map(|t| t.moved(original));
        moved.map_or(original, |moved| moved.entered)
    };
    let mut edits = Vec::new();
    for (start, trampoline) in trampolines {
        let window = &plan.windows[start];
        for &Reentry { at, hole } in &window.reentries {
            // Only callers run what is at the entry, and returns what is behind their calls; all else comes to
            // what follows that.
            let target = match trampoline.moved(at) {
                Some(moved) if at == entry || window.is_returned_to(at) => moved.before,
                _ => copy_of(at),
            };
            edits.push(edit(hole.unwrap_or(at), jump(hole.unwrap_or(at), target)));
            edits.extend(hole.map(|hole| edit(at, hop(at, hole))));
        }
        if window.is_relocated() {
            continue;
        }
        match window.hole {
            None => {
                let mut jumps = jump(*start, trampoline.start);
                if let Some(target) = window.second {
                    jumps.extend(jump(start + JUMP, copy_of(target)));
                }
                edits.push(edit(*start, jumps));
            }
            Some(hole) => {
                edits.push(edit(hole, jump(hole, trampoline.start)));
                edits.push(edit(*start, hop(*start, hole)));
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
                    edits.push(edit(hole, jump(hole, target)));
                }
                let distance = hole.wrapping_sub(source + length) as u8;
                edits.push(edit(source + length - 1, vec![distance]));
            }
        }
    }
    edits
}

pub(super) fn no_such_probe(id: ProbeId) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("there is no probe {id}"))
        .why("it was discarded, or belongs to another session")
}
