//! Whether debug information may be given to a reader that keeps what it reads.
//!
//! Parts of debug information refer to tables: a unit to its abbreviations and to its files, a
//! function to its ranges. A table may be referred to more than once, so a file of a megabyte can be
//! made to mean terabytes. No compiler comes near that; what does is refused.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::{AbbreviationsCacheStrategy, EndianSlice, LittleEndian, Reader, Section, UnitHeader};

use crate::parallel;

/// How much larger all that is referred to may be than the section it is in. Link-time optimisation
/// and `dwz` share tables, a few times each.
const SHARING_LIMIT: usize = 32;

/// What is always allowed.
const ALWAYS_ALLOWED: usize = 1 << 20;

type Slice<'data> = EndianSlice<'data, LittleEndian>;
type Dwarf<'data> = gimli::Dwarf<Slice<'data>>;

/// What may still be referred to.
struct Allowance(AtomicUsize);

impl Allowance {
    fn new(section_len: usize) -> Self {
        let allowed = section_len.saturating_mul(SHARING_LIMIT).saturating_add(ALWAYS_ALLOWED);
        Self(AtomicUsize::new(allowed))
    }

    /// Whether there was that much left.
    fn take(&self, amount: usize) -> bool {
        let update = |left: usize| left.checked_sub(amount);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update).is_ok()
    }
}

/// Whether what the debug information refers to is in proportion to its size.
pub(crate) fn is_plausible(mut dwarf: Dwarf<'_>) -> bool {
    /// Units differ a thousandfold in size: small chunks keep all processors busy.
    const CHUNK: usize = 4;
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        headers.push(header);
    }
    // Each check keeps the time of the next within bounds.
    if !abbreviations_are(&dwarf, &headers) {
        return false;
    }
    dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
    if !line_headers_are(&dwarf, &headers) {
        return false;
    }
    let ranges =
        dwarf.ranges.debug_ranges().reader().len() + dwarf.ranges.debug_rnglists().reader().len();
    let allowance = Allowance::new(ranges);
    let chunks = parallel::map_chunks(&headers, CHUNK, |chunk| {
        chunk.iter().all(|header| ranges_are(&dwarf, header, &allowance).unwrap_or(true))
    });
    chunks.into_iter().all(|plausible| plausible)
}

/// The tables of abbreviations, each of which is read once for all units that share it.
fn abbreviations_are(dwarf: &Dwarf<'_>, headers: &[UnitHeader<Slice<'_>>]) -> bool {
    let section = *dwarf.debug_abbrev.reader();
    let allowance = Allowance::new(section.len());
    let offsets: HashSet<usize> =
        headers.iter().map(|header| header.debug_abbrev_offset().0).collect();
    offsets.into_iter().all(|offset| {
        let mut table = section;
        if table.skip(offset).is_err() {
            return true;
        }
        let start = table.len();
        // A table that breaks off is as long as what was read of it.
        while let Ok(true) = skip_abbreviation(&mut table) {}
        allowance.take(start - table.len())
    })
}

/// Whether there was one more abbreviation.
fn skip_abbreviation(table: &mut Slice<'_>) -> gimli::Result<bool> {
    if table.read_uleb128()? == 0 {
        return Ok(false);
    }
    let _tag = table.read_uleb128()?;
    let _has_children = table.read_u8()?;
    loop {
        let name = table.read_uleb128()?;
        let form = table.read_uleb128()?;
        if form == u64::from(gimli::DW_FORM_implicit_const.0) {
            table.read_sleb128()?;
        }
        if (name, form) == (0, 0) {
            return Ok(true);
        }
    }
}

/// The headers of line programs, which hold the names of a unit's files.
fn line_headers_are(dwarf: &Dwarf<'_>, headers: &[UnitHeader<Slice<'_>>]) -> bool {
    let allowance = Allowance::new(dwarf.debug_line.reader().len());
    headers.iter().all(|header| {
        let len = line_header_len(dwarf, header).ok().flatten().unwrap_or(0);
        allowance.take(len.min(dwarf.debug_line.reader().len()))
    })
}

fn line_header_len(
    dwarf: &Dwarf<'_>,
    header: &UnitHeader<Slice<'_>>,
) -> gimli::Result<Option<usize>> {
    let abbreviations = dwarf.abbreviations(header)?;
    let mut entries = header.entries_raw(&abbreviations, None)?;
    let Some(abbreviation) = entries.read_abbreviation()? else { return Ok(None) };
    for specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(*specification)?;
        if attribute.name() == gimli::DW_AT_stmt_list
            && let Some(offset) = attribute.offset_value()
        {
            let mut section = *dwarf.debug_line.reader();
            section.skip(offset)?;
            let (_, format) = section.read_initial_length()?;
            if section.read_u16()? >= 5 {
                section.skip(2)?;
            }
            return Ok(Some(section.read_offset(format)?));
        }
    }
    Ok(None)
}

/// The ranges of all entries of a unit.
fn ranges_are(
    dwarf: &Dwarf<'_>,
    header: &UnitHeader<Slice<'_>>,
    allowance: &Allowance,
) -> gimli::Result<bool> {
    let unit = dwarf.unit(*header)?;
    let mut entries = unit.entries_raw(None)?;
    while !entries.is_empty() {
        let Some(abbreviation) = entries.read_abbreviation()? else { continue };
        let attributes = abbreviation.attributes();
        if attributes.iter().all(|attribute| attribute.name() != gimli::DW_AT_ranges) {
            entries.skip_attributes(attributes)?;
            continue;
        }
        for specification in attributes {
            let attribute = entries.read_attribute(*specification)?;
            if attribute.name() != gimli::DW_AT_ranges {
                continue;
            }
            let Some(mut ranges) = dwarf.attr_ranges(&unit, attribute.value())? else { continue };
            while let Ok(Some(_)) = ranges.next() {
                if !allowance.take(1) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of DWARF 4, all of one root entry with ranges, which refer to the given offsets of the
    /// abbreviations and of the range lists.
    fn units(count: u32, abbreviations: impl Fn(u32) -> u32, ranges: u32) -> Vec<u8> {
        let mut info = Vec::new();
        for unit in 0..count {
            info.extend_from_slice(&12u32.to_le_bytes());
            info.extend_from_slice(&4u16.to_le_bytes());
            info.extend_from_slice(&abbreviations(unit).to_le_bytes());
            info.push(8);
            info.push(1);
            info.extend_from_slice(&ranges.to_le_bytes());
        }
        info
    }

    /// One abbreviation: an entry without children whose only attribute is its ranges.
    const WITH_RANGES: [u8; 8] = [1, 0x11, 0, 0x55, 0x17, 0, 0, 0];

    fn judge(info: &[u8], abbreviations: &[u8], ranges: &[u8]) -> bool {
        let empty = Slice::new(&[], LittleEndian);
        let dwarf = Dwarf::load(|id| {
            Ok::<_, gimli::Error>(match id {
                gimli::SectionId::DebugInfo => Slice::new(info, LittleEndian),
                gimli::SectionId::DebugAbbrev => Slice::new(abbreviations, LittleEndian),
                gimli::SectionId::DebugRanges => Slice::new(ranges, LittleEndian),
                _ => empty,
            })
        });
        is_plausible(dwarf.unwrap())
    }

    fn range_list(count: u64) -> Vec<u8> {
        let ranges = (1..=count).flat_map(|at| [at * 16, at * 16 + 8]);
        ranges.chain([0, 0]).flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn a_few_units_may_share_a_list() {
        assert!(judge(&units(4, |_| 0, 0), &WITH_RANGES, &range_list(1000)));
    }

    #[test]
    fn thousands_of_units_may_not_share_a_list_of_thousands() {
        assert!(!judge(&units(20_000, |_| 0, 0), &WITH_RANGES, &range_list(1000)));
    }

    #[test]
    fn overlapping_tables_of_abbreviations_are_refused() {
        // Every abbreviation begins a table that goes on to the end of the section.
        let table = WITH_RANGES[..7].repeat(20_000);
        assert!(!judge(&units(20_000, |unit| unit * 7, 0), &table, &range_list(1)));
        assert!(judge(&units(20_000, |_| 0, 0), &table, &range_list(1)));
    }
}
