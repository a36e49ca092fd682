//! What a traced program writes: words of eight bytes.
//!
//! A block that is executed is its number, and one word for each of its captures. Everything else is an event: its first
//! word has the highest bit set, its kind in the upper half and in the lower half how many words follow.

pub use weft_abi::recording::{EVENT, event, event_word};

/// The most words that may follow the first one of an event.
pub const LONGEST_EVENT: usize = 64;

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

/// Takes the first item off; `None` if what is there is not one. `captures` says how many a block has, if there is such
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
