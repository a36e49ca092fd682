//! The extended state of a thread: what `xsave` wrote.

use std::arch::x86_64::__cpuid_count;

/// The x87, SSE, AVX, AVX-512 (and later) registers of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VectorState {
    /// The bytes as `xsave` lays them out (the standard, not the compacted form).
    pub raw: Vec<u8>,
}

/// State components, by their bit in the header.
mod component {
    pub const SSE: u32 = 1;
    pub const AVX: u32 = 2;
    pub const OPMASK: u32 = 5;
    pub const ZMM_HIGH: u32 = 6;
    pub const ZMM_16_31: u32 = 7;
}

const XMM_OFFSET: usize = 160;
const HEADER_OFFSET: usize = 512;

impl VectorState {
    /// xmm0 to xmm15, as two words each.
    pub fn xmm(&self) -> [[u64; 2]; 16] {
        let mut registers = [[0; 2]; 16];
        if let Some(offset) = self.component(component::SSE) {
            for (index, word) in registers.as_flattened_mut().iter_mut().enumerate() {
                let at = offset + 8 * index;
                let bytes = self.raw.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                *word = bytes.map_or(0, u64::from_le_bytes);
            }
        }
        registers
    }

    /// Sets xmm0 to xmm15.
    pub fn set_xmm(&mut self, registers: &[[u64; 2]; 16]) {
        let words = registers.as_flattened().iter().flat_map(|word| word.to_le_bytes());
        for (byte, new) in self.raw[XMM_OFFSET..].iter_mut().zip(words) {
            *byte = new;
        }
        self.raw[HEADER_OFFSET] |= 1 << component::SSE;
    }

    /// The 512 bits of each of the 32 vector registers; parts that the processor lacks, or that the
    /// thread has not used, are zero.
    pub fn zmm(&self) -> Vec<[u8; 64]> {
        let mut registers = vec![[0u8; 64]; 32];
        let mut fill = |component: u32, first: usize, at: usize, size: usize| {
            let Some(offset) = self.component(component) else { return };
            let count = if first == 0 { 16 } else { 32 - first };
            for index in 0..count {
                let from = offset + index * size;
                if let Some(bytes) = self.raw.get(from..from + size) {
                    registers[first + index][at..at + size].copy_from_slice(bytes);
                }
            }
        };
        fill(component::SSE, 0, 0, 16);
        fill(component::AVX, 0, 16, 16);
        fill(component::ZMM_HIGH, 0, 32, 32);
        fill(component::ZMM_16_31, 16, 0, 64);
        registers
    }

    /// The eight mask registers of AVX-512.
    pub fn opmask(&self) -> [u64; 8] {
        let mut masks = [0; 8];
        if let Some(offset) = self.component(component::OPMASK) {
            for (index, mask) in masks.iter_mut().enumerate() {
                let from = offset + index * 8;
                if let Some(bytes) = self.raw.get(from..from + 8) {
                    *mask = u64::from_ne_bytes(bytes.try_into().unwrap_or([0; 8]));
                }
            }
        }
        masks
    }

    /// Where a component lies, if it is not in its initial state.
    fn component(&self, number: u32) -> Option<usize> {
        let header = self.raw.get(HEADER_OFFSET..HEADER_OFFSET + 8)?;
        let present = u64::from_ne_bytes(header.try_into().ok()?);
        if present >> number & 1 == 0 {
            return None;
        }
        if number == component::SSE {
            return Some(XMM_OFFSET);
        }
        Some(__cpuid_count(0xd, number).ebx as usize)
    }
}
