//! Whether the clone is still as it was written: checked when something has faulted in it. A fault of the program's
//! own comes from an instruction of the program's own, and that stands in the clone as it does in the
//! program; or from the program's stack, or from where a branch loads its target.

use crate::clone::base::instructions::{LONGEST_INSTRUCTION, names_gs_base};
use crate::clone::base::program;
use crate::clone::cache::code_cache::CodeCache;
use crate::clone::cache::pieces::{Cold, Kind};
use crate::clone::cache::program_state::{block_at, kind_and_length, locate, piece_at};
use iced_x86::{Decoder, DecoderOptions};

/// Whether a fault at a place is one that the program would have had. `is_illegal` means that the
/// processor did not know the instruction.
pub fn is_explained(cache: &CodeCache, place: u64, is_illegal: bool) -> bool {
    // What was flushed is not executed any more; and where changes go unseen, the two may differ.
    if !cache.is_current(place) || cache.is_blind {
        return true;
    }
    if let Some((_, kind)) = piece_at(cache, place) {
        let writes = matches!(kind, Cold::CallThunk | Cold::CallIndirectThunk);
        return writes && !is_illegal;
    }
    let Some(block) = block_at(cache, place) else { return false };
    let (original, kind, offset, length, _) = locate(block, place);
    match kind {
        Kind::Copied => offset == 0 && is_as_made(original, place, length),
        Kind::Far | Kind::Segment => true,
        Kind::Call
        | Kind::CallIndirect
        | Kind::CallSegment
        | Kind::Jump
        | Kind::JumpSegment
        | Kind::Return
        | Kind::Arm => !is_illegal,
        Kind::Branch
        | Kind::Loop
        | Kind::SystemCall
        | Kind::Entry
        | Kind::Onward
        | Kind::Refused
        | Kind::Snippet
        | Kind::Way => false,
    }
}

/// Whether a thread at a place has executed nothing of its block but what was made: it is about to begin with an
/// instruction, and the copies before it are copies.
pub fn is_certain(cache: &CodeCache, place: u64) -> bool {
    if piece_at(cache, place).is_some() {
        return false;
    }
    let Some(block) = block_at(cache, place) else { return false };
    let (mut original, mut copy) = (block.start, block.code);
    for record in block.records.chunks_exact(2) {
        if copy >= place {
            break;
        }
        let (kind, length) = kind_and_length(record);
        if kind == Kind::Copied && !is_as_made(original, copy, length) {
            return false;
        }
        original += u64::from(length);
        copy += u64::from(record[1]);
    }
    copy == place
}

/// Whether an instruction stands in the clone as it does in the program.
fn is_as_made(original: u64, place: u64, length: u8) -> bool {
    let mut bytes = [0; LONGEST_INSTRUCTION];
    let read = if let Some(all) = program::read(original) {
        bytes = all;
        LONGEST_INSTRUCTION
    } else {
        // It may be the last one before memory that is not there.
        let ahead = (original..).map(program::read::<u8>).take(LONGEST_INSTRUCTION);
        bytes.iter_mut().zip(ahead.map_while(|byte| byte)).map(|(to, byte)| *to = byte).count()
    };
    // SAFETY: a place in the clone, where there is always more behind.
    let copy = unsafe { &*(place as *const [u8; LONGEST_INSTRUCTION]) };
    is_copy(original, &bytes[..read], copy, length.into())
}

/// Whether a copy is one of the instruction that bytes of the program's begin with, of a length that it had
/// when it was copied.
fn is_copy(address: u64, bytes: &[u8], copy: &[u8; LONGEST_INSTRUCTION], length: usize) -> bool {
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return copy.starts_with(&[0x0f, 0x0b]) || copy == bytes;
    }
    if names_gs_base(instruction.code()) {
        return true;
    }
    if instruction.len() != length {
        return false;
    }
    // A distance is another one.
    let distance = match instruction.is_ip_rel_memory_operand() {
        true => decoder.get_constant_offsets(&instruction).displacement_offset(),
        false => length,
    };
    let rest = (distance + 4).min(length);
    copy[..distance] == bytes[..distance] && copy[rest..length] == bytes[rest..length]
}
