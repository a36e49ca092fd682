//! What a thread that stands still has of the program's registers, in its own memory: as the kernel lays it out behind
//! a signal's frame.

use crate::registers::component_place;
use weft_host::proc::Tid;
use weft_host::{Result, TargetAddr, memory};

/// Where the registers are in a context, and which they are.
const REGISTERS: usize = 40;
const ORDER: [usize; 16] = [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 2, 0, 1, 4];
const RIP: usize = 168;
const RFLAGS: usize = 176;
const VECTORS: usize = 224;
const SIZE: usize = 304;

/// What is before the head of a vector state, and how long that is.
const LEGACY: usize = 512;
const HEAD: usize = 64;
/// Where in it xmm0 to xmm15 are.
const XMM: std::ops::Range<usize> = 160..416;
/// Where x87's control word and MXCSR are, and what a program begins with.
const CONTROL: std::ops::Range<usize> = 0..2;
const INITIAL_CONTROL: u16 = 0x37f;
/// Where the kernel says how large a saved state is: behind a magic number.
const DESCRIBED: usize = 464;
const MAGIC: u32 = 0x4650_5853;

/// The registers of a thread that stands still.
#[derive(Debug)]
pub struct Context {
    tid: Tid,
    at: u64,
    bytes: Vec<u8>,
}

impl Context {
    /// Reads them.
    pub fn read(tid: Tid, at: u64) -> Result<Self> {
        Ok(Self { tid, at, bytes: memory::read(tid, TargetAddr(at), SIZE)? })
    }

    /// Writes them back.
    pub fn write(&self) -> Result<()> {
        memory::write(self.tid, TargetAddr(self.at), &self.bytes)
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.bytes[at..at + 8].try_into().unwrap_or_default())
    }

    fn set_word(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// The general registers, as instructions number them.
    pub fn general(&self) -> [u64; 16] {
        let mut general = [0; 16];
        for (index, register) in ORDER.into_iter().enumerate() {
            general[register] = self.word(REGISTERS + 8 * index);
        }
        general
    }

    pub fn rax(&self) -> i64 {
        self.general()[0] as i64
    }

    pub fn rip(&self) -> u64 {
        self.word(RIP)
    }

    pub fn rflags(&self) -> u64 {
        self.word(RFLAGS)
    }

    /// Changes them, here only.
    pub fn set(&mut self, general: &[u64; 16], rip: u64, rflags: u64) {
        for (index, register) in ORDER.into_iter().enumerate() {
            self.set_word(REGISTERS + 8 * index, general[register]);
        }
        self.set_word(RIP, rip);
        self.set_word(RFLAGS, rflags);
    }

    /// Restarts a system call that the thread has come out of, as the kernel would.
    pub fn restart(mut self, number: u64, length: u64) -> Result<()> {
        let mut general = self.general();
        general[0] = number;
        let (rip, rflags) = (self.rip() - length, self.rflags());
        self.set(&general, rip, rflags);
        self.write()
    }

    /// The vector registers, as they lie there.
    pub fn vectors(&self) -> Result<Vec<u8>> {
        let at = self.word(VECTORS);
        if at == 0 {
            return Ok(Vec::new());
        }
        let legacy = memory::read(self.tid, TargetAddr(at), LEGACY)?;
        let half =
            |at: usize| u32::from_ne_bytes(legacy[at..at + 4].try_into().unwrap_or_default());
        if half(DESCRIBED) != MAGIC {
            return Ok(legacy);
        }
        memory::read(self.tid, TargetAddr(at), half(DESCRIBED + 16) as usize)
    }

    /// Changes the vector registers.
    pub fn set_vectors(&self, wanted: &[u8]) -> Result<()> {
        let mut there = self.vectors()?;
        if normalise(&there) == wanted {
            return Ok(());
        }
        let length = there.len().min(wanted.len());
        let describes = DESCRIBED..LEGACY;
        for (index, byte) in wanted[..length].iter().enumerate() {
            if !describes.contains(&index) {
                there[index] = *byte;
            }
        }
        memory::write(self.tid, TargetAddr(self.word(VECTORS)), &there)
    }
}

/// A vector state in which nothing is left out: what is said to be as a program begins with it is so.
pub fn normalise(saved: &[u8]) -> Vec<u8> {
    let mut state = saved.to_vec();
    if state.len() < LEGACY + HEAD {
        return state;
    }
    let present = u64::from_ne_bytes(state[LEGACY..LEGACY + 8].try_into().unwrap_or_default());
    if present & 1 == 0 {
        state[..24].fill(0);
        state[CONTROL].copy_from_slice(&INITIAL_CONTROL.to_ne_bytes());
        state[32..160].fill(0);
    }
    if present & 2 == 0 {
        state[XMM].fill(0);
    }
    let features =
        u64::from_ne_bytes(state[DESCRIBED + 8..DESCRIBED + 16].try_into().unwrap_or_default());
    for part in (2..63).filter(|part| features >> part & 1 != 0 && present >> part & 1 == 0) {
        if let Some(bytes) = state.get_mut(component_place(part)) {
            bytes.fill(0);
        }
    }
    // As the kernel shows it to a tracer: what there could be, where it describes what is saved; and all of it there.
    state[DESCRIBED..LEGACY].fill(0);
    state[DESCRIBED..DESCRIBED + 8].copy_from_slice(&features.to_ne_bytes());
    state[LEGACY..LEGACY + 8].copy_from_slice(&features.to_ne_bytes());
    state
}

/// Puts xmm0 to xmm15 into a vector state.
pub fn set_xmm(state: &mut [u8], registers: &[u8]) {
    if let Some(place) = state.get_mut(XMM) {
        place.copy_from_slice(registers);
    }
}
