//! Signal handlers that run: what they have interrupted, and will return to.

use super::memory;
use super::proc::{self, Tid};
use super::stopped::Stopped;
use crate::TargetAddr;
use crate::arch::{instructions, signal_frame as frame};

/// A stack that a thread is on, or will be again when a signal handler returns.
#[derive(Debug)]
pub(crate) struct Stack {
    /// The address of the first word.
    pub(crate) start: TargetAddr,
    /// What is on it.
    pub(crate) words: Vec<u64>,
    /// The indexes of the addresses to which signal handlers return that run on it.
    pub(crate) returns: Vec<usize>,
}

/// The stacks of a thread, from its stack pointer on, as far as `read` gives their words. A handler may
/// have interrupted another one on another stack.
pub(crate) fn stacks(
    pid: Tid,
    pointer: TargetAddr,
    read: impl Fn(TargetAddr) -> Vec<u64>,
) -> Vec<Stack> {
    /// More than anybody has.
    const MOST: usize = 8;
    let mut stacks: Vec<Stack> = Vec::new();
    let mut next = Some(pointer);
    while let Some(start) = next.take().filter(|_| stacks.len() < MOST) {
        let words = read(start);
        let end = start + 8 * words.len() as u64;
        let returns: Vec<usize> =
            frames(pid, start, &words).map(|at| at + frame::INSTRUCTION).collect();
        // The outermost of them has interrupted what is on another stack, if any has.
        next = returns
            .last()
            .map(|at| TargetAddr(words[at - frame::INSTRUCTION + frame::STACK_POINTER]))
            .filter(|&other| other < start || end <= other);
        stacks.push(Stack { start, words, returns });
    }
    stacks
}

/// The stacks of all threads of a held process, without what is far from their stack pointers.
pub(crate) fn near_stacks(held: &Stopped) -> impl Iterator<Item = Stack> {
    const PAGES: u64 = 17;
    let pid = held.pid();
    let running = held.threads().values().map(|registers| registers.stack());
    let sleeping = held.sleepers().filter_map(proc::sleeping_at).map(|(_, stack)| stack);
    running
        .chain(sleeping)
        .flat_map(move |pointer| stacks(pid, pointer, |at| memory::words_above(pid, at, PAGES)))
}

/// The indexes of the frames of handlers that run on a stack.
fn frames(pid: Tid, start: TargetAddr, words: &[u64]) -> impl Iterator<Item = usize> {
    (0..(words.len() + 1).saturating_sub(frame::LENGTH)).filter(move |&at| {
        let word = |offset: usize| words[at + offset];
        word(frame::FLAGS) & !frame::FLAGS_MASK == 0
            && word(frame::LINK) == 0
            && word(frame::SEGMENTS) & 0xffff == frame::SEGMENT
            && is_signal_return(pid, TargetAddr(word(0)))
            && {
                let first = word(frame::ALTERNATE_START);
                let alternate = first..first.saturating_add(word(frame::ALTERNATE_SIZE));
                // One on an alternate stack is left over from earlier, unless the thread is there now.
                !alternate.contains(&(start.0 + 8 * at as u64)) || alternate.contains(&start.0)
            }
    })
}

/// Whether the code at an address ends the handling of a signal.
fn is_signal_return(pid: Tid, at: TargetAddr) -> bool {
    memory::read(pid, at, 16).is_ok_and(|code| instructions::is_signal_return(&code))
}
