//! The units of debug information, and the entries that others refer to.

use std::collections::HashMap;

use gimli::{AttributeValue, DebuggingInformationEntry, EndianSlice, LittleEndian};
use gimli::{Unit, UnitHeader, UnitOffset};

pub(crate) type Slice<'data> = EndianSlice<'data, LittleEndian>;

/// Which unit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct UnitPlace {
    /// Whether it is in the file that several debug files have in common.
    pub is_common: bool,
    pub offset: usize,
}

impl UnitPlace {
    pub fn of(header: &UnitHeader<Slice<'_>>, is_common: bool) -> Option<Self> {
        Some(Self { is_common, offset: header.debug_info_offset()?.0 })
    }
}

/// Where all units begin.
pub(crate) struct Headers<'data> {
    pub own: Vec<UnitHeader<Slice<'data>>>,
    /// Those of the file that several debug files have in common.
    common: Vec<UnitHeader<Slice<'data>>>,
}

impl<'data> Headers<'data> {
    pub fn of(dwarf: &gimli::Dwarf<Slice<'data>>) -> Self {
        Self { own: headers(dwarf), common: dwarf.sup().map(headers).unwrap_or_default() }
    }
}

fn headers<'data>(dwarf: &gimli::Dwarf<Slice<'data>>) -> Vec<UnitHeader<Slice<'data>>> {
    let mut headers = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        headers.push(header);
    }
    headers
}

/// Units that others refer to (link-time optimisation and `dwz` do that).
pub(crate) struct Units<'own, 'data> {
    pub dwarf: &'own gimli::Dwarf<Slice<'data>>,
    headers: &'own Headers<'data>,
    others: HashMap<UnitPlace, Option<Unit<Slice<'data>>>>,
}

impl<'own, 'data> Units<'own, 'data> {
    pub fn new(dwarf: &'own gimli::Dwarf<Slice<'data>>, headers: &'own Headers<'data>) -> Self {
        Self { dwarf, headers, others: HashMap::new() }
    }

    /// The unit and the offset in it that an attribute of an entry in a unit refers to.
    pub fn follow(
        &self,
        from: UnitPlace,
        reference: AttributeValue<Slice<'data>>,
    ) -> Option<(UnitPlace, UnitOffset)> {
        let (is_common, offset) = match reference {
            AttributeValue::UnitRef(offset) => (from.is_common, from.offset.checked_add(offset.0)?),
            AttributeValue::DebugInfoRef(offset) => (from.is_common, offset.0),
            AttributeValue::DebugInfoRefSup(offset) => (true, offset.0),
            _ => return None,
        };
        let place = UnitPlace::of(self.header_around(is_common, offset)?, is_common)?;
        Some((place, UnitOffset(offset - place.offset)))
    }

    /// The entry that an attribute refers to, and its unit.
    pub fn entry(
        &mut self,
        from: UnitPlace,
        reference: AttributeValue<Slice<'data>>,
    ) -> Option<(UnitPlace, DebuggingInformationEntry<Slice<'data>>)> {
        let (place, offset) = self.follow(from, reference)?;
        Some((place, self.unit(place)?.entry(offset).ok()?))
    }

    fn header_around(&self, is_common: bool, offset: usize) -> Option<&UnitHeader<Slice<'data>>> {
        let headers = if is_common { &self.headers.common } else { &self.headers.own };
        let start = |header: &UnitHeader<_>| header.debug_info_offset().map_or(0, |at| at.0);
        let after = headers.partition_point(|header| start(header) <= offset);
        headers.get(after.checked_sub(1)?)
    }

    /// The debug information that a unit is in.
    pub fn dwarf_of(&self, place: UnitPlace) -> Option<&gimli::Dwarf<Slice<'data>>> {
        if place.is_common { self.dwarf.sup() } else { Some(self.dwarf) }
    }

    /// A unit, if it can be read.
    pub fn unit(&mut self, place: UnitPlace) -> Option<&Unit<Slice<'data>>> {
        if !self.others.contains_key(&place) {
            let header = *self.header_around(place.is_common, place.offset)?;
            let unit = self.dwarf_of(place)?.unit(header).ok();
            self.others.insert(place, unit);
        }
        self.known(place)
    }

    /// A unit that was read already.
    pub fn known(&self, place: UnitPlace) -> Option<&Unit<Slice<'data>>> {
        self.others.get(&place)?.as_ref()
    }
}
