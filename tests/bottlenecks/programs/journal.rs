// Turns orders into trees of parts, and writes what they say into a log.
#[path = "operations.rs"]
mod operations;

use std::fs::{File, OpenOptions};
use std::io::Write;

const TEXT: &[u8] = b"wheel, axle, frame, saddle, bell, lamp, chain, pedal, brake and lock";

struct Part {
    text: Vec<u8>,
    inner: Vec<Box<Part>>,
}

#[inline(never)]
fn build_parts(order: u64, depth: u32) -> Box<Part> {
    let inner = if depth == 0 { 0 } else { 5 };
    Box::new(Part {
        text: TEXT[..20 + (order % 40) as usize].to_vec(),
        inner: (0..inner).map(|i| build_parts(order * 5 + i, depth - 1)).collect(),
    })
}

#[inline(never)]
fn write_log(log: &mut File, text: &[u8]) {
    for letter in text.chunks(1) {
        log.write_all(letter).unwrap();
    }
}

fn main() {
    let operations = operations::counter();
    let path = std::env::args().nth(2).expect("a file");
    let mut log = OpenOptions::new().write(true).open(&path).unwrap();
    for order in 0u64.. {
        let parts = build_parts(order % 1000, 3);
        for part in parts.inner.iter().take(2) {
            write_log(&mut log, &part.text);
        }
        operations::count(operations);
    }
}
