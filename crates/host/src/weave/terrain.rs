//! One function of a module, for the planner.

use super::functions::Known;
use super::padding::is_filler;
use super::text::ModuleText;
use super::window::{Body, Jump, Spot, Step, Terrain};
use iced_x86::{FlowControl, Instruction, Mnemonic};
use std::collections::BTreeSet;
use std::ops::Range;
use weft_code::{BranchKind, Convention, Function, Gap, Graph, Program, Sweep};

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
    fn step(&self, at: u64) -> Option<Step> {
        let instruction = self.text.decode(at)?;
        let flow = instruction.flow_control();
        let is_system_call = matches!(
            instruction.mnemonic(),
            Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int | Mnemonic::Int1
        );
        Some(Step {
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
            body.steps.push(Step { stays: step.returns, ..step });
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
            .chain(body.steps.iter().filter(|step| step.returns).map(Step::end))
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
