//! Bytes that are no program: nothing may panic, and what is said must fit together.

use proptest::prelude::*;
use weft_code::{
    Callee, Convention, EdgeKind, Function, Liveness, Program, graph, live_at_entry, relocate,
    sweep,
};

const BASE: u64 = 0x1000;

struct Bytes(Vec<u8>);

impl Program for Bytes {
    fn bytes(&self, address: u64) -> &[u8] {
        self.0.get(address.wrapping_sub(BASE) as usize..).unwrap_or_default()
    }

    fn is_code(&self, address: u64) -> bool {
        !self.bytes(address).is_empty()
    }

    fn callee(&self, address: u64) -> Option<Callee> {
        let convention =
            if address.is_multiple_of(2) { Convention::SystemV } else { Convention::Go };
        address.is_multiple_of(3).then_some(Callee {
            returns: !address.is_multiple_of(5),
            convention,
            external: address.is_multiple_of(7),
        })
    }

    fn landing_pads(&self, function: &Function) -> Vec<u64> {
        vec![function.entry() + 7, 3]
    }
}

/// Bytes that make branches, calls and indirect jumps more often than chance would.
fn code() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => prop::collection::vec(any::<u8>(), 1..6),
        2 => (0x70..0x80_u8, any::<u8>()).prop_map(|(opcode, distance)| vec![opcode, distance]),
        1 => any::<u8>().prop_map(|distance| vec![0xeb, distance]),
        1 => any::<i8>().prop_map(|distance| {
            let mut call = vec![0xe8];
            call.extend(i32::from(distance).to_le_bytes());
            call
        }),
        1 => any::<u8>().prop_map(|place| vec![0xff, 0x24, 0xc5, place, 0x10, 0, 0]),
        1 => Just(vec![0xff, 0xe0]),
        1 => Just(vec![0xc3]),
        1 => Just(vec![0x83, 0xff, 0x07, 0x77, 0x10]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn graphs_fit_together(bytes in code(), second in 0..200_u64, size in 0..300_u64, extra in 0..300_u64) {
        let program = Bytes(bytes);
        let mut function = Function::new(BASE..BASE + size, Convention::SystemV);
        function.ranges.push(BASE + size + second..BASE + size + second + 40);
        function.extra_entries.push(BASE + extra);
        let graph = graph(&program, &function);
        prop_assert!(graph.blocks.is_sorted_by_key(|block| block.start));
        for (index, block) in graph.blocks.iter().enumerate() {
            let instructions = graph.instructions(index);
            prop_assert_eq!(instructions[0].ip(), block.start);
            prop_assert_eq!(graph.last(index).next_ip(), block.end);
            for pair in instructions.windows(2) {
                prop_assert_eq!(pair[0].next_ip(), pair[1].ip());
            }
            for instruction in instructions {
                prop_assert_eq!(graph.block_of(instruction.ip()), Some(index));
                prop_assert!(graph.gaps.iter().all(|gap| !gap.range.contains(&instruction.ip())));
            }
            for edge in graph.successors(index) {
                prop_assert_eq!(edge.from, index);
                prop_assert!(graph.predecessors(edge.to).any(|each| each == edge));
                if matches!(edge.kind, EdgeKind::FallThrough | EdgeKind::CallReturn) {
                    prop_assert_eq!(graph.blocks[edge.to].start, block.end);
                }
            }
        }
        // Every block is an entry, or something leads there.
        for index in 0..graph.blocks.len() {
            prop_assert!(
                graph.entries.contains(&index)
                    || graph.landing_pads.contains(&index)
                    || graph.predecessors(index).next().is_some()
            );
        }
        for convention in [Convention::SystemV, Convention::Go, Convention::Unknown] {
            live_at_entry((program.bytes(BASE), BASE), BASE, convention, 24);
            let liveness = Liveness::of(&graph, convention);
            for index in 0..graph.blocks.len() {
                let all = liveness.of_block(index);
                for (place, instruction) in graph.instructions(index).iter().enumerate() {
                    prop_assert_eq!(liveness.before(instruction.ip()), all[place]);
                    prop_assert_eq!(liveness.after(instruction.ip()), all[place + 1]);
                }
            }
        }
    }

    #[test]
    fn sweeps_find_what_they_index(bytes in code(), starts in prop::collection::btree_set(0..300_u64, 0..8)) {
        let starts: Vec<u64> = starts.into_iter().map(|start| BASE + start).collect();
        let found = sweep(&bytes, BASE, &starts);
        prop_assert!(found.branches.is_sorted_by_key(|branch| branch.source));
        prop_assert_eq!(found.branches_into(0..u64::MAX).count(), found.branches.iter().filter(|branch| branch.target != u64::MAX).count());
        for branch in &found.branches {
            prop_assert!(found.branches_into(branch.target..branch.target.saturating_add(1)).any(|each| each == branch));
            prop_assert!(!found.branches_from(branch.source..branch.source + 1).is_empty());
        }
    }

    #[test]
    fn copies_of_anything(bytes in code(), to in any::<u64>()) {
        if let Ok(copy) = relocate(&bytes, BASE, to & 0x7fff_ffff_f000, &|_, _| None) {
            prop_assert!(copy.map.is_sorted_by_key(|moved| moved.copy));
            prop_assert!(copy.map.iter().all(|moved| moved.before <= moved.entered && moved.entered <= moved.copy));
        }
    }
}
