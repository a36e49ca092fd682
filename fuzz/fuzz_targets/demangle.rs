//! An arbitrary name is demangled or left alone, in little time and little memory.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weft_symbols::demangle;

fuzz_target!(|name: &str| {
    if let Some(demangled) = demangle(name) {
        assert!(demangled.len() <= 1 << 16);
    }
});
