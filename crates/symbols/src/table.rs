//! The functions of a module in one block of memory: columns of numbers, and the names in one
//! piece. The block is also the format of the cache, so that a cached table is used in place.
//!
//! A block from the cache is not trusted. [`FunctionTable::from_bytes`] checks its checksum and its
//! shape; every access after that is checked against the block's bounds, so that the worst that a
//! forged block can do is to give wrong names.

use std::collections::HashMap;
use std::ops::Range;

use crate::block::{Block, Format, HEADER_SIZE};
use crate::raw::{Binding, FunctionKind, Origin, Visibility};

/// The version is to be raised whenever the layout changes, or what the readers find.
const FORMAT: Format = Format { magic: *b"weftsyms", version: 2 };

/// What follows the header: the six numbers of the shape.
const SHAPE_SIZE: usize = 6 * 4;

/// How many there are of everything; the place of every column follows from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shape {
    functions: u32,
    aliases: u32,
    name_bytes: u32,
    demangled_bytes: u32,
    alias_bytes: u32,
    problem_bytes: u32,
}

/// The place of every column in the block.
#[derive(Clone, Debug)]
struct Columns {
    addresses: usize,
    sizes: usize,
    name_ends: usize,
    demangled_ends: usize,
    alias_list_ends: usize,
    attributes: usize,
    alias_ends: usize,
    names: Range<usize>,
    demangled: Range<usize>,
    aliases: Range<usize>,
    problems: Range<usize>,
}

impl Shape {
    fn columns(self) -> Columns {
        let functions = self.functions as usize;
        let mut end = HEADER_SIZE + SHAPE_SIZE;
        let mut place = |size: usize| {
            let start = end;
            end += size;
            start..end
        };
        Columns {
            addresses: place(functions * 8).start,
            sizes: place(functions * 8).start,
            name_ends: place(functions * 4).start,
            demangled_ends: place(functions * 4).start,
            alias_list_ends: place(functions * 4).start,
            attributes: place(functions * 4).start,
            alias_ends: place(self.aliases as usize * 4).start,
            names: place(self.name_bytes as usize),
            demangled: place(self.demangled_bytes as usize),
            aliases: place(self.alias_bytes as usize),
            problems: place(self.problem_bytes as usize),
        }
    }
}

/// The functions of a module, sorted by address.
#[derive(Debug)]
pub struct FunctionTable {
    block: Block,
    shape: Shape,
    columns: Columns,
}

/// One function of a [`FunctionTable`]. All that it gives is read from the table when asked.
#[derive(Clone, Copy, Debug)]
pub struct Function<'table> {
    table: &'table FunctionTable,
    index: usize,
}

impl FunctionTable {
    /// A block that was read from the cache; `None` when it is not what was written there under
    /// this stamp.
    pub(crate) fn from_bytes(block: Block, stamp: u64) -> Option<Self> {
        if !FORMAT.accepts(&block, stamp) {
            return None;
        }
        let count = |index| block.u32_at(HEADER_SIZE, index);
        let shape = Shape {
            functions: count(0),
            aliases: count(1),
            name_bytes: count(2),
            demangled_bytes: count(3),
            alias_bytes: count(4),
            problem_bytes: count(5),
        };
        let columns = shape.columns();
        (columns.problems.end == block.len()).then_some(Self { block, shape, columns })
    }

    /// The block to keep in the cache.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.block
    }

    /// How many functions there are.
    pub fn len(&self) -> usize {
        self.shape.functions as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One function, when the index is less than [`FunctionTable::len`].
    pub fn get(&self, index: usize) -> Option<Function<'_>> {
        (index < self.len()).then_some(Function { table: self, index })
    }

    /// All functions in the order of their addresses.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Function<'_>> {
        (0..self.len()).map(|index| Function { table: self, index })
    }

    /// What could not be read, in words.
    pub fn problems(&self) -> impl Iterator<Item = &str> {
        self.block.text(self.columns.problems.clone()).lines()
    }

    /// The function whose code contains an offset.
    pub fn containing(&self, offset: u64) -> Option<Function<'_>> {
        /// Functions within functions are rare and shallow (entry points of assembler code).
        const DEEPEST: usize = 16;
        let end = self.count_until(offset);
        (end.saturating_sub(DEEPEST)..end).rev().map(|index| Function { table: self, index }).find(
            |function| {
                let distance = offset - function.offset().min(offset);
                distance < function.size() || distance == 0
            },
        )
    }

    /// How many functions begin at or before an offset.
    fn count_until(&self, offset: u64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.block.u64_at(self.columns.addresses, middle) <= offset {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The function without a known size that is the last one to begin at or before an offset.
    pub fn endless_before(&self, offset: u64) -> Option<Function<'_>> {
        let last = self.get(self.count_until(offset).checked_sub(1)?)?;
        (last.size() == 0).then_some(last)
    }

    /// Which each function is, from 1, of those with its name that only their own source file sees; 0 for one that others
    /// see.
    pub fn local_numbers(&self) -> Vec<u32> {
        let mut counts: HashMap<&str, u32> = HashMap::new();
        let numbers = self.iter().map(|function| match function.binding() {
            Binding::Local => {
                let count = counts.entry(function.name()).or_default();
                *count += 1;
                *count
            }
            _ => 0,
        });
        numbers.collect()
    }
}

impl<'table> Function<'table> {
    /// Its place in the table.
    pub fn index(self) -> usize {
        self.index
    }

    /// Its address as the file states it. Adding the load bias gives the address in a process.
    pub fn offset(self) -> u64 {
        self.table.block.u64_at(self.table.columns.addresses, self.index)
    }

    /// How many bytes of code it has; 0 when nothing tells.
    pub fn size(self) -> u64 {
        self.table.block.u64_at(self.table.columns.sizes, self.index)
    }

    /// The name that the linker uses, or `sub_<offset>` when it has lost its name.
    pub fn name(self) -> &'table str {
        let columns = &self.table.columns;
        self.table.block.text_at(columns.name_ends, &columns.names, self.index)
    }

    /// The C++ or Rust name, when that differs from [`Function::name`].
    pub fn demangled(self) -> Option<&'table str> {
        let columns = &self.table.columns;
        let name = self.table.block.text_at(columns.demangled_ends, &columns.demangled, self.index);
        (!name.is_empty()).then_some(name)
    }

    /// The other names of the same code.
    pub fn aliases(self) -> impl Iterator<Item = &'table str> {
        let table = self.table;
        let columns = &table.columns;
        let list = table.block.range_at(columns.alias_list_ends, self.index);
        let list = list.start..list.end.min(table.shape.aliases as usize);
        list.map(|alias| table.block.text_at(columns.alias_ends, &columns.aliases, alias))
    }

    /// What it is.
    pub fn kind(self) -> FunctionKind {
        FunctionKind::from_number(self.attribute(0)).unwrap_or(FunctionKind::Function)
    }

    /// Who can see its name.
    pub fn binding(self) -> Binding {
        Binding::from_number(self.attribute(1)).unwrap_or(Binding::Local)
    }

    /// Whether other modules can reach it by its name.
    pub fn visibility(self) -> Visibility {
        Visibility::from_number(self.attribute(2)).unwrap_or(Visibility::Default)
    }

    /// Which part of the file named it.
    pub fn origin(self) -> Origin {
        Origin::from_number(self.attribute(3)).unwrap_or(Origin::Frames)
    }

    fn attribute(self, which: usize) -> u8 {
        self.table.block.u32_at(self.table.columns.attributes, self.index).to_le_bytes()[which]
    }
}

/// What the builder needs to know about a function.
pub(crate) struct NewFunction<'data> {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) name: &'data str,
    pub(crate) kind: FunctionKind,
    pub(crate) binding: Binding,
    pub(crate) visibility: Visibility,
    pub(crate) origin: Origin,
}

/// Collects functions, which must come in the order of their addresses, into a table.
#[derive(Default)]
pub(crate) struct TableBuilder {
    addresses: Vec<u8>,
    sizes: Vec<u8>,
    name_ends: Vec<u8>,
    alias_list_ends: Vec<u8>,
    attributes: Vec<u8>,
    alias_ends: Vec<u8>,
    names: String,
    aliases: String,
    functions: u32,
    alias_count: u32,
}

/// More names than the block's numbers can count.
#[derive(Debug)]
pub(crate) struct TableFull;

impl TableBuilder {
    pub(crate) fn push(&mut self, function: &NewFunction<'_>) -> Result<(), TableFull> {
        self.names.push_str(function.name);
        self.addresses.extend_from_slice(&function.address.to_le_bytes());
        self.sizes.extend_from_slice(&function.size.to_le_bytes());
        self.name_ends.extend_from_slice(&number(self.names.len())?.to_le_bytes());
        self.alias_list_ends.extend_from_slice(&self.alias_count.to_le_bytes());
        self.attributes.extend_from_slice(&[
            function.kind as u8,
            function.binding as u8,
            function.visibility as u8,
            function.origin as u8,
        ]);
        self.functions = self.functions.checked_add(1).ok_or(TableFull)?;
        Ok(())
    }

    /// Gives another name to the function that was pushed last.
    pub(crate) fn push_alias(&mut self, name: &str) -> Result<(), TableFull> {
        self.aliases.push_str(name);
        self.alias_ends.extend_from_slice(&number(self.aliases.len())?.to_le_bytes());
        self.alias_count = self.alias_count.checked_add(1).ok_or(TableFull)?;
        let last = self.alias_list_ends.len() - 4;
        self.alias_list_ends[last..].copy_from_slice(&self.alias_count.to_le_bytes());
        Ok(())
    }

    /// The names that were pushed, in order.
    pub(crate) fn names(&self) -> Vec<&str> {
        let mut start = 0;
        let ends = self.name_ends.chunks_exact(4);
        let ends = ends.map(|end| u32::from_le_bytes(end.try_into().unwrap_or_default()) as usize);
        ends.map(|end| &self.names[std::mem::replace(&mut start, end)..end]).collect()
    }

    /// The table. `demangled` has one text per function, empty where there is none.
    pub(crate) fn finish<'text>(
        self,
        demangled: impl Iterator<Item = &'text str>,
        problems: &[String],
        stamp: u64,
    ) -> Result<FunctionTable, TableFull> {
        let mut demangled_names = String::new();
        let mut demangled_ends = Vec::with_capacity(self.name_ends.len());
        for name in demangled {
            demangled_names.push_str(name);
            demangled_ends.extend_from_slice(&number(demangled_names.len())?.to_le_bytes());
        }
        let problems = problems.join("\n");
        let shape = Shape {
            functions: self.functions,
            aliases: self.alias_count,
            name_bytes: number(self.names.len())?,
            demangled_bytes: number(demangled_names.len())?,
            alias_bytes: number(self.aliases.len())?,
            problem_bytes: number(problems.len())?,
        };
        let columns = shape.columns();
        let mut block = FORMAT.begin(stamp);
        block.reserve_exact(columns.problems.end - block.len());
        for count in [
            shape.functions,
            shape.aliases,
            shape.name_bytes,
            shape.demangled_bytes,
            shape.alias_bytes,
            shape.problem_bytes,
        ] {
            block.extend_from_slice(&count.to_le_bytes());
        }
        for column in [
            &self.addresses,
            &self.sizes,
            &self.name_ends,
            &demangled_ends,
            &self.alias_list_ends,
            &self.attributes,
            &self.alias_ends,
        ] {
            block.extend_from_slice(column);
        }
        for text in [&self.names, &demangled_names, &self.aliases, &problems] {
            block.extend_from_slice(text.as_bytes());
        }
        Ok(FunctionTable { block: Block::finish(block), shape, columns })
    }
}

fn number(value: usize) -> Result<u32, TableFull> {
    u32::try_from(value).map_err(|_| TableFull)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(address: u64, size: u64, name: &str) -> NewFunction<'_> {
        NewFunction {
            address,
            size,
            name,
            kind: FunctionKind::Function,
            binding: Binding::Weak,
            visibility: Visibility::Hidden,
            origin: Origin::Dynsym,
        }
    }

    fn table() -> FunctionTable {
        let mut builder = TableBuilder::default();
        builder.push(&function(0x1000, 0x20, "first")).unwrap();
        builder.push(&function(0x1020, 0, "_Z3foov")).unwrap();
        builder.push_alias("bar").unwrap();
        builder.push_alias("baz").unwrap();
        builder.push(&function(0x2000, 0x100, "outer")).unwrap();
        builder.push(&function(0x2010, 0x10, "inner")).unwrap();
        assert_eq!(builder.names(), ["first", "_Z3foov", "outer", "inner"]);
        let demangled = ["", "foo()", "", ""].into_iter();
        builder.finish(demangled, &["one".into(), "two".into()], 7).unwrap()
    }

    #[test]
    fn what_was_pushed_comes_back() {
        let table = table();
        let second = table.get(1).unwrap();
        assert_eq!((second.offset(), second.size(), second.name()), (0x1020, 0, "_Z3foov"));
        assert_eq!(second.demangled(), Some("foo()"));
        assert_eq!(second.aliases().collect::<Vec<_>>(), ["bar", "baz"]);
        assert_eq!(second.binding(), Binding::Weak);
        assert_eq!(second.visibility(), Visibility::Hidden);
        assert_eq!(second.origin(), Origin::Dynsym);
        assert_eq!(table.get(0).unwrap().aliases().count(), 0);
        assert_eq!(table.get(0).unwrap().demangled(), None);
        assert_eq!(table.problems().collect::<Vec<_>>(), ["one", "two"]);
        assert!(table.get(4).is_none());
    }

    #[test]
    fn the_function_that_contains_an_offset_is_the_innermost() {
        let table = table();
        let name = |offset| table.containing(offset).map(Function::name);
        assert_eq!(name(0x1000), Some("first"));
        assert_eq!(name(0x101f), Some("first"));
        assert_eq!(name(0x1020), Some("_Z3foov"));
        assert_eq!(name(0x1021), None);
        assert_eq!(name(0x2018), Some("inner"));
        assert_eq!(name(0x2020), Some("outer"));
        assert_eq!(name(0x2100), None);
        assert_eq!(name(0), None);
    }

    #[test]
    fn a_block_is_taken_back_only_whole_and_under_its_stamp() {
        let bytes = table().bytes().to_vec();
        let load =
            |bytes: &[u8], stamp| FunctionTable::from_bytes(Block::Built(bytes.to_vec()), stamp);
        assert_eq!(load(&bytes, 7).unwrap().get(2).unwrap().name(), "outer");
        assert!(load(&bytes, 8).is_none());
        for len in 0..bytes.len() {
            assert!(load(&bytes[..len], 7).is_none());
        }
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x40;
            assert!(load(&changed, 7).is_none());
        }
    }

    #[test]
    fn a_forged_block_gives_nonsense_and_no_panic() {
        let bytes = table().bytes().to_vec();
        for at in 24..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut forged = bytes.clone();
                forged[at] = value;
                let block = Block::finish(forged);
                let Some(table) = FunctionTable::from_bytes(block, 7) else { continue };
                for function in table.iter() {
                    let _ = (function.name(), function.demangled(), function.size());
                    let _ = (function.kind(), function.binding(), function.visibility());
                    assert!(function.aliases().count() <= 2);
                }
                let _ = (table.containing(0x2018), table.problems().count());
            }
        }
    }
}
