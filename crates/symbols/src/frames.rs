//! Where functions begin and end according to the unwind tables, for code without symbols.

use std::borrow::Cow;
use std::collections::HashMap;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, UnwindSection,
};
use object::elf;

use crate::elf::Elf;

/// The start and the length of each range that a frame description covers, sorted.
pub(crate) fn ranges(elf: &Elf) -> (Vec<(u64, u64)>, Option<String>) {
    let Some((address, bytes)) = eh_frame(elf) else { return (Vec::new(), None) };
    let section = EhFrame::new(&bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address);
    let mut ranges = Vec::new();
    let mut entries = section.entries(&bases);
    let mut common = HashMap::new();
    let problem = loop {
        match entries.next() {
            Ok(None) => break None,
            Ok(Some(CieOrFde::Cie(_))) => {}
            Ok(Some(CieOrFde::Fde(partial))) => {
                let parsed = partial.parse(|section, bases, offset| {
                    // One common entry serves thousands of functions: parse it once.
                    if let Some(entry) = common.get(&offset.0) {
                        return Ok(Clone::clone(entry));
                    }
                    let entry = section.cie_from_offset(bases, offset)?;
                    common.insert(offset.0, entry.clone());
                    Ok(entry)
                });
                if let Ok(entry) = parsed
                    && entry.len() != 0
                {
                    ranges.push((entry.initial_address(), entry.len()));
                }
            }
            Err(error) => break Some(format!("the unwind tables end early: {error}")),
        }
    };
    ranges.sort_unstable();
    ranges.dedup_by_key(|range| range.0);
    (ranges, problem)
}

/// The address of `.eh_frame`.
pub(crate) fn address(elf: &Elf) -> Option<u64> {
    eh_frame(elf).map(|(address, _)| address)
}

/// The address and the bytes of `.eh_frame`.
fn eh_frame(elf: &Elf) -> Option<(u64, Cow<'_, [u8]>)> {
    if let Some(section) = elf.section(".eh_frame") {
        return Some((section.address, elf.contents(section)?));
    }
    let header = elf.segments.iter().find(|segment| segment.kind == elf::PT_GNU_EH_FRAME)?;
    let bytes = elf.at_address(header.address, header.file_size)?;
    let bases = BaseAddresses::default().set_eh_frame_hdr(header.address);
    let parsed = EhFrameHdr::<EndianSlice<'_, _>>::new(&bytes, LittleEndian).parse(&bases, 8);
    let address = parsed.ok()?.eh_frame_ptr().direct().ok()?;
    Some((address, elf.rest_of_segment(address)?))
}
