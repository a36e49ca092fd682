// A pipeline of three stages that keeps up with what comes in every ten milliseconds.
#[path = "operations.rs"]
mod operations;

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

fn main() {
    let operations = operations::counter();
    let (to_parse, parses) = channel::<String>();
    let (to_store, stores) = channel::<u64>();
    thread::spawn(move || {
        for text in parses {
            to_store.send(text.bytes().map(u64::from).sum()).unwrap();
        }
    });
    thread::spawn(move || {
        let mut total = 0u64;
        for sum in stores {
            total = total.wrapping_add(sum);
            std::hint::black_box(total);
            operations::count(operations);
        }
    });
    for number in 0u64.. {
        thread::sleep(Duration::from_millis(10));
        to_parse.send(format!("record {number}").repeat(20)).unwrap();
    }
}
