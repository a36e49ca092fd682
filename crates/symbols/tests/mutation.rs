//! Programs with changed bytes give an error or functions, never a panic. The short form of
//! `fuzz/run`, which needs neither a nightly compiler nor cargo-fuzz.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weft_symbols::{Cache, Glob, Layout, ModuleImage, ModuleSymbols};

const TIME: Duration = Duration::from_secs(10);

/// Numbers that are not random but look so (xorshift), the same in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/seed.c");
    let program = std::env::temp_dir().join(format!("weft-mutation-{}", std::process::id()));
    let seeds = [&["-gdwarf-5"][..], &["-gdwarf-4"], &["-g", "-gz=zlib"], &["-s"]].map(|flags| {
        let compiler =
            Command::new("gcc").args(flags).arg("-o").arg(&program).arg(&source).status();
        assert!(compiler.expect("gcc is installed").success());
        std::fs::read(&program).expect("gcc wrote it")
    });
    std::fs::remove_file(&program).expect("it was there");
    seeds.into()
}

/// Changes a few bytes, most often in the headers, where they hurt.
fn mutate(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    for _ in 0..1 + numbers.below(12) {
        let length = bytes.len();
        let at = match numbers.below(4) {
            0 => numbers.below(64 + 56 * 13),
            1 => length - 1 - numbers.below(64 * 40),
            _ => numbers.below(length),
        };
        bytes[at] = match numbers.below(4) {
            0 => 0xff,
            1 => 0,
            2 => bytes[at].wrapping_add(1),
            _ => numbers.next() as u8,
        };
    }
    if numbers.below(16) == 0 {
        let rest = numbers.below(bytes.len());
        bytes.truncate(rest);
    }
}

#[test]
fn changed_programs_do_no_harm() {
    let seeds = seeds();
    let mut numbers = Numbers(0x2026_1114_5eed);
    let begin = Instant::now();
    let (mut tried, mut read) = (0, 0);
    while begin.elapsed() < TIME {
        let mut bytes = seeds[numbers.below(seeds.len())].clone();
        mutate(&mut bytes, &mut numbers);
        let layout = match numbers.below(4) {
            0 => Layout::Memory { bias: 0x5555_5555_0000 },
            _ => Layout::File,
        };
        let image = ModuleImage {
            path: "/changed".into(),
            bytes: Arc::from(bytes),
            layout,
            root: "/nonexistent".into(),
        };
        tried += 1;
        let Ok(module) = ModuleSymbols::from_image(image, &Cache::disabled()) else { continue };
        read += 1;
        let _ = module.json(&module.select(&Glob::new("*")), module.sources().ok());
        let _ = module.line_table();
        let functions = module.functions().iter().take(8);
        let pieces: Vec<_> = functions.map(|one| (one.offset(), one.size())).collect();
        for &(offset, _) in &pieces {
            let _ = module.frames_at(offset);
        }
        let _ = module.instructions(&pieces);
        let _ = module.disassemble(&pieces);
    }
    // Otherwise the changes are too rough to get anywhere.
    assert!(tried > 100 && read > tried / 4, "{read} of {tried} could be read");
}
