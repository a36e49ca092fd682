//! Where indirect jumps go.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use iced_x86::{
    FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register as Name,
};

use super::explore::Explorer;
use super::stack::balanced_ends;
use super::symbolic::{Bounds, Id, Machine, Node};
use super::{EdgeKind, Graph, JumpTable, TableForm};
use crate::effects::{Effects, number};
use crate::liveness::CALLEE_SAVED;
use crate::{Convention, Register, RegisterSet};

/// How many blocks back a jump's index is followed.
const LONGEST_PATH: usize = 12;
/// How many ways to a jump are looked at.
const MOST_PATHS: usize = 160;
/// How many of them, if there is no hope that all say how far the index goes.
const FEWER_PATHS: usize = 32;
/// How many entries a table may have.
const MOST_ENTRIES: u64 = 1 << 16;
/// How many entries a table may have if nothing limits it.
const MOST_GUESSED: u64 = 4096;

/// What is known of an indirect jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resolution {
    Table(JumpTable),
    /// It leaves the function.
    TailJump,
    /// It leaves the function, but the first time it goes to what follows, which asks the dynamic linker where to.
    LazyStub(u64),
    Unknown,
}

/// A table as seen from one path, or from all of them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    form: TableForm,
    /// What index 0 would be at.
    base: u64,
}

impl Shape {
    fn stride(self) -> u64 {
        match self.form {
            TableForm::Absolute64 => 8,
            _ => 4,
        }
    }
}

/// What all paths to a jump say together.
enum Finding {
    Limited(Shape, Bounds),
    Unlimited(Shape),
    /// Something with an index, but not understood.
    Indexed,
    /// No table.
    Plain,
}

/// What one path says.
struct Sight {
    shape: Option<Shape>,
    bounds: Option<Bounds>,
    indexed: bool,
    /// Whether a longer path would say no more.
    hopeless: bool,
}

/// Finds out where the indirect jumps of a graph go.
pub(super) fn resolve(explorer: &Explorer<'_>, graph: &Graph) -> BTreeMap<u64, Resolution> {
    let jumps: Vec<usize> =
        (0..graph.blocks.len()).filter(|&block| is_indirect_jump(graph.last(block))).collect();
    let findings: Vec<Finding> = jumps.iter().map(|&block| find(explorer, graph, block)).collect();
    let mut bases: Vec<u64> = findings
        .iter()
        .filter_map(|finding| match finding {
            Finding::Limited(shape, _) | Finding::Unlimited(shape) => Some(shape.base),
            _ => None,
        })
        .collect();
    bases.sort_unstable();
    let mut balanced = None;
    let closed = graph.gaps.iter().all(|gap| gap.padding);
    let mut resolutions = BTreeMap::new();
    for (&block, finding) in jumps.iter().zip(findings) {
        let jump = graph.last(block).ip();
        let mut leaves = |certain: bool| {
            let balanced = balanced.get_or_insert_with(|| balanced_ends(graph));
            match certain || closed && balanced[block] {
                true => Resolution::TailJump,
                false => Resolution::Unknown,
            }
        };
        let resolution = match finding {
            Finding::Limited(shape, bounds) => read_limited(explorer, jump, shape, bounds)
                .map_or(Resolution::Unknown, Resolution::Table),
            Finding::Unlimited(shape) => match read_guessed(explorer, jump, shape, &bases) {
                Some(table) => Resolution::Table(table),
                // A table of functions: whichever is called, the jump leaves.
                None if starts_function(explorer, shape) => leaves(false),
                None => Resolution::Unknown,
            },
            Finding::Indexed => Resolution::Unknown,
            Finding::Plain => {
                let last = graph.last(block);
                let is_stub = is_through_constant(last);
                match is_stub.then(|| explorer.lazy_part(last.next_ip())).flatten() {
                    Some(lazy) => Resolution::LazyStub(lazy),
                    None => leaves(is_stub),
                }
            }
        };
        resolutions.insert(jump, resolution);
    }
    resolutions
}

pub(super) fn is_indirect_jump(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::IndirectBranch)
}

/// Whether a jump goes through one pointer at a constant address, as linkage stubs do.
fn is_through_constant(jump: &Instruction) -> bool {
    jump.op0_kind() == OpKind::Memory
        && (jump.is_ip_rel_memory_operand()
            || jump.memory_base() == Name::None && jump.memory_index() == Name::None)
}

/// Looks at the ways to a jump, from the nearest blocks on, until each of them says how far the index goes.
fn find(explorer: &Explorer<'_>, graph: &Graph, block: usize) -> Finding {
    let mut shape: Option<Shape> = None;
    let mut all: Option<Bounds> = None;
    let (mut limited, mut same, mut indexed) = (true, true, false);
    let mut pending: Vec<Vec<usize>> = vec![vec![block]];
    let mut paths = 0;
    while let Some(path) = pending.pop() {
        let hope = indexed && (limited || shape.is_none());
        if paths >= FEWER_PATHS && !hope {
            limited = false;
            break;
        }
        paths += 1;
        let sight = look(explorer, graph, &path);
        indexed |= sight.indexed;
        if let Some(new) = sight.shape {
            same &= shape.is_none_or(|old| old == new);
            shape = Some(new);
        }
        let strong = sight.shape.is_some() && sight.bounds.is_some_and(|bounds| bounds.strong);
        let first = path[path.len() - 1];
        if !strong
            && !sight.hopeless
            && path.len() < LONGEST_PATH
            && paths + pending.len() < MOST_PATHS
        {
            let entered =
                graph.entries.contains(&first) || graph.landing_pads.binary_search(&first).is_ok();
            let before = pending.len();
            let mut cyclic = false;
            for edge in graph.predecessors(first) {
                if path.contains(&edge.from) {
                    cyclic = true;
                } else {
                    let mut longer = path.clone();
                    longer.push(edge.from);
                    pending.push(longer);
                }
            }
            if pending.len() > before && !entered && !cyclic {
                continue;
            }
        }
        // This path ends here: what it says counts.
        match sight.bounds.filter(|_| sight.shape.is_some()) {
            Some(bounds) => {
                all = Some(all.map_or(bounds, |old| Bounds {
                    lowest: old.lowest.min(bounds.lowest),
                    highest: old.highest.max(bounds.highest),
                    strong: old.strong && bounds.strong,
                }));
            }
            None => limited = false,
        }
    }
    match (shape, all) {
        (Some(_), _) if !same => Finding::Indexed,
        (Some(shape), Some(bounds)) if limited => {
            // What fits into a byte need not be as large as that: then the contents decide.
            let whole = bounds.strong
                || read_limited(explorer, graph.last(block).ip(), shape, bounds).is_some();
            if whole { Finding::Limited(shape, bounds) } else { Finding::Unlimited(shape) }
        }
        (Some(shape), _) => Finding::Unlimited(shape),
        (None, _) if indexed => Finding::Indexed,
        (None, _) => Finding::Plain,
    }
}

/// Runs a path, which is given from the jump backwards.
fn look(explorer: &Explorer<'_>, graph: &Graph, path: &[usize]) -> Sight {
    let mut machine = Machine::new();
    for index in (0..path.len()).rev() {
        let block = path[index];
        let instructions = graph.instructions(block);
        let last = instructions.len() - 1;
        for instruction in &instructions[..last] {
            machine.step(instruction);
        }
        let Some(&next) = index.checked_sub(1).and_then(|next| path.get(next)) else { break };
        let end = &instructions[last];
        match end.flow_control() {
            FlowControl::ConditionalBranch => {
                let ways = graph.successors(block).iter().filter(|edge| edge.to == next);
                let (mut taken, mut passed) = (false, false);
                for edge in ways {
                    taken |= edge.kind == EdgeKind::Taken;
                    passed |= edge.kind == EdgeKind::FallThrough;
                }
                if taken != passed {
                    machine.branch(end.condition_code(), taken);
                }
            }
            FlowControl::Call | FlowControl::IndirectCall => {
                machine.call(kept_by_call(explorer, end));
            }
            FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => {}
            _ => machine.step(end),
        }
    }
    let target = machine.read(graph.last(path[0]), 0);
    let first = path[path.len() - 1];
    let indexed = has_index(&machine, target, 0);
    match shape(explorer, graph, first, &mut machine, target) {
        Some((shape, index)) => {
            let bounds = machine.bounds(index);
            Sight { shape: Some(shape), bounds, indexed: true, hopeless: false }
        }
        None => {
            let hopeless = !indexed && is_pointer_chase(&machine, target);
            Sight { shape: None, bounds: None, indexed, hopeless }
        }
    }
}

/// What a call leaves alone.
fn kept_by_call(explorer: &Explorer<'_>, call: &Instruction) -> RegisterSet {
    let own = explorer.function.convention;
    let convention = match call.op0_kind() {
        OpKind::NearBranch64 => {
            explorer.program.callee(call.near_branch64()).map_or(own, |callee| callee.convention)
        }
        _ => own,
    };
    if own == Convention::SystemV && convention == own { CALLEE_SAVED } else { RegisterSet::NONE }
}

/// The terms of a sum.
fn terms(machine: &Machine, id: Id, found: &mut Vec<Id>) {
    match machine.node(id) {
        Node::Add(one, other) => {
            terms(machine, one, found);
            terms(machine, other, found);
        }
        _ => found.push(id),
    }
}

/// Whether a value is read from memory at an address with an index, one element after the other. Where other things
/// lie between them, they are functions in an array of records.
fn has_index(machine: &Machine, id: Id, depth: usize) -> bool {
    if depth > 8 {
        return true;
    }
    match machine.node(id) {
        Node::Load(bits, address, _) => {
            let mut parts = Vec::new();
            terms(machine, address, &mut parts);
            let size = u64::from(bits / 8);
            parts.iter().any(|&part| matches!(machine.node(part), Node::Scale(_, by) if by == size))
        }
        Node::Add(one, other) => {
            has_index(machine, one, depth + 1) || has_index(machine, other, depth + 1)
        }
        Node::Low(_, inner) | Node::Sign(_, inner) => has_index(machine, inner, depth + 1),
        _ => false,
    }
}

/// Whether a value is read through a pointer that was itself read from memory, as methods are.
fn is_pointer_chase(machine: &Machine, id: Id) -> bool {
    let Node::Load(64, address, _) = machine.node(id) else { return false };
    let mut parts = Vec::new();
    terms(machine, address, &mut parts);
    parts.iter().all(|&part| matches!(machine.node(part), Node::Load(64, ..) | Node::Constant(_)))
        && parts.iter().any(|&part| matches!(machine.node(part), Node::Load(..)))
}

/// Recognises a table, and the index into it.
fn shape(
    explorer: &Explorer<'_>,
    graph: &Graph,
    first: usize,
    machine: &mut Machine,
    target: Id,
) -> Option<(Shape, Id)> {
    let constant = |machine: &Machine, id| match machine.node(id) {
        Node::Constant(value) => Some(value),
        Node::Start(register) => constant_at(explorer, graph, first, register, &mut Vec::new()),
        _ => None,
    };
    let mut entry = None;
    let mut origin = 0_u64;
    let mut parts = Vec::new();
    terms(machine, target, &mut parts);
    for part in parts {
        let (load, relative) = match machine.node(part) {
            Node::Load(..) => (part, false),
            Node::Sign(32, inner) => (inner, true),
            _ => {
                origin = origin.wrapping_add(constant(machine, part)?);
                continue;
            }
        };
        let Node::Load(bits, address, _) = machine.node(load) else { return None };
        if entry.replace((bits, address, relative)).is_some() {
            return None;
        }
    }
    let (bits, address, relative) = entry?;
    let form = match (bits, relative) {
        (32, true) => TableForm::Relative(origin),
        (32, false) if origin == 0 => TableForm::Absolute32,
        (64, false) if origin == 0 => TableForm::Absolute64,
        _ => return None,
    };
    let (mut base, mut index) = (0_u64, None);
    let mut parts = Vec::new();
    terms(machine, address, &mut parts);
    for part in parts {
        match machine.node(part) {
            Node::Scale(inner, by) if by == u64::from(bits / 8) => {
                if index.replace(inner).is_some() {
                    return None;
                }
            }
            _ => base = base.wrapping_add(constant(machine, part)?),
        }
    }
    // Where the compiler knew the index, it is part of the address.
    let index = match (index, form) {
        (Some(index), _) => index,
        (None, TableForm::Relative(_)) => machine.constant(0),
        _ => return None,
    };
    Some((Shape { form, base }, index))
}

/// The constant that a register surely holds at the start of a block, for addresses of tables that were moved out of
/// loops. Every way there must come through an instruction that loads the same one.
fn constant_at(
    explorer: &Explorer<'_>,
    graph: &Graph,
    block: usize,
    register: Register,
    busy: &mut Vec<(usize, Register)>,
) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let mut seen = vec![false; graph.blocks.len()];
    let mut pending = Vec::new();
    let mut found = None;
    before(graph, block, &mut pending)?;
    while let Some(block) = pending.pop() {
        if core::mem::replace(&mut seen[block], true) {
            continue;
        }
        let mut value = None;
        for instruction in graph.instructions(block).iter().rev() {
            if is_call(instruction) {
                if !kept_by_call(explorer, instruction).contains(register) {
                    return None;
                }
                continue;
            }
            if Effects::of(instruction, &mut factory).writes.contains(register) {
                value = Some(loaded_constant(explorer, graph, block, instruction, register, busy)?);
                break;
            }
        }
        match value {
            Some(value) if found.is_none_or(|old| old == value) => found = Some(value),
            Some(_) => return None,
            None => before(graph, block, &mut pending)?,
        }
    }
    found
}

fn is_call(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Call
}

/// Adds the blocks that control comes from; `None` if it may also come from outside.
fn before(graph: &Graph, block: usize, pending: &mut Vec<usize>) -> Option<()> {
    if graph.entries.contains(&block) {
        return None;
    }
    if graph.landing_pads.binary_search(&block).is_ok() {
        // The unwinder comes from some call of this function, with what was in the registers that calls keep.
        pending.extend(graph.calls.iter().map(|call| call.block));
    }
    pending.extend(graph.predecessors(block).map(|edge| edge.from));
    Some(())
}

/// The constant that an instruction loads.
fn loaded_constant(
    explorer: &Explorer<'_>,
    graph: &Graph,
    block: usize,
    instruction: &Instruction,
    register: Register,
    busy: &mut Vec<(usize, Register)>,
) -> Option<u64> {
    let whole = instruction.op0_kind() == OpKind::Register
        && number(instruction.op0_register()) == Some(register)
        && instruction.op0_register().size() >= 4;
    if !whole {
        return None;
    }
    match (instruction.mnemonic(), instruction.op1_kind()) {
        (Mnemonic::Lea, _) if instruction.is_ip_rel_memory_operand() => {
            Some(instruction.ip_rel_memory_address())
        }
        (Mnemonic::Lea, _)
            if instruction.memory_base() == Name::None
                && instruction.memory_index() == Name::None =>
        {
            Some(instruction.memory_displacement64())
        }
        (Mnemonic::Mov, OpKind::Register) if instruction.op0_register().size() == 8 => {
            let from = number(instruction.op1_register())?;
            // Only a copy of what the register held when the block began; and not around in circles.
            let mut factory = InstructionInfoFactory::new();
            for earlier in graph.instructions(block) {
                if earlier.ip() == instruction.ip() {
                    break;
                }
                if Effects::of(earlier, &mut factory).writes.contains(from) {
                    return loaded_constant(explorer, graph, block, earlier, from, busy);
                }
            }
            if busy.contains(&(block, from)) {
                return None;
            }
            busy.push((block, from));
            constant_at(explorer, graph, block, from, busy)
        }
        (Mnemonic::Mov, kind) if kind != OpKind::Memory && kind != OpKind::Register => {
            instruction.try_immediate(1).ok()
        }
        _ => None,
    }
}

fn read_entry(explorer: &Explorer<'_>, shape: Shape, address: u64) -> Option<u64> {
    let bytes = explorer.program.bytes(address);
    let word = |bytes: &[u8]| bytes.get(..4)?.try_into().ok().map(u32::from_le_bytes);
    match shape.form {
        TableForm::Relative(origin) => Some(origin.wrapping_add(word(bytes)? as i32 as u64)),
        TableForm::Absolute32 => word(bytes).map(u64::from),
        TableForm::Absolute64 => bytes.get(..8)?.try_into().ok().map(u64::from_le_bytes),
    }
}

/// Whether an entry leads to code of the function that fits to what is known of it.
fn is_target(explorer: &Explorer<'_>, target: u64) -> bool {
    explorer.function.contains(target)
        && explorer.program.is_code(target)
        && !explorer.is_inside(target)
}

fn starts_function(explorer: &Explorer<'_>, shape: Shape) -> bool {
    read_entry(explorer, shape, shape.base).is_some_and(|target| {
        !explorer.function.contains(target) && explorer.program.callee(target).is_some()
    })
}

fn read_limited(
    explorer: &Explorer<'_>,
    jump: u64,
    shape: Shape,
    bounds: Bounds,
) -> Option<JumpTable> {
    if bounds.highest - bounds.lowest >= MOST_ENTRIES {
        return None;
    }
    let address = |index: u64| shape.base.wrapping_add(index.wrapping_mul(shape.stride()));
    let targets = (bounds.lowest..=bounds.highest)
        .map(|index| {
            let target = read_entry(explorer, shape, address(index))?;
            let outside =
                !explorer.function.contains(target) && explorer.program.callee(target).is_some();
            (outside || is_target(explorer, target)).then_some(target)
        })
        .collect::<Option<Vec<u64>>>()?;
    Some(JumpTable {
        jump,
        address: address(bounds.lowest),
        form: shape.form,
        targets,
        guessed: false,
    })
}

fn read_guessed(
    explorer: &Explorer<'_>,
    jump: u64,
    shape: Shape,
    bases: &[u64],
) -> Option<JumpTable> {
    let next = bases.partition_point(|&base| base <= shape.base);
    let end = bases.get(next).copied().unwrap_or(u64::MAX);
    let mut targets = Vec::new();
    for index in 0..MOST_GUESSED {
        let address = shape.base.wrapping_add(index * shape.stride());
        match read_entry(explorer, shape, address) {
            Some(target)
                if address < end
                    && is_target(explorer, target)
                    && explorer.is_plausible(target) =>
            {
                targets.push(target);
            }
            _ => break,
        }
    }
    (targets.len() > 1).then_some(JumpTable {
        jump,
        address: shape.base,
        form: shape.form,
        targets,
        guessed: true,
    })
}
