//! Which functions give something to their callers that is not in `rax`, as the debug information has it.

use std::collections::{HashMap, HashSet};

use gimli::{AttributeValue, DebuggingInformationEntry, Unit, UnitHeader};

use crate::dwarf::DebugInfo;
use crate::parallel;
use crate::units::{Headers, Slice, UnitPlace, Units};

/// A type may be a name of a name of a type, and a structure in a structure; not for long.
const DEEPEST: usize = 32;

/// What fits into one register.
const REGISTER: u64 = 8;

const FLOATING: &str = "a floating-point number";
const VECTOR: &str = "a vector";
const WIDE: &str = "a value that takes more than one register";
const IN_MEMORY: &str = "a structure that its caller finds in memory or in other registers";

/// Those of the functions at these addresses that give something else than what is in `rax`, and what that is.
pub(crate) fn others(info: &DebugInfo, addresses: &[u64]) -> HashMap<u64, &'static str> {
    /// Compilation units differ a thousandfold in size: small chunks keep all processors busy.
    const CHUNK: usize = 4;
    let wanted: HashSet<u64> = addresses.iter().copied().collect();
    let dwarf = info.borrow();
    let headers = Headers::of(&dwarf);
    let chunks = parallel::map_chunks(&headers.own, CHUNK, |chunk| {
        let mut reader = Reader { units: Units::new(&dwarf, &headers), found: HashMap::new() };
        for header in chunk {
            // A unit that cannot be read takes nothing from the others.
            let _ = reader.read(header, &wanted);
        }
        reader.found
    });
    chunks.into_iter().flatten().collect()
}

type Entry<'data> = DebuggingInformationEntry<Slice<'data>>;
type Value<'data> = AttributeValue<Slice<'data>>;

struct Reader<'own, 'data> {
    units: Units<'own, 'data>,
    found: HashMap<u64, &'static str>,
}

impl<'data> Reader<'_, 'data> {
    fn read(
        &mut self,
        header: &UnitHeader<Slice<'data>>,
        wanted: &HashSet<u64>,
    ) -> gimli::Result<()> {
        let dwarf = self.units.dwarf;
        let unit = dwarf.unit(*header)?;
        let Some(place) = UnitPlace::of(header, false) else { return Ok(()) };
        let mut entries = unit.entries();
        while let Some(entry) = entries.next_dfs()? {
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            let Some(address) = address(dwarf, &unit, entry)? else { continue };
            if wanted.contains(&address)
                && let Some(reference) = self.result(place, entry)
                && let Some(what) = self.kind(reference.0, reference.1)
            {
                self.found.insert(address, what);
            }
        }
        Ok(())
    }

    /// The type of what a function returns, and the unit that refers to it; `None` if it returns nothing.
    fn result(
        &mut self,
        place: UnitPlace,
        entry: &Entry<'data>,
    ) -> Option<(UnitPlace, Value<'data>)> {
        let origin = |entry: &Entry<'data>| {
            let specified = entry.attr_value(gimli::DW_AT_specification);
            specified.or_else(|| entry.attr_value(gimli::DW_AT_abstract_origin))
        };
        if let Some(found) = entry.attr_value(gimli::DW_AT_type) {
            return Some((place, found));
        }
        let (mut place, mut next) = (place, origin(entry)?);
        for _ in 0..DEEPEST {
            let (unit, entry) = self.units.entry(place, next)?;
            if let Some(found) = entry.attr_value(gimli::DW_AT_type) {
                return Some((unit, found));
            }
            (place, next) = (unit, origin(&entry)?);
        }
        None
    }

    /// What a value of a type is, if it is not returned in `rax` alone.
    fn kind(&mut self, place: UnitPlace, reference: Value<'data>) -> Option<&'static str> {
        let (place, entry) = self.plain(place, reference)?;
        let size = size(&entry);
        match entry.tag() {
            gimli::DW_TAG_base_type if is_floating(&entry) => Some(FLOATING),
            gimli::DW_TAG_array_type => Some(VECTOR),
            gimli::DW_TAG_ptr_to_member_type => {
                let member = entry.attr_value(gimli::DW_AT_type)?;
                let (_, member) = self.plain(place, member)?;
                (member.tag() == gimli::DW_TAG_subroutine_type).then_some(WIDE)
            }
            _ if is_structure(&entry) => {
                let is_one_word = size.is_some_and(|size| (1..=REGISTER).contains(&size));
                let is_empty = size == Some(0);
                let is_by_value = self.is_by_value(place, &entry);
                let is_fit = is_one_word && self.has_integer(place, &entry, 0);
                (!(is_by_value && (is_fit || is_empty))).then_some(IN_MEMORY)
            }
            _ => size.filter(|size| *size > REGISTER).map(|_| WIDE),
        }
    }

    /// The type that names and qualifiers stand for.
    fn plain(
        &mut self,
        place: UnitPlace,
        reference: Value<'data>,
    ) -> Option<(UnitPlace, Entry<'data>)> {
        let (mut place, mut entry) = self.units.entry(place, reference)?;
        for _ in 0..DEEPEST {
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => {
                    let next = entry.attr_value(gimli::DW_AT_type)?;
                    (place, entry) = self.units.entry(place, next)?;
                }
                _ => return Some((place, entry)),
            }
        }
        None
    }

    /// Whether objects of a type are handed over as what they consist of. Those of C always are; of those of C++ not all
    /// compilers say it, and only what has no functions is known to be.
    fn is_by_value(&mut self, place: UnitPlace, entry: &Entry<'data>) -> bool {
        match entry.attr_value(gimli::DW_AT_calling_convention) {
            Some(AttributeValue::CallingConvention(how)) => how == gimli::DW_CC_pass_by_value,
            _ => match self.language(place) {
                Some(
                    gimli::DW_LANG_C
                    | gimli::DW_LANG_C89
                    | gimli::DW_LANG_C99
                    | gimli::DW_LANG_C11
                    | gimli::DW_LANG_C17,
                ) => true,
                Some(
                    gimli::DW_LANG_C_plus_plus
                    | gimli::DW_LANG_C_plus_plus_03
                    | gimli::DW_LANG_C_plus_plus_11
                    | gimli::DW_LANG_C_plus_plus_14
                    | gimli::DW_LANG_C_plus_plus_17
                    | gimli::DW_LANG_C_plus_plus_20,
                ) => self.has_no_functions(place, entry, 0),
                _ => false,
            },
        }
    }

    fn language(&mut self, place: UnitPlace) -> Option<gimli::DwLang> {
        let mut entries = self.units.unit(place)?.entries();
        let root = entries.next_dfs().ok()??;
        match root.attr_value(gimli::DW_AT_language)? {
            AttributeValue::Language(language) => Some(language),
            _ => None,
        }
    }

    /// The types of what a structure consists of, and whether it has functions.
    fn parts(&mut self, place: UnitPlace, entry: &Entry<'data>) -> (Vec<Value<'data>>, bool) {
        let (mut parts, mut has_functions) = (Vec::new(), false);
        if let Some(unit) = self.units.unit(place)
            && let Ok(mut tree) = unit.entries_tree(Some(entry.offset()))
            && let Ok(root) = tree.root()
        {
            let mut children = root.children();
            while let Ok(Some(child)) = children.next() {
                let child = child.entry();
                let is_part =
                    matches!(child.tag(), gimli::DW_TAG_member | gimli::DW_TAG_inheritance);
                parts.extend(child.attr_value(gimli::DW_AT_type).filter(|_| is_part));
                has_functions |= child.tag() == gimli::DW_TAG_subprogram;
            }
        }
        (parts, has_functions)
    }

    /// The type of a part of a structure, or of the elements of an array that is a part.
    fn part(&mut self, place: UnitPlace, part: Value<'data>) -> Option<(UnitPlace, Entry<'data>)> {
        let (place, entry) = self.plain(place, part)?;
        match entry.tag() {
            gimli::DW_TAG_array_type => self.plain(place, entry.attr_value(gimli::DW_AT_type)?),
            _ => Some((place, entry)),
        }
    }

    fn has_no_functions(&mut self, place: UnitPlace, entry: &Entry<'data>, depth: usize) -> bool {
        let (parts, has_functions) = self.parts(place, entry);
        let mut is_plain = |part| {
            self.part(place, part).is_some_and(|(place, entry)| {
                !is_structure(&entry)
                    || depth < DEEPEST && self.has_no_functions(place, &entry, depth + 1)
            })
        };
        !has_functions && parts.into_iter().all(&mut is_plain)
    }

    /// Whether a structure that fits into a register has something in it that is no floating-point number.
    fn has_integer(&mut self, place: UnitPlace, entry: &Entry<'data>, depth: usize) -> bool {
        let (parts, _) = self.parts(place, entry);
        let mut is_integer = |part| {
            self.part(place, part).is_some_and(|(place, entry)| match entry.tag() {
                _ if is_structure(&entry) => {
                    depth < DEEPEST && self.has_integer(place, &entry, depth + 1)
                }
                gimli::DW_TAG_base_type => !is_floating(&entry),
                gimli::DW_TAG_array_type => false,
                _ => true,
            })
        };
        parts.into_iter().any(&mut is_integer)
    }
}

fn is_structure(entry: &Entry<'_>) -> bool {
    matches!(
        entry.tag(),
        gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type
    )
}

fn size(entry: &Entry<'_>) -> Option<u64> {
    entry.attr_value(gimli::DW_AT_byte_size)?.udata_value()
}

fn is_floating(entry: &Entry<'_>) -> bool {
    let Some(AttributeValue::Encoding(encoding)) = entry.attr_value(gimli::DW_AT_encoding) else {
        return false;
    };
    matches!(
        encoding,
        gimli::DW_ATE_float
            | gimli::DW_ATE_complex_float
            | gimli::DW_ATE_imaginary_float
            | gimli::DW_ATE_decimal_float
    )
}

/// Where the code of a function begins; `None` if it has none.
fn address(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    entry: &Entry<'_>,
) -> gimli::Result<Option<u64>> {
    if let Some(low) = entry.attr_value(gimli::DW_AT_low_pc) {
        return dwarf.attr_address(unit, low);
    }
    let Some(ranges) = entry.attr_value(gimli::DW_AT_ranges) else { return Ok(None) };
    let Some(mut ranges) = dwarf.attr_ranges(unit, ranges)? else { return Ok(None) };
    Ok(ranges.next()?.map(|range| range.begin))
}
