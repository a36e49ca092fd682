//! Runs a path of instructions with symbols for values, to see what an indirect jump depends on.
//!
//! Equal values have equal numbers, so that what a comparison says of a value is known wherever that value turns up
//! again: in another register, in a stack slot, extended.

use alloc::vec::Vec;

use iced_x86::{
    ConditionCode, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register as Name,
};

use crate::effects::{Effects, number};
use crate::{Register, RegisterSet};

/// A value, by its number.
pub(super) type Id = u32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Constant(u64),
    /// What a register held where the path begins.
    Start(Register),
    Opaque(u32),
    Add(Id, Id),
    Scale(Id, u64),
    And(Id, u64),
    ShiftRight(Id, u32),
    /// The low bits of a value, with zeros above.
    Low(u32, Id),
    /// The low bits of a value, with copies of the topmost above.
    Sign(u32, Id),
    /// What is in memory, and at what time: bits, address, count of stores.
    Load(u32, Id, u32),
}

#[derive(Clone, Copy)]
struct Compare {
    left: Id,
    right: Id,
}

/// What an unsigned value lies between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) lowest: u64,
    pub(super) highest: u64,
    /// Whether something limits the value on purpose, not just the size of what it was kept in.
    pub(super) strong: bool,
}

/// How many lists nodes are spread over, to be found again.
const LISTS: usize = 128;

pub(super) struct Machine {
    nodes: Vec<Node>,
    /// The latest node of each list, plus one, and for each node the one before it in its list.
    latest: [Id; LISTS],
    earlier: Vec<Id>,
    registers: [Id; 16],
    /// What is known of memory: address, bits, value.
    memory: Vec<(Id, u32, Id)>,
    flags: Option<Compare>,
    /// Values with what they do not exceed, unsigned.
    limits: Vec<(Id, u64)>,
    stores: u32,
    opaque: u32,
    factory: InstructionInfoFactory,
}

impl Machine {
    pub(super) fn new() -> Self {
        let mut machine = Self {
            nodes: Vec::with_capacity(64),
            latest: [0; LISTS],
            earlier: Vec::with_capacity(64),
            registers: [0; 16],
            memory: Vec::new(),
            flags: None,
            limits: Vec::new(),
            stores: 0,
            opaque: 0,
            factory: InstructionInfoFactory::new(),
        };
        for register in 0..16 {
            machine.registers[usize::from(register)] =
                machine.intern(Node::Start(Register(register)));
        }
        machine
    }

    pub(super) fn node(&self, id: Id) -> Node {
        self.nodes[id as usize]
    }

    fn intern(&mut self, node: Node) -> Id {
        let list = list_of(node);
        let mut next = self.latest[list];
        while let Some(id) = next.checked_sub(1) {
            if self.nodes[id as usize] == node {
                return id;
            }
            next = self.earlier[id as usize];
        }
        self.nodes.push(node);
        self.earlier.push(self.latest[list]);
        self.latest[list] = self.nodes.len() as Id;
        self.nodes.len() as Id - 1
    }

    fn opaque(&mut self) -> Id {
        self.opaque += 1;
        self.intern(Node::Opaque(self.opaque))
    }

    pub(super) fn constant(&mut self, value: u64) -> Id {
        self.intern(Node::Constant(value))
    }

    fn as_constant(&self, id: Id) -> Option<u64> {
        match self.node(id) {
            Node::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn add(&mut self, one: Id, other: Id) -> Id {
        match (self.node(one), self.node(other)) {
            (Node::Constant(a), Node::Constant(b)) => self.constant(a.wrapping_add(b)),
            (_, Node::Constant(0)) => one,
            (Node::Constant(_), _) => self.add(other, one),
            // Constants stay outside, so that sums of the same things are the same.
            (Node::Add(inner, last), Node::Constant(b)) if self.as_constant(last).is_some() => {
                let a = self.as_constant(last).unwrap_or(0);
                let sum = self.constant(a.wrapping_add(b));
                self.add(inner, sum)
            }
            (_, Node::Add(inner, last)) if self.as_constant(last).is_some() => {
                let sum = self.add(one, inner);
                self.add(sum, last)
            }
            (Node::Add(inner, last), _) if self.as_constant(last).is_some() => {
                let sum = self.add(inner, other);
                self.add(sum, last)
            }
            (_, Node::Constant(_)) => self.intern(Node::Add(one, other)),
            _ => self.intern(Node::Add(one.min(other), one.max(other))),
        }
    }

    fn scale(&mut self, id: Id, by: u64) -> Id {
        match self.node(id) {
            _ if by == 1 => id,
            Node::Constant(value) => self.constant(value.wrapping_mul(by)),
            Node::Scale(inner, before) => self.intern(Node::Scale(inner, before.wrapping_mul(by))),
            _ => self.intern(Node::Scale(id, by)),
        }
    }

    /// How many low bits of a value can be other than zero.
    fn width(&self, id: Id) -> u32 {
        match self.node(id) {
            Node::Constant(value) => 64 - value.leading_zeros(),
            Node::Low(bits, _) | Node::Load(bits, ..) => bits,
            Node::And(_, mask) => 64 - mask.leading_zeros(),
            Node::ShiftRight(inner, by) => self.width(inner).saturating_sub(by),
            _ => 64,
        }
    }

    fn low(&mut self, bits: u32, id: Id) -> Id {
        if bits >= 64 || self.width(id) <= bits {
            return id;
        }
        match self.node(id) {
            Node::Constant(value) => self.constant(value & ((1 << bits) - 1)),
            Node::Low(wider, inner) | Node::Sign(wider, inner) if wider >= bits => {
                self.low(bits, inner)
            }
            Node::Add(one, other) => {
                let one = self.strip(bits, one);
                let other = match self.as_constant(other) {
                    // One form for each constant: as if extended from so many bits.
                    Some(value) => {
                        let unused = 64 - bits;
                        self.constant(((value << unused) as i64 >> unused) as u64)
                    }
                    None => self.strip(bits, other),
                };
                let sum = self.add(one, other);
                self.intern(Node::Low(bits, sum))
            }
            _ => self.intern(Node::Low(bits, id)),
        }
    }

    /// A value without an extension that does not matter for its low bits.
    fn strip(&self, bits: u32, id: Id) -> Id {
        match self.node(id) {
            Node::Low(wider, inner) | Node::Sign(wider, inner) if wider >= bits => {
                self.strip(bits, inner)
            }
            _ => id,
        }
    }

    fn sign(&mut self, bits: u32, id: Id) -> Id {
        if bits >= 64 || self.width(id) < bits {
            return id;
        }
        let inner = self.strip(bits, id);
        match self.as_constant(inner) {
            Some(value) => {
                let unused = 64 - bits;
                self.constant(((value << unused) as i64 >> unused) as u64)
            }
            None => self.intern(Node::Sign(bits, inner)),
        }
    }

    fn and(&mut self, id: Id, mask: u64) -> Id {
        match self.node(id) {
            Node::Constant(value) => self.constant(value & mask),
            Node::And(inner, other) => self.and(inner, mask & other),
            _ if mask == 0xff => self.low(8, id),
            _ if mask == 0xffff => self.low(16, id),
            _ if mask == 0xffff_ffff => self.low(32, id),
            _ => self.intern(Node::And(id, mask)),
        }
    }

    fn register(&mut self, name: Name) -> Id {
        let Some(register) = number(name) else { return self.opaque() };
        let value = self.registers[usize::from(register.0)];
        match name {
            Name::AH | Name::BH | Name::CH | Name::DH => self.opaque(),
            _ => self.low(name.size() as u32 * 8, value),
        }
    }

    /// The address of the memory operand.
    pub(super) fn address(&mut self, instruction: &Instruction) -> Id {
        if matches!(instruction.memory_segment(), Name::FS | Name::GS) {
            return self.opaque();
        }
        if instruction.is_ip_rel_memory_operand() {
            return self.constant(instruction.ip_rel_memory_address());
        }
        let mut sum = self.constant(instruction.memory_displacement64());
        if instruction.memory_base() != Name::None {
            let base = self.register(instruction.memory_base());
            sum = self.add(sum, base);
        }
        if instruction.memory_index() != Name::None {
            let index = self.register(instruction.memory_index());
            let index = self.scale(index, u64::from(instruction.memory_index_scale()));
            sum = self.add(sum, index);
        }
        let narrow =
            instruction.memory_base().size() == 4 || instruction.memory_index().size() == 4;
        if narrow { self.low(32, sum) } else { sum }
    }

    fn load(&mut self, bits: u32, address: Id) -> Id {
        let known = self.memory.iter().find(|known| known.0 == address && known.1 >= bits);
        if let Some(&(_, _, value)) = known {
            return self.low(bits, value);
        }
        let value = self.intern(Node::Load(bits, address, self.stores));
        self.memory.push((address, bits, value));
        value
    }

    fn store(&mut self, bits: u32, address: Id, value: Id) {
        self.stores += 1;
        let (base, start) = self.split(address);
        let end = start.wrapping_add(u64::from(bits / 8));
        let mut memory = core::mem::take(&mut self.memory);
        memory.retain(|&(other, other_bits, _)| {
            let (other_base, other_start) = self.split(other);
            let other_end = other_start.wrapping_add(u64::from(other_bits / 8));
            base == other_base
                && (end as i64 <= other_start as i64 || other_end as i64 <= start as i64)
        });
        memory.push((address, bits, value));
        self.memory = memory;
    }

    /// An address as a value and a constant distance from it.
    fn split(&self, address: Id) -> (Option<Id>, u64) {
        match self.node(address) {
            Node::Constant(value) => (None, value),
            Node::Add(base, last) => match self.as_constant(last) {
                Some(distance) => (Some(base), distance),
                None => (Some(address), 0),
            },
            _ => (Some(address), 0),
        }
    }

    fn bits(instruction: &Instruction, operand: u32) -> u32 {
        match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand).size() as u32 * 8,
            _ => instruction.memory_size().size() as u32 * 8,
        }
    }

    /// What an operand holds; a jump's memory operand is loaded.
    pub(super) fn read(&mut self, instruction: &Instruction, operand: u32) -> Id {
        match instruction.op_kind(operand) {
            OpKind::Register => self.register(instruction.op_register(operand)),
            OpKind::Memory => {
                let address = self.address(instruction);
                let bits = Self::bits(instruction, operand);
                if bits == 0 || bits > 64 { self.opaque() } else { self.load(bits, address) }
            }
            _ => match instruction.try_immediate(operand) {
                Ok(value) => self.constant(value),
                Err(_) => self.opaque(),
            },
        }
    }

    fn write(&mut self, instruction: &Instruction, operand: u32, value: Id) {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let name = instruction.op_register(operand);
                let Some(register) = number(name) else { return };
                let value = match name.size() {
                    8 => value,
                    4 => self.low(32, value),
                    _ => self.opaque(),
                };
                self.registers[usize::from(register.0)] = value;
            }
            OpKind::Memory => {
                let address = self.address(instruction);
                let bits = Self::bits(instruction, operand);
                let value = self.low(bits, value);
                self.store(bits, address, value);
            }
            _ => {}
        }
    }

    /// Runs one instruction. Branches do nothing here, see [`Self::branch`].
    pub(super) fn step(&mut self, instruction: &Instruction) {
        let keeps_flags = instruction.rflags_modified() == 0;
        let flags = if keeps_flags { self.flags } else { None };
        let simple = instruction.op_count() == 2
            && Self::bits(instruction, 0) <= 64
            && Self::bits(instruction, 0) > 0;
        self.flags = flags;
        match instruction.mnemonic() {
            Mnemonic::Mov if simple && number_or_memory(instruction) => {
                let value = self.read(instruction, 1);
                self.write(instruction, 0, value);
            }
            Mnemonic::Movzx => {
                let value = self.read(instruction, 1);
                self.write(instruction, 0, value);
            }
            Mnemonic::Movsx | Mnemonic::Movsxd => {
                let value = self.read(instruction, 1);
                let value = self.sign(Self::bits(instruction, 1), value);
                self.write(instruction, 0, value);
            }
            Mnemonic::Cdqe => {
                let value = self.sign(32, self.registers[0]);
                self.registers[0] = value;
            }
            Mnemonic::Lea => {
                let value = self.address(instruction);
                self.write(instruction, 0, value);
            }
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::Cmp if simple => {
                let left = self.read(instruction, 0);
                let right = self.read(instruction, 1);
                let bits = Self::bits(instruction, 0);
                let adds = instruction.mnemonic() == Mnemonic::Add;
                if !adds {
                    // Both sides at the width of the comparison.
                    let right = self.low(bits, right);
                    self.flags = Some(Compare { left, right });
                }
                let sum = match self.as_constant(right) {
                    _ if adds => self.add(left, right),
                    Some(value) => {
                        let negated = self.constant(value.wrapping_neg());
                        self.add(left, negated)
                    }
                    None => self.opaque(),
                };
                if instruction.mnemonic() != Mnemonic::Cmp {
                    self.write(instruction, 0, sum);
                }
            }
            Mnemonic::Inc | Mnemonic::Dec => {
                let by = if instruction.mnemonic() == Mnemonic::Inc { 1 } else { u64::MAX };
                let (value, by) = (self.read(instruction, 0), self.constant(by));
                let sum = self.add(value, by);
                self.write(instruction, 0, sum);
            }
            Mnemonic::And | Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Xor if simple => {
                let value = self.arithmetic(instruction);
                self.write(instruction, 0, value);
            }
            Mnemonic::Push
                if Self::bits(instruction, 0) == 64 || instruction.try_immediate(0).is_ok() =>
            {
                let value = self.read(instruction, 0);
                let eight = self.constant(8_u64.wrapping_neg());
                let top = self.add(self.registers[4], eight);
                self.registers[4] = top;
                self.store(64, top, value);
            }
            Mnemonic::Pop if Self::bits(instruction, 0) == 64 => {
                let value = self.load(64, self.registers[4]);
                let eight = self.constant(8);
                self.registers[4] = self.add(self.registers[4], eight);
                self.write(instruction, 0, value);
            }
            Mnemonic::Test | Mnemonic::Nop | Mnemonic::Endbr64 => {}
            _ => self.clobber(instruction),
        }
    }

    fn arithmetic(&mut self, instruction: &Instruction) -> Id {
        let left = self.read(instruction, 0);
        let same = instruction.op0_kind() == OpKind::Register
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        let count = self.read(instruction, 1);
        match (instruction.mnemonic(), self.as_constant(count)) {
            (Mnemonic::Xor, _) if same => self.constant(0),
            (Mnemonic::And, Some(mask)) => {
                let bits = Self::bits(instruction, 0);
                let mask = if bits == 64 { mask } else { mask & ((1 << bits) - 1) };
                self.and(left, mask)
            }
            (Mnemonic::Shl, Some(by)) if by < 32 => self.scale(left, 1 << by),
            (Mnemonic::Shr, Some(by)) if by < 32 => self.intern(Node::ShiftRight(left, by as u32)),
            _ => self.opaque(),
        }
    }

    /// Forgets what an instruction may change.
    fn clobber(&mut self, instruction: &Instruction) {
        let effects = Effects::of(instruction, &mut self.factory);
        let writes_memory = self.factory.info(instruction).used_memory().iter().any(|memory| {
            !matches!(
                memory.access(),
                iced_x86::OpAccess::Read
                    | iced_x86::OpAccess::CondRead
                    | iced_x86::OpAccess::NoMemAccess
                    | iced_x86::OpAccess::None
            )
        });
        self.forget(effects.writes);
        if writes_memory {
            self.memory.clear();
            self.stores += 1;
        }
    }

    fn forget(&mut self, registers: RegisterSet) {
        for register in registers.iter() {
            self.registers[usize::from(register.0)] = self.opaque();
        }
    }

    /// A call that leaves only some registers as they were.
    pub(super) fn call(&mut self, kept: RegisterSet) {
        self.forget(!kept);
        self.memory.clear();
        self.stores += 1;
        self.flags = None;
    }

    /// Learns from a conditional branch being taken or not.
    pub(super) fn branch(&mut self, condition: ConditionCode, taken: bool) {
        let Some(Compare { left, right }) = self.flags else { return };
        let condition = if taken { condition } else { negated(condition) };
        let limit = match (self.as_constant(left), self.as_constant(right)) {
            (None, Some(value)) => match condition {
                ConditionCode::be | ConditionCode::e => Some((left, value)),
                ConditionCode::b => value.checked_sub(1).map(|value| (left, value)),
                _ => None,
            },
            (Some(value), None) => match condition {
                ConditionCode::ae | ConditionCode::e => Some((right, value)),
                ConditionCode::a => value.checked_sub(1).map(|value| (right, value)),
                _ => None,
            },
            _ => None,
        };
        self.limits.extend(limit);
    }

    /// What a value is known to lie between.
    pub(super) fn bounds(&mut self, id: Id) -> Option<Bounds> {
        let strong = |lowest, highest| Some(Bounds { lowest, highest, strong: true });
        let mut best = match self.node(id) {
            Node::Constant(value) => strong(value, value),
            Node::And(_, mask) => strong(0, mask),
            Node::ShiftRight(inner, by) => {
                let width = self.width(inner);
                let known = self.bounds(inner).map(|bounds| bounds.highest);
                known
                    .or((width <= 32).then(|| (1 << width) - 1))
                    .and_then(|highest| strong(0, highest >> by))
            }
            Node::Sign(bits, inner) => {
                let low = self.low(bits, inner);
                self.bounds(low).filter(|bounds| bounds.highest >> (bits - 1) == 0)
            }
            Node::Low(bits, inner) => {
                self.bounds(inner).filter(|bounds| bounds.highest >> bits == 0)
            }
            Node::Add(inner, last) => match (self.as_constant(last), self.bounds(inner)) {
                (Some(by), Some(bounds)) => bounds.moved(by as i64),
                _ => None,
            },
            _ => None,
        };
        if best.is_none() && self.width(id) <= 8 {
            best = Some(Bounds { lowest: 0, highest: 255, strong: false });
        }
        let narrow = self.low(32, id);
        for index in 0..self.limits.len() {
            let (limited, highest) = self.limits[index];
            let bounds = if limited == id || limited == narrow {
                // Compilers that compare half of a register know that the other half is zero.
                strong(0, highest)
            } else {
                self.biased(limited, id, highest)
            };
            best = match (best, bounds) {
                (Some(old), Some(new)) if old.strong && old.span() <= new.span() => Some(old),
                (old, new) => new.or(old),
            };
        }
        best
    }

    /// The bounds of a value from those of its sum with a constant.
    fn biased(&self, limited: Id, id: Id, highest: u64) -> Option<Bounds> {
        let plain = |id| match self.node(id) {
            Node::Low(32, inner) => inner,
            _ => id,
        };
        let Node::Add(inner, last) = self.node(plain(limited)) else { return None };
        let by = self.as_constant(last)?.wrapping_neg();
        let bounds = Bounds { lowest: 0, highest, strong: true };
        if inner == plain(id) && by < 1 << 31 { bounds.moved(by as i64) } else { None }
    }
}

impl Bounds {
    fn span(self) -> u64 {
        self.highest - self.lowest
    }

    fn moved(self, by: i64) -> Option<Self> {
        Some(Self {
            lowest: self.lowest.checked_add_signed(by)?,
            highest: self.highest.checked_add_signed(by)?,
            ..self
        })
    }
}

fn list_of(node: Node) -> usize {
    let (kind, one, other) = match node {
        Node::Constant(value) => (0, value, 0),
        Node::Start(register) => (1, u64::from(register.0), 0),
        Node::Opaque(number) => (2, u64::from(number), 0),
        Node::Add(one, other) => (3, u64::from(one), u64::from(other)),
        Node::Scale(id, by) => (4, u64::from(id), by),
        Node::And(id, mask) => (5, u64::from(id), mask),
        Node::ShiftRight(id, by) => (6, u64::from(id), u64::from(by)),
        Node::Low(bits, id) => (7, u64::from(id), u64::from(bits)),
        Node::Sign(bits, id) => (8, u64::from(id), u64::from(bits)),
        Node::Load(bits, id, time) => (9, u64::from(id), u64::from(bits ^ time << 8)),
    };
    let mixed = (one ^ other.rotate_left(21) ^ kind << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % LISTS
}

fn number_or_memory(instruction: &Instruction) -> bool {
    (0..2).all(|operand| {
        instruction.op_kind(operand) != OpKind::Register
            || instruction.op_register(operand).is_gpr()
    })
}

fn negated(condition: ConditionCode) -> ConditionCode {
    match condition {
        ConditionCode::a => ConditionCode::be,
        ConditionCode::be => ConditionCode::a,
        ConditionCode::b => ConditionCode::ae,
        ConditionCode::ae => ConditionCode::b,
        ConditionCode::ne => ConditionCode::e,
        ConditionCode::e => ConditionCode::ne,
        _ => ConditionCode::None,
    }
}
