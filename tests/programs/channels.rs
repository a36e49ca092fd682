//! Threads that pass boxes through channels. Works until its input ends.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

fn main() {
    let finished = Arc::new(AtomicBool::new(false));
    let (first, mut next) = mpsc::sync_channel::<Box<Vec<u64>>>(8);
    let stages: Vec<_> = (0..3)
        .map(|stage| {
            let (to, from) = mpsc::sync_channel(8);
            let input = std::mem::replace(&mut next, from);
            thread::spawn(move || {
                for mut numbers in input {
                    numbers.push(stage);
                    to.send(numbers).expect("the next stage has gone");
                }
            })
        })
        .collect();
    let source = {
        let finished = finished.clone();
        thread::spawn(move || {
            let mut sent = 0u64;
            while sent < 100 || !finished.load(Ordering::Relaxed) {
                first.send(Box::new(vec![sent])).expect("the first stage has gone");
                sent += 1;
            }
            sent
        })
    };
    let sink = thread::spawn(move || {
        let mut received = 0;
        for numbers in next {
            assert_eq!(*numbers, [received, 0, 1, 2]);
            received += 1;
        }
        received
    });

    println!("ready");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).expect("the input did not just end");
    finished.store(true, Ordering::Relaxed);
    let sent = source.join().expect("the source failed");
    for stage in stages {
        stage.join().expect("a stage failed");
    }
    assert_eq!(sink.join().expect("the sink failed"), sent);
    println!("nothing was lost");
    std::process::exit(7);
}
