//! What the unwind tables have of code that is entered in unusual ways: landing pads of C++ and Rust
//! exception handling, which the unwinder enters, and code that signal handlers return to.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, Pointer, Reader,
    UnwindContext, UnwindSection, X86_64,
};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Where the frame begins when a function is entered: only the return address is on the stack.
const AT_ENTRY: CfaRule<usize> = CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 8 };

/// Code that is entered in unusual ways.
#[derive(Debug, Default)]
pub struct Unusual {
    /// The landing pads, sorted.
    pub pads: Vec<u64>,
    /// Code that signal handlers return to. By custom it is said to begin a byte before its first
    /// instruction, so nobody can tell from here where it is entered.
    pub signal_returns: Vec<Range<u64>>,
    /// Where code starts that finds more on the stack than the return address, sorted: it is a part of a
    /// function, which was entered elsewhere.
    pub in_frames: Vec<u64>,
    /// Where the code starts that each entry of the tables is about, sorted.
    pub starts: Vec<u64>,
}

/// Reads them for a module. `frames` is where its `.eh_frame` is; `bytes` gives what is mapped from an
/// address on.
pub fn unusual<'a>(frames: u64, bytes: impl Fn(u64) -> &'a [u8]) -> Unusual {
    let mut found = Unusual::default();
    // What cannot be read has no handlers that could run either.
    let _ = collect(frames, &bytes, &mut found);
    found.pads.sort_unstable();
    found.pads.dedup();
    found.in_frames.sort_unstable();
    found.starts.sort_unstable();
    found
}

fn collect<'a>(
    frames: u64,
    bytes: &impl Fn(u64) -> &'a [u8],
    found: &mut Unusual,
) -> gimli::Result<()> {
    let bases = BaseAddresses::default().set_eh_frame(frames);
    let section = EhFrame::new(bytes(frames), LittleEndian);
    let mut entries = section.entries(&bases);
    let mut context = UnwindContext::new();
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
        let start = entry.initial_address();
        found.starts.push(start);
        if entry.is_signal_trampoline() {
            found.signal_returns.push(start..start + entry.len());
        }
        let row = entry.unwind_info_for_address(&section, &bases, &mut context, start);
        if row.is_ok_and(|row| *row.cfa() != AT_ENTRY) {
            found.in_frames.push(start);
        }
        if let Some(Pointer::Direct(table)) = entry.lsda() {
            // Each table on its own: one that makes no sense hides no other.
            let _ = read_table(table, bytes(table), start, &mut found.pads);
        }
    }
    Ok(())
}

/// The encodings of the pointers in a table that are in use for call sites.
mod encoding {
    pub const OMIT: u8 = 0xff;
    pub const ULEB: u8 = 0x01;
    pub const U16: u8 = 0x02;
    pub const U32: u8 = 0x03;
    pub const U64: u8 = 0x04;
    pub const SLEB: u8 = 0x09;
    pub const FORMAT: u8 = 0x0f;
}

/// Reads one language-specific data area: what `__gxx_personality_v0` and Rust's personality read.
fn read_table(address: u64, bytes: &[u8], function: u64, pads: &mut Vec<u64>) -> gimli::Result<()> {
    let mut reader = Bytes::new(bytes, LittleEndian);
    let start_encoding = reader.read_u8()?;
    let start = if start_encoding == encoding::OMIT {
        function
    } else {
        let place = address + (bytes.len() - reader.len()) as u64;
        let value = read_pointer(&mut reader, start_encoding)?;
        if start_encoding & 0x70 == 0x10 { place.wrapping_add(value) } else { value }
    };
    if reader.read_u8()? != encoding::OMIT {
        reader.read_uleb128()?;
    }
    let site_encoding = reader.read_u8()?;
    let length = reader.read_uleb128()?;
    let mut sites = reader.split(length as usize)?;
    while !sites.is_empty() {
        read_pointer(&mut sites, site_encoding)?;
        read_pointer(&mut sites, site_encoding)?;
        let pad = read_pointer(&mut sites, site_encoding)?;
        sites.read_uleb128()?;
        if pad != 0 {
            pads.push(start.wrapping_add(pad));
        }
    }
    Ok(())
}

fn read_pointer(reader: &mut Bytes<'_>, how: u8) -> gimli::Result<u64> {
    match how & encoding::FORMAT {
        encoding::ULEB => reader.read_uleb128(),
        encoding::SLEB => reader.read_sleb128().map(|value| value as u64),
        encoding::U16 => reader.read_u16().map(u64::from),
        encoding::U32 => reader.read_u32().map(u64::from),
        0x0a => reader.read_i16().map(|value| value as u64),
        0x0b => reader.read_i32().map(|value| value as u64),
        encoding::U64 | 0x0c | 0x00 => reader.read_u64(),
        _ => Err(gimli::Error::UnknownPointerEncoding(gimli::DwEhPe(how))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_two_landing_pads() {
        // No start, no types; call sites in ULEB128: (0, 8, pad 0x20, 1), (8, 4, none, 0),
        // (12, 4, pad 0x190, 0).
        let table = [0xff, 0xff, 0x01, 13, 0, 8, 0x20, 1, 8, 4, 0, 0, 12, 4, 0x90, 0x03, 0, 0x55];
        let mut pads = Vec::new();
        read_table(0x9000, &table, 0x1000, &mut pads).unwrap();
        assert_eq!(pads, [0x1020, 0x1190]);
        assert!(read_table(0x9000, &table[..8], 0x1000, &mut pads).is_err());
    }
}
