//! What an instruction does to general registers and flags.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register as Name, RflagsBits,
};

use crate::{FlagSet, Register, RegisterSet};

/// What an instruction reads and what it surely overwrites.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    pub(crate) reads: RegisterSet,
    /// Wholly overwritten, whatever happens.
    pub(crate) kills: RegisterSet,
    /// Overwritten perhaps, or in part.
    pub(crate) writes: RegisterSet,
    pub(crate) reads_flags: FlagSet,
    pub(crate) kills_flags: FlagSet,
}

/// All 64 bits of a general register; others stay what they are.
pub(crate) fn full(register: Name) -> Name {
    register.full_register()
}

/// The number of a general register, whichever part of it is named.
pub fn number(register: Name) -> Option<Register> {
    let full = register.full_register();
    let number = (full as u32).checked_sub(Name::RAX as u32)?;
    (number < 16).then_some(Register(number as u8))
}

pub(crate) fn flag_set(bits: u32) -> FlagSet {
    const PAIRS: [(u32, FlagSet); 7] = [
        (RflagsBits::CF, FlagSet::CF),
        (RflagsBits::PF, FlagSet::PF),
        (RflagsBits::AF, FlagSet::AF),
        (RflagsBits::ZF, FlagSet::ZF),
        (RflagsBits::SF, FlagSet::SF),
        (RflagsBits::DF, FlagSet::DF),
        (RflagsBits::OF, FlagSet::OF),
    ];
    PAIRS
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(FlagSet::NONE, |set, &(_, flag)| set | flag)
}

impl Effects {
    /// Everything is read: for what cannot be known.
    pub(crate) const ALL: Self = Self {
        reads: RegisterSet::ALL,
        kills: RegisterSet::NONE,
        writes: RegisterSet::ALL,
        reads_flags: FlagSet::ALL,
        kills_flags: FlagSet::NONE,
    };

    /// What an instruction does by itself. Calls count only as what pushes a return address.
    pub(crate) fn of(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Self {
        if is_opaque(instruction) {
            return Self::ALL;
        }
        let mut effects = Self::default();
        let info = factory.info(instruction);
        for used in info.used_registers() {
            let Some(register) = number(used.register()) else { continue };
            let whole = used.register().size() >= 4;
            match used.access() {
                OpAccess::None | OpAccess::NoMemAccess => {}
                OpAccess::Read | OpAccess::CondRead => effects.reads = effects.reads.with(register),
                OpAccess::Write => {
                    effects.writes = effects.writes.with(register);
                    if whole {
                        effects.kills = effects.kills.with(register);
                    }
                }
                OpAccess::CondWrite => effects.writes = effects.writes.with(register),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
                    effects.reads = effects.reads.with(register);
                    effects.writes = effects.writes.with(register);
                }
            }
        }
        if may_leave_destination(instruction.mnemonic()) {
            effects.reads = effects.reads | effects.writes;
        }
        if instruction.code() == Code::Syscall {
            const ARGUMENTS: RegisterSet = RegisterSet::of(&[
                Register::RAX,
                Register::RDI,
                Register::RSI,
                Register::RDX,
                Register::R10,
                Register::R8,
                Register::R9,
                Register::RSP,
            ]);
            effects.reads = effects.reads | ARGUMENTS;
            effects.reads_flags = FlagSet::ALL;
            effects.kills = effects.kills & RegisterSet::of(&[Register::RCX, Register::R11]);
        }
        effects.kills = effects.kills & !effects.reads;
        effects.reads_flags = effects.reads_flags | flag_set(instruction.rflags_read());
        effects.kills_flags = killed_flags(instruction);
        effects
    }
}

/// Whether an instruction may leave alone what the decoder says that it writes.
fn may_leave_destination(mnemonic: Mnemonic) -> bool {
    match mnemonic {
        // The position of a bit that is not there.
        Mnemonic::Bsf | Mnemonic::Bsr => true,
        // Without shadow stacks they do nothing.
        Mnemonic::Rdsspd | Mnemonic::Rdsspq => true,
        // Where user code may not ask, the kernel answers in its stead, with fewer bits.
        Mnemonic::Sldt | Mnemonic::Str | Mnemonic::Smsw => true,
        _ => false,
    }
}

/// Flags that come out the same whatever they were before.
fn killed_flags(instruction: &Instruction) -> FlagSet {
    let defined =
        instruction.rflags_written() | instruction.rflags_cleared() | instruction.rflags_set();
    let conditional = instruction.has_rep_prefix()
        || instruction.has_repne_prefix()
        || instruction.code() == Code::Syscall;
    if conditional || may_shift_by_nothing(instruction) {
        return FlagSet::NONE;
    }
    match instruction.mnemonic() {
        // Undefined on paper, but no processor lets the old value through.
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor | Mnemonic::Test => {
            flag_set(defined | instruction.rflags_undefined())
        }
        _ => flag_set(defined & !instruction.rflags_undefined()),
    }
}

/// Shifts by zero leave all flags alone.
fn may_shift_by_nothing(instruction: &Instruction) -> bool {
    let shifts = matches!(
        instruction.mnemonic(),
        Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Sal
            | Mnemonic::Rol
            | Mnemonic::Ror
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Shld
            | Mnemonic::Shrd
    );
    if !shifts {
        return false;
    }
    let last = instruction.op_count() - 1;
    match instruction.op_kind(last) {
        // A full turn of a narrow rotation is as good as nothing, so only small counts count.
        OpKind::Immediate8 => instruction.immediate8() & 0x1f == 0 || instruction.immediate8() > 7,
        _ => true,
    }
}

/// The instructions at the front of some bytes, `limit` of them at most, that cannot fault: who handles a fault sees
/// every register, and may go on anywhere with them.
pub fn before_faults((bytes, address): (&[u8], u64), limit: usize) -> &[u8] {
    let mut factory = InstructionInfoFactory::new();
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut end = 0;
    for instruction in decoder.iter().take(limit) {
        if may_fault(&instruction, &mut factory) {
            break;
        }
        end += instruction.len();
    }
    &bytes[..end]
}

fn may_fault(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> bool {
    let info = factory.info(instruction);
    is_opaque(instruction)
        || info.used_memory().iter().any(|used| used.access() != OpAccess::NoMemAccess)
        || matches!(instruction.mnemonic(), Mnemonic::Div | Mnemonic::Idiv)
        // Arithmetic with other registers may, if the program has asked for it.
        || !info.used_registers().iter().all(|used| used.register().is_gpr())
}

/// Whether an instruction may look at the whole state, or hands it to somebody who may.
pub(crate) fn is_opaque(instruction: &Instruction) -> bool {
    match instruction.flow_control() {
        FlowControl::Interrupt | FlowControl::Exception => true,
        // The decoder counts entries into the kernel and the like as calls.
        FlowControl::Call => {
            instruction.mnemonic() != Mnemonic::Call && instruction.code() != Code::Syscall
        }
        _ => instruction.is_invalid() || instruction.is_privileged(),
    }
}
