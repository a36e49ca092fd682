//! Copies of instructions that mean elsewhere what they meant in place.
//!
//! A copy reads the same memory, branches to the same places and, if it is a call, pushes the same return address: the
//! program cannot tell it from the original, and neither can an unwinder. Two things differ and cannot be helped: the
//! address that a fault reports, and the instruction pointer that x87 remembers.

mod aim;
mod copy;
mod far;
mod immovable;
mod output;

use alloc::boxed::Box;
use alloc::vec::Vec;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use aim::Source;
pub use aim::{Aim, Label, Moved};
pub use immovable::{Immovable, Reason};
use output::{Output, Place};

/// Copied code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocated {
    /// The code, then the constants that it needs.
    pub bytes: Vec<u8>,
    /// How many of the bytes are code.
    pub code_length: usize,
    /// Where the jumps are that are no copies.
    pub jumps: Vec<u64>,
    /// Where each instruction went, in the order in which they were copied.
    pub map: Vec<Moved>,
    /// Where each label is, in the order in which they were made.
    pub labels: Vec<u64>,
    /// Whether the last instruction can be followed by another.
    pub falls_through: bool,
}

impl Relocated {
    /// Where the instruction at an original address went.
    pub fn moved(&self, original: u64) -> Option<&Moved> {
        self.map.iter().find(|moved| moved.original == original)
    }
}

type Code<'a> = Box<dyn FnMut(u64) -> Vec<u8> + 'a>;

enum Item<'a> {
    Insert { code: Code<'a>, on_jump: bool },
    Copy(Source),
    Stay(u64),
    Jump(Aim),
    Label,
}

/// Puts together a copy from original instructions and code between them.
#[derive(Default)]
pub struct Relocator<'a> {
    items: Vec<Item<'a>>,
    labels: usize,
}

impl<'a> Relocator<'a> {
    /// With nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Inserts code that belongs to the instruction that is copied next, and that runs however it is reached. The
    /// closure gets the address at which its bytes will be. It is called once.
    pub fn insert(&mut self, code: impl FnMut(u64) -> Vec<u8> + 'a) {
        self.items.push(Item::Insert { code: Box::new(code), on_jump: true });
    }

    /// Inserts code that belongs to the instruction that is copied next, and that jumps from inside the copy pass by:
    /// what is done at a function's entry must not be done when a loop returns there. Calls do run it.
    pub fn insert_on_fall(&mut self, code: impl FnMut(u64) -> Vec<u8> + 'a) {
        self.items.push(Item::Insert { code: Box::new(code), on_jump: false });
    }

    /// Copies the instruction at `address`, whose bytes come first in `bytes`. Says how long it is.
    pub fn copy(&mut self, address: u64, bytes: &[u8]) -> Result<usize, Immovable> {
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return Err(Immovable { address, reason: Reason::Undecodable });
        }
        let length = instruction.len();
        let mut kept = [0; 15];
        kept[..length].copy_from_slice(&bytes[..length]);
        self.items.push(Item::Copy(Source { instruction, bytes: kept }));
        Ok(length)
    }

    /// Leaves the instruction at `address` where it is: its copy is a jump there. What brings control back is up to the
    /// caller. A call that stays pushes its own return address, and the processor can tell where it will return to.
    pub fn stay(&mut self, address: u64) {
        self.items.push(Item::Stay(address));
    }

    /// Jumps.
    pub fn jump(&mut self, aim: Aim) {
        self.items.push(Item::Jump(aim));
    }

    /// Marks what comes next.
    pub fn label(&mut self) -> Label {
        self.items.push(Item::Label);
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// Lays everything out at `to`. `redirect` is asked for each direct branch, with its address and its target, where it
    /// shall go; without an answer it goes to the copy of its target if there is one and to the target itself if not.
    pub fn finish(
        self,
        to: u64,
        redirect: &dyn Fn(u64, u64) -> Option<Aim>,
    ) -> Result<Relocated, Immovable> {
        let inside: alloc::collections::BTreeSet<u64> = self
            .items
            .iter()
            .filter_map(|item| match item {
                Item::Copy(source) => Some(source.instruction.ip()),
                Item::Stay(address) => Some(*address),
                _ => None,
            })
            .collect();
        let mut output = Output::new(to);
        let (mut map, mut labels, mut jumps) = (Vec::new(), Vec::new(), Vec::new());
        let mut falls_through = true;
        // Where code that belongs to the next instruction begins, and where jumps enter it.
        let (mut before, mut entered) = (None, None);
        for item in self.items {
            let at = output.here();
            match item {
                Item::Insert { mut code, on_jump } => {
                    before = before.or(Some(at));
                    output.raw(&code(at));
                    entered = if on_jump { entered.or(Some(at)) } else { None };
                    falls_through = true;
                }
                Item::Stay(address) => {
                    map.push(Moved {
                        original: address,
                        before: before.take().unwrap_or(at),
                        entered: entered.take().unwrap_or(at),
                        copy: at,
                    });
                    output.jump(address, Place::Aim(Aim::Address(address)));
                    falls_through = false;
                }
                Item::Copy(source) => {
                    map.push(Moved {
                        original: source.instruction.ip(),
                        before: before.take().unwrap_or(at),
                        entered: entered.take().unwrap_or(at),
                        copy: at,
                    });
                    let calls = source.instruction.flow_control() == FlowControl::Call;
                    let aim = |target: u64| match redirect(source.instruction.ip(), target) {
                        Some(aim) => Place::Aim(aim),
                        None if !inside.contains(&target) => Place::Aim(Aim::Address(target)),
                        // A function that calls itself is entered anew.
                        None if calls => Place::Aim(Aim::Before(target)),
                        None => Place::Aim(Aim::Entered(target)),
                    };
                    copy::copy(&mut output, &source, &aim)?;
                    falls_through = can_fall_through(&source.instruction);
                }
                Item::Jump(aim) => {
                    jumps.push(at);
                    output.jump(at, Place::Aim(aim));
                    falls_through = false;
                }
                Item::Label => {
                    labels.push(at);
                    falls_through = true;
                }
            }
        }
        let code_length = output.here().wrapping_sub(to) as usize;
        let bytes = output.finish(&map, &labels)?;
        Ok(Relocated { bytes, code_length, jumps, map, labels, falls_through })
    }
}

fn can_fall_through(instruction: &Instruction) -> bool {
    !matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
    )
}

/// Copies the whole instructions of `bytes`, which lie at `from`, to `to`. If the last of them can be followed by
/// another, a jump back to what follows the originals is added; `redirect` may aim that elsewhere too, and is then asked
/// with the end of the run as both source and target.
pub fn relocate(
    bytes: &[u8],
    from: u64,
    to: u64,
    redirect: &dyn Fn(u64, u64) -> Option<Aim>,
) -> Result<Relocated, Immovable> {
    let mut relocator = Relocator::new();
    let mut offset = 0;
    let mut falls_through = true;
    while offset < bytes.len() {
        offset += relocator.copy(from.wrapping_add(offset as u64), &bytes[offset..])?;
        if let Some(Item::Copy(source)) = relocator.items.last() {
            falls_through = can_fall_through(&source.instruction);
        }
    }
    if falls_through {
        let end = from.wrapping_add(offset as u64);
        relocator.jump(redirect(end, end).unwrap_or(Aim::Address(end)));
    }
    let mut relocated = relocator.finish(to, redirect)?;
    relocated.falls_through = falls_through;
    Ok(relocated)
}

#[cfg(test)]
mod tests;
