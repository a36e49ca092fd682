//! From what was kept back to what the thread had written.

use crate::blocks::Blocks;
use crate::bytes::{Input, unfolded};
use crate::chunk::{Chunk, EVENT_COMES};
use crate::differences::Unpacker;
use crate::encode::MOST_CAPTURES;
use crate::history::History;
use crate::record::{LONGEST_EVENT, event_word};
use crate::{Error, Result};

/// The words that a chunk was made of.
pub fn decode(blocks: &Blocks, chunk: &Chunk) -> Result<Vec<u64>> {
    let mut history = History::new();
    history.fit(blocks.len());
    let streams = &chunk.streams;
    let mut decoder = Decoder {
        blocks,
        history,
        masks: Input(&streams.masks),
        numbers: Input(&streams.numbers),
        differences: Unpacker::new(&streams.lengths, &streams.values),
        events: Input(&streams.events),
        // What is said is only believed as far as there is memory for it in any case.
        words: Vec::with_capacity(chunk.words.min(1 << 24) as usize),
        items: 0,
        last_event: [0; LONGEST_EVENT],
        is_unexpected: false,
    };
    let length = chunk.words as usize;
    while decoder.words.len() < length {
        match decoder.history.from().filter(|_| !decoder.is_unexpected) {
            Some(from) => decoder.group(from, length - decoder.words.len())?,
            None => decoder.item()?,
        }
    }
    if decoder.items != chunk.items {
        return Err(Error::bad("a chunk has another number of records than it says"));
    }
    if decoder.words.len() != length {
        return Err(Error::bad("a chunk has another length than it says"));
    }
    Ok(decoder.words)
}

struct Decoder<'a> {
    blocks: &'a Blocks,
    history: History,
    masks: Input<'a>,
    numbers: Input<'a>,
    differences: Unpacker<'a>,
    events: Input<'a>,
    words: Vec<u64>,
    items: u64,
    last_event: [u64; LONGEST_EVENT],
    is_unexpected: bool,
}

impl Decoder<'_> {
    /// Words as the last time, but for differences.
    #[inline]
    fn group(&mut self, from: usize, left: usize) -> Result<()> {
        let mut count = self.history.room(from).min(left);
        let mask = u32::from(self.masks.byte()?) & ((1 << count) - 1);
        let (&(mut words), heads) = self.history.expected(from);
        if mask & heads != 0 {
            count = (mask & heads).trailing_zeros() as usize;
            self.is_unexpected = true;
        }
        let below = (1_u32 << count) - 1;
        let mut different = mask & below;
        while different != 0 {
            let word = &mut words[different.trailing_zeros() as usize];
            *word = word.wrapping_add(self.differences.next()?);
            different &= different - 1;
        }
        // All at once, and those back that were too many: it is faster than as many as there are.
        let length = self.words.len() + count;
        self.words.extend_from_slice(&words);
        self.words.truncate(length);
        self.history.follow(from, &words, count);
        self.items += u64::from((heads & below).count_ones());
        Ok(())
    }

    /// An item that nothing says how to expect.
    fn item(&mut self) -> Result<()> {
        self.is_unexpected = false;
        let number = self.numbers.u32()?;
        if number == EVENT_COMES {
            self.items += 1;
            return self.event();
        }
        let block = self.blocks.get(number).ok_or_else(|| {
            Error::bad(format!("block {number} was executed, but it is not in the file"))
        })?;
        let captures = block.plan.captures.len();
        if captures > MOST_CAPTURES {
            return Err(Error::bad("a block has too many captures"));
        }
        if block.plan.bases.is_empty() {
            self.history.meet(number);
            if self.history.from().is_some() {
                return Ok(());
            }
            self.history.append(number.into(), true);
        } else {
            self.history.append_unique();
        }
        self.items += 1;
        self.words.push(number.into());
        for _ in 0..captures {
            let value = self.differences.next()?;
            self.words.push(value);
            self.history.append(value, false);
        }
        Ok(())
    }

    fn event(&mut self) -> Result<()> {
        let kind = self.events.number()?;
        let count = self.events.number()? as usize;
        if kind >= 1 << 31 || count > LONGEST_EVENT {
            return Err(Error::bad("an event is not one"));
        }
        self.words.push(event_word(kind as u32, count));
        for last in &mut self.last_event[..count] {
            *last = unfolded(self.events.number()?).wrapping_add(*last);
            self.words.push(*last);
        }
        Ok(())
    }
}
