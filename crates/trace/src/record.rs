//! What a traced program writes: words of eight bytes.
//!
//! A block that is executed is its number, and one word for each of its captures. Everything else is an event: its first
//! word has the highest bit set, its kind in the upper half and in the lower half how many words follow.

/// What tells an event from a block.
pub const EVENT: u64 = 1 << 63;

/// The most words that may follow the first one of an event.
pub const LONGEST_EVENT: usize = 64;

/// Kinds of events, and the words that follow.
pub mod event {
    /// A thread begins, or is taken over: its id, the bases of `fs` and `gs`, the time.
    pub const THREAD: u32 = 1;
    /// The block before was left in its middle: the address of the instruction that was next (or under way, if it
    /// repeats itself), 1 if what is captured before that instruction was captured (0 if not), and the sixteen
    /// registers there.
    pub const INTERRUPTED: u32 = 2;
    /// A system call begins: its number, six arguments, the time.
    pub const SYSTEM_CALL: u32 = 3;
    /// It is back: its result, the time.
    pub const RESULT: u32 = 4;
    /// The time.
    pub const TIME: u32 = 5;
    /// The bases of `fs` and `gs` are others: both.
    pub const BASES: u32 = 6;
    /// Blocks were executed that are not in the trace: how many, as far as that is known.
    pub const LOST: u32 = 7;
    /// The thread has ended: the time.
    pub const END: u32 = 8;
    /// A signal is about to be handled: its number, the time.
    pub const SIGNAL: u32 = 9;
}

/// The first word of an event.
pub const fn event_word(kind: u32, words: usize) -> u64 {
    EVENT | (kind as u64) << 32 | words as u64
}

/// One thing that a thread has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A block was executed, with these captures.
    Block {
        /// Its number.
        number: u32,
        /// The values of its captures.
        captures: &'a [u64],
    },
    /// Something else has happened.
    Event {
        /// What.
        kind: u32,
        /// What there is to say of it.
        words: &'a [u64],
    },
}

/// Takes the first item off; nothing if what is there is not one. `captures` says how many a block has, if there is such
/// a block.
pub fn take<'a>(
    words: &'a [u64],
    captures: impl FnOnce(u32) -> Option<usize>,
) -> Option<(Item<'a>, &'a [u64])> {
    let (&first, rest) = words.split_first()?;
    if first & EVENT != 0 {
        let kind = (first >> 32) as u32 & 0x7fff_ffff;
        let (words, rest) = rest.split_at_checked(first as u32 as usize)?;
        return Some((Item::Event { kind, words }, rest));
    }
    let number = u32::try_from(first).ok()?;
    let (captures, rest) = rest.split_at_checked(captures(number)?)?;
    Some((Item::Block { number, captures }, rest))
}
