//! A module made of arbitrary bytes gives an error or functions: no panic, no unbounded memory.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use weft_symbols::{Cache, Glob, Layout, ModuleImage, ModuleSymbols};

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_last() else { return };
    let layout = match choice % 4 {
        0 => Layout::Memory { bias: 0 },
        1 => Layout::Memory { bias: 0x5555_5555_0000 },
        _ => Layout::File,
    };
    let image = ModuleImage {
        path: "/fuzzed".into(),
        bytes: Arc::from(bytes),
        layout,
        root: "/nonexistent".into(),
    };
    let Ok(module) = ModuleSymbols::from_image(image, &Cache::disabled()) else { return };
    let sources = module.sources().ok();
    let indexes = module.select(&Glob::new("*[!a]?*"));
    let json = module.json(&indexes, sources);
    assert!(indexes.is_empty() || json.starts_with('{'));
    for function in module.functions().iter().take(32) {
        let _ = module.frames_at(function.offset());
        let _ = module.frames_at(function.offset().wrapping_add(function.size() / 2));
        assert!(module.functions().containing(function.offset()).is_some());
        assert!(function.name().is_empty() || module.find(function.name()).len() >= 1);
    }
    let _ = module.problems().count();
    if let Ok(lines) = module.line_table() {
        assert!(lines.offsets.is_sorted());
        assert!(lines.file_of.iter().zip(&lines.lines).all(|(&file, &line)| {
            line == 0 || (file as usize) < lines.files.len()
        }));
    }
});
