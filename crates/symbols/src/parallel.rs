//! Work on many items with all processors.
//!
//! The threads end with the call. A pool that stays would be lost in a Python process that forks
//! (as `multiprocessing` does), and whoever used it there would wait forever.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// More threads than this do not make reading one file faster.
const MOST_THREADS: usize = 16;

/// The result of `work` for every chunk of the items, in the order of the chunks.
pub(crate) fn map_chunks<T: Sync, R: Send>(
    items: &[T],
    chunk_len: usize,
    work: impl Fn(&[T]) -> R + Sync,
) -> Vec<R> {
    let chunks: Vec<&[T]> = items.chunks(chunk_len).collect();
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    if threads == 1 || chunks.len() <= 1 {
        return chunks.into_iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(chunks.len()));
    let run = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = chunks.get(index) else { return };
            let result = work(chunk);
            results.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(chunks.len()) {
            // A thread that cannot be had is no failure: the work is done by those there are.
            let _ = thread::Builder::new().spawn_scoped(scope, run);
        }
        run();
    });
    let mut results = results.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_of_the_items() {
        let items: Vec<u32> = (0..1000).collect();
        let sums = map_chunks(&items, 7, |chunk| chunk.to_vec());
        assert_eq!(sums.concat(), items);
        assert!(map_chunks(&[] as &[u32], 7, <[u32]>::len).is_empty());
    }
}
