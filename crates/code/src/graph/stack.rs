//! How far the stack pointer is from where it was at the entry.

use alloc::vec;
use alloc::vec::Vec;

use iced_x86::{Code, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register as Name};

use super::Graph;
use crate::Register;
use crate::effects::Effects;

/// The stack and the frame pointer, counted from the stack pointer at the entry; `None` if not known.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Height {
    stack: Option<i64>,
    frame: Option<i64>,
}

const LOST: Height = Height { stack: None, frame: None };

/// For each block, whether the stack is at its last instruction as it was at the entry: only then can a jump from there
/// be one to another function.
pub(super) fn balanced_ends(graph: &Graph) -> Vec<bool> {
    let mut factory = InstructionInfoFactory::new();
    let mut starts: Vec<Option<Height>> = vec![None; graph.blocks.len()];
    let mut balanced = vec![false; graph.blocks.len()];
    let mut pending = Vec::new();
    for &entry in &graph.entries {
        // Only the first entry is surely entered by a call.
        starts[entry] = Some(if graph.blocks[entry].start == graph.function.entry() {
            Height { stack: Some(0), frame: None }
        } else {
            LOST
        });
        pending.push(entry);
    }
    for &pad in &graph.landing_pads {
        starts[pad] = Some(LOST);
        pending.push(pad);
    }
    while let Some(block) = pending.pop() {
        let Some(mut height) = starts[block] else { continue };
        let instructions = graph.instructions(block);
        for instruction in &instructions[..instructions.len() - 1] {
            height = step(height, instruction, &mut factory);
        }
        balanced[block] = height.stack == Some(0);
        height = step(height, graph.last(block), &mut factory);
        for edge in graph.successors(block) {
            let merged = match starts[edge.to] {
                None => height,
                Some(old) => Height {
                    stack: old.stack.filter(|&stack| Some(stack) == height.stack),
                    frame: old.frame.filter(|&frame| Some(frame) == height.frame),
                },
            };
            if starts[edge.to] != Some(merged) {
                starts[edge.to] = Some(merged);
                pending.push(edge.to);
            }
        }
    }
    balanced
}

fn step(height: Height, instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Height {
    let moved = |by: i64| height.stack.map(|stack| stack + by);
    let is_register = |operand: u32, name: Name| {
        operand < instruction.op_count()
            && instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand) == name
    };
    match instruction.mnemonic() {
        Mnemonic::Push => {
            Height { stack: moved(i64::from(instruction.stack_pointer_increment())), ..height }
        }
        Mnemonic::Pop if is_register(0, Name::RSP) => Height { stack: None, ..height },
        Mnemonic::Pop => Height {
            stack: moved(i64::from(instruction.stack_pointer_increment())),
            frame: if is_register(0, Name::RBP) { None } else { height.frame },
        },
        Mnemonic::Leave => Height { stack: height.frame.map(|frame| frame + 8), frame: None },
        // A call leaves the stack as it was; that some push and jump is nothing compilers do.
        Mnemonic::Call => height,
        Mnemonic::Add | Mnemonic::Sub if is_register(0, Name::RSP) => {
            let by = instruction.try_immediate(1).ok().map(|value| value as i64);
            let by = if instruction.mnemonic() == Mnemonic::Sub { by.map(|by| -by) } else { by };
            Height { stack: by.and_then(moved), ..height }
        }
        Mnemonic::Mov if is_register(0, Name::RBP) && is_register(1, Name::RSP) => {
            Height { frame: height.stack, ..height }
        }
        Mnemonic::Mov if is_register(0, Name::RSP) && is_register(1, Name::RBP) => {
            Height { stack: height.frame, ..height }
        }
        Mnemonic::Lea if instruction.memory_index() == Name::None => {
            let base = match instruction.memory_base() {
                Name::RSP => height.stack,
                Name::RBP => height.frame,
                _ => None,
            };
            let value = base.map(|base| base + instruction.memory_displacement64() as i64);
            match instruction.op0_register() {
                Name::RSP => Height { stack: value, ..height },
                Name::RBP => Height { frame: value, ..height },
                _ => height,
            }
        }
        _ => {
            let writes = match instruction.code() {
                Code::Syscall => return height,
                _ => Effects::of(instruction, factory).writes,
            };
            Height {
                stack: height.stack.filter(|_| !writes.contains(Register::RSP)),
                frame: height.frame.filter(|_| !writes.contains(Register::RBP)),
            }
        }
    }
}
