// A thread that waits for a mutex of the standard library which another holds, and one in a condition.
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex};

static HELD: Mutex<u32> = Mutex::new(0);

fn main() {
    let held = HELD.lock().unwrap();
    let waits = std::thread::Builder::new().name("mutex".into());
    waits.spawn(|| *HELD.lock().unwrap() += 1).unwrap();
    let pair = Arc::new((Mutex::new(()), Condvar::new()));
    let builder = std::thread::Builder::new().name("condition".into());
    builder
        .spawn(move || loop {
            let guard = pair.0.lock().unwrap();
            drop(pair.1.wait(guard).unwrap());
        })
        .unwrap();
    println!("ready");
    let _ = std::io::stdin().read(&mut [0]);
    drop(held);
    println!("done");
    std::process::exit(0);
}
