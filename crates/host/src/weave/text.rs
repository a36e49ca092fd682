//! The code of one module of the target, as it was before anything was woven into it.

use super::goroutines::Goroutines;
use super::landing::{Unusual, unusual};
use super::parts;
use super::plan::{self, JUMP, Jump, Spot, Terrain};
use super::relocated::Body;
use super::shared::{self, CodeId};
use crate::modules::{self, Module};
use crate::others::Foreign;
use crate::proc::{self, Tid};
use crate::{Result, TargetAddr, memory};
use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register, UsedRegister,
};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;
use weft_abi::Change;
use weft_code::{
    BranchKind, Callee, Convention, Function, Gap, Graph, Liveness, Program, Sweep, graph, sweep,
};
use weft_symbols::inside;
use weft_symbols::{
    Cache, FunctionKind, FunctionTable, Layout, ModuleFile, ModuleImage, ModuleSymbols, Origin,
};

/// A function that nothing names longer than this is not believed.
const LONGEST: u64 = 16 << 20;

/// Functions that never come back, by the names that the linker knows.
const NEVER_RETURN: [&str; 34] = [
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "abort",
    "__abort",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "__libc_fatal",
    "__libc_start_main",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "pthread_exit",
    "err",
    "errx",
    "verr",
    "verrx",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_throw_bad_array_new_length",
    "__cxa_call_unexpected",
    "__cxa_pure_virtual",
    "_Unwind_Resume",
    "_ZSt9terminatev",
    "__clang_call_terminate",
    "rust_begin_unwind",
];

/// Beginnings of such names: the C++ library's throwing helpers and Rust's panics.
const NEVER_RETURN_PREFIXES: [&str; 3] = ["_ZSt17__throw_", "_ZSt20__throw_", "_ZN4core9panicking"];

/// Functions that are entered elsewhere than at their start: a goroutine returns to the second byte of
/// this one when it ends.
const ENTERED_INSIDE: [&str; 2] = ["runtime.goexit", "runtime.goexit.abi0"];

/// Beginnings of the names of functions of Go's that its runtime does not interrupt.
const UNPREEMPTIBLE: [&str; 3] = ["runtime.", "runtime/internal/", "reflect."];

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

/// A piece of a module's memory that the program itself cannot write to.
#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: Arc<[u8]>,
    is_code: bool,
}

impl Segment {
    fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }
}

/// What is known of a function without looking at its code.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Where it starts.
    pub start: u64,
    /// The address after its end.
    pub end: u64,
    /// Whether it is a part of another function that was placed elsewhere.
    pub is_cold: bool,
    /// Whether it is entered elsewhere than at its start.
    pub is_entered_inside: bool,
    /// Whether only the unwind tables tell of it.
    is_unnamed: bool,
    returns: bool,
    is_stub: bool,
    is_go: bool,
    /// Whether Go's runtime may interrupt it anywhere, and go on from there later.
    is_preemptible: bool,
}

impl Known {
    fn convention(&self) -> Convention {
        if self.is_go { Convention::Go } else { Convention::SystemV }
    }
}

/// The code of one module.
#[derive(Debug)]
pub struct ModuleText {
    /// The module.
    pub module: Module,
    /// Whether it was unloaded.
    pub is_gone: bool,
    segments: Vec<Segment>,
    /// By their start.
    functions: Vec<Known>,
    /// Go's `runtime.deferreturn`: a function that recovers from a panic goes on where it calls that.
    deferreturn: Option<u64>,
    /// How its goroutines are found, if it has some and that can be told.
    pub goroutines: Option<Goroutines>,
    /// The parts of functions that were placed elsewhere, by the function's start.
    cold_parts: HashMap<u64, Vec<Range<u64>>>,
    /// The starts of the functions that parts belong to, by the starts of the parts.
    owners: HashMap<u64, u64>,
    sweeps: Vec<OnceCell<Sweep>>,
    unusual: Unusual,
    /// What tells this code from other code.
    code_id: CodeId,
    /// Code and padding that functions have changed for their probes: by its start, the end and the
    /// function.
    claims: BTreeMap<u64, (u64, u64)>,
    /// Functions that other wefts have probes in, and padding that they use, with whose they are; in the
    /// order of their addresses, none of them overlapping.
    others: Vec<(Range<u64>, String)>,
}

/// Instead of a function: what other wefts have claimed.
const OF_OTHERS: u64 = 0;

impl ModuleText {
    /// Reads the code of a module, which other wefts may have changed.
    pub fn read(pid: Tid, module: Module, others: &[Foreign]) -> Result<Self> {
        let symbols = symbols_of(pid, &module)?;
        let segments = read_segments(pid, &module, others)?;
        let frames = symbols.frames_address().map(|frames| module.bias.wrapping_add(frames));
        let deferreturn = symbols.find("runtime.deferreturn").first().copied();
        let has_go = deferreturn.is_some();
        let goroutines = has_go.then(|| Goroutines::of(pid, &symbols, module.bias)).flatten();
        let unusual = frames.map_or_else(Unusual::default, |frames| {
            unusual(frames, |address| bytes_at(&segments, address))
        });
        let (functions, cold_parts) =
            known_functions(symbols.functions(), module.bias, &segments, &unusual.starts, has_go);
        let deferreturn = deferreturn.and_then(|index| symbols.functions().get(index as usize));
        let deferreturn = deferreturn.map(|f| module.bias.wrapping_add(f.offset()));
        let sweeps = segments.iter().map(|_| OnceCell::new()).collect();
        let code_id = code_id(&module, &segments, &functions);
        let mut text = Self {
            module,
            is_gone: false,
            segments,
            functions,
            deferreturn,
            goroutines,
            cold_parts,
            owners: HashMap::new(),
            sweeps,
            unusual,
            code_id,
            claims: BTreeMap::new(),
            others: Vec::new(),
        };
        text.find_owners();
        text.see_others(others);
        Ok(text)
    }

    /// What tells this code from other code, wherever it is mapped.
    pub fn code_id(&self) -> CodeId {
        self.code_id
    }

    /// Finds out which functions parts belong to.
    fn find_owners(&mut self) {
        for (&function, parts) in &self.cold_parts {
            self.owners.extend(parts.iter().map(|part| (part.start, function)));
        }
        let is_unclaimed =
            |f: &&Known| f.is_unnamed || f.is_cold && !self.owners.contains_key(&f.start);
        let unclaimed = self.functions.iter().filter(is_unclaimed).copied();
        let found = parts::owners(self, unclaimed);
        for part in &mut self.functions {
            if let Some(&owner) = found.get(&part.start) {
                part.is_cold = true;
                self.cold_parts.entry(owner).or_default().push(part.start..part.end);
            }
        }
        self.owners.extend(found);
    }

    /// Takes note of what other wefts have changed now. A function that one of them has probes in is left to
    /// it as a whole: what it has moved elsewhere, and where threads will come back to, cannot be seen.
    pub fn see_others(&mut self, others: &[Foreign]) {
        let mut found = Vec::new();
        let inside = |other: &&Foreign| self.range().contains(&TargetAddr(other.change.at));
        for Foreign { change, whose } in others.iter().filter(inside) {
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
    fn starting_at(&self, start: u64) -> Option<&Known> {
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
    fn stack_check(&self, known: &Known) -> Range<u64> {
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
    fn claims_in(&self, range: Range<u64>) -> impl Iterator<Item = (Range<u64>, u64)> {
        let before = self.claims.range(..range.start).next_back();
        let before = before.filter(move |(_, claim)| claim.0 > range.start);
        let inside = self.claims.range(range.start..range.end);
        let own = before.into_iter().chain(inside);
        let own = own.map(|(&start, &(end, function))| (start..end, function));
        own.chain(self.others_in(range).map(|(other, _)| (other.clone(), OF_OTHERS)))
    }

    /// The free padding that begins at an address, where no code runs to.
    fn padding(&self, at: u64) -> u64 {
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
    fn hole(&self, within: Range<u64>, also_taken: &[Range<u64>]) -> Option<u64> {
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

/// What points depend on: the code, what data lies beside it, and where functions are known to be.
fn code_id(module: &Module, segments: &[Segment], functions: &[Known]) -> CodeId {
    let mut hasher = DefaultHasher::new();
    // Data may hold addresses, which differ from process to process; the build tells it from other data.
    segments.iter().filter(|s| s.is_code).for_each(|segment| segment.bytes.hash(&mut hasher));
    module.build_id.hash(&mut hasher);
    for known in functions {
        [known.start, known.end].map(|at| at.wrapping_sub(module.bias)).hash(&mut hasher);
        known.returns.hash(&mut hasher);
    }
    CodeId { file: module.file, hash: hasher.finish() }
}

/// What is mapped from an address on.
fn bytes_at(segments: &[Segment], address: u64) -> &[u8] {
    let segment = segments.iter().find(|segment| segment.range().contains(&address));
    segment.map_or(&[], |segment| &segment.bytes[(address - segment.start) as usize..])
}

/// Puts back what a change has replaced, where it was made.
fn restore(start: u64, bytes: &mut [u8], change: &Change) {
    let length = usize::from(change.length);
    let Some(start) = change.at.checked_sub(start).map(|start| start as usize) else { return };
    if let Some(bytes) = bytes.get_mut(start..start.saturating_add(length))
        && *bytes == change.woven[..length]
    {
        bytes.copy_from_slice(&change.original[..length]);
    }
}

/// How many bytes from the start of these there are before the padding at their end.
fn code_length(bytes: &[u8]) -> u64 {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut length = 0;
    while decoder.can_decode() {
        if !is_filler(&decoder.decode()) {
            length = decoder.position() as u64;
        }
    }
    length
}

/// How many bytes from the start of these are fillers between functions.
fn padding_length(bytes: &[u8]) -> u64 {
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let mut length = 0;
    while decoder.can_decode() {
        if !is_filler(&decoder.decode()) {
            break;
        }
        length = decoder.position() as u64;
    }
    length
}

/// Whether an instruction is one that compilers fill gaps with.
fn is_filler(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Nop | Mnemonic::Int3 => true,
        // `xchg ax, ax` and the like decode as themselves.
        _ => instruction.code() == Code::Xchg_rm16_r16 && instruction.len() == 3,
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

/// One function of a module, for the planner.
#[derive(Debug)]
pub struct FunctionTerrain<'a> {
    /// The module's code.
    pub text: &'a ModuleText,
    /// The function.
    pub whole: Function,
    /// Its control flow, when it was needed.
    pub graph: Option<&'a Graph>,
}

impl FunctionTerrain<'_> {
    /// Those of these places behind calls that cannot be told apart from what else comes there, and why.
    pub fn mixed(&self, spots: &[Spot]) -> Vec<(Spot, String)> {
        const WHY: &str = "a jump that cannot be told apart from the return leads there, too";
        let is_unknown = |jump: &Jump| {
            self.graph.is_none_or(|graph| graph.instruction_at(jump.source).is_none())
        };
        let is_mixed = |spot: &&Spot| match **spot {
            Spot::Returned(at) => {
                self.is_fixed(at) || self.jumps_into(at..at + 1).iter().any(is_unknown)
            }
            _ => false,
        };
        spots.iter().filter(is_mixed).map(|&spot| (spot, WHY.into())).collect()
    }
}

impl Terrain for FunctionTerrain<'_> {
    fn step(&self, at: u64) -> Option<plan::Step> {
        let instruction = self.text.decode(at)?;
        let flow = instruction.flow_control();
        let is_system_call = matches!(
            instruction.mnemonic(),
            Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int | Mnemonic::Int1
        );
        Some(plan::Step {
            at,
            length: instruction.len() as u64,
            falls_through: !matches!(
                flow,
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            ),
            fills: is_filler(&instruction),
            returns: is_system_call
                || matches!(flow, FlowControl::Call | FlowControl::IndirectCall),
            stays: false,
        })
    }

    fn before(&self, at: u64) -> Option<u64> {
        let graph = self.graph?;
        let before = graph.instructions(graph.block_of(at.checked_sub(1)?)?);
        let before = before.iter().find(|instruction| instruction.next_ip() == at)?.ip();
        self.step(before).filter(|step| step.falls_through).map(|_| before)
    }

    fn jumps_into(&self, range: Range<u64>) -> Vec<Jump> {
        let Some(sweep) = self.text.sweep(range.start) else { return Vec::new() };
        sweep
            .branches_into(range)
            .filter(|branch| branch.kind != BranchKind::Call)
            .map(Jump::from)
            .collect()
    }

    fn is_fixed(&self, at: u64) -> bool {
        let called = |sweep: &Sweep| {
            sweep.branches_into(at..at + 1).any(|branch| {
                // What is not known to be code of this function must not be changed for it.
                branch.kind == BranchKind::Call || !self.whole.contains(branch.source)
            })
        };
        self.text.callee(at).is_some()
            || self.whole.extra_entries.contains(&at)
            || self.text.unusual.pads.binary_search(&at).is_ok()
            || self.text.sweep(at).is_some_and(called)
            || self.graph.is_some_and(|g| g.tables.iter().any(|t| t.targets.contains(&at)))
    }

    fn is_waited_at(&self, at: u64) -> bool {
        self.text.goroutines.is_none() && self.is_preempted_at(at)
    }

    fn is_preempted_at(&self, at: u64) -> bool {
        self.text.function(at).is_some_and(|known| {
            known.is_preemptible && !self.text.stack_check(&known).contains(&at)
        })
    }

    fn is_certain(&self) -> bool {
        self.graph.is_some_and(Graph::is_complete)
    }

    fn contains(&self, at: u64) -> bool {
        self.whole.contains(at)
    }

    fn padding(&self, at: u64) -> u64 {
        if self.whole.contains(at) { 0 } else { self.text.padding(at) }
    }

    fn hole(&self, within: Range<u64>, taken: &[Range<u64>]) -> Option<u64> {
        // A goroutine could be interrupted at the jump in there, too.
        let is_preemptible = |known: &Known| known.is_preemptible;
        if self.text.starting_at(self.whole.entry()).is_some_and(is_preemptible) {
            return None;
        }
        self.text.hole(within, taken)
    }

    fn is_foreign(&self, range: Range<u64>) -> bool {
        self.text.claims_in(range).any(|(_, function)| function != self.whole.entry())
    }

    fn body(&self) -> Result<Body, &'static str> {
        let graph = self.graph.filter(|graph| graph.is_complete());
        let graph = graph.ok_or("not all jumps of the function are known")?;
        if self.whole.convention == Convention::Go {
            // It finds out by the instruction pointer where a goroutine may be interrupted, and what
            // a fault means. In a copy it would not interrupt a loop, ever.
            return Err("Go's runtime would not know a copy of the function");
        }
        let mut body = Body::default();
        let known: BTreeSet<u64> = graph.instruction_boundaries().collect();
        let mut end = 0;
        for &at in &known {
            let step = self.step(at).ok_or("the bytes are no instruction")?;
            if at < end {
                return Err("instructions of the function overlap");
            }
            end = step.end();
            if at != self.whole.entry() && self.text.callee(at).is_some() {
                return Err("another function begins in the middle of it");
            }
            body.steps.push(plan::Step { stays: step.returns, ..step });
        }
        // Code that nothing is known to lead to could jump into the function, too.
        let sources = self.whole.ranges.iter().flat_map(|range| {
            let sweep = self.text.sweep(range.start);
            sweep.into_iter().flat_map(|sweep| sweep.branches_into(range.clone()))
        });
        let strange = sources
            .filter(|branch| branch.kind == BranchKind::Call || !known.contains(&branch.source));
        let instructions = known.iter().filter_map(|&at| graph.instruction_at(at));
        let named = instructions.filter(|i| i.is_ip_rel_memory_operand());
        let named: BTreeSet<u64> = named.map(Instruction::ip_rel_memory_address).collect();
        let pads = graph.landing_pads.iter().chain(&graph.entries);
        let pads = pads.map(|&block| graph.blocks[block].start);
        body.reentries = strange
            .map(|branch| branch.target)
            .chain(named.iter().copied())
            .chain(pads)
            .chain(graph.tables.iter().flat_map(|table| table.targets.iter().copied()))
            .chain(body.steps.iter().filter(|step| step.returns).map(plan::Step::end))
            .filter(|at| known.contains(at))
            .collect();
        body.calls = graph.calls.iter().map(|call| call.address).collect();
        // Zeros, and what an instruction names, may be data.
        let is_unused = |gap: &&Gap| {
            gap.padding
                && self.text.bytes(gap.range.start).first() != Some(&0)
                && named.range(gap.range.clone()).next().is_none()
        };
        body.unused = graph.gaps.iter().filter(is_unused).map(|gap| gap.range.clone()).collect();
        Ok(body)
    }
}

/// The symbols of a live module.
fn symbols_of(pid: Tid, module: &Module) -> Result<ModuleSymbols> {
    let cache = Cache::of_user();
    let root = inside::root_of(pid);
    let path = module.path.clone().into();
    match &module.open_path {
        Some(open_path) => {
            let file = ModuleFile { path, open_path: open_path.clone(), root };
            Ok(ModuleSymbols::open(file, &cache)?)
        }
        None => {
            let bytes: Arc<[u8]> = modules::image(pid, module)?.into();
            // The kernel maps the vDSO as one piece, so its image is a whole file.
            let layout = if module.path == "[vdso]" {
                Layout::File
            } else {
                Layout::Memory { bias: module.bias }
            };
            Ok(ModuleSymbols::from_image(ModuleImage { path, bytes, layout, root }, &cache)?)
        }
    }
}

/// Reads what the program itself cannot write to, as it is without the changes of other wefts.
fn read_segments(pid: Tid, module: &Module, others: &[Foreign]) -> Result<Vec<Segment>> {
    let maps = proc::maps(pid)?;
    let pieces: Vec<_> = maps
        .iter()
        .filter(|m| m.start >= module.start && m.end <= module.end && m.read && !m.write)
        .collect();
    let wanted: Vec<_> = pieces.iter().map(|m| (m.start, m.len() as usize)).collect();
    let mut joined: Vec<(u64, Vec<u8>, bool)> = Vec::new();
    for (mapping, bytes) in pieces.into_iter().zip(memory::read_many(pid, &wanted)?) {
        let Some(bytes) = bytes else { continue };
        match joined.last_mut() {
            // A table may run across a boundary that only protection makes.
            Some((start, last, is_code))
                if *start + last.len() as u64 == mapping.start.0 && *is_code == mapping.execute =>
            {
                last.extend(bytes);
            }
            _ => joined.push((mapping.start.0, bytes, mapping.execute)),
        }
    }
    let segments = joined.into_iter().map(|(start, mut bytes, is_code)| {
        others.iter().for_each(|other| restore(start, &mut bytes, &other.change));
        Segment { start, bytes: shared::bytes(bytes), is_code }
    });
    Ok(segments.collect())
}

/// Whether a name of a program that has Go in it is Go's: with a package. Compilers of C put a point only
/// before words of their own.
fn is_name_of_go(name: &str) -> bool {
    const OTHERS: [&str; 6] = ["cold", "part", "isra", "constprop", "lto_priv", "llvm"];
    name.split_once('.').is_some_and(|(package, rest)| {
        !package.is_empty() && !OTHERS.iter().any(|word| rest.starts_with(word))
    })
}

type Functions = (Vec<Known>, HashMap<u64, Vec<Range<u64>>>);

fn known_functions(
    table: &FunctionTable,
    bias: u64,
    segments: &[Segment],
    unwound: &[u64],
    has_go: bool,
) -> Functions {
    let mut functions: Vec<Known> = Vec::with_capacity(table.len());
    // Several files may have a function of the same name.
    let mut by_name: HashMap<&str, Option<u64>> = HashMap::new();
    let mut cold: Vec<(&str, Range<u64>)> = Vec::new();
    for function in table.iter() {
        let start = bias.wrapping_add(function.offset());
        let Some(segment) = segments.iter().find(|s| s.is_code && s.range().contains(&start))
        else {
            continue;
        };
        let name = function.name();
        let is_stub = function.kind() == FunctionKind::Plt;
        let base = name.strip_suffix("@plt").unwrap_or(name);
        let base = base.split('@').next().unwrap_or(base);
        let never = NEVER_RETURN.contains(&base)
            || NEVER_RETURN_PREFIXES.iter().any(|prefix| base.starts_with(prefix));
        let size = function.size();
        let end = if size == 0 || size > LONGEST { start } else { start + size };
        let is_go =
            function.origin() == Origin::GoTable || has_go && !is_stub && is_name_of_go(name);
        let is_cold = name.contains(".cold");
        if is_cold {
            cold.push((name.split(".cold").next().unwrap_or(name), start..end));
        } else {
            let is_only = !by_name.contains_key(name);
            by_name.insert(name, is_only.then_some(start));
        }
        functions.push(Known {
            start,
            end: end.min(segment.range().end),
            is_cold,
            is_entered_inside: ENTERED_INSIDE.contains(&name),
            is_unnamed: function.origin() == Origin::Frames,
            returns: !never,
            is_stub,
            is_go,
            is_preemptible: is_go && !UNPREEMPTIBLE.iter().any(|prefix| name.starts_with(prefix)),
        });
    }
    functions.sort_unstable_by_key(|f| f.start);
    // One whose length nothing tells ends where the next begins, or where padding before it does. What
    // calls to libraries share before the first of them has no name, but unwind tables tell of it.
    for index in (0..functions.len()).rev() {
        let start = functions[index].start;
        if functions[index].end == start
            && let Some(segment) = segments.iter().find(|s| s.range().contains(&start))
        {
            let limit = segment.range().end;
            let next = functions.get(index + 1).map_or(limit, |next| next.start.min(limit));
            let unwound = unwound.get(unwound.partition_point(|&at| at <= start));
            let next = unwound.map_or(next, |&unwound| unwound.min(next));
            let code =
                &segment.bytes[(start - segment.start) as usize..(next - segment.start) as usize];
            functions[index].end = start + code_length(code);
        }
    }
    let mut cold_parts: HashMap<u64, Vec<Range<u64>>> = HashMap::new();
    for (name, range) in cold {
        if let Some(&Some(start)) = by_name.get(name) {
            cold_parts.entry(start).or_default().push(range);
        }
    }
    (functions, cold_parts)
}
