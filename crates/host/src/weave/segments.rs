//! The memory of a module that the program itself cannot write to.

use super::code_id;
use crate::Result;
use crate::process::memory;
use crate::process::modules::Module;
use crate::process::proc::{self, Tid};
use crate::visited::others::OtherChange;
use std::ops::Range;
use std::sync::Arc;
use weft_abi::Change;

/// A piece of a module's memory that the program itself cannot write to.
#[derive(Debug)]
pub struct Segment {
    pub start: u64,
    pub bytes: Arc<[u8]>,
    pub is_code: bool,
}

impl Segment {
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes.len() as u64
    }
}

/// What is mapped from an address on.
pub fn bytes_at(segments: &[Segment], address: u64) -> &[u8] {
    let segment = segments.iter().find(|segment| segment.range().contains(&address));
    segment.map_or(&[], |segment| &segment.bytes[(address - segment.start) as usize..])
}

/// Puts back what a change has replaced, where it was made.
fn restore(start: u64, bytes: &mut [u8], change: &Change) {
    let length = usize::from(change.length);
    let Some(start) = change.at.checked_sub(start).map(|start| start as usize) else { return };
    if let Some(bytes) = bytes.get_mut(start..start.saturating_add(length))
        && *bytes == change.woven[..length]
    {
        bytes.copy_from_slice(&change.original[..length]);
    }
}

/// Reads what the program itself cannot write to, as it is without the changes of other wefts.
pub fn read_segments(pid: Tid, module: &Module, others: &[OtherChange]) -> Result<Vec<Segment>> {
    let maps = proc::maps(pid)?;
    let pieces: Vec<_> = maps
        .iter()
        .filter(|m| m.start >= module.start && m.end <= module.end && m.read && !m.write)
        .collect();
    let wanted: Vec<_> = pieces.iter().map(|m| (m.start, m.len() as usize)).collect();
    let mut joined: Vec<(u64, Vec<u8>, bool)> = Vec::new();
    for (mapping, bytes) in pieces.into_iter().zip(memory::read_many(pid, &wanted)?) {
        let Some(bytes) = bytes else { continue };
        match joined.last_mut() {
            // A table may run across a boundary that only protection makes.
            Some((start, last, is_code))
                if *start + last.len() as u64 == mapping.start.0 && *is_code == mapping.execute =>
            {
                last.extend(bytes);
            }
            _ => joined.push((mapping.start.0, bytes, mapping.execute)),
        }
    }
    let segments = joined.into_iter().map(|(start, mut bytes, is_code)| {
        others.iter().for_each(|other| restore(start, &mut bytes, &other.change));
        Segment { start, bytes: code_id::bytes(bytes), is_code }
    });
    Ok(segments.collect())
}
