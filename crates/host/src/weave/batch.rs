//! New probes, several at a time: from snippets and points to what is to change.

use super::arena::Arena;
use super::changes::Changes;
use super::functions::Known;
use super::plan::Plan;
use super::points::Point;
use super::text::ModuleText;
use super::values::{Needs, Room, Values};
use super::weaver::Weaver;
use super::window::Spot;
use super::woven::{Active, Probe, ProbeId, Refusal, Strand, Woven};
use crate::process::proc;
use crate::process::stopped::Stopped;
use crate::trip::sharing::Sharing;
use crate::visited::agent::Agent;
use crate::{Error, ErrorKind, Result, TargetAddr};
use iced_x86::FlowControl;
use memmap2::MmapMut;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use weft_abi::VALUES_COUNT;
use weft_snippet::layout::{Place, salt};
use weft_snippet::{Datum, PointKind, Weave, verify};

/// Why points of the kernel are not woven into code.
const NOT_HERE: &str = "system calls are seen where the program runs from a clone";

/// Why no stacks are taken there.
const NO_STACKS: &str = "stacks cannot be taken at system calls yet";

/// Where among the probes of one point a new one goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Before those that are there.
    Prepend,
    /// After them.
    Append,
}

/// A probe that is asked for.
#[derive(Debug)]
pub struct Item {
    /// A number from [`Weaver::reserve`].
    pub id: ProbeId,
    /// What it does.
    pub weave: Weave,
    /// Where.
    pub points: Vec<Point>,
    /// Before or after others.
    pub order: Order,
}

/// Probes that are about to be woven together.
#[derive(Debug)]
pub struct Batch {
    drafts: Vec<Draft>,
    groups: Vec<Group>,
}

/// Where in the code a point is: the module, the function, and the place.
type Home = (usize, Known, Spot);

#[derive(Debug)]
struct Draft {
    id: ProbeId,
    weave: Arc<Weave>,
    points: Vec<Point>,
    order: Order,
    /// The module and the function of each point, if it is a place in the code; why not, if there is none.
    homes: Vec<Result<Option<Home>, Cow<'static, str>>>,
    /// What its own data need, not those of others that it uses.
    needs: Needs,
    /// Where they are; see [`Probe`].
    room: Option<Room>,
    places: Vec<Place>,
    own: Vec<Place>,
}

/// Drafts whose data must be in the same values, because some use those of others.
#[derive(Debug, Default)]
struct Group {
    /// Their indexes.
    members: Vec<usize>,
    /// The values, if they use data of a probe that is there already.
    values: Option<usize>,
}

/// What a weaver has to have before it can weave a batch.
#[derive(Debug, Default)]
pub struct Missing {
    /// Code that no arena reaches.
    arenas: Vec<TargetAddr>,
    values: Vec<Needs>,
    /// The unwind rules of its code.
    pub(super) stack_tables: bool,
}

impl Missing {
    /// Whether nothing is.
    pub fn is_empty(&self) -> bool {
        self.arenas.is_empty() && self.values.is_empty() && !self.stack_tables
    }
}

impl Batch {
    /// The numbers of its probes.
    pub fn ids(&self) -> Vec<ProbeId> {
        self.drafts.iter().map(|draft| draft.id).collect()
    }

    /// The index of one of its drafts.
    fn position(&self, id: ProbeId) -> Option<usize> {
        self.drafts.iter().position(|draft| draft.id == id)
    }
}

impl Weaver {
    /// Numbers for probes that are to come.
    pub fn reserve(&mut self, count: usize) -> Vec<ProbeId> {
        let ids: Vec<ProbeId> = (self.next_probe..).take(count).collect();
        self.next_probe += count as ProbeId;
        self.reserved.extend(&ids);
        ids
    }

    /// Looks at what is to be woven where.
    pub fn draft(&mut self, items: Vec<Item>) -> Result<Batch> {
        self.forget_unloaded()?;
        self.see_others()?;
        if items.iter().any(|item| item.weave.takes_stacks()) {
            // Before anything is stopped: this takes a while.
            self.stack_tables.update(self.pid)?;
        }
        let mut batch = Batch { drafts: Vec::with_capacity(items.len()), groups: Vec::new() };
        for item in items {
            let Item { id, weave, points, order } = item;
            verify(&weave)
                .map_err(|problem| Error::new(ErrorKind::BadSnippet, problem.to_string()))?;
            if !self.reserved.contains(&id) || batch.position(id).is_some() {
                let what = format!("{id} is not a number for a new probe");
                return Err(Error::new(ErrorKind::InvalidArgument, what)
                    .why("it was not reserved, or is in use"));
            }
            let mut homes = Vec::with_capacity(points.len());
            for point in &points {
                if point.kind.is_of_kernel() {
                    homes.push(match (self.is_clone, weave.takes_stacks()) {
                        (false, _) => Err(NOT_HERE.into()),
                        (true, true) => Err(NO_STACKS.into()),
                        (true, false) => Ok(None),
                    });
                    continue;
                }
                let text = self.text_of(point.address)?;
                homes.push(self.home(text, point, &weave).map(Some));
            }
            let mut needs = Needs::default();
            for datum in weave.data.iter().filter(|datum| datum.of.is_none()) {
                for _ in 0..if datum.is_per_point() { points.len() } else { 1 } {
                    needs.add(datum);
                }
            }
            self.join(&mut batch, &weave)?;
            batch.drafts.push(Draft {
                id,
                weave: Arc::new(weave),
                points,
                order,
                homes,
                needs,
                room: None,
                places: Vec::new(),
                own: Vec::new(),
            });
        }
        let homes = batch.drafts.iter().flat_map(|draft| draft.homes.iter().flatten().flatten());
        self.forget_reloaded(homes.map(|home| home.1.start).collect())?;
        Ok(batch)
    }

    fn home(&self, text: usize, point: &Point, weave: &Weave) -> Result<Home, Cow<'static, str>> {
        let module = &self.texts[text];
        let known = module.function(point.address).ok_or("no function is known there")?;
        if let Some(owner) = module.owner(&known) {
            return Err(format!("{owner} has probes in this function").into());
        }
        self.home_in(text, known, point, weave).map_err(Cow::Borrowed)
    }

    fn home_in(
        &self,
        text: usize,
        known: Known,
        point: &Point,
        weave: &Weave,
    ) -> Result<Home, &'static str> {
        let module = &self.texts[text];
        if point.kind == PointKind::Entry && (known.is_cold || known.start != point.address) {
            return Err("it is a part of another function, not a function");
        }
        if point.kind == PointKind::Exit
            && weave.changes_program(point.kind)
            && module.decode(point.address).is_none_or(|i| i.flow_control() != FlowControl::Return)
        {
            return Err("it goes on in another function, which computes the result");
        }
        if self.is_clone {
            if weave.body(point.kind).is_none() {
                return Err("the snippet says nothing for points of this kind");
            }
            return Ok((text, known, point.spot(module)?));
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

    /// Puts the draft that comes next into the group of those whose data it uses.
    fn join(&self, batch: &mut Batch, weave: &Weave) -> Result<()> {
        let mut joined = Group { members: vec![batch.drafts.len()], values: None };
        for datum in &weave.data {
            let Some(of) = datum.of else { continue };
            let earlier = batch.position(of);
            let data = match earlier {
                Some(index) => &batch.drafts[index].weave.data,
                None => &self.probe(of)?.weave.data,
            };
            check_same(datum, of, data)?;
            let values = match earlier {
                None => Some(self.probe(of)?.values),
                Some(index) => {
                    let mut groups = batch.groups.iter();
                    match groups.position(|group| group.members.contains(&index)) {
                        Some(index) => {
                            let group = batch.groups.swap_remove(index);
                            joined.members.extend(group.members);
                            group.values
                        }
                        None => None,
                    }
                }
            };
            if joined.values.is_some() && values.is_some() && joined.values != values {
                return Err(Error::new(
                    ErrorKind::InvalidArgument,
                    format!("`{}` of probe {of} is out of reach of the other data", datum.name),
                )
                .why("the probes whose data are used measure into different memory")
                .advice("insert the probes that share data together"));
            }
            joined.values = joined.values.or(values);
        }
        batch.groups.push(joined);
        Ok(())
    }

    /// What has to be brought into the target before the batch can be woven. What is there already is
    /// taken for it.
    pub fn missing(&mut self, batch: &mut Batch) -> Result<Missing> {
        let mut missing = Missing {
            stack_tables: self.stack_tables.base().is_none()
                && batch.drafts.iter().any(|draft| draft.weave.takes_stacks()),
            ..Missing::default()
        };
        let homes = batch.drafts.iter().flat_map(|draft| draft.homes.iter().flatten().flatten());
        let used = homes.map(|home| home.0).filter(|_| !self.is_clone);
        let used: BTreeSet<usize> = used.collect();
        for text in used {
            let range = self.texts[text].range();
            let near = |at: &TargetAddr| range.start.0.abs_diff(at.0) < 1 << 29;
            if !self.arenas.iter().any(|arena| arena.reaches(&range))
                && !missing.arenas.iter().any(near)
            {
                missing.arenas.push(range.start);
            }
        }
        match self.find_room(batch) {
            Ok(values) => missing.values = values,
            Err(error) => {
                self.give_back(batch);
                return Err(error);
            }
        }
        Ok(missing)
    }

    /// Takes room for all data; gives what there has to be beside it.
    fn find_room(&mut self, batch: &mut Batch) -> Result<Vec<Needs>> {
        let Batch { drafts, groups } = batch;
        let mut fresh: Vec<Needs> = Vec::new();
        for group in groups {
            let found = match group.values {
                Some(values) => self.take_room(drafts, group, values),
                // The latest has most.
                None => {
                    let mut all = (0..self.values.len()).rev();
                    all.any(|values| self.take_room(drafts, group, values))
                }
            };
            if found {
                continue;
            }
            let needs = group.members.iter().map(|&index| drafts[index].needs);
            let needs = needs.fold(Needs::default(), Needs::plus);
            if !needs.fit() {
                return Err(Error::new(ErrorKind::LimitReached, "the probe has too many values")
                    .why("one thread's values of one probe must fit into 16 megabytes")
                    .advice("split it, or let the points share their counters"));
            }
            if group.values.is_some() {
                return Err(Error::new(ErrorKind::LimitReached, "the probe has no room")
                    .why("there is no more where the probe measures whose data it uses")
                    .advice("insert the probes that share data together"));
            }
            match fresh.last_mut() {
                Some(last) if last.plus(needs).fit() => *last = last.plus(needs),
                _ => fresh.push(needs),
            }
            group.values = Some(self.values.len() + fresh.len() - 1);
        }
        // One of the pieces that there can be is for unwind rules.
        if self.values.len() + fresh.len() >= VALUES_COUNT {
            return Err(Error::new(ErrorKind::LimitReached, "the probes have too many values")
                .advice("remove and discard some of the probes"));
        }
        Ok(fresh)
    }

    /// Takes room in certain values for all drafts of a group, or for none.
    fn take_room(&mut self, drafts: &mut [Draft], group: &Group, values: usize) -> bool {
        for (done, &index) in group.members.iter().enumerate() {
            if !drafts[index].take_room(&mut self.values[values], values) {
                for &index in &group.members[..done] {
                    if let Some(room) = drafts[index].room.take() {
                        self.values[values].give_back(room);
                    }
                }
                return false;
            }
        }
        true
    }

    /// Gives back the room that was taken for a batch that is not woven.
    pub fn give_back(&mut self, batch: &mut Batch) {
        for room in batch.drafts.iter_mut().filter_map(|draft| draft.room.take()) {
            self.values[room.values].give_back(room);
        }
    }

    /// Brings it in.
    pub fn supply(
        &mut self,
        agent: &mut Agent,
        stopped: &Stopped,
        missing: &Missing,
    ) -> Result<()> {
        self.look_at_threads(stopped);
        for &near in &missing.arenas {
            let maps = proc::maps(self.pid)?;
            let salt = salt(self.own_pid);
            self.arenas.push(Arena::create(agent, stopped, &maps, near, salt)?);
        }
        self.add_values(missing, &mut |sharing| agent.share(stopped, sharing))?;
        for arena in &self.arenas {
            for (piece, values) in arena.head().values.iter().zip(&self.values) {
                let (start, length) = values.all();
                piece.start.store(start.0, Relaxed);
                piece.length.store(length, Relaxed);
            }
            if let (Some(piece), Some((start, length))) =
                (arena.head().values.last(), self.stack_tables.all())
            {
                piece.start.store(start.0, Relaxed);
                piece.length.store(length, Relaxed);
            }
        }
        Ok(())
    }

    /// Brings in memory to measure into, by threads of the target that take certain steps.
    pub(super) fn add_values(
        &mut self,
        missing: &Missing,
        share: &mut dyn FnMut(&Sharing) -> Result<MmapMut>,
    ) -> Result<()> {
        for &needs in &missing.values {
            let is_go = self.texts.iter().any(ModuleText::is_go);
            self.values.push(Values::create(self.pid, share, needs, is_go)?);
        }
        if missing.stack_tables {
            self.stack_tables.create(self.pid, share)?;
        }
        Ok(())
    }

    /// Prepares everything for a batch, but changes nothing that runs.
    pub fn weave(&mut self, batch: Batch) -> Result<Changes> {
        let ids = batch.ids();
        let touched = self.enlist(batch)?;
        match self.reweave(touched) {
            Ok(changes) => {
                self.count_tactics(&ids, &changes);
                Ok(changes)
            }
            Err(error) => {
                self.forget_new(&ids);
                Err(error)
            }
        }
    }

    /// Makes the drafts of a batch probes that are disabled. What stands in the way of each is known.
    pub fn weave_disabled(&mut self, batch: Batch) -> Result<Changes> {
        let (new, named) = (batch.ids(), self.named);
        let ids = new.iter().copied().collect();
        let changes = self.weave(batch)?;
        changes.functions.iter().for_each(|next| self.withdraw(next));
        self.switch(&ids, false);
        let functions = if self.named == named {
            // They are claimed; those that have other probes are already.
            let is_bare = |function: &u64| self.woven[function].active.edits.is_empty();
            self.functions_of(&ids).into_iter().filter(is_bare).collect()
        } else {
            // Other snippets may use registers for something else that these read.
            self.woven.keys().copied().collect()
        };
        self.reweave(functions).inspect_err(|_| self.forget_new(&new))
    }

    /// Makes the drafts of a batch probes, and gives the functions that are to be woven anew.
    pub(super) fn enlist(&mut self, mut batch: Batch) -> Result<Vec<u64>> {
        let Batch { drafts, groups } = &mut batch;
        for group in groups {
            let Some(values) = group.values else { continue };
            let is_new = |&index: &usize| drafts[index].room.is_none();
            if group.members.iter().any(is_new) && !self.take_room(drafts, group, values) {
                self.give_back(&mut batch);
                let what = "there is less room than there should be";
                return Err(Error::new(ErrorKind::Internal, what));
            }
        }
        let named = batch.drafts.iter().map(|draft| draft.weave.named_registers());
        let named = named.fold(self.named, |all, some| all | some);
        let mut touched = Vec::new();
        for draft in batch.drafts {
            self.add(draft, &mut touched);
        }
        if std::mem::replace(&mut self.named, named) != named {
            // Others may have taken these registers for free.
            touched = self.woven.keys().copied().collect();
        }
        Ok(touched)
    }

    /// Makes a draft a probe. Its functions are not woven anew yet.
    fn add(&mut self, draft: Draft, touched: &mut Vec<u64>) {
        let Draft { id, weave, points, order, homes, room, mut places, own, .. } = draft;
        let room = room.unwrap_or_else(|| Room::new(0));
        let values = room.values;
        let mut rooms = vec![Arc::new(room)];
        for (datum, place) in weave.data.iter().zip(&mut places) {
            let Some(other) = datum.of.and_then(|of| self.probes.get(&of)) else { continue };
            if let Some(index) = other.data().iter().position(|d| d.name == datum.name) {
                *place = other.place(index, 0);
            }
            for room in &other.rooms {
                if !rooms.iter().any(|known| Arc::ptr_eq(known, room)) {
                    rooms.push(room.clone());
                }
            }
        }
        let mut refused = Vec::new();
        let mut functions = BTreeSet::new();
        for (index, home) in homes.into_iter().enumerate() {
            let (text, known, spot) = match home {
                Ok(Some(home)) => home,
                Ok(None) => continue,
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
                is_immovable: false,
                active: Active::default(),
            });
            let strand = Strand { probe: id, point: index };
            let strands = woven.strands.entry(spot).or_default();
            match order {
                Order::Append => strands.push(strand),
                Order::Prepend => strands.insert(0, strand),
            }
            functions.insert(known.start);
            touched.push(known.start);
        }
        let tactics = BTreeMap::new();
        let enabled = true;
        let probe = Probe {
            weave,
            points,
            values,
            places,
            own,
            rooms,
            refused,
            tactics,
            functions,
            enabled,
        };
        self.reserved.remove(&id);
        self.probes.insert(id, probe);
    }

    /// How the windows of new probes' points were found.
    fn count_tactics(&mut self, ids: &[ProbeId], changes: &Changes) {
        let ids: BTreeSet<ProbeId> = ids.iter().copied().collect();
        for next in &changes.functions {
            for (spot, strands) in &self.woven[&next.function].strands {
                let Some(window) = next.plan.window_of(spot.instruction()) else { continue };
                let new: BTreeSet<ProbeId> =
                    strands.iter().map(|s| s.probe).filter(|id| ids.contains(id)).collect();
                for id in new {
                    if let Some(probe) = self.probes.get_mut(&id) {
                        *probe.tactics.entry(window.tactic).or_default() += 1;
                    }
                }
            }
        }
    }

    /// Forgets probes of a batch that could not be woven. Their numbers can be used again.
    pub fn forget_new(&mut self, ids: &[ProbeId]) {
        let ids: BTreeSet<ProbeId> = ids.iter().copied().collect();
        self.woven.retain(|_, woven| {
            woven.strands.retain(|_, strands| {
                strands.retain(|strand| !ids.contains(&strand.probe));
                !strands.is_empty()
            });
            !woven.strands.is_empty() || !woven.active.pieces.is_empty()
        });
        let gone: Vec<Probe> = ids.iter().filter_map(|id| self.probes.remove(id)).collect();
        let rooms: Vec<Arc<Room>> = gone.into_iter().flat_map(|probe| probe.rooms).collect();
        for room in rooms.into_iter().filter_map(Arc::into_inner) {
            self.values[room.values].give_back(room);
        }
        self.reserved.extend(ids);
    }
}

impl Draft {
    /// Takes room for its own data in certain values, for all or for none.
    fn take_room(&mut self, memory: &mut Values, values: usize) -> bool {
        let mut room = Room::new(values);
        let mut place = |datum: &Datum| match datum {
            Datum { of: None, .. } => memory.place(datum, &mut room),
            _ => Some(Place::default()),
        };
        let shared = self.weave.data.iter().map(|datum| match datum.is_per_point() {
            true => Some(Place::default()),
            false => place(datum),
        });
        let shared: Option<Vec<Place>> = shared.collect();
        let own = self.points.iter().flat_map(|_| Probe::own_data(&self.weave)).map(place);
        let own: Option<Vec<Place>> = own.collect();
        let (Some(shared), Some(own)) = (shared, own) else {
            memory.give_back(room);
            return false;
        };
        (self.places, self.own, self.room) = (shared, own, Some(room));
        true
    }
}

/// Checks that a probe has a datum that another takes for its own.
fn check_same(datum: &Datum, of: ProbeId, data: &[Datum]) -> Result<()> {
    let name = &datum.name;
    let error = |what| Err(Error::new(ErrorKind::InvalidArgument, what));
    match data.iter().find(|other| other.name == *name) {
        None => error(format!("probe {of} measures no {name}")),
        Some(other) if other.kind != datum.kind => error(format!(
            "{name} of probe {of} is a {} of another kind than declared",
            other.kind.name()
        )),
        Some(_) => Ok(()),
    }
}
