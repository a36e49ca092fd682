//! From what was kept back to what the thread had written.

use crate::blocks::Blocks;
use crate::bytes::{Input, unfolded};
use crate::chunk::Chunk;
use crate::encode::EXPLICIT;
use crate::predict::Predictor;
use crate::record::{LONGEST_EVENT, event, event_word};
use crate::{Error, Result};

/// The words that a chunk was made of.
pub fn decode(blocks: &Blocks, chunk: &Chunk) -> Result<Vec<u64>> {
    let mut predictor = Predictor::new();
    predictor.fit(blocks);
    let streams = &chunk.streams;
    let mut decoder = Decoder {
        blocks,
        predictor,
        numbers: Input(&streams.numbers),
        values: Input(&streams.values),
        events: Input(&streams.events),
        // What is said is only believed as far as there is memory for it in any case.
        words: Vec::with_capacity(chunk.words.min(1 << 24) as usize),
        last_event: [0; LONGEST_EVENT],
    };
    let mut control = Input(&streams.control);
    let mut items = 0;
    loop {
        let word = control.number()?;
        let run = word >> 1;
        items += run;
        if items > chunk.items {
            return Err(Error::bad("a chunk has more records than it says"));
        }
        for _ in 0..run {
            decoder.block(None)?;
        }
        if decoder.words.len() as u64 > chunk.words {
            return Err(Error::bad("a chunk is longer than it says"));
        }
        if word & 1 != 0 {
            decoder.event()?;
        } else if control.is_empty() {
            break;
        } else {
            decoder.block(Some(&mut control))?;
        }
        items += 1;
    }
    if items != chunk.items {
        return Err(Error::bad("a chunk has another number of records than it says"));
    }
    if decoder.words.len() as u64 != chunk.words {
        return Err(Error::bad("a chunk has another length than it says"));
    }
    Ok(decoder.words)
}

struct Decoder<'a> {
    blocks: &'a Blocks,
    predictor: Predictor,
    numbers: Input<'a>,
    values: Input<'a>,
    events: Input<'a>,
    words: Vec<u64>,
    last_event: [u64; LONGEST_EVENT],
}

impl Decoder<'_> {
    /// A block: as foreseen, or with answers.
    #[inline]
    fn block(&mut self, mut control: Option<&mut Input<'_>>) -> Result<()> {
        let mut answers = match &mut control {
            Some(control) => control.byte()?,
            None => 0,
        };
        let number = match answers & EXPLICIT {
            EXPLICIT => u32::try_from(self.numbers.number()?)
                .map_err(|_| Error::bad("a block has a number that is too large"))?,
            which => self.predictor.next()[which as usize],
        };
        let block = self.blocks.get(number).ok_or_else(|| {
            Error::bad(format!("block {number} was executed, but it is not in the file"))
        })?;
        self.predictor.come(number);
        self.words.push(number.into());
        for index in 0..block.model.captures.len() {
            let shift = (index + 1) % 4 * 2;
            if shift == 0
                && let Some(control) = &mut control
            {
                answers = control.byte()?;
            }
            let guesses = self.predictor.guesses(&block.model, index);
            let value = match answers >> shift & EXPLICIT {
                EXPLICIT => unfolded(self.values.number()?).wrapping_add(guesses[2]),
                which => guesses[which as usize],
            };
            self.predictor.set(&block.model, index, value);
            self.words.push(value);
        }
        self.predictor.leave(block);
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
        if kind as u32 == event::INTERRUPTED {
            self.predictor.interrupt();
        }
        Ok(())
    }
}
