// Reads extents of a large file past the page cache, in no order.
#[path = "operations.rs"]
mod operations;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

const EXTENT: usize = 1 << 20;
const EXTENTS: u64 = 128;
const O_DIRECT: i32 = 0o40000;

#[inline(never)]
fn read_extent(file: &std::fs::File, buffer: &mut [u8], number: u64) -> u8 {
    file.read_exact_at(buffer, number * EXTENT as u64).unwrap();
    buffer[0]
}

fn main() {
    let operations = operations::counter();
    let path = std::env::args().nth(2).expect("a file");
    let mut made = std::fs::File::create(&path).unwrap();
    for number in 0..EXTENTS {
        made.write_all(&vec![number as u8; EXTENT]).unwrap();
    }
    made.sync_all().unwrap();
    let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(&path).unwrap();
    // Such reads want a buffer at the start of a page.
    let mut memory = vec![0u8; EXTENT + 4096];
    let start = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[start..start + EXTENT];
    let mut number = 1;
    loop {
        number = (number * 37 + 11) % EXTENTS;
        assert_eq!(read_extent(&file, buffer, number), number as u8);
        operations::count(operations);
    }
}
