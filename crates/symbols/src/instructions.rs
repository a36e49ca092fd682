//! The instructions of a module, from its file: where they are, what they do to the flow of control,
//! and how they read.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use crate::elf::Elf;
use crate::listing::Writer;

/// Instructions, in columns.
#[derive(Debug, Default)]
pub struct Instructions {
    /// Where each begins.
    pub offsets: Vec<u64>,
    /// Its bytes.
    pub sizes: Vec<u8>,
    /// What it does to the flow of control: the value of a [`Transfer`].
    pub transfers: Vec<u8>,
    /// Where a direct branch or call leads, and 0 for all others.
    pub targets: Vec<u64>,
}

/// What an instruction does to the flow of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transfer {
    /// It goes on with the next one.
    None = 0,
    /// It goes on with the next one or elsewhere.
    Conditional = 1,
    /// It goes elsewhere.
    Jump = 2,
    /// It calls a function.
    Call = 3,
    /// It goes to a place that is computed.
    IndirectJump = 4,
    /// It calls a function that is computed.
    IndirectCall = 5,
    /// It returns.
    Return = 6,
}

impl Transfer {
    fn of(instruction: &Instruction) -> Self {
        match instruction.flow_control() {
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                if is_direct(instruction) { Self::Conditional } else { Self::None }
            }
            FlowControl::UnconditionalBranch => Self::Jump,
            FlowControl::IndirectBranch => Self::IndirectJump,
            FlowControl::Call if is_direct(instruction) => Self::Call,
            FlowControl::IndirectCall => Self::IndirectCall,
            FlowControl::Return => Self::Return,
            // System calls come back as if they were any instruction.
            FlowControl::Call
            | FlowControl::Next
            | FlowControl::Interrupt
            | FlowControl::Exception => Self::None,
        }
    }
}

fn is_direct(instruction: &Instruction) -> bool {
    matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    )
}

/// Calls back for each instruction of pieces of code, each an offset and a size. Pieces that are not
/// in the file are left out.
fn each(elf: &Elf, pieces: &[(u64, u64)], mut found: impl FnMut(usize, &Instruction)) {
    for (index, &(offset, size)) in pieces.iter().enumerate() {
        let Some(bytes) = elf.at_address(offset, size) else { continue };
        let mut decoder = Decoder::with_ip(64, &bytes, offset, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            found(index, &instruction);
        }
    }
}

/// Reads the instructions of pieces of code.
pub(crate) fn read(elf: &Elf, pieces: &[(u64, u64)]) -> Instructions {
    let mut all = Instructions::default();
    each(elf, pieces, |_, instruction| {
        let transfer = Transfer::of(instruction);
        let leads = matches!(transfer, Transfer::Conditional | Transfer::Jump | Transfer::Call);
        all.offsets.push(instruction.ip());
        all.sizes.push(instruction.len() as u8);
        all.transfers.push(transfer as u8);
        all.targets.push(if leads { instruction.near_branch_target() } else { 0 });
    });
    all
}

/// Writes the instructions of pieces of code for people: of each piece, the offsets and the texts.
pub(crate) fn disassemble(elf: &Elf, pieces: &[(u64, u64)]) -> Vec<Vec<(u64, String)>> {
    let mut writer = Writer::default();
    let mut all = vec![Vec::new(); pieces.len()];
    each(elf, pieces, |index, instruction| {
        all[index].push((instruction.ip(), writer.text(instruction)));
    });
    all
}
