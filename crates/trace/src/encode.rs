//! From what a thread writes to what is kept of it.

use crate::blocks::{Block, Blocks};
use crate::bytes::{folded, put};
use crate::chunk::{Chunk, Start};
use crate::predict::Predictor;
use crate::record::{Item, LONGEST_EVENT, event, take};
use crate::{Error, Result};
use weft_code::accesses::Segment;

/// How many items a chunk has before it is ended: enough for what is foreseen to pay.
const CHUNK: u64 = 1 << 20;

/// How an item was not as foreseen: which of the guesses it was.
pub(crate) const EXPLICIT: u8 = 3;

/// Encodes what one thread writes, and then perhaps another one: an event says when that begins.
#[derive(Debug)]
pub struct Encoder {
    predictor: Predictor,
    chunk: Chunk,
    /// How many items were as foreseen since the last that was not.
    run: u64,
    thread: Start,
    id: u32,
    last_event: Box<[u64; LONGEST_EVENT]>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            predictor: Predictor::new(),
            chunk: Chunk::default(),
            run: 0,
            thread: Start::default(),
            id: 0,
            last_event: Box::new([0; LONGEST_EVENT]),
        }
    }
}

impl Encoder {
    /// Takes whole items; what is finished by them goes to `done`.
    pub fn push(
        &mut self,
        blocks: &Blocks,
        mut words: &[u64],
        mut done: impl FnMut(Chunk) -> Result<()>,
    ) -> Result<()> {
        self.predictor.fit(blocks);
        while !words.is_empty() {
            let (item, rest) = take(words, |number| blocks.captures(number)).ok_or_else(|| {
                Error::bad(format!("what a thread has written is no record: {:#x}", words[0]))
            })?;
            match item {
                Item::Block { number, captures } => {
                    let block = blocks.get(number).expect("its captures were counted");
                    // Not before an event: it may speak of the block before it.
                    if self.chunk.items >= CHUNK {
                        done(self.end(block.address))?;
                        self.predictor.fit(blocks);
                    }
                    self.block(number, block, captures);
                }
                Item::Event { kind, words } => {
                    if let (event::THREAD, &[id, ..]) = (kind, words)
                        && id != u64::from(self.id)
                    {
                        self.finish().map_or(Ok(()), &mut done)?;
                        self.predictor.fit(blocks);
                        self.thread = Start::default();
                        self.chunk.start = self.thread;
                        self.id = id as u32;
                    }
                    self.event(kind, words)?;
                }
            }
            self.chunk.items += 1;
            self.chunk.words += (words.len() - rest.len()) as u64;
            words = rest;
        }
        Ok(())
    }

    /// Ends the chunk, if there is something in it.
    pub fn finish(&mut self) -> Option<Chunk> {
        (self.chunk.items > 0).then(|| self.end(0))
    }

    fn end(&mut self, next: u64) -> Chunk {
        let mut chunk = std::mem::take(&mut self.chunk);
        put(&mut chunk.streams.control, self.run << 1);
        chunk.start.next = next;
        chunk.thread = self.id;
        self.run = 0;
        self.predictor = Predictor::new();
        self.last_event.fill(0);
        self.chunk.start = self.thread;
        chunk
    }

    fn block(&mut self, number: u32, block: &Block, captures: &[u64]) {
        let streams = &mut self.chunk.streams;
        let guesses = self.predictor.next();
        let which = guesses.iter().position(|&guess| guess == number);
        let mut is_foreseen = which == Some(0);
        // Four answers in a byte, if need be: that for the block first.
        let first = streams.control.len();
        let mut answers = which.map_or(EXPLICIT, |which| which as u8);
        if !is_foreseen {
            put(&mut streams.control, self.run << 1);
            if answers == EXPLICIT {
                put(&mut streams.numbers, number.into());
            }
        }
        self.predictor.come(number);
        for (index, &value) in captures.iter().enumerate() {
            let guesses = self.predictor.guesses(&block.model, index);
            let shift = (index + 1) % 4 * 2;
            if shift == 0 {
                if !is_foreseen {
                    streams.control.push(answers);
                }
                answers = 0;
            }
            if guesses[0] != value {
                if is_foreseen {
                    // All answers so far were the first ones.
                    is_foreseen = false;
                    put(&mut streams.control, self.run << 1);
                    streams.control.extend(std::iter::repeat_n(0, (index + 1) / 4));
                }
                let which = guesses.iter().position(|&guess| guess == value);
                answers |= which.map_or(EXPLICIT, |which| which as u8) << shift;
                if which.is_none() {
                    put(&mut streams.values, folded(value.wrapping_sub(guesses[2])));
                }
            }
            self.predictor.set(&block.model, index, value);
        }
        if is_foreseen {
            self.run += 1;
            debug_assert_eq!(first, streams.control.len());
        } else {
            streams.control.push(answers);
            self.run = 0;
        }
        self.predictor.leave(block);
        self.chunk.accesses += block.plan.accesses.len() as u64;
        self.thread.instructions += u64::from(block.plan.instructions);
        if !block.plan.bases.is_empty() {
            let mut sources = Vec::new();
            block.sources(captures, &mut sources);
            for base in &block.plan.bases {
                self.thread.bases[matches!(base.segment, Segment::Gs) as usize] =
                    base.value(&sources);
            }
        }
    }

    fn event(&mut self, kind: u32, words: &[u64]) -> Result<()> {
        if words.len() > LONGEST_EVENT {
            return Err(Error::bad("an event has too many words"));
        }
        let streams = &mut self.chunk.streams;
        put(&mut streams.control, self.run << 1 | 1);
        self.run = 0;
        put(&mut streams.events, kind.into());
        put(&mut streams.events, words.len() as u64);
        for (word, last) in words.iter().zip(self.last_event.iter_mut()) {
            put(&mut streams.events, folded(word.wrapping_sub(*last)));
            *last = *word;
        }
        let thread = &mut self.thread;
        match (kind, words) {
            (event::THREAD, &[_, fs, gs, time]) => {
                thread.bases = [fs, gs];
                thread.time = time;
            }
            (event::BASES, &[fs, gs]) => thread.bases = [fs, gs],
            (
                event::SYSTEM_CALL | event::RESULT | event::TIME | event::SIGNAL | event::END,
                words,
            ) => {
                thread.time = words.last().copied().unwrap_or(thread.time);
            }
            _ => {}
        }
        if kind == event::INTERRUPTED {
            self.predictor.interrupt();
        }
        Ok(())
    }
}
