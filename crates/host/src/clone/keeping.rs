//! Keeping what was translated for the next time, on a thread of its own: programs that begin meanwhile have it already.

use super::presence::Presence;
use crate::store::folder::Folder;
use crate::store::keep::keep;
use crate::store::learnt::{self, Mapping, Window};
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// What a program has executed, where its clone was, and where its tables were.
type Noted = (Vec<Mapping>, Vec<Window>, u64);

/// The thread that keeps it.
#[derive(Debug)]
pub struct Keeper {
    folder: Arc<Folder>,
    worker: Mutex<Option<Worker>>,
    /// Why something was not kept: the first time.
    failure: OnceLock<String>,
}

#[derive(Debug)]
struct Worker {
    queue: Sender<Noted>,
    thread: JoinHandle<io::Result<()>>,
}

impl Keeper {
    pub fn new(folder: Arc<Folder>) -> Self {
        Self { folder, worker: Mutex::default(), failure: OnceLock::new() }
    }

    /// Keeps what a program has executed so far.
    pub fn add(&self, presence: &Presence) {
        let control = presence.get();
        let count = learnt::count(&control.learnt);
        if presence.kept.swap(count, Relaxed) == count {
            return;
        }
        let learnt = &control.learnt;
        let table = control.debug.table[0].load(Relaxed);
        let noted = (learnt::read(learnt), learnt::arenas(learnt), table);
        let mut worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner);
        let worker = worker.get_or_insert_with(|| {
            let (queue, noted) = channel();
            let folder = self.folder.clone();
            Worker { queue, thread: thread::spawn(move || work(&folder, &noted)) }
        });
        // It ends only when there is nobody to send.
        let _ = worker.queue.send(noted);
    }

    /// Waits until all of it is kept. Returns why something could not be.
    pub fn finish(&self) -> Option<&str> {
        let worker = self.worker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Worker { queue, thread }) = worker {
            drop(queue);
            let why = match thread.join() {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("weft has failed at it".into()),
            };
            if let Some(why) = why {
                let _ = self.failure.set(why);
            }
        }
        self.failure.get().map(String::as_str)
    }
}

fn work(folder: &Folder, queue: &Receiver<Noted>) -> io::Result<()> {
    let mut outcome = Ok(());
    for (mappings, arenas, table) in queue {
        outcome = outcome.and(keep(folder, &mappings, &arenas, table));
    }
    outcome
}
