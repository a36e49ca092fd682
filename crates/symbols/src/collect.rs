//! Merges what all readers say about a module into one table.
//!
//! Every address has one function. Of the names that symbols give to it, one becomes the name and
//! the others its aliases. Where no symbol is, the unwind tables say that there is a function.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use object::elf;

use crate::backing::Backing;
use crate::demangle::demangle;
use crate::elf::{Elf, Layout};
use crate::gopclntab;
use crate::parallel;
use crate::plt;
use crate::raw::{Binding, FunctionKind, Origin, RawFunction, Visibility};
use crate::symtab::SymbolTable;
use crate::table::{FunctionTable, NewFunction, TableBuilder, TableFull};
use crate::{Error, Result};
use crate::{decompress, frames};

/// How much longer all demangled names may be than all names, and what is allowed in any case.
/// They are about twice as long in C++ programs full of templates.
const DEMANGLED_GAIN: usize = 16;
const DEMANGLED_AT_LEAST: usize = 1 << 24;

/// The functions of a module and of its debug file.
pub(crate) fn collect(
    module: &Elf,
    debug_file: Option<&Elf>,
    mut problems: Vec<String>,
    stamp: u64,
) -> Result<FunctionTable> {
    problems.extend(module.problems.iter().cloned());
    let mini = mini_debug_info(module, &mut problems);
    let (tables, dynamic) = symbol_tables(module, debug_file, mini.as_ref(), &mut problems);

    let code = module.code();
    let mut functions = Vec::new();
    for table in tables.iter().chain(&dynamic) {
        if let Err(problem) = table.functions(&code, &mut functions) {
            problems.push(problem);
        }
    }
    let go_names = gopclntab::functions(module);
    functions.extend(go_names.iter().filter(|function| code.contains(function.address)).map(
        |function| RawFunction {
            address: function.address,
            size: function.size,
            name: function.name.as_bytes(),
            kind: FunctionKind::Function,
            binding: Binding::Local,
            visibility: Visibility::Default,
            origin: Origin::GoTable,
        },
    ));
    functions.sort_by_key(|function| function.address);

    let plt_entries = plt::entries(module);
    let plt_names = plt::names(&plt_entries, dynamic.as_ref(), |address| {
        let start = functions.partition_point(|function| function.address < address);
        let same = functions[start..].iter().take_while(|function| function.address == address);
        same.min_by_key(|function| preference(function)).map(|function| function.name)
    });
    let (ranges, problem) = frames::ranges(module);
    problems.extend(problem);
    let nameless = nameless(module, &functions, &ranges, |address| code.contains(address));
    let sub_names = SubNames::new(&nameless);
    functions.extend(plt_entries.iter().zip(&plt_names).map(|(entry, name)| RawFunction {
        address: entry.address,
        size: entry.size,
        name,
        kind: FunctionKind::Plt,
        binding: Binding::Local,
        visibility: Visibility::Default,
        origin: Origin::Plt,
    }));
    functions.extend(nameless.iter().zip(sub_names.iter()).map(|(range, name)| RawFunction {
        address: range.0,
        size: range.1,
        name: name.as_bytes(),
        kind: FunctionKind::Function,
        binding: Binding::Local,
        visibility: Visibility::Default,
        origin: Origin::Frames,
    }));
    functions.sort_by_key(|function| function.address);

    build(&mut functions, &ranges, problems, stamp).map_err(|TableFull| {
        Error::new("the module has more names than weft can hold")
            .why("all names together are longer than 4 GiB")
    })
}

/// The variables of a name in a module and its debug file, each with its size, by address. Of C++ and
/// Rust names the demangled form will do.
pub(crate) fn variables(module: &Elf, debug_file: Option<&Elf>, name: &str) -> Vec<(u64, u64)> {
    let mut problems = Vec::new();
    let mini = mini_debug_info(module, &mut problems);
    let (tables, dynamic) = symbol_tables(module, debug_file, mini.as_ref(), &mut problems);
    // Demangling is slow, and most names can be told apart without.
    let last_part = name.rsplit("::").next().unwrap_or(name);
    let is_wanted = |symbol: &str| {
        symbol == name
            || symbol.contains(last_part) && demangle(symbol).is_some_and(|found| found == name)
    };
    let mut sizes = BTreeMap::new();
    for (address, size) in tables.iter().chain(&dynamic).flat_map(|t| t.variables(&is_wanted)) {
        let largest: &mut u64 = sizes.entry(address).or_default();
        *largest = size.max(*largest);
    }
    sizes.into_iter().collect()
}

/// The smallest variable that contains an address: its name, as people read it, and where it starts.
pub(crate) fn variable_at(
    module: &Elf,
    debug_file: Option<&Elf>,
    address: u64,
) -> Option<(String, u64)> {
    let mut problems = Vec::new();
    let mini = mini_debug_info(module, &mut problems);
    let (tables, dynamic) = symbol_tables(module, debug_file, mini.as_ref(), &mut problems);
    let found = tables.iter().chain(&dynamic).flat_map(|table| table.variables_at(address));
    let (start, _, name) = found.min_by_key(|&(_, size, _)| size)?;
    Some((demangle(name).unwrap_or_else(|| name.to_owned()), start))
}

/// The full symbol tables, and the dynamic one.
fn symbol_tables<'data>(
    module: &'data Elf,
    debug_file: Option<&'data Elf>,
    mini: Option<&'data Elf>,
    problems: &mut Vec<String>,
) -> (Vec<SymbolTable<'data>>, Option<SymbolTable<'data>>) {
    let mut dynamic = None;
    let mut tables = Vec::new();
    for (elf, section_type, origin) in [
        (Some(module), elf::SHT_SYMTAB, Origin::Symtab),
        (debug_file, elf::SHT_SYMTAB, Origin::DebugFile),
        (mini, elf::SHT_SYMTAB, Origin::MiniDebugInfo),
        (Some(module), elf::SHT_DYNSYM, Origin::Dynsym),
    ] {
        let Some(elf) = elf else { continue };
        match SymbolTable::in_section(elf, section_type, origin) {
            Some(Ok(table)) if origin == Origin::Dynsym => dynamic = Some(table),
            Some(Ok(table)) => tables.push(table),
            Some(Err(problem)) => problems.push(problem),
            None => {}
        }
    }
    if module.sections.is_empty() {
        dynamic = SymbolTable::in_dynamic_segment(module);
    }
    (tables, dynamic)
}

fn mini_debug_info(module: &Elf, problems: &mut Vec<String>) -> Option<Elf> {
    let section = module.section(".gnu_debugdata")?;
    let read = module
        .contents(section)
        .and_then(|compressed| decompress::mini_debug_info(&compressed))
        .and_then(|bytes| Elf::parse(Backing::Bytes(Arc::from(bytes)), Layout::File).ok());
    if read.is_none() {
        problems.push("the symbols in .gnu_debugdata cannot be read".into());
    }
    read
}

/// The ranges of the unwind tables that no known function covers.
fn nameless(
    module: &Elf,
    functions: &[RawFunction<'_>],
    ranges: &[(u64, u64)],
    is_code: impl Fn(u64) -> bool,
) -> Vec<(u64, u64)> {
    let tables: Vec<_> = module.sections.iter().filter(|section| plt::is_plt(section)).collect();
    // The furthest that any function before this one reaches.
    let mut reach = 0;
    let mut known = functions.iter().peekable();
    let mut found = Vec::new();
    for &(start, size) in ranges {
        while let Some(function) = known.next_if(|function| function.address <= start) {
            // A symbol without a size covers at least its own address.
            let end = function.address.saturating_add(function.size.max(1));
            reach = reach.max(end);
        }
        let in_table = tables.iter().take(16).any(|section| section.contains(start));
        if start >= reach && !in_table && is_code(start) {
            found.push((start, size));
        }
    }
    found
}

/// The names `sub_<offset>`, all in one piece of memory.
struct SubNames {
    text: String,
    ends: Vec<usize>,
}

impl SubNames {
    fn new(ranges: &[(u64, u64)]) -> Self {
        let mut names = Self { text: String::new(), ends: Vec::with_capacity(ranges.len()) };
        for (start, _) in ranges {
            // Writing to a string cannot fail.
            let _ = write!(names.text, "sub_{start:x}");
            names.ends.push(names.text.len());
        }
        names
    }

    fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |&end| &self.text[std::mem::replace(&mut start, end)..end])
    }
}

/// Folds the functions, which are sorted by address, into the table.
fn build(
    functions: &mut [RawFunction<'_>],
    ranges: &[(u64, u64)],
    mut problems: Vec<String>,
    stamp: u64,
) -> Result<FunctionTable, TableFull> {
    let mut builder = TableBuilder::default();
    for group in functions.chunk_by_mut(|one, other| one.address == other.address) {
        // The most trusted reader speaks first, so that its word remains when a name is repeated.
        group.sort_unstable_by(|one, other| {
            (one.name, one.origin, one.binding).cmp(&(other.name, other.origin, other.binding))
        });
        let Some(best) = group.iter().copied().min_by_key(preference) else { continue };
        let size = match group.iter().map(|function| function.size).max() {
            Some(0) | None => size_in(ranges, best.address),
            Some(size) => size,
        };
        let is_ifunc = group.iter().any(|function| function.kind == FunctionKind::Ifunc);
        builder.push(&NewFunction {
            address: best.address,
            size,
            name: &String::from_utf8_lossy(best.name),
            kind: if is_ifunc { FunctionKind::Ifunc } else { best.kind },
            binding: best.binding,
            visibility: best.visibility,
            origin: best.origin,
        })?;
        for alias in group.chunk_by(|one, other| one.name == other.name) {
            if alias[0].name != best.name {
                builder.push_alias(&String::from_utf8_lossy(alias[0].name))?;
            }
        }
    }
    let names = builder.names();
    let (demangled, complete) = demangle_all(&names);
    if !complete {
        problems.push("the demangled names would be implausibly long; some are left out".into());
    }
    builder.finish(demangled.iter().flatten().map(String::as_str), &problems, stamp)
}

fn size_in(ranges: &[(u64, u64)], address: u64) -> u64 {
    let found = ranges.binary_search_by_key(&address, |range| range.0);
    found.map_or(0, |index| ranges[index].1)
}

/// The smallest of the names of one address is the one to call the function by: what programmers
/// write (`read`) rather than what their library calls it inside (`__read`).
fn preference<'data>(
    function: &RawFunction<'data>,
) -> (Reverse<bool>, usize, Binding, usize, &'data [u8], Origin) {
    let exported = function.binding != Binding::Local
        && matches!(function.visibility, Visibility::Default | Visibility::Protected);
    let underscores = if function.name.starts_with(b"_Z") || function.name.starts_with(b"_R") {
        0
    } else {
        function.name.iter().take_while(|&&byte| byte == b'_').count()
    };
    let length = function.name.len();
    (Reverse(exported), underscores, function.binding, length, function.name, function.origin)
}

/// The demangled names in chunks, and whether all could be had.
fn demangle_all(names: &[&str]) -> (Vec<Vec<String>>, bool) {
    const CHUNK: usize = 1024;
    let total: usize = names.iter().map(|name| name.len()).sum();
    let limit = total.saturating_mul(DEMANGLED_GAIN).max(DEMANGLED_AT_LEAST);
    let used = AtomicUsize::new(0);
    let chunks = parallel::map_chunks(names, CHUNK, |chunk| {
        let demangled = chunk.iter().map(|name| {
            if used.load(Ordering::Relaxed) > limit {
                return String::new();
            }
            let demangled = demangle(name).unwrap_or_default();
            used.fetch_add(demangled.len(), Ordering::Relaxed);
            demangled
        });
        demangled.collect()
    });
    (chunks, used.into_inner() <= limit)
}
