//! The program registers for restartable sequences.

use crate::clone::engine::lock::engine;
use crate::clone::kernel::pass::pass;
use crate::clone::thread::record::Thread;

const UNREGISTER: u64 = 1;
/// `rseq`
pub fn register(thread: &Thread) -> Option<isize> {
    let [_, _, flags, _, _, _, _, area, _, _, signature, ..] = thread.general();
    let result = pass(thread)?;
    if result == 0 && flags & UNREGISTER != 0 {
        thread.unregister();
    } else if result == 0 {
        thread.register(area);
        let mut engine = engine();
        // The kernel writes to it at any time.
        if let Some(page) = engine.cache.pages.never_guard(area) {
            engine.cache.release(page);
        }
        // What was translated was not searched for it.
        engine.cache.is_full |= engine.cache.sequences.add_signature(signature as u32);
    }
    Some(result)
}
