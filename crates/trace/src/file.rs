//! The file of a trace: a header, then sections one after the other, each of which says how long it is.
//!
//! There is no table at the end: what was written before a writer was killed can be read. Numbers are little-endian.
//!
//! | | |
//! |---|---|
//! | header | `WEFTTRCE`, the version (4 bytes), 1 if it has values or else 0 (4 bytes) |
//! | section | what it is (4 bytes), the thread (4), how long what follows is (8), its CRC-32 (4), the program (4), and that |
//!
//! | section | what follows |
//! |---|---|
//! | `note` | a key and a value, each its length and its text |
//! | `code` | blocks, compressed: number, address, length, bytes; before the first chunk that needs them |
//! | `modu` | a mapped file: time, start, end, offset in the file, path |
//! | `chnk` | what a thread has executed: see [`crate::Chunk`] |

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::blocks::{Block, Blocks, MOST_PROGRAMS, number_in_trace, program_and_number};
use crate::bytes::{Input, put};
use crate::chunk::Chunk;
use crate::{Detail, Error, Result};

pub(crate) const MAGIC: &[u8; 8] = b"WEFTTRCE";
/// The version of the format: another one for whatever an older reader would not understand.
pub const VERSION: u32 = 4;
/// In the header: what is read and written is part of the trace.
pub(crate) const HAS_VALUES: u32 = 1;
pub(crate) const HEADER: u64 = 16;
pub(crate) const SECTION: usize = 24;

pub(crate) mod tag {
    pub const NOTE: [u8; 4] = *b"note";
    pub const CODE: [u8; 4] = *b"code";
    pub const MODULE: [u8; 4] = *b"modu";
    pub const CHUNK: [u8; 4] = *b"chnk";
}

/// The most bytes of a section that are believed.
const MOST: u64 = 1 << 32;
/// The most bytes that a chunk says things of itself in.
const LONGEST_HEAD: u64 = 110;

/// A file that was mapped into a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// Which program: 0 is the first.
    pub program: u32,
    /// Since when, in nanoseconds of the clock that all times of the trace are of.
    pub time: u64,
    /// Its first address.
    pub start: u64,
    /// The one behind its last.
    pub end: u64,
    /// Where in the file it begins.
    pub offset: u64,
    /// The file.
    pub path: String,
}

/// Where a part of what a thread has executed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The program.
    pub program: u32,
    /// The thread.
    pub thread: u32,
    at: u64,
    length: u64,
    checksum: u32,
}

/// How much a thread has executed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// The thread.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The program that it has executed last.
    pub program: u32,
    /// The name that it had last; empty if that is not known.
    pub name: String,
    /// Its blocks and events.
    pub items: u64,
    /// Its accesses, at most.
    pub accesses: u64,
    /// What they take in the file.
    pub bytes: u64,
}

/// A trace that can be read.
#[derive(Debug)]
pub struct Trace {
    file: File,
    /// Whether it has values.
    pub detail: Detail,
    /// What was executed, by program and its numbers.
    programs: Vec<Blocks>,
    /// What was mapped.
    pub modules: Vec<Module>,
    /// What was noted.
    pub notes: Vec<(String, String)>,
    /// What was executed, program by program in the order in which it was written: that of each thread in order.
    pub parts: Vec<Part>,
    /// Whether the end is missing.
    pub is_cut: bool,
}

impl Trace {
    /// Opens a trace: reads all but the parts.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut header = [0; HEADER as usize];
        file.read_exact(&mut header).map_err(|_| Error::bad("it is too short to be a trace"))?;
        if header[..8] != *MAGIC {
            return Err(Error::bad("it does not begin as a trace does"));
        }
        let number = |at| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes"));
        let version = number(8);
        if version != VERSION {
            return Err(Error::bad(format!(
                "it has version {version} of the format, this weft reads version {VERSION}"
            )));
        }
        let detail = match number(12) {
            0 => Detail::Addresses,
            HAS_VALUES => Detail::Values,
            flags => return Err(Error::bad(format!("its header says {flags:#x} of what it has"))),
        };
        let mut trace = Self {
            file,
            detail,
            programs: Vec::new(),
            modules: Vec::new(),
            notes: Vec::new(),
            parts: Vec::new(),
            is_cut: false,
        };
        let mut at = HEADER;
        while at < length {
            match trace.section(at, length)? {
                Some(next) => at = next,
                None => {
                    trace.is_cut = true;
                    break;
                }
            }
        }
        // A thread that has become another program is not the first one again.
        trace.parts.sort_by_key(|part| part.program);
        Ok(trace)
    }

    /// Reads a section; says where the next one is, or nothing if it is cut.
    fn section(&mut self, at: u64, length: u64) -> Result<Option<u64>> {
        let start = at + SECTION as u64;
        let mut head = [0; SECTION];
        if start > length || self.file.read_exact_at(&mut head, at).is_err() {
            return Ok(None);
        }
        let mut input = Input(&head);
        let tag: [u8; 4] = input.take(4)?.try_into().expect("four bytes");
        let thread = input.u32()?;
        let size = input.u64()?;
        let checksum = input.u32()?;
        let program = input.u32()?;
        let wrong = |error: Error| Error::bad(format!("at byte {at}: {error}"));
        if size > MOST {
            return Err(wrong(Error::bad("a section is larger than any that weft writes")));
        }
        let end = start + size;
        if end > length {
            return Ok(None);
        }
        if program >= MOST_PROGRAMS {
            return Err(wrong(Error::bad("a program has a number that is too large")));
        }
        let detail = self.detail;
        if self.programs.len() <= program as usize {
            self.programs.resize_with(program as usize + 1, || Blocks::new(detail));
        }
        let part = Part { program, thread, at: start, length: size, checksum };
        if tag == tag::CHUNK {
            self.parts.push(part);
            return Ok(Some(end));
        }
        let bytes = self.bytes(&part)?;
        match tag {
            tag::CODE => self.code(program, &bytes).map_err(wrong)?,
            tag::MODULE => self.modules.push(module(program, &bytes).map_err(wrong)?),
            tag::NOTE => self.notes.push(note(&bytes).map_err(wrong)?),
            _ => return Err(wrong(Error::bad("there is no such section"))),
        }
        Ok(Some(end))
    }

    fn bytes(&self, part: &Part) -> Result<Vec<u8>> {
        let mut bytes = vec![0; part.length as usize];
        self.file.read_exact_at(&mut bytes, part.at)?;
        if crc32fast::hash(&bytes) != part.checksum {
            let at = part.at;
            return Err(Error::bad(format!("at byte {at}: a section is not what was written")));
        }
        Ok(bytes)
    }

    /// What a part holds.
    pub fn chunk(&self, part: &Part) -> Result<Chunk> {
        let wrong = |error: Error| Error::bad(format!("at byte {}: {error}", part.at));
        Chunk::unpack(&self.bytes(part)?).map_err(wrong)
    }

    /// How much each thread has executed, in the order in which they first come up.
    pub fn totals(&self) -> Result<Vec<Total>> {
        let mut totals: Vec<Total> = Vec::new();
        for part in &self.parts {
            let mut bytes = vec![0; part.length.min(LONGEST_HEAD) as usize];
            self.file.read_exact_at(&mut bytes, part.at)?;
            let head = Chunk::head(&mut Input(&bytes))?;
            let place = totals.iter().position(|total| total.thread == part.thread);
            let place = place.unwrap_or_else(|| {
                totals.push(Total { thread: part.thread, ..Total::default() });
                totals.len() - 1
            });
            let total = &mut totals[place];
            (total.process, total.program) = (head.process, part.program);
            if head.name != [0; 2] {
                total.name = head.name();
            }
            total.items += head.items;
            total.accesses += head.accesses;
            total.bytes += part.length;
        }
        Ok(totals)
    }

    /// The blocks of a program that has a part.
    pub fn blocks(&self, program: u32) -> &Blocks {
        &self.programs[program as usize]
    }

    /// The block that has a number in the whole trace.
    pub fn block(&self, number: u32) -> Option<&Block> {
        let (program, number) = program_and_number(number);
        self.programs.get(program as usize)?.get(number)
    }

    /// All blocks, by the numbers that they have in the whole trace.
    pub fn all_blocks(&self) -> impl Iterator<Item = (u32, &Block)> {
        (0..).zip(&self.programs).flat_map(|(program, blocks)| {
            blocks.iter().map(move |(number, block)| (number_in_trace(program, number), block))
        })
    }

    fn code(&mut self, program: u32, bytes: &[u8]) -> Result<()> {
        let blocks = &mut self.programs[program as usize];
        let mut input = Input(bytes);
        let length = input.number()?;
        if length > MOST {
            return Err(Error::bad("it has more code than any that weft writes"));
        }
        let bytes = zstd::bulk::decompress(input.0, length as usize)
            .map_err(|error| Error::bad(format!("code cannot be decompressed: {error}")))?;
        let mut input = Input(&bytes);
        while !input.is_empty() {
            let number = u32::try_from(input.number()?)
                .map_err(|_| Error::bad("a block has a number that is too large"))?;
            let address = input.number()?;
            let length = input.number()? as usize;
            if !blocks.add(number, address, input.take(length)?) {
                return Err(Error::bad(format!("block {number} cannot be, or is there twice")));
            }
        }
        Ok(())
    }
}

fn text(input: &mut Input<'_>) -> Result<String> {
    let length = input.number()? as usize;
    Ok(String::from_utf8_lossy(input.take(length)?).into_owned())
}

pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    put(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn note(bytes: &[u8]) -> Result<(String, String)> {
    let mut input = Input(bytes);
    Ok((text(&mut input)?, text(&mut input)?))
}

fn module(program: u32, bytes: &[u8]) -> Result<Module> {
    let mut input = Input(bytes);
    Ok(Module {
        program,
        time: input.number()?,
        start: input.number()?,
        end: input.number()?,
        offset: input.number()?,
        path: text(&mut input)?,
    })
}
