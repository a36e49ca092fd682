//! One small function for each idiom.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use iced_x86::IcedError;
use iced_x86::code_asm::*;

use super::*;
use crate::{Convention, Liveness, Program, Register};

const BASE: u64 = 0x40_0000;
const TABLE: u64 = 0x50_0000;
const OTHER: u64 = 0x48_0000;

/// Code at one place and data at another, with functions known elsewhere.
struct Sample {
    code: Vec<u8>,
    data: Vec<u8>,
    callees: BTreeMap<u64, Callee>,
    pads: Vec<u64>,
}

impl Sample {
    fn new(write: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>) -> Self {
        let mut assembler = CodeAssembler::new(64).unwrap();
        write(&mut assembler).unwrap();
        let callee = Callee { returns: true, convention: Convention::SystemV, external: false };
        Self {
            code: assembler.assemble(BASE).unwrap(),
            data: Vec::new(),
            callees: BTreeMap::from([(OTHER, callee), (BASE, callee)]),
            pads: Vec::new(),
        }
    }

    /// A table of distances from itself.
    fn relative(mut self, targets: &[u64]) -> Self {
        for target in targets {
            self.data.extend((target.wrapping_sub(TABLE) as u32).to_le_bytes());
        }
        self
    }

    fn absolute(mut self, targets: &[u64]) -> Self {
        self.data.extend(targets.iter().flat_map(|target| target.to_le_bytes()));
        self
    }

    fn function(&self) -> Function {
        Function::new(BASE..BASE + self.code.len() as u64, Convention::SystemV)
    }

    fn graph(&self) -> Graph {
        graph(self, &self.function())
    }
}

impl Program for Sample {
    fn bytes(&self, address: u64) -> &[u8] {
        let from = |bytes: &'_ [u8], base: u64| {
            usize::try_from(address.wrapping_sub(base)).is_ok_and(|offset| offset < bytes.len())
        };
        if from(&self.code, BASE) {
            &self.code[(address - BASE) as usize..]
        } else if from(&self.data, TABLE) {
            &self.data[(address - TABLE) as usize..]
        } else {
            &[]
        }
    }

    fn is_code(&self, address: u64) -> bool {
        (BASE..BASE + self.code.len() as u64).contains(&address) || address == OTHER
    }

    fn callee(&self, address: u64) -> Option<Callee> {
        self.callees.get(&address).copied()
    }

    fn landing_pads(&self, _: &Function) -> Vec<u64> {
        self.pads.clone()
    }
}

/// The edges as pairs of block numbers.
fn edges(graph: &Graph) -> Vec<(usize, usize, EdgeKind)> {
    graph.edges.iter().map(|edge| (edge.from, edge.to, edge.kind)).collect()
}

fn exits(graph: &Graph) -> Vec<ExitKind> {
    graph.exits.iter().map(|exit| exit.kind).collect()
}

use EdgeKind::{CallReturn, FallThrough, Jump, Taken};

#[test]
fn branches_calls_and_loops() {
    let sample = Sample::new(|a| {
        let (mut outer, mut inner, mut out) =
            (a.create_label(), a.create_label(), a.create_label());
        a.xor(eax, eax)?;
        a.set_label(&mut outer)?; // 1
        a.mov(ecx, 5)?;
        a.set_label(&mut inner)?; // 2
        a.call(OTHER)?;
        a.dec(ecx)?; // 3
        a.jne(inner)?;
        a.dec(edi)?; // 4
        a.je(out)?;
        a.jmp(outer)?; // 5
        a.set_label(&mut out)?; // 6
        a.ret()
    });
    let graph = sample.graph();
    assert!(graph.is_complete());
    assert_eq!(
        edges(&graph),
        [
            (0, 1, FallThrough),
            (1, 2, FallThrough),
            (2, 3, CallReturn),
            (3, 2, Taken),
            (3, 4, FallThrough),
            (4, 6, Taken),
            (4, 5, FallThrough),
            (5, 1, Jump),
        ]
    );
    assert_eq!(exits(&graph), [ExitKind::Return]);
    let loops: Vec<_> =
        graph.loops.iter().map(|each| (each.header, each.blocks.clone(), each.depth)).collect();
    assert_eq!(loops, [(1, vec![1, 2, 3, 4, 5], 1), (2, vec![2, 3], 2)]);
    assert_eq!(graph.calls.len(), 1);
    assert_eq!(graph.return_addresses(), [graph.blocks[3].start]);
    let start = |block: usize| graph.blocks[block].start;
    assert_eq!(graph.targets(), [BASE, start(1), start(2), start(6)]);
    assert_eq!(graph.block_of(start(2) + 1), Some(2));
    assert!(!graph.is_boundary(start(2) + 1));
    assert_eq!(graph.predecessors(2).map(|edge| edge.from).collect::<Vec<_>>(), [1, 3]);
    assert_eq!((graph.loop_depth(3), graph.irreducible), (2, false));
}

#[test]
fn a_jump_to_the_own_entry_is_a_loop() {
    let sample = Sample::new(|a| {
        a.dec(edi)?;
        a.jne(BASE)?;
        a.ret()
    });
    let graph = sample.graph();
    assert_eq!(edges(&graph), [(0, 0, Taken), (0, 1, FallThrough)]);
    assert_eq!(graph.loops[0].depth, 1);
}

#[test]
fn ways_out() {
    let sample = Sample::new(|a| {
        a.test(edi, edi)?;
        a.je(OTHER)?;
        a.cmp(edi, 1)?;
        a.je(OTHER + 0x10)?;
        a.jmp(OTHER)
    });
    let graph = sample.graph();
    let tail = |target, conditional| ExitKind::TailJump { target: Some(target), conditional };
    assert_eq!(exits(&graph), [tail(OTHER, true), tail(OTHER + 0x10, true), tail(OTHER, false)]);
    // Nothing is known to start at the second target: it may be a part of this function that nobody mentioned.
    assert_eq!(graph.unknown.len(), 1);
    assert_eq!(graph.unknown[0].why, Why::StrayJump);
}

#[test]
fn what_does_not_return_ends_the_flow() {
    let mut sample = Sample::new(|a| {
        a.call(OTHER)?;
        a.ud2()
    });
    assert_eq!(exits(&sample.graph()), [ExitKind::Halt]);
    sample
        .callees
        .insert(OTHER, Callee { returns: false, convention: Convention::SystemV, external: false });
    let graph = sample.graph();
    assert_eq!(exits(&graph), [ExitKind::NoReturnCall]);
    assert_eq!(graph.gaps, [Gap { range: BASE + 5..BASE + 7, padding: false }]);
    // Nothing but filling behind a call.
    let sample = Sample::new(|a| {
        a.call(OTHER)?;
        a.nop()
    });
    assert_eq!(exits(&sample.graph()), [ExitKind::NoReturnCall]);
}

/// Four cases, each in eight bytes from `BASE + offset` on.
fn cases(a: &mut CodeAssembler) -> Result<(), IcedError> {
    for value in 0..4 {
        a.mov(eax, value)?;
        a.ret()?;
        a.int3()?;
        a.int3()?;
    }
    Ok(())
}

fn case(sample: &Sample, index: u64) -> u64 {
    BASE + sample.code.len() as u64 - (4 - index) * 8
}

fn all_cases(sample: &Sample) -> Vec<u64> {
    (0..4).map(|index| case(sample, index)).collect()
}

/// Checks that a jump through four entries was understood.
fn assert_four(sample: Sample, absolute: bool) -> Graph {
    let targets = all_cases(&sample);
    let sample = if absolute { sample.absolute(&targets) } else { sample.relative(&targets) };
    // What follows a table must not be taken for a part of it.
    let sample =
        if absolute { sample.absolute(&targets[..1]) } else { sample.relative(&targets[..1]) };
    let graph = sample.graph();
    assert!(graph.is_complete(), "{:?} {:?}", graph.unknown, graph.tables);
    assert_eq!(graph.tables.len(), 1);
    assert_eq!(graph.tables[0].targets, targets);
    assert!(!graph.tables[0].guessed);
    graph
}

#[test]
fn tables_of_distances() {
    let sample = Sample::new(|a| {
        let mut default = a.create_label();
        let mut end = a.create_label();
        a.cmp(edi, 3)?;
        a.ja(default)?;
        a.lea(rdx, ptr(TABLE))?;
        a.mov(edi, edi)?;
        a.movsxd(rax, dword_ptr(rdx + rdi * 4))?;
        a.add(rax, rdx)?;
        a.notrack().jmp(rax)?;
        a.set_label(&mut default)?;
        a.jmp(end)?;
        a.set_label(&mut end)?;
        a.ret()?;
        cases(a)
    });
    assert_four(sample, false);
}

#[test]
fn tables_as_unoptimised_code_uses_them() {
    // The index is in a stack slot, compared there, and shifted by `lea`.
    let sample = Sample::new(|a| {
        let mut default = a.create_label();
        a.cmp(dword_ptr(rbp - 4), 3)?;
        a.ja(default)?;
        a.mov(eax, dword_ptr(rbp - 4))?;
        a.lea(rdx, ptr(rax * 4))?;
        a.lea(rax, ptr(TABLE))?;
        a.mov(eax, dword_ptr(rdx + rax))?;
        a.cdqe()?;
        a.lea(rdx, ptr(TABLE))?;
        a.add(rax, rdx)?;
        a.jmp(rax)?;
        a.set_label(&mut default)?;
        a.ret()?;
        cases(a)
    });
    assert_four(sample, false);
    // The index is spilled, then subtracted from.
    let sample = Sample::new(|a| {
        let mut default = a.create_label();
        a.mov(eax, dword_ptr(rbp - 4))?;
        a.dec(eax)?;
        a.mov(ecx, eax)?;
        a.mov(qword_ptr(rbp - 0x18), rcx)?;
        a.sub(eax, 3)?;
        a.ja(default)?;
        a.mov(rax, qword_ptr(rbp - 0x18))?;
        a.lea(rcx, ptr(TABLE))?;
        a.movsxd(rax, dword_ptr(rcx + rax * 4))?;
        a.add(rax, rcx)?;
        a.jmp(rax)?;
        a.set_label(&mut default)?;
        a.ret()?;
        cases(a)
    });
    assert_four(sample, false);
}

#[test]
fn tables_of_addresses() {
    let sample = Sample::new(|a| {
        let mut default = a.create_label();
        a.sub(edi, 7)?;
        a.cmp(edi, 4)?;
        a.jae(default)?;
        a.jmp(qword_ptr(rdi * 8 + TABLE as i32))?;
        a.set_label(&mut default)?;
        a.ret()?;
        cases(a)
    });
    assert_four(sample, true);
    // A mask instead of a comparison; the table in a register.
    let sample = Sample::new(|a| {
        a.mov(ecx, TABLE as u32)?;
        a.and(edi, 3)?;
        a.jmp(qword_ptr(rcx + rdi * 8))?;
        cases(a)
    });
    assert_four(sample, true);
    // The comparison is of the value with a bias, the index is without it.
    let sample = Sample::new(|a| {
        let mut default = a.create_label();
        a.lea(eax, ptr(rdi - 5))?;
        a.cmp(eax, 3)?;
        a.ja(default)?;
        a.mov(edi, edi)?;
        a.jmp(qword_ptr(rdi * 8 + (TABLE as i32 - 40)))?;
        a.set_label(&mut default)?;
        a.ret()?;
        cases(a)
    });
    assert_four(sample, true);
}

#[test]
fn tables_whose_address_was_moved_out_of_a_loop() {
    let sample = Sample::new(|a| {
        let (mut again, mut default) = (a.create_label(), a.create_label());
        a.push(rbx)?;
        a.lea(rbx, ptr(TABLE))?;
        a.set_label(&mut again)?;
        a.call(OTHER)?;
        a.test(eax, eax)?;
        a.je(again)?;
        a.cmp(eax, 3)?;
        a.ja(default)?;
        a.movsxd(rax, dword_ptr(rbx + rax * 4))?;
        a.add(rax, rbx)?;
        a.jmp(rax)?;
        a.set_label(&mut default)?;
        a.jmp(again)?;
        cases(a)
    });
    assert_four(sample, false);
}

#[test]
fn a_table_with_an_index_that_is_known() {
    let sample = Sample::new(|a| {
        a.movsxd(rax, dword_ptr(TABLE))?;
        a.lea(rsi, ptr(TABLE))?;
        a.add(rax, rsi)?;
        a.jmp(rax)?;
        cases(a)
    });
    let target = case(&sample, 2);
    let graph = sample.relative(&[target]).graph();
    assert!(graph.is_complete());
    assert_eq!(graph.tables[0].targets, [target]);
}

#[test]
fn a_function_from_an_array_of_records_is_called_last() {
    let sample = Sample::new(|a| {
        a.shl(rdi, 4)?;
        a.mov(rax, qword_ptr(rdi + (TABLE as i32 + 8)))?;
        a.jmp(rax)
    });
    let tail = ExitKind::TailJump { target: None, conditional: false };
    assert_eq!((exits(&sample.graph()), sample.graph().is_complete()), (vec![tail], true));
}

#[test]
fn tables_without_a_limit_are_guesses() {
    let sample = Sample::new(|a| {
        a.jmp(qword_ptr(rdi * 8 + TABLE as i32))?;
        cases(a)
    });
    let targets = all_cases(&sample);
    let graph = sample.absolute(&targets).absolute(&[12345]).graph();
    assert_eq!(graph.tables[0].targets, targets);
    assert!(graph.tables[0].guessed);
    assert_eq!(graph.unknown[0].why, Why::GuessedTable);
}

#[test]
fn jumps_through_pointers() {
    // A linkage stub, and a method called last.
    let sample = Sample::new(|a| a.bnd().jmp(qword_ptr(TABLE)));
    let tail = ExitKind::TailJump { target: None, conditional: false };
    assert_eq!((exits(&sample.graph()), sample.graph().is_complete()), (vec![tail], true));
    let sample = Sample::new(|a| {
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.mov(rax, qword_ptr(rdi))?;
        a.leave()?;
        a.jmp(qword_ptr(rax + 0x18))
    });
    assert_eq!((exits(&sample.graph()), sample.graph().is_complete()), (vec![tail], true));
    // With something on the stack it is no call of another function.
    let sample = Sample::new(|a| {
        a.push(rbp)?;
        a.jmp(qword_ptr(rax + 0x18))
    });
    assert_eq!(sample.graph().unknown[0].why, Why::IndirectJump);
    // With code that nothing leads to it may be that code that it jumps to.
    let sample = Sample::new(|a| {
        a.jmp(rax)?;
        cases(a)
    });
    let graph = sample.graph();
    assert_eq!(graph.unknown[0].why, Why::IndirectJump);
    assert!(!graph.gaps[0].padding);
    assert!(
        Liveness::of(&graph, Convention::SystemV).before(BASE).registers.contains(Register::R11)
    );
}

#[test]
fn linkage_stubs_go_on_the_first_time() {
    let lazy = BASE + 7;
    let sample = Sample::new(|a| {
        a.jmp(qword_ptr(TABLE))?;
        // The assembler would push a byte; linkers write all four.
        a.db(&[0x68, 7, 0, 0, 0])?;
        a.jmp(OTHER)
    });
    let graph = sample.graph();
    assert!(graph.is_complete());
    assert!(graph.gaps.is_empty());
    assert_eq!(edges(&graph), [(0, 1, Jump)]);
    assert_eq!(graph.blocks[1].start, lazy);
    let tail = |target| ExitKind::TailJump { target, conditional: false };
    assert_eq!(exits(&graph), [tail(None), tail(Some(OTHER))]);
}

#[test]
fn parts_elsewhere_and_landing_pads() {
    let mut sample = Sample::new(|a| {
        let (mut cold, mut back) = (a.create_label(), a.create_label());
        a.test(edi, edi)?;
        a.je(cold)?;
        a.set_label(&mut back)?;
        a.ret()?;
        a.nop()?; // not in the function
        a.set_label(&mut cold)?;
        a.inc(edi)?;
        a.jmp(back)?;
        a.mov(rdi, rax)?; // landing pad
        a.ud2()
    });
    let end = BASE + sample.code.len() as u64;
    sample.pads = vec![end - 5];
    let cold = end - 5 - 4;
    let function = Function {
        ranges: vec![BASE..cold - 1, cold..end],
        convention: Convention::SystemV,
        extra_entries: Vec::new(),
    };
    let graph = graph(&sample, &function);
    assert!(graph.is_complete() && graph.gaps.is_empty(), "{graph:?}");
    assert_eq!(edges(&graph), [(0, 2, Taken), (0, 1, FallThrough), (2, 1, Jump)]);
    assert_eq!(graph.landing_pads, [3]);
    assert!(graph.targets().contains(&(end - 5)));
}

#[test]
fn several_entries_make_a_cycle_without_a_header() {
    let sample = Sample::new(|a| {
        let (mut one, mut other) = (a.create_label(), a.create_label());
        a.test(edi, edi)?;
        a.je(other)?;
        a.set_label(&mut one)?;
        a.dec(edi)?;
        a.set_label(&mut other)?;
        a.dec(esi)?;
        a.jne(one)?;
        a.ret()
    });
    let graph = sample.graph();
    assert!(graph.irreducible && graph.loops.is_empty());
    // Entered also at the second block, the first part of the cycle is no longer only reached from the top.
    let mut function = sample.function();
    function.extra_entries.push(graph.blocks[1].start);
    let graph = super::graph(&sample, &function);
    assert_eq!(graph.entries, [0, 1]);
    assert!(graph.targets().contains(&graph.blocks[1].start));
}

#[test]
fn calls_into_the_own_middle_are_entries() {
    let sample = Sample::new(|a| {
        let mut inner = a.create_label();
        a.call(inner)?;
        a.ret()?;
        a.set_label(&mut inner)?;
        a.xor(r11d, r11d)?;
        a.ret()
    });
    let graph = sample.graph();
    assert!(graph.calls_itself_inside);
    assert_eq!(graph.entries, [0, 2]);
    let liveness = Liveness::of(&graph, Convention::SystemV);
    assert!(!liveness.is_free(graph.last(2).ip(), Register::R11), "the caller may want it");
}

#[test]
fn code_that_overlaps() {
    // A jump over the lock prefix of the instruction that is otherwise next.
    let sample = Sample::new(|a| {
        a.db(&[0x74, 0x01, 0xf0])?;
        a.inc(dword_ptr(rdi))?;
        a.ret()
    });
    let graph = sample.graph();
    assert!(graph.is_complete());
    assert_eq!(
        edges(&graph),
        [(0, 2, Taken), (0, 1, FallThrough), (1, 3, FallThrough), (2, 3, FallThrough)]
    );
    assert_eq!(graph.block_of(BASE + 3), Some(2));
}

#[test]
fn what_is_no_instruction_is_said() {
    let sample = Sample::new(|a| {
        a.test(edi, edi)?;
        a.je(BASE + 5)?;
        a.ret()?;
        a.db(&[0x06, 0x06])
    });
    let graph = sample.graph();
    assert_eq!(graph.unknown, [Unknown { address: BASE + 5, why: Why::Undecodable }]);
    assert_eq!(graph.gaps, [Gap { range: BASE + 5..BASE + 7, padding: false }]);
}
