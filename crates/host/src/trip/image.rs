//! The agent's file, and where each part of weft's memory lies in the target.
//!
//! All of it is one piece of shared memory, which the target maps twice and nowhere writable and
//! executable at once; only the host can write to the executable part, through its own view.
//!
//! ```text
//! base   trips      one per slot                              executable in the target
//!        agent      its code and constants
//!        ---------------------------------------------------------------------------
//!        agent      its data                                  writable in the target
//!        control    the control block
//!        slots      one per visiting thread, with its stack
//! ```

use crate::base::page::PAGE;
use crate::{Error, ErrorKind, Result, TargetAddr};
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Object, ObjectSymbol, RelocationTarget};
use std::sync::LazyLock;
use weft_abi::{SLOT_COUNT, SLOT_SIZE};

/// The agent, as `build.rs` built it.
static FILE: &[u8] = include_bytes!(env!("WEFT_AGENT"));

/// The most code that a trip takes.
const TRIP_SIZE: u64 = 512;

/// Where the parts of weft's memory lie, counted from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    agent: u64,
    /// How much of it is executable; what follows is writable.
    pub executable: u64,
    control: u64,
    slots: u64,
    /// How long all of it is.
    pub length: u64,
    entry: u64,
}

impl Layout {
    /// The trip of a slot.
    pub fn trip(&self, slot: usize) -> u64 {
        slot as u64 * TRIP_SIZE
    }

    /// The agent's way in.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// The control block.
    pub fn control(&self) -> u64 {
        self.control
    }

    /// A slot.
    pub fn slot(&self, slot: usize) -> u64 {
        self.slots + (slot * SLOT_SIZE) as u64
    }
}

/// The agent, ready to be placed.
#[derive(Debug)]
pub struct AgentImage {
    /// Where everything goes.
    pub layout: Layout,
    /// The agent's own bytes, before relocation.
    bytes: Vec<u8>,
    /// Where in them an address stands that is relative to the agent's start, and that address.
    relative: Vec<(u64, u64)>,
}

impl AgentImage {
    /// The agent that is built into weft.
    pub fn get() -> Result<&'static Self> {
        static IMAGE: LazyLock<Result<AgentImage, String>> = LazyLock::new(|| parse(FILE));
        IMAGE.as_ref().map_err(|why| {
            Error::new(ErrorKind::Internal, "the agent that is built into weft is broken").why(why)
        })
    }

    /// Writes the agent into weft's view of the shared memory, for a target that has it at `base`.
    pub fn place(&self, memory: &mut [u8], base: TargetAddr) {
        let start = self.layout.agent as usize;
        memory[start..start + self.bytes.len()].copy_from_slice(&self.bytes);
        for &(at, value) in &self.relative {
            let at = start + at as usize;
            let address = base.0 + self.layout.agent + value;
            memory[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        }
    }
}

/// A freestanding file, laid out as it will be in memory.
pub struct Freestanding<const ENTRIES: usize> {
    /// Its bytes, before relocation.
    pub bytes: Vec<u8>,
    /// Where what is writable begins.
    pub data_start: Option<u64>,
    /// Where in the bytes an address stands that is relative to their start, and that address.
    pub relative: Vec<(u64, u64)>,
    /// Its ways in.
    pub entries: [u64; ENTRIES],
}

impl<const ENTRIES: usize> Freestanding<ENTRIES> {
    /// Reads a file that `build.rs` has built, with ways in of these names.
    pub fn parse(file: &[u8], names: [&str; ENTRIES]) -> Result<Self, String> {
        let text = |e: object::read::Error| e.to_string();
        let object = ElfFile64::<object::Endianness>::parse(file).map_err(text)?;
        let endian = object.elf_header().endian().map_err(text)?;
        let mut bytes = Vec::new();
        let mut data_start = None;
        for segment in object.elf_program_headers() {
            if segment.p_type(endian) != elf::PT_LOAD {
                continue;
            }
            let (start, size) = (segment.p_vaddr(endian), segment.p_memsz(endian));
            if segment.p_flags(endian).0 & elf::PF_W.0 != 0 {
                data_start.get_or_insert(start / PAGE * PAGE);
            } else if data_start.is_some() {
                return Err("a constant segment follows a writable one".into());
            }
            bytes.resize((start + size) as usize, 0);
            let content = segment.data(endian, file).map_err(|()| "a segment is cut off")?;
            bytes[start as usize..][..content.len()].copy_from_slice(content);
        }
        let mut relative = Vec::new();
        for (at, relocation) in object.dynamic_relocations().into_iter().flatten() {
            let object::RelocationFlags::Elf { r_type: elf::R_X86_64_RELATIVE } =
                relocation.flags()
            else {
                return Err(format!("a relocation is not relative: {relocation:?}"));
            };
            debug_assert_eq!(relocation.target(), RelocationTarget::Absolute);
            relative.push((at, relocation.addend() as u64));
        }
        let mut entries = [0; ENTRIES];
        for (entry, name) in entries.iter_mut().zip(names) {
            let mut symbols = object.dynamic_symbols();
            let symbol = symbols.find(|symbol| symbol.name() == Ok(name));
            *entry = symbol.ok_or_else(|| format!("it has no {name}"))?.address();
        }
        Ok(Self { bytes, data_start, relative, entries })
    }
}

fn parse(file: &[u8]) -> Result<AgentImage, String> {
    let Freestanding { bytes, data_start, relative, entries: [entry] } =
        Freestanding::parse(file, ["weft_agent_enter"])?;
    let agent = (SLOT_COUNT as u64 * TRIP_SIZE).next_multiple_of(PAGE);
    let end = agent + (bytes.len() as u64).next_multiple_of(PAGE);
    let executable = data_start.map_or(end, |start| agent + start);
    let control = end;
    let slots = control + PAGE;
    let length = slots + (SLOT_COUNT * SLOT_SIZE) as u64;
    let layout = Layout { agent, executable, control, slots, length, entry: agent + entry };
    Ok(AgentImage { layout, bytes, relative })
}

/// The clone engine, as it was built.
pub static ENGINE: &[u8] = include_bytes!(env!("WEFT_CLONE"));

/// By what wefts know whether they have the same engine. To compute it takes two milliseconds, so that is done once.
pub fn engine_hash() -> u64 {
    static HASH: LazyLock<u64> = LazyLock::new(|| {
        // FNV-1a: the same in every build of weft, as long as the engine is.
        ENGINE.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    });
    *HASH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_is_small_and_its_parts_do_not_overlap() {
        let image = AgentImage::get().unwrap();
        let layout = image.layout;
        assert!(image.bytes.len() < 64 * 1024, "{} bytes", image.bytes.len());
        let ends = [
            layout.trip(SLOT_COUNT),
            layout.agent,
            layout.entry(),
            layout.executable,
            layout.control(),
            layout.slot(0),
            layout.slot(SLOT_COUNT),
        ];
        assert!(ends.is_sorted(), "{layout:?}");
        assert_eq!(layout.slot(SLOT_COUNT), layout.length);
        assert!([layout.executable, layout.length].iter().all(|e| e.is_multiple_of(PAGE)));
    }

    #[test]
    fn placing_relocates() {
        let mut image = parse(FILE).unwrap();
        image.relative = vec![(image.bytes.len() as u64 - 8, 0x123)];
        let mut memory = vec![0; image.layout.length as usize];
        image.place(&mut memory, TargetAddr(0x10_0000));
        let at = (image.layout.agent as usize) + image.bytes.len() - 8;
        let value = u64::from_ne_bytes(memory[at..at + 8].try_into().unwrap());
        assert_eq!(value, 0x10_0000 + image.layout.agent + 0x123);
    }

    #[test]
    fn nonsense_is_refused() {
        assert!(parse(b"not an agent").is_err());
    }
}
