//! Which threads are in code of weft's.

use crate::process::memory;
use crate::process::proc::{self, Tid};
use crate::process::stacks::{Stack, stacks};
use crate::process::stopped::Stopped;
use crate::{Result, TargetAddr};
use std::ops::Range;
use weft_snippet::CALL_OF_PROGRAM;

/// The addresses within ranges of weft's code that threads are at, or will come back to; `None` if that is
/// not known, because one has just woken.
///
/// Stacks are full of addresses that mean nothing any more. So those on a thread's stack count only when
/// it is in weft's code, or was when a signal interrupted it, or in a function of the program that a snippet
/// calls: otherwise nothing of weft's is on it.
pub(crate) fn addresses_in(
    stopped: &Stopped,
    ranges: &[Range<TargetAddr>],
) -> Result<Option<Vec<TargetAddr>>> {
    let pid = stopped.pid();
    let maps = proc::maps(pid)?;
    let is_ours = |at: TargetAddr| ranges.iter().any(|range| range.contains(&at));
    let read = |stack: TargetAddr| {
        let mapping = maps.iter().find(|mapping| mapping.contains(stack));
        let length = mapping.map_or(0, |mapping| (mapping.end - stack).min(LARGEST_STACK));
        memory::words(&memory::read(pid, stack, length as usize).unwrap_or_default())
    };
    let running = stopped.threads().values().map(|r| (r.instruction(), r.stack()));
    let mut sleeping = Vec::new();
    for tid in stopped.sleepers() {
        match proc::sleeping_at(tid) {
            Some(place) => sleeping.push(place),
            None if proc::is_alive(tid) => return Ok(None),
            None => {}
        }
    }
    let mut found = Vec::new();
    for (at, pointer) in running.chain(sleeping) {
        let stacks = stacks(pid, pointer, read);
        let words = stacks.iter().flat_map(|stack| &stack.words).map(|&word| TargetAddr(word));
        let on_stack = words.filter(|&word| is_ours(word));
        let interrupts = |stack: &Stack| {
            stack.returns.iter().any(|&index| is_ours(TargetAddr(stack.words[index])))
        };
        let is_inside = is_ours(at)
            || stacks.iter().any(interrupts)
            || on_stack.clone().any(|word| is_behind_call(pid, word));
        if is_inside {
            found.extend(is_ours(at).then_some(at));
            found.extend(on_stack);
        }
    }
    Ok(Some(found))
}

/// Whether an address in weft's code is where a function of the program returns to that a snippet calls.
fn is_behind_call(pid: Tid, at: TargetAddr) -> bool {
    let call = CALL_OF_PROGRAM.len();
    memory::read(pid, TargetAddr(at.0 - call as u64), call)
        .is_ok_and(|bytes| bytes == CALL_OF_PROGRAM)
}

/// What is further away than this from the stack pointer is not looked at.
const LARGEST_STACK: u64 = 16 << 20;
