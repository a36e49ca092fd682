// Five workers look sessions up in one map, and renew them at their source while they hold it.
#[path = "operations.rs"]
mod operations;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

type Sessions = Arc<Mutex<HashMap<u64, u64>>>;

#[inline(never)]
fn fetch_session(key: u64) -> u64 {
    thread::sleep(Duration::from_millis(2));
    key.wrapping_mul(2654435761)
}

#[inline(never)]
fn renew_session(sessions: &Sessions, key: u64) -> u64 {
    let mut sessions = sessions.lock().unwrap();
    let session = fetch_session(key);
    sessions.insert(key, session);
    session
}

fn main() {
    let operations = operations::counter();
    let sessions: Sessions = Arc::default();
    let workers: Vec<_> = (0..5)
        .map(|worker| {
            let sessions = sessions.clone();
            thread::spawn(move || {
                for request in 0u64.. {
                    renew_session(&sessions, (request * 5 + worker) % 1000);
                    operations::count(operations);
                    thread::sleep(Duration::from_micros(100));
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
}
