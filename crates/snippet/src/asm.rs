//! A small emitter: the few instructions that snippets are made of, in two pieces (the main path,
//! and the cold one that it rarely leaves for). General assemblers were too slow for 50,000 points.

use alloc::vec::Vec;
use weft_code::Register;

/// Which piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Main,
    Cold,
}

/// What a 32-bit displacement refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Label(Label),
    Address(u64),
}

/// A place in either piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label(u32);

/// A displacement to be filled in; it counts from its own end.
#[derive(Clone, Copy, Debug)]
struct Fixup {
    piece: Piece,
    at: u32,
    target: Target,
}

/// A memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mem {
    Base(Register, i32),
    Index(Register, Register, u8, i32),
    Rip(u64),
}

/// A register or memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rm {
    Reg(u8),
    Mem(Mem),
}

impl From<Register> for Rm {
    fn from(register: Register) -> Self {
        Self::Reg(register.0)
    }
}

impl From<Mem> for Rm {
    fn from(mem: Mem) -> Self {
        Self::Mem(mem)
    }
}

/// The eight operations of the first opcode column, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alu {
    Add = 0,
    Or = 1,
    And = 4,
    Sub = 5,
    Xor = 6,
    Cmp = 7,
}

/// Shifts, by their number in the opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shift {
    Ror = 1,
    Shl = 4,
    Shr = 5,
    Sar = 7,
}

/// Conditions, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cond {
    Overflow = 0x0,
    Below = 0x2,
    AboveEqual = 0x3,
    Equal = 0x4,
    NotEqual = 0x5,
    BelowEqual = 0x6,
    Above = 0x7,
    Parity = 0xa,
    NoParity = 0xb,
    Less = 0xc,
    GreaterEqual = 0xd,
    LessEqual = 0xe,
    Greater = 0xf,
}

impl Cond {
    /// The opposite.
    pub(crate) fn not(self) -> Self {
        match self {
            Self::Overflow => unreachable!("nothing branches on overflow"),
            Self::Below => Self::AboveEqual,
            Self::AboveEqual => Self::Below,
            Self::Equal => Self::NotEqual,
            Self::NotEqual => Self::Equal,
            Self::BelowEqual => Self::Above,
            Self::Above => Self::BelowEqual,
            Self::Parity => Self::NoParity,
            Self::NoParity => Self::Parity,
            Self::Less => Self::GreaterEqual,
            Self::GreaterEqual => Self::Less,
            Self::LessEqual => Self::Greater,
            Self::Greater => Self::LessEqual,
        }
    }
}

/// Code in the making.
#[derive(Debug)]
pub(crate) struct Asm {
    main: Vec<u8>,
    cold: Vec<u8>,
    piece: Piece,
    labels: Vec<(Piece, u32)>,
    fixups: Vec<Fixup>,
}

const UNBOUND: u32 = u32::MAX;

impl Asm {
    pub(crate) fn new() -> Self {
        Self {
            main: Vec::with_capacity(96),
            cold: Vec::with_capacity(32),
            piece: Piece::Main,
            labels: Vec::new(),
            fixups: Vec::with_capacity(8),
        }
    }

    /// Goes on in a piece; gives the one that it was in.
    pub(crate) fn switch(&mut self, piece: Piece) -> Piece {
        core::mem::replace(&mut self.piece, piece)
    }

    pub(crate) fn label(&mut self) -> Label {
        self.labels.push((Piece::Main, UNBOUND));
        Label(self.labels.len() as u32 - 1)
    }

    pub(crate) fn bind(&mut self, label: Label) {
        let at = self.code().len() as u32;
        self.labels[label.0 as usize] = (self.piece, at);
    }

    pub(crate) fn here(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Where in its piece a label is.
    pub(crate) fn offset(&self, label: Label) -> u32 {
        self.labels[label.0 as usize].1
    }

    /// How long the pieces are.
    pub(crate) fn lengths(&self) -> (usize, usize) {
        (self.main.len(), self.cold.len())
    }

    /// The bytes of both pieces, placed at these addresses.
    pub(crate) fn place(&self, main_at: u64, cold_at: u64) -> (Vec<u8>, Vec<u8>) {
        let (mut main, mut cold) = (self.main.clone(), self.cold.clone());
        let start = |piece| if piece == Piece::Main { main_at } else { cold_at };
        for fixup in &self.fixups {
            let target = match fixup.target {
                Target::Address(address) => address,
                Target::Label(label) => {
                    let (piece, offset) = self.labels[label.0 as usize];
                    debug_assert_ne!(offset, UNBOUND, "every label is bound");
                    start(piece).wrapping_add(u64::from(offset))
                }
            };
            let at = fixup.at as usize;
            let end = start(fixup.piece).wrapping_add(at as u64 + 4);
            let distance = target.wrapping_sub(end) as u32;
            let code = if fixup.piece == Piece::Main { &mut main } else { &mut cold };
            code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        (main, cold)
    }

    fn code(&mut self) -> &mut Vec<u8> {
        if self.piece == Piece::Main { &mut self.main } else { &mut self.cold }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.code().extend_from_slice(bytes);
    }

    fn refer(&mut self, target: Target) {
        let at = self.code().len() as u32;
        self.fixups.push(Fixup { piece: self.piece, at, target });
        self.bytes(&[0; 4]);
    }

    /// Any instruction with a ModRM byte: legacy prefix, REX, opcode, operand.
    /// `byte` asks for a REX prefix where `spl` to `dil` would otherwise mean `ah` to `bh`.
    fn modrm(&mut self, prefix: u8, wide: bool, opcode: &[u8], reg: u8, rm: Rm, byte: bool) {
        let (x, b) = match rm {
            Rm::Reg(register) => (0, register >> 3),
            Rm::Mem(Mem::Base(base, _)) => (0, base.0 >> 3),
            Rm::Mem(Mem::Index(base, index, ..)) => (index.0 >> 3, base.0 >> 3),
            Rm::Mem(Mem::Rip(_)) => (0, 0),
        };
        let rex = 0x40 | u8::from(wide) << 3 | (reg >> 3) << 2 | x << 1 | b;
        let low = |register: u8| (4..8).contains(&register);
        let needs = byte && (low(reg) || matches!(rm, Rm::Reg(register) if low(register)));
        if prefix != 0 {
            self.bytes(&[prefix]);
        }
        if rex != 0x40 || needs {
            self.bytes(&[rex]);
        }
        self.bytes(opcode);
        self.operand(reg, rm);
    }

    fn operand(&mut self, reg: u8, rm: Rm) {
        let reg = (reg & 7) << 3;
        match rm {
            Rm::Reg(register) => self.bytes(&[0xc0 | reg | register & 7]),
            Rm::Mem(Mem::Rip(address)) => {
                self.bytes(&[reg | 5]);
                self.refer(Target::Address(address));
            }
            Rm::Mem(Mem::Base(base, disp)) => {
                let mode = mode(base, disp);
                if base.0 & 7 == 4 {
                    self.bytes(&[mode | reg | 4, 0x24]);
                } else {
                    self.bytes(&[mode | reg | base.0 & 7]);
                }
                self.displacement(mode, disp);
            }
            Rm::Mem(Mem::Index(base, index, scale, disp)) => {
                let mode = mode(base, disp);
                let scale = scale.trailing_zeros() as u8;
                self.bytes(&[mode | reg | 4, scale << 6 | (index.0 & 7) << 3 | base.0 & 7]);
                self.displacement(mode, disp);
            }
        }
    }

    fn displacement(&mut self, mode: u8, disp: i32) {
        match mode {
            0x40 => self.bytes(&[disp as u8]),
            0x80 => self.bytes(&disp.to_le_bytes()),
            _ => {}
        }
    }

    /// `dst op= src`.
    pub(crate) fn alu(&mut self, op: Alu, dst: Register, src: impl Into<Rm>) {
        self.modrm(0, true, &[op as u8 * 8 + 3], dst.0, src.into(), false);
    }

    /// Compares 32 bits.
    pub(crate) fn cmp32(&mut self, a: Register, b: Mem) {
        self.modrm(0, false, &[Alu::Cmp as u8 * 8 + 3], a.0, b.into(), false);
    }

    /// `[mem] op= src`.
    pub(crate) fn alu_to(&mut self, op: Alu, mem: Mem, src: Register) {
        self.modrm(0, true, &[op as u8 * 8 + 1], src.0, mem.into(), false);
    }

    /// `dst op= imm`.
    pub(crate) fn alu_imm(&mut self, op: Alu, dst: impl Into<Rm>, imm: i32) {
        self.alu_imm_of(true, op, dst.into(), imm);
    }

    /// The same on 32 bits.
    pub(crate) fn alu32_imm(&mut self, op: Alu, dst: impl Into<Rm>, imm: i32) {
        self.alu_imm_of(false, op, dst.into(), imm);
    }

    fn alu_imm_of(&mut self, wide: bool, op: Alu, dst: Rm, imm: i32) {
        debug_assert!(!matches!(dst, Rm::Mem(Mem::Rip(_))), "displacements end instructions");
        if let Ok(short) = i8::try_from(imm) {
            self.modrm(0, wide, &[0x83], op as u8, dst, false);
            self.bytes(&[short as u8]);
        } else {
            self.modrm(0, wide, &[0x81], op as u8, dst, false);
            self.bytes(&imm.to_le_bytes());
        }
    }

    pub(crate) fn test(&mut self, a: Register, b: Register) {
        self.modrm(0, true, &[0x85], b.0, a.into(), false);
    }

    pub(crate) fn mov(&mut self, dst: Register, src: impl Into<Rm>) {
        let src = src.into();
        if src != Rm::Reg(dst.0) {
            self.modrm(0, true, &[0x8b], dst.0, src, false);
        }
    }

    /// Moves 32 bits and clears the rest.
    pub(crate) fn mov32(&mut self, dst: Register, src: impl Into<Rm>) {
        self.modrm(0, false, &[0x8b], dst.0, src.into(), false);
    }

    pub(crate) fn store(&mut self, mem: Mem, src: Register) {
        self.modrm(0, true, &[0x89], src.0, mem.into(), false);
    }

    pub(crate) fn store32(&mut self, mem: Mem, src: Register) {
        self.modrm(0, false, &[0x89], src.0, mem.into(), false);
    }

    /// `byte [mem] = src`.
    pub(crate) fn store8(&mut self, mem: Mem, src: Register) {
        self.modrm(0, false, &[0x88], src.0, mem.into(), true);
    }

    /// `qword [mem] = imm`.
    pub(crate) fn store_imm(&mut self, mem: Mem, imm: i32) {
        self.modrm(0, true, &[0xc7], 0, mem.into(), false);
        self.bytes(&imm.to_le_bytes());
    }

    pub(crate) fn mov_imm(&mut self, dst: Register, imm: i64) {
        if let Ok(short) = u32::try_from(imm) {
            if dst.0 > 7 {
                self.bytes(&[0x41]);
            }
            self.bytes(&[0xb8 | dst.0 & 7]);
            self.bytes(&short.to_le_bytes());
        } else if let Ok(short) = i32::try_from(imm) {
            self.modrm(0, true, &[0xc7], 0, dst.into(), false);
            self.bytes(&short.to_le_bytes());
        } else {
            self.bytes(&[0x48 | dst.0 >> 3, 0xb8 | dst.0 & 7]);
            self.bytes(&imm.to_le_bytes());
        }
    }

    pub(crate) fn lea(&mut self, dst: Register, mem: Mem) {
        self.modrm(0, true, &[0x8d], dst.0, mem.into(), false);
    }

    pub(crate) fn inc(&mut self, rm: impl Into<Rm>) {
        self.modrm(0, true, &[0xff], 0, rm.into(), false);
    }

    pub(crate) fn dec(&mut self, rm: impl Into<Rm>) {
        self.modrm(0, true, &[0xff], 1, rm.into(), false);
    }

    pub(crate) fn not(&mut self, register: Register) {
        self.modrm(0, true, &[0xf7], 2, register.into(), false);
    }

    pub(crate) fn neg(&mut self, register: Register) {
        self.modrm(0, true, &[0xf7], 3, register.into(), false);
    }

    /// `rdx:rax = rax * register`, unsigned.
    pub(crate) fn mul(&mut self, register: Register) {
        self.modrm(0, true, &[0xf7], 4, register.into(), false);
    }

    /// `rax, rdx = rdx:rax / register`, unsigned.
    pub(crate) fn div(&mut self, register: Register) {
        self.modrm(0, true, &[0xf7], 6, register.into(), false);
    }

    /// `eax, edx = edx:eax / register`, unsigned.
    pub(crate) fn div32(&mut self, register: Register) {
        self.modrm(0, false, &[0xf7], 6, register.into(), false);
    }

    /// `rax, rdx = rdx:rax / register`, signed.
    pub(crate) fn idiv(&mut self, register: Register) {
        self.modrm(0, true, &[0xf7], 7, register.into(), false);
    }

    /// Fills `rdx` with the sign of `rax`.
    pub(crate) fn cqo(&mut self) {
        self.bytes(&[0x48, 0x99]);
    }

    pub(crate) fn imul(&mut self, dst: Register, src: impl Into<Rm>) {
        self.modrm(0, true, &[0x0f, 0xaf], dst.0, src.into(), false);
    }

    /// `dst = src * imm`.
    pub(crate) fn imul_imm(&mut self, dst: Register, src: Register, imm: i32) {
        self.modrm(0, true, &[0x69], dst.0, src.into(), false);
        self.bytes(&imm.to_le_bytes());
    }

    pub(crate) fn shift_imm(&mut self, op: Shift, register: Register, count: u8) {
        self.modrm(0, true, &[0xc1], op as u8, register.into(), false);
        self.bytes(&[count]);
    }

    /// The same on 32 bits.
    pub(crate) fn shift32_imm(&mut self, op: Shift, register: Register, count: u8) {
        self.modrm(0, false, &[0xc1], op as u8, register.into(), false);
        self.bytes(&[count]);
    }

    /// Shifts by `cl`.
    pub(crate) fn shift_cl(&mut self, op: Shift, register: Register) {
        self.modrm(0, true, &[0xd3], op as u8, register.into(), false);
    }

    /// `shrd low, high, count`.
    pub(crate) fn shrd(&mut self, low: Register, high: Register, count: u8) {
        self.modrm(0, true, &[0x0f, 0xac], high.0, low.into(), false);
        self.bytes(&[count]);
    }

    /// `dst = src shifted by count`; needs BMI2.
    pub(crate) fn shift_x(&mut self, op: Shift, dst: Register, src: Register, count: Register) {
        let prefix = match op {
            Shift::Shl => 1,
            Shift::Sar => 2,
            Shift::Shr => 3,
            Shift::Ror => unreachable!("rotates have their own instruction"),
        };
        self.vex(2, true, prefix, count.0, dst.0, src.0);
        self.bytes(&[0xf7, 0xc0 | (dst.0 & 7) << 3 | src.0 & 7]);
    }

    /// `dst = src rotated right`, 32 bits; needs BMI2.
    pub(crate) fn rorx32(&mut self, dst: Register, src: Register, count: u8) {
        self.vex(3, false, 3, 0, dst.0, src.0);
        self.bytes(&[0xf0, 0xc0 | (dst.0 & 7) << 3 | src.0 & 7, count]);
    }

    fn vex(&mut self, map: u8, wide: bool, prefix: u8, second: u8, reg: u8, rm: u8) {
        let byte1 = (!(reg >> 3) & 1) << 7 | 0x40 | (!(rm >> 3) & 1) << 5 | map;
        let byte2 = u8::from(wide) << 7 | (!second & 15) << 3 | prefix;
        self.bytes(&[0xc4, byte1, byte2]);
    }

    pub(crate) fn set(&mut self, cond: Cond, register: Register) {
        self.modrm(0, false, &[0x0f, 0x90 | cond as u8], 0, register.into(), true);
    }

    /// Widens the low 8 bits without a sign.
    pub(crate) fn movzx8(&mut self, dst: Register, src: impl Into<Rm>) {
        self.modrm(0, false, &[0x0f, 0xb6], dst.0, src.into(), true);
    }

    /// Widens the low 16 bits without a sign.
    pub(crate) fn movzx16(&mut self, dst: Register, src: impl Into<Rm>) {
        self.modrm(0, false, &[0x0f, 0xb7], dst.0, src.into(), false);
    }

    /// Widens the low 8, 16 or 32 bits with their sign.
    pub(crate) fn movsx(&mut self, dst: Register, src: Register, bytes: usize) {
        match bytes {
            1 => self.modrm(0, true, &[0x0f, 0xbe], dst.0, src.into(), true),
            2 => self.modrm(0, true, &[0x0f, 0xbf], dst.0, src.into(), false),
            _ => self.modrm(0, true, &[0x63], dst.0, src.into(), false),
        }
    }

    pub(crate) fn cmov(&mut self, cond: Cond, dst: Register, src: impl Into<Rm>) {
        self.modrm(0, true, &[0x0f, 0x40 | cond as u8], dst.0, src.into(), false);
    }

    pub(crate) fn lzcnt(&mut self, dst: Register, src: Register) {
        self.modrm(0xf3, true, &[0x0f, 0xbd], dst.0, src.into(), false);
    }

    pub(crate) fn bsr(&mut self, dst: Register, src: Register) {
        self.modrm(0, true, &[0x0f, 0xbd], dst.0, src.into(), false);
    }

    pub(crate) fn rdfsbase(&mut self, dst: Register) {
        self.modrm(0xf3, true, &[0x0f, 0xae], 0, dst.into(), false);
    }

    pub(crate) fn rdgsbase(&mut self, dst: Register) {
        self.modrm(0xf3, true, &[0x0f, 0xae], 1, dst.into(), false);
    }

    /// `mov dst, fs:[0]`.
    pub(crate) fn thread_pointer(&mut self, dst: Register) {
        let modrm = 0x04 | (dst.0 & 7) << 3;
        self.bytes(&[0x64, 0x48 | (dst.0 >> 3) << 2, 0x8b, modrm, 0x25, 0, 0, 0, 0]);
    }

    /// Loads the word at this distance from `gs`.
    pub(crate) fn engine_word(&mut self, dst: Register, offset: u32) {
        self.by_gs(0x8b, dst, offset);
    }

    pub(crate) fn set_engine_word(&mut self, offset: u32, src: Register) {
        self.by_gs(0x89, src, offset);
    }

    fn by_gs(&mut self, opcode: u8, register: Register, offset: u32) {
        let modrm = 0x04 | (register.0 & 7) << 3;
        self.bytes(&[0x65, 0x48 | (register.0 >> 3) << 2, opcode, modrm, 0x25]);
        self.bytes(&offset.to_le_bytes());
    }

    pub(crate) fn rdtsc(&mut self) {
        self.bytes(&[0x0f, 0x31]);
    }

    pub(crate) fn syscall(&mut self) {
        self.bytes(&[0x0f, 0x05]);
    }

    /// Not locked: a signal cannot split it, and no other thread writes there.
    pub(crate) fn xadd(&mut self, mem: Mem, register: Register) {
        self.modrm(0, true, &[0x0f, 0xc1], register.0, mem.into(), false);
    }

    /// Not locked. Compares with `rax`.
    pub(crate) fn cmpxchg(&mut self, mem: Mem, register: Register) {
        self.modrm(0, true, &[0x0f, 0xb1], register.0, mem.into(), false);
    }

    /// The prefix that makes the next instruction atomic among threads.
    pub(crate) fn lock(&mut self) {
        self.bytes(&[0xf0]);
    }

    pub(crate) fn push(&mut self, register: Register) {
        if register.0 > 7 {
            self.bytes(&[0x41]);
        }
        self.bytes(&[0x50 | register.0 & 7]);
    }

    pub(crate) fn pop(&mut self, register: Register) {
        if register.0 > 7 {
            self.bytes(&[0x41]);
        }
        self.bytes(&[0x58 | register.0 & 7]);
    }

    pub(crate) fn lahf(&mut self) {
        self.bytes(&[0x9f]);
    }

    pub(crate) fn sahf(&mut self) {
        self.bytes(&[0x9e]);
    }

    /// `add al, 127`: overflows, and says so, if `al` is 1.
    pub(crate) fn overflow_if_al(&mut self) {
        self.bytes(&[0x04, 127]);
    }

    pub(crate) fn jmp(&mut self, label: Label) {
        self.bytes(&[0xe9]);
        self.refer(Target::Label(label));
    }

    pub(crate) fn jmp_to(&mut self, address: u64) {
        self.bytes(&[0xe9]);
        self.refer(Target::Address(address));
    }

    pub(crate) fn jcc(&mut self, cond: Cond, label: Label) {
        self.bytes(&[0x0f, 0x80 | cond as u8]);
        self.refer(Target::Label(label));
    }

    pub(crate) fn call(&mut self, address: u64) {
        self.bytes(&[0xe8]);
        self.refer(Target::Address(address));
    }

    pub(crate) fn call_label(&mut self, label: Label) {
        self.bytes(&[0xe8]);
        self.refer(Target::Label(label));
    }

    pub(crate) fn ret(&mut self) {
        self.bytes(&[0xc3]);
    }

    /// An SSE2 operation with a mandatory prefix.
    pub(crate) fn sse(&mut self, prefix: u8, opcode: u8, dst: u8, src: impl Into<Rm>) {
        self.modrm(prefix, false, &[0x0f, opcode], dst, src.into(), false);
    }

    /// The same with a 64-bit general register.
    pub(crate) fn sse_wide(&mut self, prefix: u8, opcode: u8, reg: u8, rm: impl Into<Rm>) {
        self.modrm(prefix, true, &[0x0f, opcode], reg, rm.into(), false);
    }

    fn group15(&mut self, number: u8, wide: bool, mem: Mem) {
        self.modrm(0, wide, &[0x0f, 0xae], number, mem.into(), false);
    }

    pub(crate) fn stmxcsr(&mut self, mem: Mem) {
        self.group15(3, false, mem);
    }

    pub(crate) fn ldmxcsr(&mut self, mem: Mem) {
        self.group15(2, false, mem);
    }

    pub(crate) fn fxsave(&mut self, mem: Mem) {
        self.group15(0, true, mem);
    }

    pub(crate) fn fxrstor(&mut self, mem: Mem) {
        self.group15(1, true, mem);
    }

    pub(crate) fn xrstor(&mut self, mem: Mem) {
        self.group15(5, true, mem);
    }

    pub(crate) fn xsavec(&mut self, mem: Mem) {
        self.modrm(0, true, &[0x0f, 0xc7], 4, mem.into(), false);
    }
}

fn mode(base: Register, disp: i32) -> u8 {
    // rbp and r13 without a displacement mean something else.
    if disp == 0 && base.0 & 7 != 5 {
        0
    } else if i8::try_from(disp).is_ok() {
        0x40
    } else {
        0x80
    }
}
