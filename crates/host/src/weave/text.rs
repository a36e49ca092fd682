//! The code of one module of the target, as it was before anything was woven into it.

use super::code_id::CodeId;
use super::functions::Known;
use super::goroutines::Goroutines;
use super::landing::Unusual;
use super::padding::{is_filler, padding_length};
use super::segments::{Segment, bytes_at};
use super::window::JUMP;
use crate::TargetAddr;
use crate::process::modules::Module;
use crate::visited::others::OtherChange;
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedRegister,
};
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use weft_code::{
    BranchKind, Callee, Convention, Function, Graph, Liveness, Program, Sweep, graph, sweep,
};

/// Registers that a call may change and that have no result in them.
const SCRATCH: [Register; 7] = [
    Register::RCX,
    Register::RSI,
    Register::RDI,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
];

/// The code of one module.
#[derive(Debug)]
pub struct ModuleText {
    /// The module.
    pub module: Module,
    /// Whether it was unloaded.
    pub is_gone: bool,
    pub(super) segments: Vec<Segment>,
    /// By their start.
    pub(super) functions: Vec<Known>,
    /// Go's `runtime.deferreturn`: a function that recovers from a panic goes on where it calls that.
    pub(super) deferreturn: Option<u64>,
    /// How its goroutines are found, if it has some and that can be told.
    pub goroutines: Option<Goroutines>,
    /// The parts of functions that were placed elsewhere, by the function's start.
    pub(super) cold_parts: HashMap<u64, Vec<Range<u64>>>,
    /// The starts of the functions that parts belong to, by the starts of the parts.
    pub(super) owners: HashMap<u64, u64>,
    pub(super) sweeps: Vec<OnceCell<Sweep>>,
    pub(super) unusual: Unusual,
    /// What distinguishes this code from other code.
    pub(super) code_id: CodeId,
    /// Code and padding that functions have changed for their probes: by its start, the end and the
    /// function.
    pub(super) claims: BTreeMap<u64, (u64, u64)>,
    /// Functions that other wefts have probes in, and padding that they use, with whose they are; in the
    /// order of their addresses, none of them overlapping.
    pub(super) others: Vec<(Range<u64>, String)>,
}

/// Instead of a function: what other wefts have claimed.
const OF_OTHERS: u64 = 0;

impl ModuleText {
    /// What distinguishes this code from other code, wherever it is mapped.
    pub fn code_id(&self) -> CodeId {
        self.code_id
    }

    /// Takes note of what other wefts have changed now. A function that one of them has probes in is left to
    /// it as a whole: what it has moved elsewhere, and where threads will come back to, cannot be seen.
    pub fn see_others(&mut self, others: &[OtherChange]) {
        let mut found = Vec::new();
        let inside = |other: &&OtherChange| self.range().contains(&TargetAddr(other.change.at));
        for OtherChange { change, whose } in others.iter().filter(inside) {
            let function = self.function(change.at).map(|known| self.ranges_of(&known));
            let changed = change.at..change.at + u64::from(change.length);
            let all = function.into_iter().flatten().chain([changed]);
            found.extend(all.map(|range| (range, whose.clone())));
        }
        found.sort_unstable_by_key(|(range, _)| range.start);
        self.others.clear();
        for (range, whose) in found {
            match self.others.last_mut() {
                Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
                _ => self.others.push((range, whose)),
            }
        }
    }

    /// Whose a function is, if another weft has probes in it.
    pub fn owner(&self, known: &Known) -> Option<&str> {
        let ranges = self.ranges_of(known);
        let others = ranges.into_iter().find_map(|range| self.others_in(range).next());
        others.map(|(_, whose)| whose.as_str())
    }

    fn others_in(&self, range: Range<u64>) -> impl Iterator<Item = &(Range<u64>, String)> {
        let first = self.others.partition_point(|(other, _)| other.end <= range.start);
        self.others[first..].iter().take_while(move |(other, _)| other.start < range.end)
    }

    /// All code of a function.
    fn ranges_of(&self, known: &Known) -> Vec<Range<u64>> {
        let cold = self.cold_parts.get(&known.start).into_iter().flatten().cloned();
        std::iter::once(known.start..known.end).chain(cold).collect()
    }

    /// The addresses that it covers.
    pub fn range(&self) -> Range<TargetAddr> {
        self.module.start..self.module.end
    }

    /// The function that an address belongs to.
    pub fn function(&self, at: u64) -> Option<Known> {
        let after = self.functions.partition_point(|f| f.start <= at);
        let found = self.functions[..after].iter().rev().take(16).find(|f| at < f.end)?;
        if !found.is_cold {
            return Some(*found);
        }
        let owner = self.owners.get(&found.start).and_then(|&start| self.starting_at(start));
        Some(*owner.unwrap_or(found))
    }

    /// The function that starts at an address.
    pub(super) fn starting_at(&self, start: u64) -> Option<&Known> {
        let at = self.functions.partition_point(|f| f.start < start);
        self.functions.get(at).filter(|f| f.start == start)
    }

    /// Whether it has code of Go's.
    pub fn is_go(&self) -> bool {
        self.functions.iter().any(|f| f.is_go)
    }

    fn segment(&self, at: u64) -> Option<(usize, &Segment)> {
        self.segments.iter().enumerate().find(|(_, segment)| segment.range().contains(&at))
    }

    /// The branches of the code around an address.
    pub fn sweep(&self, at: u64) -> Option<&Sweep> {
        let (index, segment) = self.segment(at).filter(|(_, segment)| segment.is_code)?;
        Some(self.sweeps[index].get_or_init(|| {
            let starts: Vec<u64> = self.functions.iter().map(|f| f.start).collect();
            sweep(&segment.bytes, segment.start, &starts)
        }))
    }

    /// The whole function, with the parts that were placed elsewhere.
    pub fn whole(&self, known: &Known) -> Function {
        let mut function = Function::new(known.start..known.end, known.convention());
        function.ranges.extend(self.cold_parts.get(&known.start).into_iter().flatten().cloned());
        if let Some(sweep) = self.sweep(known.start) {
            // Assembler code jumps from one function into the middle of another.
            function.extra_entries = sweep.entries_into(&function);
            if let Some(deferreturn) = self.deferreturn {
                let calls = sweep.branches_from(known.start..known.end).iter();
                let calls = calls.filter(|call| call.target == deferreturn);
                function.extra_entries.extend(calls.map(|call| call.source));
            }
        }
        function
    }

    /// The control flow of a whole function.
    pub fn graph(&self, whole: &Function) -> Graph {
        graph(self, whole)
    }

    /// What is needed where in a function. Nothing is free in one whose callers go on with registers that it
    /// could change: code that is written in assembler has agreements of its own.
    pub fn liveness<'a>(&self, graph: &'a Graph) -> Liveness<'a> {
        let has_agreement = self.goes_on_with_scratch(graph.function.entry());
        let convention = graph.function.convention;
        Liveness::of(graph, if has_agreement { Convention::Unknown } else { convention })
    }

    /// Whether code that calls a function reads registers right behind the call that are not kept over it,
    /// nor results.
    fn goes_on_with_scratch(&self, entry: u64) -> bool {
        let Some(sweep) = self.sweep(entry) else { return false };
        let mut factory = InstructionInfoFactory::new();
        let calls = sweep.branches_into(entry..entry + 1).filter(|b| b.kind == BranchKind::Call);
        calls
            .into_iter()
            .any(|call| self.reads_scratch(call.source + u64::from(call.length), &mut factory))
    }

    fn reads_scratch(&self, start: u64, factory: &mut InstructionInfoFactory) -> bool {
        const LOOK_AHEAD: usize = 16;
        let mut left = SCRATCH.to_vec();
        let mut at = start;
        for _ in 0..LOOK_AHEAD {
            let Some(instruction) = self.decode(at) else { break };
            let used = factory.info(&instruction).used_registers();
            let is_read = |one: &UsedRegister| {
                left.contains(&one.register().full_register())
                    && !matches!(one.access(), OpAccess::Write | OpAccess::CondWrite)
            };
            if used.iter().any(is_read) {
                return true;
            }
            left.retain(|&one| used.iter().all(|used| used.register().full_register() != one));
            if instruction.flow_control() != FlowControl::Next {
                break;
            }
            at = instruction.next_ip();
        }
        false
    }

    /// Whether a function has jumps that only its control flow can tell the targets of.
    pub fn jumps_indirectly(&self, known: &Known) -> bool {
        self.sweep(known.start).is_some_and(|sweep| {
            let from = sweep.indirect_jumps.partition_point(|&at| at < known.start);
            sweep.indirect_jumps.get(from).is_some_and(|&at| at < known.end)
        })
    }

    /// The instructions by which a function of Go's looks whether its stack is large enough: its runtime
    /// does not interrupt them.
    pub(super) fn stack_check(&self, known: &Known) -> Range<u64> {
        /// Where a goroutine's description has the end of its stack.
        const STACK_GUARD: u64 = 16;
        const LONGEST: usize = 6;
        let mut at = known.start;
        let mut has_compared = false;
        for _ in 0..LONGEST {
            let Some(instruction) = self.decode(at) else { break };
            match instruction.mnemonic() {
                Mnemonic::Cmp => has_compared |= instruction.memory_displacement64() == STACK_GUARD,
                Mnemonic::Jbe if has_compared => return known.start..instruction.next_ip(),
                Mnemonic::Jb | Mnemonic::Mov | Mnemonic::Lea | Mnemonic::Sub => {}
                _ => break,
            }
            at = instruction.next_ip();
        }
        known.start..known.start
    }

    /// The instruction at an address.
    pub fn decode(&self, at: u64) -> Option<Instruction> {
        let bytes = self.is_code(at).then(|| self.bytes(at))?;
        let mut decoder =
            Decoder::with_ip(64, &bytes[..bytes.len().min(15)], at, DecoderOptions::NONE);
        let instruction = decoder.decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Whether signal handlers return to code around an address.
    pub fn is_signal_return(&self, at: u64) -> bool {
        self.unusual.signal_returns.iter().any(|range| range.contains(&at))
    }

    /// Whether code that starts at an address is come to when its function has a frame already.
    pub fn starts_in_frame(&self, start: u64) -> bool {
        self.unusual.in_frames.binary_search(&start).is_ok()
    }

    /// Notes what a function changes for its probes, in place of what it changed before.
    pub fn claim(&mut self, function: u64, before: &[Range<u64>], now: Vec<Range<u64>>) {
        for range in before {
            self.claims.remove(&range.start);
        }
        self.claims.extend(now.into_iter().map(|range| (range.start, (range.end, function))));
    }

    /// The claims that overlap a range, and their functions; those of other wefts as well.
    pub(super) fn claims_in(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        let before = self.claims.range(..range.start).next_back();
        let before = before.filter(move |(_, claim)| claim.0 > range.start);
        let inside = self.claims.range(range.start..range.end);
        let own = before.into_iter().chain(inside);
        let own = own.map(|(&start, &(end, function))| (start..end, function));
        own.chain(self.others_in(range).map(|(other, _)| (other.clone(), OF_OTHERS)))
    }

    /// The free padding that begins at an address, where no code runs to.
    pub(super) fn padding(&self, at: u64) -> u64 {
        let next = self.functions.partition_point(|f| f.start < at);
        let limit = self.functions.get(next).map_or(at + 64, |f| f.start);
        let Some((_, segment)) = self.segment(at).filter(|(_, segment)| segment.is_code) else {
            return 0;
        };
        let limit = limit.min(segment.range().end);
        let claims = self.claims_in(at..limit.max(at)).map(|(claim, _)| claim.start.max(at));
        let limit = claims.min().unwrap_or(limit);
        let bytes = &segment.bytes[(at - segment.start) as usize..(limit - segment.start) as usize];
        padding_length(bytes)
    }

    /// Padding of the length of a jump that begins in a range.
    pub(super) fn hole(&self, within: Range<u64>, also_taken: &[Range<u64>]) -> Option<u64> {
        let is_free = |&at: &u64| {
            within.contains(&at)
                && self.claims_in(at..at + JUMP).next().is_none()
                && also_taken.iter().all(|taken| taken.end <= at || at + JUMP <= taken.start)
        };
        // From its end: what is at its start may serve the function before.
        self.gaps_around(&within)
            .flat_map(|gap| (gap.start..(gap.end + 1).saturating_sub(JUMP)).rev())
            .find(is_free)
    }

    /// The gaps between functions in and next to a range that have nothing but padding, which no code runs
    /// through. Where there is something else, there is code that nothing names, which may be entered
    /// anywhere.
    fn gaps_around(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.functions.partition_point(|f| f.start < range.start);
        let last = self.functions.partition_point(|f| f.start < range.end);
        let nearby = first.saturating_sub(2)..(last + 1).min(self.functions.len());
        nearby.filter_map(|index| {
            let next = self.functions.get(index + 1)?.start;
            // Functions may overlap: the gap begins where the last of them ends.
            let before = &self.functions[index.saturating_sub(4)..=index];
            let last = before.iter().max_by_key(|f| f.end)?;
            let end = last.end;
            let (_, segment) = self.segment(end)?;
            if end >= next || next > segment.range().end {
                return None;
            }
            let gap = (end - segment.start) as usize..(next - segment.start) as usize;
            let is_padding = padding_length(&segment.bytes[gap.clone()]) == gap.len() as u64;
            (is_padding && !self.may_run_on(last)).then_some(end..next)
        })
    }

    /// Whether control may run on behind the end of a function, through padding, as in some that are written
    /// in assembler. A call at the end is taken to be one that does not come back.
    fn may_run_on(&self, known: &Known) -> bool {
        let (mut at, mut runs_on) = (known.start, true);
        while at < known.end {
            let Some(instruction) = self.decode(at) else { return true };
            let ends = matches!(
                instruction.flow_control(),
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
                    | FlowControl::Call
                    | FlowControl::IndirectCall
            );
            runs_on = !ends && (runs_on || !is_filler(&instruction));
            at = instruction.next_ip();
        }
        runs_on || at != known.end
    }
}

impl Program for ModuleText {
    fn bytes(&self, address: u64) -> &[u8] {
        bytes_at(&self.segments, address)
    }

    fn is_code(&self, address: u64) -> bool {
        self.segment(address).is_some_and(|(_, segment)| segment.is_code)
    }

    fn callee(&self, address: u64) -> Option<Callee> {
        let known = self.starting_at(address).filter(|f| !f.is_cold)?;
        Some(Callee {
            returns: known.returns,
            convention: known.convention(),
            external: known.is_stub,
        })
    }

    fn landing_pads(&self, function: &Function) -> Vec<u64> {
        let pads = &self.unusual.pads;
        let mut found = Vec::new();
        for range in &function.ranges {
            let from = pads.partition_point(|&pad| pad < range.start);
            found.extend(pads[from..].iter().take_while(|&&pad| pad < range.end));
        }
        found
    }
}
