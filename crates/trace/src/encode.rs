//! From what a thread writes to what is kept of it.

use crate::blocks::Blocks;
use crate::bytes::{folded, put};
use crate::chunk::{Chunk, EVENT_COMES, Start};
use crate::differences::Packer;
use crate::history::{GROUP, History, PLACES};
use crate::record::{EVENT, Item, LONGEST_EVENT, event, take};
use crate::{Error, Result};
use weft_code::accesses::Segment;

/// How many words a chunk has before it is ended: enough for the history to pay.
const CHUNK: u64 = 1 << 21;
/// How much of what comes next is looked at together with what was left.
const SEAM: usize = 128;
/// The most captures that a block may have.
pub(crate) const MOST_CAPTURES: usize = 1 << 12;

/// Encodes what one thread writes, and then perhaps another one: an event says when that begins.
#[derive(Debug)]
pub struct Encoder {
    history: History,
    sums: Sums,
    differences: Packer,
    chunk: Chunk,
    thread: Start,
    id: u32,
    process: u32,
    name: [u64; 2],
    last_event: Box<[u64; LONGEST_EVENT]>,
    /// Whole items that are too short to be compared yet.
    rest: Vec<u64>,
    /// Whether the next item is another one than came the last time.
    is_unexpected: bool,
}

/// How many instructions and, in the upper half, accesses a chunk has, before each word of its history.
#[derive(Debug)]
struct Sums {
    before: Box<[u64; PLACES]>,
    /// The sum so far, while nothing is followed; else how much more it is than it was there.
    now: u64,
    ahead: u64,
}

impl Default for Sums {
    fn default() -> Self {
        let before = vec![0; PLACES].into_boxed_slice().try_into().expect("its length");
        Self { before, now: 0, ahead: 0 }
    }
}

impl Sums {
    /// A word goes to a place, and has a weight.
    fn append(&mut self, at: usize, weight: u64) {
        self.before[at] = self.now;
        self.now += weight;
    }

    fn begin(&mut self, from: usize) {
        self.ahead = self.now.wrapping_sub(self.before[from]);
    }

    #[inline]
    fn follow(&mut self, from: usize, at: usize) {
        let mut sums: [u64; GROUP] = self.before[from..from + GROUP].try_into().expect("a group");
        sums.iter_mut().for_each(|sum| *sum = sum.wrapping_add(self.ahead));
        self.before[at..at + GROUP].copy_from_slice(&sums);
    }

    fn end(&mut self, from: usize) {
        self.now = self.before[from].wrapping_add(self.ahead);
    }
}

impl Default for Encoder {
    fn default() -> Self {
        Self {
            history: History::new(),
            sums: Sums::default(),
            differences: Packer::new(),
            chunk: Chunk::default(),
            thread: Start::default(),
            id: 0,
            process: 0,
            name: [0; 2],
            last_event: Box::new([0; LONGEST_EVENT]),
            rest: Vec::new(),
            is_unexpected: false,
        }
    }
}

/// Words that are there: all but those that only fill the last group up.
#[derive(Clone, Copy)]
struct Given<'a> {
    words: &'a [u64],
    end: usize,
}

impl Encoder {
    /// Takes whole items; what is finished by them goes to `done`.
    pub fn push(
        &mut self,
        blocks: &Blocks,
        mut words: &[u64],
        mut done: impl FnMut(Chunk) -> Result<()>,
    ) -> Result<()> {
        self.history.fit(blocks.len());
        if !self.rest.is_empty() {
            let mut seam = std::mem::take(&mut self.rest);
            let old = seam.len();
            seam.extend(&words[..words.len().min(SEAM)]);
            let given = Given { words: &seam, end: seam.len() };
            let used = self.run(blocks, given, old, &mut done)?;
            if used < old {
                // What came is not enough, either.
                self.rest = seam.split_off(used);
                return Ok(());
            }
            words = &words[used - old..];
        }
        let used = self.run(blocks, Given { words, end: words.len() }, words.len(), &mut done)?;
        self.rest.extend(&words[used..]);
        Ok(())
    }

    /// Ends what was pushed.
    pub fn finish(
        &mut self,
        blocks: &Blocks,
        mut done: impl FnMut(Chunk) -> Result<()>,
    ) -> Result<()> {
        let mut words = std::mem::take(&mut self.rest);
        let end = words.len();
        words.resize(end + GROUP, 0);
        self.run(blocks, Given { words: &words, end }, end, &mut done)?;
        if self.chunk.items > 0 { done(self.end(0)) } else { Ok(()) }
    }

    /// Encodes what begins before a word; says where it has ended: earlier if there is not enough to compare.
    fn run(
        &mut self,
        blocks: &Blocks,
        given: Given<'_>,
        until: usize,
        done: &mut impl FnMut(Chunk) -> Result<()>,
    ) -> Result<usize> {
        let Given { words, end } = given;
        let mut at = 0;
        while at < until {
            let Some(from) = self.history.from().filter(|_| !self.is_unexpected) else {
                at += self.item(blocks, &words[at..end], done)?;
                continue;
            };
            let Some(group) = words[at..].first_chunk::<GROUP>() else { break };
            let (expected, heads) = self.history.expected(from);
            let mut count = self.history.room(from).min(end - at);
            let mut next = None;
            if self.chunk.words >= CHUNK {
                let head = heads.trailing_zeros() as usize;
                // Not before an event: it may speak of the block before it.
                if head < count && group[head] & EVENT == 0 {
                    next = u32::try_from(group[head]).ok().and_then(|number| blocks.get(number));
                    count = head;
                }
            }
            let mut differences = [0; GROUP];
            let mut mask = 0_u32;
            for lane in 0..GROUP {
                differences[lane] = group[lane].wrapping_sub(expected[lane]);
                mask |= u32::from(differences[lane] != 0) << lane;
            }
            mask &= (1 << count) - 1;
            let unexpected = mask & heads;
            if unexpected != 0 {
                count = unexpected.trailing_zeros() as usize;
                self.is_unexpected = true;
            }
            let below = (1_u32 << count) - 1;
            self.chunk.streams.masks.push((mask & (below << 1 | 1)) as u8);
            if mask & below != 0 {
                self.differences.push_group(&differences, mask & below);
            }
            self.sums.follow(from, self.history.at());
            self.history.follow(from, group, count);
            self.chunk.items += u64::from((heads & below).count_ones());
            self.chunk.words += count as u64;
            at += count;
            if let Some(next) = next {
                done(self.end(next.address))?;
                self.history.fit(blocks.len());
            }
        }
        Ok(at)
    }

    /// Encodes an item that nothing says how to expect; says how many words were taken.
    #[inline(never)]
    fn item(
        &mut self,
        blocks: &Blocks,
        words: &[u64],
        done: &mut impl FnMut(Chunk) -> Result<()>,
    ) -> Result<usize> {
        self.is_unexpected = false;
        let (item, rest) = take(words, |number| blocks.captures(number)).ok_or_else(|| {
            Error::bad(format!("what a thread has written is no record: {:#x}", words[0]))
        })?;
        match item {
            Item::Block { number, captures } => {
                if self.chunk.words >= CHUNK {
                    done(self.end(blocks.get(number).map_or(0, |block| block.address)))?;
                    self.history.fit(blocks.len());
                }
                if !self.block(blocks, number, captures)? {
                    return Ok(0);
                }
            }
            Item::Event { kind, words } => {
                if let (event::THREAD, &[id, process, ..]) = (kind, words)
                    && (id, process) != (self.id.into(), self.process.into())
                {
                    if self.chunk.items > 0 {
                        done(self.end(0))?;
                        self.history.fit(blocks.len());
                    }
                    self.thread = Start::default();
                    self.chunk.start = self.thread;
                    (self.id, self.process) = (id as u32, process as u32);
                    self.name = [0; 2];
                }
                self.event(kind, words)?;
            }
        }
        let taken = words.len() - rest.len();
        self.chunk.items += 1;
        self.chunk.words += taken as u64;
        Ok(taken)
    }

    fn end(&mut self, next: u64) -> Chunk {
        if let Some(from) = self.history.from() {
            self.sums.end(from);
        }
        let sum = std::mem::take(&mut self.sums.now);
        let mut chunk = std::mem::take(&mut self.chunk);
        let differences = std::mem::replace(&mut self.differences, Packer::new());
        (chunk.streams.lengths, chunk.streams.values) = differences.finish();
        chunk.start.next = next;
        (chunk.thread, chunk.process, chunk.name) = (self.id, self.process, self.name);
        chunk.accesses = sum >> 32;
        self.thread.instructions += sum & u64::from(u32::MAX);
        self.history.forget();
        self.last_event.fill(0);
        self.chunk.start = self.thread;
        self.is_unexpected = false;
        chunk
    }

    /// A block comes that was not expected; says whether it is done with: not if it was there before.
    fn block(&mut self, blocks: &Blocks, number: u32, captures: &[u64]) -> Result<bool> {
        let brief = blocks.brief(number).expect("its captures were counted");
        if captures.len() > MOST_CAPTURES {
            return Err(Error::bad("a block has too many captures"));
        }
        self.chunk.streams.numbers.extend(number.to_le_bytes());
        if let Some(from) = self.history.from() {
            self.sums.end(from);
        }
        let at = self.history.at();
        if brief.has_bases {
            self.history.append_unique();
            self.set_bases(blocks, number, captures);
        } else {
            self.history.meet(number);
            if let Some(from) = self.history.from() {
                self.sums.begin(from);
                return Ok(false);
            }
            self.history.append(number.into(), true);
        }
        self.sums.append(at, brief.weight);
        for &value in captures {
            self.differences.push(value);
            self.sums.append(self.history.at(), 0);
            self.history.append(value, false);
        }
        Ok(true)
    }

    fn set_bases(&mut self, blocks: &Blocks, number: u32, captures: &[u64]) {
        let Some(block) = blocks.get(number) else { return };
        let mut sources = Vec::new();
        block.sources(captures, &mut sources);
        for base in &block.plan.bases {
            self.thread.bases[matches!(base.segment, Segment::Gs) as usize] = base.value(&sources);
        }
    }

    fn event(&mut self, kind: u32, words: &[u64]) -> Result<()> {
        if words.len() > LONGEST_EVENT {
            return Err(Error::bad("an event has too many words"));
        }
        let streams = &mut self.chunk.streams;
        streams.numbers.extend(EVENT_COMES.to_le_bytes());
        put(&mut streams.events, kind.into());
        put(&mut streams.events, words.len() as u64);
        for (word, last) in words.iter().zip(self.last_event.iter_mut()) {
            put(&mut streams.events, folded(word.wrapping_sub(*last)));
            *last = *word;
        }
        let thread = &mut self.thread;
        match (kind, words) {
            (event::THREAD, &[_, _, fs, gs, time]) => {
                thread.bases = [fs, gs];
                thread.time = time;
            }
            (event::BASES, &[fs, gs]) => thread.bases = [fs, gs],
            (event::NAME, &[low, high]) => self.name = [low, high],
            (
                event::SYSTEM_CALL | event::RESULT | event::TIME | event::SIGNAL | event::END,
                words,
            ) => {
                thread.time = words.last().copied().unwrap_or(thread.time);
            }
            _ => {}
        }
        Ok(())
    }
}
