// Four workers, each with the keys of its shard; the shard of a key is what its first letter says.
#[path = "operations.rs"]
mod operations;

use std::sync::mpsc::sync_channel;
use std::thread;

#[inline(never)]
fn index_document(text: &str) -> u64 {
    let mut hash = 14695981039346656037u64;
    for _ in 0..2000 {
        for byte in text.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(1099511628211);
        }
    }
    hash
}

fn main() {
    let operations = operations::counter();
    let mut shards = Vec::new();
    for number in 0..4 {
        let (sender, receiver) = sync_channel::<String>(16);
        shards.push(sender);
        thread::Builder::new()
            .name(format!("shard-{number}"))
            .spawn(move || {
                for text in receiver {
                    std::hint::black_box(index_document(&text));
                    operations::count(operations);
                }
            })
            .unwrap();
    }
    // Almost all documents come from one source, whose keys begin alike.
    for number in 0u64.. {
        let source = if number % 12 == 0 { number / 12 % 4 } else { 0 };
        let letter = char::from(b'd' + source as u8);
        let text = format!("{letter}ocument-{number:040}");
        shards[usize::from(text.as_bytes()[0]) % 4].send(text).unwrap();
    }
}
