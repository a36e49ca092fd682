//! A part of what one thread has written, which can be read without the parts before it.

use crate::bytes::{Input, put};
use crate::{Error, Result};

/// How a thread was when a chunk begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// How many instructions it had executed.
    pub instructions: u64,
    /// The bases of `fs` and `gs`.
    pub bases: [u64; 2],
    /// The last time that was known, in nanoseconds.
    pub time: u64,
    /// The address of the block that comes after the chunk; 0 if none does.
    pub next: u64,
}

/// What an encoder has made of a part of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The thread: not part of what is packed.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// Its name at the end, with zeros behind it; all of them if it is not known.
    pub name: [u64; 2],
    /// How it was.
    pub start: Start,
    /// How many blocks and events there are.
    pub items: u64,
    /// How many accesses there are at most.
    pub accesses: u64,
    /// How many words they were.
    pub words: u64,
    pub(crate) streams: Streams,
}

/// What is not as it was the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Streams {
    /// Of each group of words, which of them differ: a bit each.
    pub masks: Vec<u8>,
    /// Blocks that were not expected, four bytes each; [`EVENT_COMES`] for an event.
    pub numbers: Vec<u8>,
    /// How long differences are: see [`crate::differences`].
    pub lengths: Vec<u8>,
    /// The differences.
    pub values: Vec<u8>,
    /// Events.
    pub events: Vec<u8>,
}

/// In the place of a number: an event comes.
pub(crate) const EVENT_COMES: u32 = u32::MAX;

/// How hard to compress: the first level is by far the fastest, and the others win little.
const LEVEL: i32 = 1;
/// The most bytes of a stream, items and words that are believed.
const MOST: u64 = 1 << 30;
const MOST_ITEMS: u64 = 1 << 26;
const MOST_WORDS: u64 = 1 << 28;

impl Chunk {
    /// The chunk as bytes, compressed.
    pub fn pack(&self) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let Start { instructions, bases, time, next } = self.start;
        let head = [instructions, bases[0], bases[1], time, next, self.items, self.accesses];
        let [low, high] = self.name;
        let rest = [self.words, self.process.into(), low, high];
        for number in head.into_iter().chain(rest) {
            put(&mut out, number);
        }
        let Streams { masks, numbers, lengths, values, events } = &self.streams;
        for stream in [masks, numbers, lengths, values, events] {
            let packed = zstd::bulk::compress(stream, LEVEL)?;
            put(&mut out, stream.len() as u64);
            put(&mut out, packed.len() as u64);
            out.extend(packed);
        }
        Ok(out)
    }

    /// What the chunk that begins so says of itself: all but the streams.
    pub(crate) fn head(input: &mut Input<'_>) -> Result<Self> {
        let mut head = [0; 11];
        for number in &mut head {
            *number = input.number()?;
        }
        let [instructions, fs, gs, time, next, items, accesses, words, process, low, high] = head;
        if items > MOST_ITEMS || words > MOST_WORDS {
            return Err(too_large());
        }
        let start = Start { instructions, bases: [fs, gs], time, next };
        Ok(Self {
            thread: 0,
            process: process as u32,
            name: [low, high],
            start,
            items,
            accesses,
            words,
            streams: Streams::default(),
        })
    }

    /// The name as text.
    pub(crate) fn name(&self) -> String {
        let bytes = self.name.map(u64::to_le_bytes).concat();
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    /// The chunk that was packed.
    pub fn unpack(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        let head = Self::head(&mut input)?;
        let mut stream = || {
            let length = input.number()?;
            let packed = input.number()?;
            let packed = input.take(usize::try_from(packed).unwrap_or(usize::MAX))?;
            if length > MOST {
                return Err(too_large());
            }
            let stream = zstd::bulk::decompress(packed, length as usize)
                .map_err(|error| Error::bad(format!("a chunk cannot be decompressed: {error}")))?;
            if stream.len() as u64 != length {
                return Err(Error::bad("a chunk is shorter than it says"));
            }
            Ok(stream)
        };
        let streams = Streams {
            masks: stream()?,
            numbers: stream()?,
            lengths: stream()?,
            values: stream()?,
            events: stream()?,
        };
        Ok(Self { streams, ..head })
    }
}

fn too_large() -> Error {
    Error::bad("a chunk is larger than any that weft writes")
}
