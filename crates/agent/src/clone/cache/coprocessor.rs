//! Where the last instruction of the x87 was: the processor knows it in the clone. What saves it is followed
//! by a visit to the agent, which writes the program's address in its place.

use crate::clone::base::instructions::LONGEST_INSTRUCTION;
use crate::clone::base::{program, system};
use crate::clone::cache::code_cache::CodeCache;
use crate::clone::cache::program_state;
use crate::clone::thread::record::Thread;
use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Register};

/// Where, in what an instruction saves, the address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Whole(u64),
    Half(u64),
}

/// What `fxsave64` and the kernel write.
const USUAL: Form = Form::Whole(8);

fn form(code: Code) -> Option<Form> {
    match code {
        Code::Fxsave64_m512byte | Code::Xsave64_mem | Code::Xsavec64_mem | Code::Xsaveopt64_mem => {
            Some(USUAL)
        }
        Code::Fxsave_m512byte | Code::Xsave_mem | Code::Xsavec_mem | Code::Xsaveopt_mem => {
            Some(Form::Half(8))
        }
        Code::Fnstenv_m28byte | Code::Fnsave_m108byte => Some(Form::Half(12)),
        _ => None,
    }
}

/// Whether an instruction saves such an address.
pub fn is_saving(code: Code) -> bool {
    form(code).is_some()
}

/// The instruction at an address of the program has been executed, and has saved what it saves: puts the program's
/// address there. Returns the address of the next instruction.
pub fn saved(cache: &CodeCache, thread: &Thread, address: u64) -> u64 {
    let bytes = program::read::<[u8; LONGEST_INSTRUCTION]>(address).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if let Some(form) = form(instruction.code())
        && let Some(at) = memory(thread, &instruction)
    {
        put_original(cache, at, form);
    }
    instruction.next_ip()
}

/// The same for what the kernel has saved.
pub fn put_original_in_frame(cache: &CodeCache, vectors: u64) {
    if vectors != 0 {
        put_original(cache, vectors, USUAL);
    }
}

fn put_original(cache: &CodeCache, at: u64, form: Form) {
    match form {
        Form::Whole(offset) => {
            let saved = program::read::<u64>(at + offset).unwrap_or_default();
            if let Some(original) = program_state::original(cache, saved) {
                program::write(at + offset, original);
            }
        }
        Form::Half(offset) => {
            let saved = program::read::<u32>(at + offset).unwrap_or_default();
            let made = cache.arenas.iter().filter_map(|arena| arena.ending_in(saved));
            let stored = cache.store.all.iter().filter_map(|stored| stored.ending_in(saved));
            let mut wholes = made.chain(stored);
            if let Some(original) = wholes.find_map(|whole| program_state::original(cache, whole)) {
                program::write(at + offset, original as u32);
            }
        }
    }
}

/// Where an instruction's memory is.
fn memory(thread: &Thread, instruction: &Instruction) -> Option<u64> {
    instruction.virtual_address(0, 0, |register, _, _| match register {
        Register::FS => Some(system::fs_base()),
        Register::GS => Some(thread.gs_base.get()),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        _ => {
            let value = thread.general[register.full_register().number()].get();
            Some(if register.size() == 4 { value & u64::from(u32::MAX) } else { value })
        }
    })
}
