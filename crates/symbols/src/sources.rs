//! In which source file, and on which line of it, each function of a module is written.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use gimli::{AttributeValue, Unit, UnitHeader};

use crate::block::{Block, Format, HEADER_SIZE};
use crate::dwarf::{DebugInfo, Lines};
use crate::parallel;
use crate::raw::FunctionKind;
use crate::table::FunctionTable;
use crate::units::{Headers, Slice, UnitPlace, Units};

/// The version is to be raised whenever the layout changes, or what is found.
const FORMAT: Format = Format { magic: *b"weftsrcs", version: 1 };

/// What follows the header: the number of functions, of files, and of bytes in their names.
const SHAPE_SIZE: usize = 3 * 4;

/// What the names of all source files may take before they are made shorter by leaving some out.
const FILE_NAMES_LIMIT: usize = 1 << 28;

/// Longer paths than the kernel's own limit are no paths.
const LONGEST_PATH: usize = 4096;

/// A definition may refer to its declaration, which may refer to another one; not for long.
const DEEPEST_REFERENCE: usize = 8;

/// The source of every function of a module.
#[derive(Debug)]
pub struct Sources {
    block: Block,
    files: u32,
    /// The columns: 0 or the number of the file plus 1; the line; where the file's name ends.
    file_of: usize,
    line_of: usize,
    file_ends: usize,
    texts: Range<usize>,
}

impl Sources {
    /// A block from the cache; `None` when it is not what was written there under this stamp.
    pub(crate) fn from_bytes(block: Block, stamp: u64) -> Option<Self> {
        if !FORMAT.accepts(&block, stamp) {
            return None;
        }
        let count = |index| block.u32_at(HEADER_SIZE, index) as usize;
        let (functions, files, text_bytes) = (count(0), count(1), count(2));
        let file_of = HEADER_SIZE + SHAPE_SIZE;
        let line_of = file_of + functions * 4;
        let file_ends = line_of + functions * 4;
        let texts_at = file_ends + files * 4;
        let texts = texts_at..texts_at + text_bytes;
        let files = files as u32;
        (texts.end == block.len()).then_some(Self {
            block,
            files,
            file_of,
            line_of,
            file_ends,
            texts,
        })
    }

    /// The block to keep in the cache.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.block
    }

    /// The source files, each once.
    pub fn files(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.files as usize).map(|index| self.file(index))
    }

    fn file(&self, index: usize) -> &str {
        self.block.text_at(self.file_ends, &self.texts, index)
    }

    /// The number of the source file of a function, in the order of [`Sources::files`].
    pub fn file_index(&self, function: usize) -> Option<usize> {
        let number = self.function_word(self.file_of, function)?;
        (number as usize).checked_sub(1).filter(|index| *index < self.files as usize)
    }

    /// The source file of a function and its line (0 when only the file is known).
    pub fn of(&self, function: usize) -> Option<(&str, u32)> {
        let file = self.file(self.file_index(function)?);
        Some((file, self.function_word(self.line_of, function)?))
    }

    fn function_word(&self, column: usize, function: usize) -> Option<u32> {
        (function < (self.line_of - self.file_of) / 4).then(|| self.block.u32_at(column, function))
    }
}

/// Finds the sources of all functions of a table.
pub(crate) fn find(
    table: &FunctionTable,
    debug_info: Option<&DebugInfo>,
    stamp: u64,
) -> Option<Sources> {
    let declared = debug_info.map(declarations).unwrap_or_default();
    let lines = debug_info.and_then(|info| info.lines().ok());
    let mut files = FileNames::default();
    let mut file_of = Vec::with_capacity(table.len() * 4);
    let mut line_of = Vec::with_capacity(table.len() * 4);
    for function in table.iter() {
        let offset = function.offset();
        let (file, line) = match declared.at(offset) {
            Some((file, line)) => (files.number(file), line),
            None if function.kind() == FunctionKind::Plt => (0, 0),
            None => match lines.as_ref().and_then(|lines: &Lines| lines.location(offset)) {
                Some((file, line)) => (files.number(file), line),
                None => (0, 0),
            },
        };
        file_of.extend_from_slice(&file.to_le_bytes());
        line_of.extend_from_slice(&line.to_le_bytes());
    }
    let mut block = FORMAT.begin(stamp);
    for count in [table.len(), files.ends.len() / 4, files.text.len()] {
        block.extend_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
    }
    for column in [&file_of[..], &line_of, &files.ends, files.text.as_bytes()] {
        block.extend_from_slice(column);
    }
    Sources::from_bytes(Block::finish(block), stamp)
}

/// The names of source files, numbered from 1.
#[derive(Default)]
struct FileNames {
    text: String,
    ends: Vec<u8>,
    numbers: HashMap<String, u32>,
}

impl FileNames {
    fn number(&mut self, file: &str) -> u32 {
        if let Some(number) = self.numbers.get(file) {
            return *number;
        }
        if file.is_empty() || self.text.len() + file.len() > FILE_NAMES_LIMIT {
            return 0;
        }
        self.text.push_str(file);
        self.ends.extend_from_slice(&(self.text.len() as u32).to_le_bytes());
        let number = (self.ends.len() / 4) as u32;
        self.numbers.insert(file.to_owned(), number);
        number
    }
}

/// Where the debug information says that functions are written, by their addresses.
#[derive(Default)]
struct Declarations {
    /// Address, number of the file, line; sorted by address.
    functions: Vec<(u64, u32, u32)>,
    files: Vec<String>,
}

impl Declarations {
    fn at(&self, address: u64) -> Option<(&str, u32)> {
        let index = self.functions.binary_search_by_key(&address, |function| function.0).ok()?;
        let (_, file, line) = self.functions[index];
        Some((self.files.get(file as usize)?, line))
    }
}

fn declarations(debug_info: &DebugInfo) -> Declarations {
    /// Compilation units differ a thousandfold in size: small chunks keep all processors busy.
    const CHUNK: usize = 4;
    let dwarf = debug_info.borrow();
    let headers = Headers::of(&dwarf);
    let names_left = AtomicUsize::new(FILE_NAMES_LIMIT);
    let chunks = parallel::map_chunks(&headers.own, CHUNK, |chunk| {
        let mut reader = UnitReader {
            dwarf: &dwarf,
            units: Units::new(&dwarf, &headers),
            names_left: &names_left,
            found: Declarations::default(),
        };
        for header in chunk {
            // A unit that cannot be read takes nothing from the others.
            let _ = reader.read(header);
        }
        reader.found
    });
    let mut all = Declarations::default();
    for chunk in chunks {
        let base = all.files.len() as u32;
        all.files.extend(chunk.files);
        all.functions.extend(
            chunk.functions.into_iter().map(|(address, file, line)| (address, base + file, line)),
        );
    }
    all.functions.sort_by_key(|function| function.0);
    all.functions.dedup_by_key(|function| function.0);
    all
}

/// Reads compilation units one after the other.
struct UnitReader<'own, 'data> {
    dwarf: &'own gimli::Dwarf<Slice<'data>>,
    units: Units<'own, 'data>,
    names_left: &'own AtomicUsize,
    found: Declarations,
}

/// What an entry says about where it is declared.
#[derive(Default)]
struct Declaration<'data> {
    file: Option<u64>,
    line: Option<u64>,
    origin: Option<AttributeValue<Slice<'data>>>,
}

impl<'data> UnitReader<'_, 'data> {
    fn read(&mut self, header: &UnitHeader<Slice<'data>>) -> gimli::Result<()> {
        let unit = self.dwarf.unit(*header)?;
        // By the unit that the number of the file belongs to, and that number.
        let mut files = HashMap::new();
        let mut entries = unit.entries_raw(None)?;
        while !entries.is_empty() {
            let Some(abbreviation) = entries.read_abbreviation()? else { continue };
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut address = None;
            let mut ranges = None;
            let mut declaration = Declaration::default();
            for specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(*specification)?;
                match attribute.name() {
                    gimli::DW_AT_low_pc => {
                        address = self.dwarf.attr_address(&unit, attribute.value())?;
                    }
                    gimli::DW_AT_ranges => ranges = Some(attribute.value()),
                    _ => declaration.take(&attribute),
                }
            }
            if let (None, Some(ranges)) = (address, ranges)
                && let Some(mut ranges) = self.dwarf.attr_ranges(&unit, ranges)?
            {
                address = ranges.next()?.map(|range| range.begin);
            }
            // Functions that the linker has discarded are left at 0.
            let Some(address) = address.filter(|&address| address != 0) else { continue };
            if let Some((place, file, line)) = self.resolve(&unit, declaration) {
                let key = (place, file);
                let number = match files.get(&key) {
                    Some(number) => *number,
                    None => {
                        let number = self.add_file(&unit, place, file);
                        files.insert(key, number);
                        number
                    }
                };
                if let Some(number) = number {
                    self.found.functions.push((address, number, line));
                }
            }
        }
        Ok(())
    }

    /// The unit whose file is meant, the number of the file there, and the line.
    fn resolve(
        &mut self,
        unit: &Unit<Slice<'data>>,
        mut declaration: Declaration<'data>,
    ) -> Option<(UnitPlace, u64, u32)> {
        let home = UnitPlace::of(&unit.header, false)?;
        let mut place = home;
        for _ in 0..DEEPEST_REFERENCE {
            if let Some(file) = declaration.file {
                let line = declaration.line.and_then(|line| u32::try_from(line).ok());
                return Some((place, file, line.unwrap_or(0)));
            }
            let (next, offset) = self.units.follow(place, declaration.origin.take()?)?;
            place = next;
            let found = if place == home { Some(unit) } else { self.units.unit(place) };
            let entry = found?.entry(offset).ok()?;
            let line = declaration.line;
            declaration = Declaration::default();
            entry.attrs().iter().for_each(|attribute| declaration.take(attribute));
            declaration.line = line.or(declaration.line);
        }
        None
    }

    /// Adds the path of a file of a unit; `None` when it has none that can be told.
    fn add_file(&mut self, unit: &Unit<Slice<'data>>, place: UnitPlace, file: u64) -> Option<u32> {
        let path = if UnitPlace::of(&unit.header, false)? == place {
            file_path(self.dwarf, unit, file)?
        } else {
            self.units.unit(place)?;
            file_path(self.units.dwarf_of(place)?, self.units.known(place)?, file)?
        };
        let taken = self.names_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            left.checked_sub(path.len())
        });
        taken.ok()?;
        self.found.files.push(path);
        Some(self.found.files.len() as u32 - 1)
    }
}

impl<'data> Declaration<'data> {
    fn take(&mut self, attribute: &gimli::Attribute<Slice<'data>>) {
        match attribute.name() {
            gimli::DW_AT_decl_file => {
                self.file = match attribute.value() {
                    AttributeValue::FileIndex(index) => Some(index),
                    value => value.udata_value(),
                };
            }
            gimli::DW_AT_decl_line => self.line = attribute.udata_value(),
            gimli::DW_AT_specification | gimli::DW_AT_abstract_origin => {
                self.origin = Some(attribute.value());
            }
            _ => {}
        }
    }
}

/// The path of a file of a unit, if it can be told.
pub(crate) fn file_path(
    dwarf: &gimli::Dwarf<Slice<'_>>,
    unit: &Unit<Slice<'_>>,
    index: u64,
) -> Option<String> {
    let header = unit.line_program.as_ref()?.header();
    let file = header.file(index)?;
    let text = |value| {
        let bytes = dwarf.attr_string(unit, value).ok()?;
        (bytes.len() <= LONGEST_PATH).then(|| bytes.to_string_lossy().into_owned())
    };
    let mut path = String::new();
    // Since DWARF 5, directory 0 is the one that was compiled in, not one relative to it.
    let below_compiled = header.version() < 5 || file.directory_index() != 0;
    let compiled_in = unit.comp_dir.filter(|_| below_compiled);
    for part in [
        compiled_in.map(|directory| directory.to_string_lossy().into_owned()),
        file.directory(header).and_then(text),
        text(file.path_name()),
    ]
    .into_iter()
    .flatten()
    {
        // What is absolute needs nothing in front of it.
        if part.starts_with('/') {
            path.clear();
        } else if !path.is_empty() && !path.ends_with('/') {
            path.push('/');
        }
        path.push_str(&part);
    }
    (path.len() <= LONGEST_PATH).then_some(path)
}
