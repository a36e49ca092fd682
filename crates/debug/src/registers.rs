//! The registers as GDB counts them: their order, their description, their values.
//!
//! The order, the names and the features are those of GDB's own `amd64-linux` descriptions, so that a
//! session shows what a session on the machine itself would. Which of them there are, the processor says.

use crate::debuggee::Registers;
use std::fmt::Write;
use std::ops::Range;
use weft_host::GENERAL;

/// The general registers in GDB's order.
pub const ORDER: [&str; 16] = [
    "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];

/// GDB's numbers of what it wants to know at every stop: rbp, rsp, rip.
pub const AT_EVERY_STOP: [usize; 3] = [6, 7, 16];

/// Where in XSAVE's area things are; the first 512 bytes are FXSAVE's.
mod xsave {
    pub const CONTROL: usize = 0;
    pub const STATUS: usize = 2;
    pub const TAGS: usize = 4;
    pub const OPCODE: usize = 6;
    pub const INSTRUCTION: usize = 8;
    pub const INSTRUCTION_SEGMENT: usize = 12;
    pub const OPERAND: usize = 16;
    pub const OPERAND_SEGMENT: usize = 20;
    pub const MXCSR: usize = 24;
    pub const ST: usize = 32;
    pub const XMM: usize = 160;
    /// Here the kernel says which components there are (`XCR0`).
    pub const ENABLED: usize = 464;
    /// Which components are not as they were initially (`XSTATE_BV`).
    pub const IN_USE: usize = 512;
    pub const END_OF_HEADER: usize = 576;
}

/// The numbers of XSAVE's components.
mod component {
    pub const X87: u32 = 0;
    pub const SSE: u32 = 1;
    pub const AVX: u32 = 2;
    pub const MASKS: u32 = 5;
    pub const UPPER_HALVES: u32 = 6;
    pub const UPPER_REGISTERS: u32 = 7;
    pub const KEYS: u32 = 9;
}

const AVX512: u64 =
    1 << component::MASKS | 1 << component::UPPER_HALVES | 1 << component::UPPER_REGISTERS;

/// What x87 and SSE are initially.
const INITIAL_CONTROL: [u8; 2] = 0x37fu16.to_le_bytes();
const INITIAL_MXCSR: [u8; 4] = 0x1f80u32.to_le_bytes();

/// Where a register's value is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    General(usize),
    Rip,
    Flags,
    Segment(usize),
    OrigRax,
    FsBase,
    GsBase,
    /// Some bytes of XSAVE's area; what is more in the register is zero.
    Vector {
        component: u32,
        at: usize,
        width: usize,
    },
    /// x87's tags, of which XSAVE keeps half.
    Tags,
}

#[derive(Clone, Debug)]
struct Register {
    name: String,
    size: usize,
    type_: &'static str,
    group: Option<&'static str>,
    feature: &'static str,
    place: Place,
}

/// Where a component is in what XSAVE saves, in its standard format.
pub fn component_place(component: u32) -> Range<usize> {
    // SAFETY: any processor with XSAVE has this leaf, and others give zeros.
    #[allow(unused_unsafe)]
    let leaf = unsafe { std::arch::x86_64::__cpuid_count(0xd, component) };
    let (start, length) = (leaf.ebx as usize, leaf.eax as usize);
    start..start + length
}

/// The registers that a process has.
#[derive(Clone, Debug)]
pub struct Layout {
    registers: Vec<Register>,
    /// Where each begins in a packet with all of them, and where the last one ends.
    offsets: Vec<usize>,
    description: String,
}

impl Layout {
    /// The registers of a process of this machine, by what one of its threads has.
    pub fn of(registers: &Registers) -> Self {
        let enabled = word(&registers.vectors, xsave::ENABLED);
        Self::new(if enabled == 0 { 3 } else { enabled }, |component| {
            component_place(component).start
        })
    }

    fn new(enabled: u64, offset: impl Fn(u32) -> usize) -> Self {
        let mut registers = Vec::new();
        let mut add = |feature, name: String, size, type_, group, place| {
            registers.push(Register { name, size, type_, group, feature, place });
        };

        let core = "core";
        for name in ORDER {
            // As instructions number them.
            let number = GENERAL.iter().position(|general| *general == name).unwrap_or_default();
            let type_ = if matches!(name, "rbp" | "rsp") { "data_ptr" } else { "int64" };
            add(core, name.into(), 8, type_, None, Place::General(number));
        }
        add(core, "rip".into(), 8, "code_ptr", None, Place::Rip);
        add(core, "eflags".into(), 4, "i386_eflags", None, Place::Flags);
        for (index, name) in ["cs", "ss", "ds", "es", "fs", "gs"].into_iter().enumerate() {
            add(core, name.into(), 4, "int32", None, Place::Segment(index));
        }
        let x87 = |at, width| Place::Vector { component: component::X87, at, width };
        for index in 0..8 {
            let place = x87(xsave::ST + 16 * index, 10);
            add(core, format!("st{index}"), 10, "i387_ext", None, place);
        }
        for (name, place) in [
            ("fctrl", x87(xsave::CONTROL, 2)),
            ("fstat", x87(xsave::STATUS, 2)),
            ("ftag", Place::Tags),
            ("fiseg", x87(xsave::INSTRUCTION_SEGMENT, 2)),
            ("fioff", x87(xsave::INSTRUCTION, 4)),
            ("foseg", x87(xsave::OPERAND_SEGMENT, 2)),
            ("fooff", x87(xsave::OPERAND, 4)),
            ("fop", x87(xsave::OPCODE, 2)),
        ] {
            add(core, name.into(), 4, "int", Some("float"), place);
        }

        let vector = |component, at, width| Place::Vector { component, at, width };
        for index in 0..16 {
            let place = vector(component::SSE, xsave::XMM + 16 * index, 16);
            add("sse", format!("xmm{index}"), 16, "vec128", None, place);
        }
        let mxcsr = vector(component::SSE, xsave::MXCSR, 4);
        add("sse", "mxcsr".into(), 4, "i386_mxcsr", Some("vector"), mxcsr);
        add("linux", "orig_rax".into(), 8, "int", None, Place::OrigRax);
        add("segments", "fs_base".into(), 8, "int", None, Place::FsBase);
        add("segments", "gs_base".into(), 8, "int", None, Place::GsBase);

        if enabled >> component::AVX & 1 == 1 {
            let start = offset(component::AVX);
            for index in 0..16 {
                let place = vector(component::AVX, start + 16 * index, 16);
                add("avx", format!("ymm{index}h"), 16, "uint128", None, place);
            }
        }
        if enabled & AVX512 == AVX512 {
            let feature = "avx512";
            let upper = offset(component::UPPER_REGISTERS);
            for index in 0..16 {
                let place = vector(component::UPPER_REGISTERS, upper + 64 * index, 16);
                add(feature, format!("xmm{}", 16 + index), 16, "vec128", None, place);
            }
            for index in 0..16 {
                let place = vector(component::UPPER_REGISTERS, upper + 64 * index + 16, 16);
                add(feature, format!("ymm{}h", 16 + index), 16, "uint128", None, place);
            }
            for index in 0..8 {
                let place = vector(component::MASKS, offset(component::MASKS) + 8 * index, 8);
                add(feature, format!("k{index}"), 8, "uint64", None, place);
            }
            for index in 0..16 {
                let at = offset(component::UPPER_HALVES) + 32 * index;
                let place = vector(component::UPPER_HALVES, at, 32);
                add(feature, format!("zmm{index}h"), 32, "v2ui128", None, place);
            }
            for index in 0..16 {
                let place = vector(component::UPPER_REGISTERS, upper + 64 * index + 32, 32);
                add(feature, format!("zmm{}h", 16 + index), 32, "v2ui128", None, place);
            }
        }
        if enabled >> component::KEYS & 1 == 1 {
            let place = vector(component::KEYS, offset(component::KEYS), 4);
            add("pkeys", "pkru".into(), 4, "uint32", None, place);
        }

        let mut offsets = vec![0];
        for register in &registers {
            offsets.push(offsets.last().copied().unwrap_or(0) + register.size);
        }
        let description = describe(&registers);
        Self { registers, offsets, description }
    }

    /// GDB's description of them.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The values of all, in GDB's order.
    pub fn all(&self, values: &Registers) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.offsets.last().copied().unwrap_or(0));
        for register in &self.registers {
            bytes.extend(get(register, values));
        }
        bytes
    }

    /// The value of one, if there is such a one.
    pub fn one(&self, number: usize, values: &Registers) -> Option<Vec<u8>> {
        Some(get(self.registers.get(number)?, values))
    }

    /// Changes all. Returns whether the bytes are as many as there must be.
    pub fn set_all(&self, values: &mut Registers, bytes: &[u8]) -> bool {
        if Some(&bytes.len()) != self.offsets.last() {
            return false;
        }
        for (register, &at) in self.registers.iter().zip(&self.offsets) {
            let value = &bytes[at..at + register.size];
            // What stays as it is need not be told to the processor.
            if get(register, values) != value {
                set(register, values, value);
            }
        }
        true
    }

    /// Changes one. Returns whether there is such a one, of that size.
    pub fn set_one(&self, number: usize, values: &mut Registers, bytes: &[u8]) -> bool {
        match self.registers.get(number) {
            Some(register) if register.size == bytes.len() => {
                set(register, values, bytes);
                true
            }
            _ => false,
        }
    }
}

fn get(register: &Register, values: &Registers) -> Vec<u8> {
    let mut bytes = match register.place {
        Place::General(number) => values.general[number].to_le_bytes().to_vec(),
        Place::Rip => values.rip.to_le_bytes().to_vec(),
        Place::Flags => values.rflags.to_le_bytes().to_vec(),
        Place::Segment(index) => values.segments[index].to_le_bytes().to_vec(),
        Place::OrigRax => values.orig_rax.to_le_bytes().to_vec(),
        Place::FsBase => values.fs_base.to_le_bytes().to_vec(),
        Place::GsBase => values.gs_base.to_le_bytes().to_vec(),
        Place::Vector { component, at, width } => vector(&values.vectors, component, at, width),
        Place::Tags => tags(&values.vectors).to_le_bytes().to_vec(),
    };
    bytes.resize(register.size, 0);
    bytes
}

/// The bytes are as many as the register has.
fn set(register: &Register, values: &mut Registers, bytes: &[u8]) {
    let mut eight = [0; 8];
    let length = bytes.len().min(8);
    eight[..length].copy_from_slice(&bytes[..length]);
    let value = u64::from_le_bytes(eight);
    match register.place {
        Place::General(number) => values.general[number] = value,
        Place::Rip => values.rip = value,
        Place::Flags => values.rflags = values.rflags & !0xffff_ffff | value,
        Place::Segment(index) => values.segments[index] = value as u16,
        Place::OrigRax => values.orig_rax = value,
        Place::FsBase => values.fs_base = value,
        Place::GsBase => values.gs_base = value,
        Place::Vector { component, at, width } => {
            begin(&mut values.vectors, component);
            if let Some(place) = values.vectors.get_mut(at..at + width) {
                place.copy_from_slice(&bytes[..width]);
            }
        }
        Place::Tags => {
            begin(&mut values.vectors, component::X87);
            let used = |index: u32| value >> (2 * index) & 3 != EMPTY;
            let abridged = (0..8).map(|index| u8::from(used(index)) << index).sum();
            if let Some(place) = values.vectors.get_mut(xsave::TAGS) {
                *place = abridged;
            }
        }
    }
}

/// Some bytes of XSAVE's area. Those of a component that nobody has used are what they are initially,
/// whatever is there.
fn vector(area: &[u8], component: u32, at: usize, width: usize) -> Vec<u8> {
    let initially = || match (component, at) {
        (component::X87, xsave::CONTROL) => INITIAL_CONTROL.to_vec(),
        (component::SSE, xsave::MXCSR) => INITIAL_MXCSR.to_vec(),
        _ => vec![0; width],
    };
    let is_mxcsr = at == xsave::MXCSR && is_in_use(area, component::AVX);
    match area.get(at..at + width) {
        Some(bytes) if is_in_use(area, component) || is_mxcsr => bytes.to_vec(),
        _ => initially(),
    }
}

/// Whether a component is not as it was initially. An area without a header is FXSAVE's.
fn is_in_use(area: &[u8], component: u32) -> bool {
    area.len() < xsave::END_OF_HEADER || word(area, xsave::IN_USE) >> component & 1 == 1
}

/// Marks a component as in use, with its initial value.
fn begin(area: &mut [u8], component: u32) {
    if is_in_use(area, component) {
        return;
    }
    match component {
        component::X87 => {
            area[..xsave::MXCSR].fill(0);
            area[xsave::ST..xsave::XMM].fill(0);
            area[..2].copy_from_slice(&INITIAL_CONTROL);
        }
        component::SSE => {
            area[xsave::XMM..xsave::XMM + 16 * 16].fill(0);
            if !is_in_use(area, component::AVX) {
                area[xsave::MXCSR..xsave::MXCSR + 4].copy_from_slice(&INITIAL_MXCSR);
            }
        }
        _ => {
            if let Some(bytes) = area.get_mut(component_place(component)) {
                bytes.fill(0);
            }
        }
    }
    let in_use = word(area, xsave::IN_USE) | 1 << component;
    area[xsave::IN_USE..xsave::IN_USE + 8].copy_from_slice(&in_use.to_le_bytes());
}

fn word(area: &[u8], at: usize) -> u64 {
    let bytes = area.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    u64::from_le_bytes(bytes.unwrap_or_default())
}

const VALID: u64 = 0;
const ZERO: u64 = 1;
const SPECIAL: u64 = 2;
const EMPTY: u64 = 3;

/// x87's tags: two bits for each register, which FXSAVE leaves to be found out.
fn tags(area: &[u8]) -> u16 {
    let byte = |at, width| vector(area, component::X87, at, width);
    let abridged = byte(xsave::TAGS, 1)[0];
    let status = byte(xsave::STATUS, 2);
    let top = usize::from(status[1] >> 3 & 7);
    let mut tags = 0;
    for physical in 0..8 {
        let tag = if abridged >> physical & 1 == 0 {
            EMPTY
        } else {
            let index = (physical + 8 - top) % 8;
            tag_of(&byte(xsave::ST + 16 * index, 10))
        };
        tags |= (tag as u16) << (2 * physical);
    }
    tags
}

fn tag_of(value: &[u8]) -> u64 {
    let mantissa = word(value, 0);
    let exponent = u16::from_le_bytes([value[8], value[9]]) & 0x7fff;
    let has_integer_bit = mantissa >> 63 == 1;
    match exponent {
        0x7fff => SPECIAL,
        0 if mantissa == 0 => ZERO,
        0 => SPECIAL,
        _ if has_integer_bit => VALID,
        _ => SPECIAL,
    }
}

const FLAGS: [(&str, u32); 17] = [
    ("CF", 0),
    ("", 1),
    ("PF", 2),
    ("AF", 4),
    ("ZF", 6),
    ("SF", 7),
    ("TF", 8),
    ("IF", 9),
    ("DF", 10),
    ("OF", 11),
    ("NT", 14),
    ("RF", 16),
    ("VM", 17),
    ("AC", 18),
    ("VIF", 19),
    ("VIP", 20),
    ("ID", 21),
];

const MXCSR_FLAGS: [(&str, u32); 14] = [
    ("IE", 0),
    ("DE", 1),
    ("ZE", 2),
    ("OE", 3),
    ("UE", 4),
    ("PE", 5),
    ("DAZ", 6),
    ("IM", 7),
    ("DM", 8),
    ("ZM", 9),
    ("OM", 10),
    ("UM", 11),
    ("PM", 12),
    ("FZ", 15),
];

/// The views of 128 bits: name of the vector, type and number of its elements, name of the field.
const VIEWS: [(&str, &str, u32, &str); 8] = [
    ("v8bf16", "bfloat16", 8, "v8_bfloat16"),
    ("v8h", "ieee_half", 8, "v8_half"),
    ("v4f", "ieee_single", 4, "v4_float"),
    ("v2d", "ieee_double", 2, "v2_double"),
    ("v16i8", "int8", 16, "v16_int8"),
    ("v8i16", "int16", 8, "v8_int16"),
    ("v4i32", "int32", 4, "v4_int32"),
    ("v2i64", "int64", 2, "v2_int64"),
];

fn describe(registers: &[Register]) -> String {
    let mut xml = String::from(
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target version=\"1.0\">\
         <architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>",
    );
    let mut feature = "";
    for (number, register) in registers.iter().enumerate() {
        if register.feature != feature {
            if !feature.is_empty() {
                xml.push_str("</feature>");
            }
            feature = register.feature;
            let _ = write!(xml, "<feature name=\"org.gnu.gdb.i386.{feature}\">");
            describe_types(&mut xml, feature);
        }
        let Register { name, size, type_, group, .. } = register;
        let _ = write!(
            xml,
            "<reg name=\"{name}\" bitsize=\"{}\" type=\"{type_}\" regnum=\"{number}\"",
            size * 8
        );
        if let Some(group) = group {
            let _ = write!(xml, " group=\"{group}\"");
        }
        xml.push_str("/>");
    }
    xml.push_str("</feature></target>");
    xml
}

/// The types that the registers of a feature have.
fn describe_types(xml: &mut String, feature: &str) {
    let flags = |xml: &mut String, name: &str, fields: &[(&str, u32)]| {
        let _ = write!(xml, "<flags id=\"{name}\" size=\"4\">");
        for (field, bit) in fields {
            let _ = write!(
                xml,
                "<field name=\"{field}\" start=\"{bit}\" end=\"{bit}\" type=\"bool\"/>"
            );
        }
        xml.push_str("</flags>");
    };
    if feature == "core" {
        flags(xml, "i386_eflags", &FLAGS);
    }
    if matches!(feature, "sse" | "avx512") {
        for (name, type_, count, _) in VIEWS {
            let _ = write!(xml, "<vector id=\"{name}\" type=\"{type_}\" count=\"{count}\"/>");
        }
        xml.push_str("<union id=\"vec128\">");
        for (name, _, _, field) in VIEWS {
            let _ = write!(xml, "<field name=\"{field}\" type=\"{name}\"/>");
        }
        xml.push_str("<field name=\"uint128\" type=\"uint128\"/></union>");
    }
    if feature == "sse" {
        flags(xml, "i386_mxcsr", &MXCSR_FLAGS);
    }
    if feature == "avx512" {
        xml.push_str("<vector id=\"v2ui128\" type=\"uint128\" count=\"2\"/>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: u64 = 0x2e7;

    fn layout(enabled: u64) -> Layout {
        let offset = |component| match component {
            component::AVX => 576,
            component::MASKS => 1088,
            component::UPPER_HALVES => 1152,
            component::UPPER_REGISTERS => 1664,
            _ => 2688,
        };
        Layout::new(enabled, offset)
    }

    fn number(layout: &Layout, name: &str) -> usize {
        layout.registers.iter().position(|register| register.name == name).unwrap()
    }

    fn values(in_use: u64) -> Registers {
        let mut vectors: Vec<u8> = (0..2696u32).map(|index| index as u8).collect();
        vectors[512..520].copy_from_slice(&in_use.to_le_bytes());
        Registers { vectors, ..Registers::default() }
    }

    #[test]
    fn are_numbered_as_gdb_does() {
        let layout = layout(ALL);
        let numbers = [("rip", 16), ("st0", 24), ("xmm0", 40), ("orig_rax", 57), ("fs_base", 58)];
        let more = [("ymm0h", 60), ("xmm16", 76), ("k0", 108), ("zmm0h", 116), ("pkru", 148)];
        for (name, expected) in numbers.into_iter().chain(more) {
            assert_eq!(number(&layout, name), expected, "{name}");
        }
        assert_eq!(layout.registers.len(), 149);
        assert_eq!(super::tests::layout(3).registers.len(), 60);
    }

    #[test]
    fn what_is_set_is_what_is_there() {
        let layout = layout(ALL);
        let mut there = values(0);
        for number in 0..layout.registers.len() {
            let size = layout.registers[number].size;
            let value: Vec<u8> = match layout.registers[number].place {
                Place::Segment(_) => vec![7, 1, 0, 0],
                Place::Tags => vec![0xff, 0xff, 0, 0],
                Place::Vector { width, .. } => {
                    let mut value = vec![number as u8; width];
                    value.resize(size, 0);
                    value
                }
                _ => vec![number as u8; size],
            };
            assert!(layout.set_one(number, &mut there, &value));
            assert_eq!(layout.one(number, &there).unwrap(), value, "{number}");
        }
        let all = layout.all(&there);
        let mut other = values(0);
        assert!(layout.set_all(&mut other, &all));
        assert_eq!(layout.all(&other), all);
        assert!(!layout.set_all(&mut other, &all[1..]));
        assert!(!layout.set_one(149, &mut other, &[0; 4]));
        assert!(!layout.set_one(0, &mut other, &[0; 4]));
    }

    #[test]
    fn what_nobody_has_used_is_as_it_is_initially() {
        let layout = layout(ALL);
        let there = values(0);
        let value = |name| layout.one(number(&layout, name), &there).unwrap();
        assert_eq!(value("fctrl"), [0x7f, 3, 0, 0]);
        assert_eq!(value("ftag"), [0xff, 0xff, 0, 0]);
        assert_eq!(value("mxcsr"), [0x80, 0x1f, 0, 0]);
        assert_eq!(value("xmm3"), [0; 16]);
        assert_eq!(value("zmm20h"), [0; 32]);
        // Without a header it is FXSAVE's, where all is in use.
        let short = Registers { vectors: vec![5; 512], ..Registers::default() };
        assert_eq!(layout.one(number(&layout, "xmm3"), &short).unwrap(), [5; 16]);
        assert_eq!(layout.one(number(&layout, "ymm3h"), &short).unwrap(), [0; 16]);
    }

    #[test]
    fn tags_are_found_out() {
        let mut there = values(1);
        there.vectors[..512].fill(0);
        // Three values on x87's stack, whose top is 5: one, zero, infinity.
        there.vectors[xsave::STATUS + 1] = 5 << 3;
        there.vectors[xsave::TAGS] = 0b1110_0000;
        there.vectors[xsave::ST + 7] = 0x80;
        there.vectors[xsave::ST + 8..xsave::ST + 10].copy_from_slice(&0x3fffu16.to_le_bytes());
        there.vectors[xsave::ST + 32 + 7] = 0x80;
        there.vectors[xsave::ST + 40..xsave::ST + 42].copy_from_slice(&0x7fffu16.to_le_bytes());
        assert_eq!(tags(&there.vectors), 0b10_01_00_11_11_11_11_11);
    }
}
