//! Where code that has no unwind table finds its caller: its instructions are followed to a return.
//!
//! A function gives its frame back before it returns, and its instructions say how. So nothing needs to be known of
//! where it begins, and it may have no frame pointer. A call is taken to come back with the stack as it was: after one
//! that never does, what follows belongs to something else, and the return that is found there is not that of the
//! function. So there may be several answers, and whoever asks checks them against the stack.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// How many instructions are looked at.
const FARTHEST: usize = 4000;
/// How many different answers are given.
const ANSWERS: usize = 4;

/// A register of the thread, as it is where the search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Base {
    /// `rsp`.
    StackPointer,
    /// `rbp`.
    FramePointer,
}

/// An address: a register and what to add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The register.
    pub base: Base,
    /// What to add.
    pub offset: i64,
}

impl Place {
    fn plus(self, more: i64) -> Self {
        Self { base: self.base, offset: self.offset.wrapping_add(more) }
    }
}

/// A value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// An address, or the register itself.
    Is(Place),
    /// What is in memory there.
    In(Place),
}

/// How a function returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// Where the return address is.
    pub at: Place,
    /// The caller's stack pointer.
    pub stack_pointer: Place,
    /// The caller's frame pointer, if it can be known.
    pub frame_pointer: Option<Known>,
}

/// How many bytes an instruction has at most.
pub const LONGEST: usize = 15;

/// The ways in which code returns, the nearest first. `read` gives the bytes at an address, and how many there are.
pub fn returns(from: u64, mut read: impl FnMut(u64) -> ([u8; LONGEST], usize)) -> Vec<Return> {
    let start = State {
        stack_pointer: Place { base: Base::StackPointer, offset: 0 },
        frame_pointer: Some(Known::Is(Place { base: Base::FramePointer, offset: 0 })),
        stored: BTreeMap::new(),
    };
    let mut waiting = VecDeque::from([(from, start)]);
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    while let Some((mut at, mut state)) = waiting.pop_front() {
        while seen.len() < FARTHEST && seen.insert(at) {
            let (bytes, length) = read(at);
            let bytes = bytes.get(..length).unwrap_or(&bytes);
            let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                break;
            }
            match instruction.flow_control() {
                FlowControl::Return => {
                    let way = state.at_return(&instruction);
                    if instruction.mnemonic() == Mnemonic::Ret && !found.contains(&way) {
                        found.push(way);
                    }
                    break;
                }
                FlowControl::UnconditionalBranch => {
                    at = instruction.near_branch_target();
                    continue;
                }
                FlowControl::ConditionalBranch => {
                    waiting.push_back((instruction.near_branch_target(), state.clone()));
                }
                // A call gives the stack back as it was, and keeps the frame pointer.
                FlowControl::Call | FlowControl::IndirectCall => {
                    at = instruction.next_ip();
                    continue;
                }
                FlowControl::Next => {}
                _ => break,
            }
            if !state.step(&instruction) {
                break;
            }
            at = instruction.next_ip();
        }
        if found.len() >= ANSWERS {
            break;
        }
    }
    found
}

/// What is known on one path.
#[derive(Clone)]
struct State {
    stack_pointer: Place,
    frame_pointer: Option<Known>,
    /// What was pushed on this path.
    stored: BTreeMap<Place, Option<Known>>,
}

impl State {
    fn at_return(&self, instruction: &Instruction) -> Return {
        let more =
            if instruction.op_count() == 1 { i64::from(instruction.immediate16()) } else { 0 };
        Return {
            at: self.stack_pointer,
            stack_pointer: self.stack_pointer.plus(8 + more),
            frame_pointer: self.frame_pointer,
        }
    }

    fn load(&self, from: Place) -> Option<Known> {
        self.stored.get(&from).copied().unwrap_or(Some(Known::In(from)))
    }

    /// The address of a memory operand.
    fn place(&self, instruction: &Instruction) -> Option<Place> {
        if instruction.memory_index() != Register::None {
            return None;
        }
        let base = match instruction.memory_base() {
            Register::RSP => self.stack_pointer,
            Register::RBP => self.frame()?,
            _ => return None,
        };
        Some(base.plus(instruction.memory_displacement64() as i64))
    }

    fn frame(&self) -> Option<Place> {
        match self.frame_pointer {
            Some(Known::Is(place)) => Some(place),
            _ => None,
        }
    }

    /// Does an instruction; `false` if the stack pointer is not known behind it.
    fn step(&mut self, instruction: &Instruction) -> bool {
        let (first, second) = (instruction.op0_register(), instruction.op1_register());
        match instruction.mnemonic() {
            Mnemonic::Push => {
                self.stack_pointer = self.stack_pointer.plus(-8);
                let value = (first == Register::RBP).then_some(self.frame_pointer).flatten();
                self.stored.insert(self.stack_pointer, value);
                return true;
            }
            Mnemonic::Pop => {
                if first == Register::RBP {
                    self.frame_pointer = self.load(self.stack_pointer);
                }
                self.stack_pointer = self.stack_pointer.plus(8);
                return first != Register::RSP;
            }
            Mnemonic::Leave => {
                let Some(frame) = self.frame() else { return false };
                self.frame_pointer = self.load(frame);
                self.stack_pointer = frame.plus(8);
                return true;
            }
            Mnemonic::Pushfq | Mnemonic::Popfq => {
                let is_push = instruction.mnemonic() == Mnemonic::Pushfq;
                self.stack_pointer = self.stack_pointer.plus(if is_push { -8 } else { 8 });
                return true;
            }
            _ => {}
        }
        let writes = |register| instruction.op0_kind() == OpKind::Register && first == register;
        if instruction.mnemonic() == Mnemonic::Mov && instruction.op0_kind() == OpKind::Memory {
            if let Some(place) = self.place(instruction) {
                let value = (second == Register::RBP).then_some(self.frame_pointer).flatten();
                self.stored.insert(place, value);
            }
            return true;
        }
        if writes(Register::RSP) {
            let new = match instruction.mnemonic() {
                Mnemonic::Mov if second == Register::RBP => self.frame(),
                Mnemonic::Lea => self.place(instruction),
                _ => self.sum(instruction).map(|more| self.stack_pointer.plus(more)),
            };
            let Some(new) = new else { return is_compared(instruction) };
            self.stack_pointer = new;
        } else if writes(Register::RBP) && !is_compared(instruction) {
            self.frame_pointer = match instruction.mnemonic() {
                Mnemonic::Mov if second == Register::RSP => Some(Known::Is(self.stack_pointer)),
                Mnemonic::Mov if instruction.op1_kind() == OpKind::Memory => {
                    self.place(instruction).and_then(|place| self.load(place))
                }
                Mnemonic::Lea => self.place(instruction).map(Known::Is),
                _ => match (self.frame(), self.sum(instruction)) {
                    (Some(frame), Some(more)) => Some(Known::Is(frame.plus(more))),
                    _ => None,
                },
            };
        } else if first.full_register() == Register::RBP
            && instruction.op0_kind() == OpKind::Register
            && !is_compared(instruction)
        {
            self.frame_pointer = None;
        } else if instruction.mnemonic() == Mnemonic::Xchg
            && [first, second].iter().any(|one| one.full_register() == Register::RSP)
        {
            return false;
        }
        true
    }

    /// What an addition or a subtraction adds.
    fn sum(&self, instruction: &Instruction) -> Option<i64> {
        let is_constant =
            matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
        let amount = is_constant.then(|| instruction.immediate(1) as i64)?;
        match instruction.mnemonic() {
            Mnemonic::Add => Some(amount),
            Mnemonic::Sub => Some(amount.wrapping_neg()),
            _ => None,
        }
    }
}

/// Whether the first operand is only looked at.
fn is_compared(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test)
}

/// Whether bytes that end where a call returns to can be that call.
pub fn ends_with_call(bytes: &[u8]) -> bool {
    // The shortest is 2 bytes long, the longest that compilers make is 8.
    (2..=8).filter_map(|length| bytes.get(bytes.len().checked_sub(length)?..)).any(|last| {
        let instruction = Decoder::new(64, last, DecoderOptions::NONE).decode();
        instruction.len() == last.len()
            && matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
            && instruction.mnemonic() == Mnemonic::Call
    })
}
