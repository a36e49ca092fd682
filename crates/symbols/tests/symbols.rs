//! The functions of modules, without Python: this test's own executable, and files made to hurt.

use std::path::PathBuf;
use std::sync::Arc;

use weft_symbols::{
    Cache, Function, Glob, Layout, ModuleFile, ModuleImage, ModuleSymbols, Origin, Transfer,
};

fn own_executable(cache: &Cache) -> ModuleSymbols {
    let path = std::env::current_exe().unwrap();
    ModuleSymbols::open(ModuleFile::here(&path), cache).unwrap()
}

fn image(bytes: Vec<u8>) -> ModuleImage {
    ModuleImage {
        path: "/image".into(),
        bytes: Arc::from(bytes),
        layout: Layout::File,
        root: "/nonexistent".into(),
    }
}

/// A function to look for.
#[inline(never)]
fn landmark(value: u64) -> u64 {
    std::hint::black_box(value) + 1
}

fn find_landmark(module: &ModuleSymbols) -> Function<'_> {
    let found = module.find("symbols::landmark");
    assert_eq!(found.len(), 1, "{found:?}");
    module.functions().get(found[0] as usize).unwrap()
}

#[test]
fn a_program_knows_itself() {
    assert_eq!(landmark(1), 2);
    let module = own_executable(&Cache::disabled());
    let function = find_landmark(&module);
    assert_eq!(function.origin(), Origin::Symtab);
    assert!(function.size() > 0);
    let inside = module.functions().containing(function.offset() + function.size() - 1).unwrap();
    assert_eq!(inside.index(), function.index());
    assert!(module.select(&Glob::new("symbols::land*")).contains(&(function.index() as u32)));
    assert_eq!(module.problems().count(), 0);
}

#[test]
fn a_program_knows_its_own_lines() {
    let module = own_executable(&Cache::disabled());
    let function = find_landmark(&module);
    let frames = module.frames_at(function.offset()).unwrap();
    let outermost = frames.last().unwrap();
    assert!(outermost.file.as_ref().unwrap().ends_with("tests/symbols.rs"));
    assert!(!outermost.inlined);
    let (file, line) = module.sources().unwrap().of(function.index()).unwrap();
    assert!(file.ends_with("tests/symbols.rs"));
    assert_eq!(
        include_str!("symbols.rs").lines().nth(line as usize - 1),
        Some("fn landmark(value: u64) -> u64 {")
    );
}

#[test]
fn a_program_knows_all_its_lines_and_instructions() {
    let module = own_executable(&Cache::disabled());
    let function = find_landmark(&module);
    let (file, line) = module.sources().unwrap().of(function.index()).unwrap();
    let table = module.line_table().unwrap();
    assert!(table.offsets.is_sorted());
    let row = table.offsets.partition_point(|&offset| offset < function.offset());
    assert_eq!(table.offsets[row], function.offset());
    assert_eq!((&*table.files[table.file_of[row] as usize], table.lines[row]), (file, line));

    let pieces = [(function.offset(), function.size()), (u64::MAX - 8, 8)];
    let found = module.instructions(&pieces).unwrap();
    assert_eq!(found.offsets[0], function.offset());
    let bytes: u64 = found.sizes.iter().map(|&size| u64::from(size)).sum();
    assert_eq!(bytes, function.size());
    assert!(found.transfers.contains(&(Transfer::Return as u8)));
    let texts = module.disassemble(&pieces).unwrap();
    assert_eq!(texts[0].len(), found.offsets.len());
    assert!(texts[1].is_empty());
}

#[test]
fn what_comes_from_the_cache_is_the_same() {
    let directory = ScratchDirectory::new();
    let cache = Cache::in_directory(&directory.0);
    let (built, cached) = (own_executable(&cache), own_executable(&cache));
    assert!(!built.is_from_cache());
    assert!(cached.is_from_cache());
    let everything = built.select(&Glob::new("*"));
    let sources = Some(built.sources().unwrap());
    let again = Some(cached.sources().unwrap());
    assert!(built.json(&everything, sources) == cached.json(&everything, again));
}

/// A directory that goes with the test.
struct ScratchDirectory(PathBuf);

impl ScratchDirectory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("weft-symbols-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const CODE_AT: u64 = 0x1000;
const CODE_SIZE: u64 = 0x10_0000;

/// A library with one section of code and a symbol table: offset of the name, address, size.
fn library(symbols: &[(u32, u64, u64)], strings: &[u8]) -> Vec<u8> {
    let mut table = Vec::new();
    for (name, address, size) in symbols {
        table.extend_from_slice(&name.to_le_bytes());
        table.extend_from_slice(&[0x12, 0, 1, 0]); // a global function in section 1
        table.extend_from_slice(&address.to_le_bytes());
        table.extend_from_slice(&size.to_le_bytes());
    }
    let strings_at = 64 + table.len() as u64;
    let headers_at = strings_at + strings.len() as u64;
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [3u16, 62] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1u32.to_le_bytes());
    for word in [0, 0, headers_at] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    file.extend_from_slice(&0u32.to_le_bytes());
    for half in [64u16, 56, 0, 64, 4, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&table);
    file.extend_from_slice(strings);
    // type, flags, address, offset, size, link, size of an entry
    for section in [
        [0, 0, 0, 0, 0, 0, 0],
        [8, 6, CODE_AT, 0, CODE_SIZE, 0, 0],
        [2, 0, 0, 64, table.len() as u64, 3, 24],
        [3, 0, 0, strings_at, strings.len() as u64, 0, 0],
    ] {
        let [kind, flags, address, offset, size, link, entry_size] = section;
        file.extend_from_slice(&0u32.to_le_bytes());
        file.extend_from_slice(&(kind as u32).to_le_bytes());
        for word in [flags, address, offset, size] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&(link as u32).to_le_bytes());
        file.extend_from_slice(&0u32.to_le_bytes());
        for word in [1, entry_size] {
            file.extend_from_slice(&word.to_le_bytes());
        }
    }
    file
}

#[test]
fn names_of_one_address_become_one_function() {
    let strings = b"\0__read\0read\0other\0";
    let symbols = [(1, CODE_AT, 8), (8, CODE_AT, 0), (13, CODE_AT + 16, 4), (13, 8, 4)];
    let module = ModuleSymbols::from_image(image(library(&symbols, strings)), &Cache::disabled());
    let module = module.unwrap();
    let functions: Vec<_> =
        module.functions().iter().map(|function| (function.name(), function.size())).collect();
    assert_eq!(functions, [("read", 8), ("other", 4)], "what is not in code is no function");
    assert_eq!(module.functions().get(0).unwrap().aliases().collect::<Vec<_>>(), ["__read"]);
    assert_eq!(module.find("__read"), [0]);
}

#[test]
fn symbols_that_share_a_long_name_do_not_fill_the_memory() {
    let mut strings = vec![b'x'; 60_000];
    strings.push(0);
    // All names are different, and together they would take 1.8 GB.
    let symbols: Vec<_> = (0..60_000).map(|name| (name, CODE_AT + u64::from(name), 1)).collect();
    let module = ModuleSymbols::from_image(image(library(&symbols, &strings)), &Cache::disabled());
    let module = module.unwrap();
    assert!(module.functions().len() < 100);
    assert!(module.problems().any(|problem| problem.contains("share a name")));
}

#[test]
fn a_name_that_is_no_text_is_made_one() {
    let module = ModuleSymbols::from_image(
        image(library(&[(1, CODE_AT, 8)], b"\0\xff\xfe\"\0")),
        &Cache::disabled(),
    );
    let module = module.unwrap();
    assert_eq!(module.functions().get(0).unwrap().name(), "\u{fffd}\u{fffd}\"");
    assert!(module.json(&[0], None).contains("\u{fffd}\u{fffd}\\\""));
}

#[test]
fn code_is_read_as_the_file_has_it() {
    let module = own_executable(&Cache::disabled());
    let index = module.find("symbols::landmark")[0];
    let function = module.functions().get(index as usize).unwrap();
    let (at, size) = (function.offset(), function.size());
    let [code, elsewhere] = &module.code(&[(at, size), (0, 4)]).unwrap()[..] else { panic!() };
    // SAFETY: the code of a function of this very program, which nobody changes.
    let here = unsafe { std::slice::from_raw_parts(landmark as *const u8, size as usize) };
    assert_eq!(code, here);
    assert!(elsewhere.is_empty(), "the headers are no code");
}

#[test]
fn what_is_no_module_is_refused() {
    let refused = ModuleSymbols::from_image(image(b"MZ".to_vec()), &Cache::disabled()).err();
    let refused = refused.unwrap();
    assert!(refused.what.contains("/image"));
}
