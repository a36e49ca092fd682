//! Writes a trace while the program runs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};

use crate::blocks::{Blocks, MOST_PROGRAMS};
use crate::bytes::put;
use crate::chunk::Chunk;
use crate::encode::Encoder;
use crate::file::{HAS_VALUES, MAGIC, Module, VERSION, put_text, tag};
use crate::{Detail, Error, Result};

/// Writes the file of a trace.
#[derive(Debug)]
pub struct Writer {
    out: Output,
    detail: Detail,
    programs: Vec<Program>,
}

/// A program that is traced: the first, or what a process has become.
#[derive(Debug)]
struct Program {
    blocks: Blocks,
    /// By whoever writes: threads that come after each other may write to the same place.
    sources: HashMap<u32, Encoder>,
}

#[derive(Debug)]
struct Output {
    file: BufWriter<File>,
    /// Blocks that are not in the file yet, and whose they are.
    code: Vec<u8>,
    code_of: u32,
}

/// The program and the thread that a section is about.
#[derive(Clone, Copy, Debug, Default)]
struct Whose {
    program: u32,
    thread: u32,
}

impl Writer {
    /// Begins a trace in a file, which is written from where it stands.
    pub fn new(file: File, detail: Detail) -> Result<Self> {
        let mut file = BufWriter::new(file);
        file.write_all(MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        let flags = if detail == Detail::Values { HAS_VALUES } else { 0 };
        file.write_all(&flags.to_le_bytes())?;
        let out = Output { file, code: Vec::new(), code_of: 0 };
        Ok(Self { out, detail, programs: Vec::new() })
    }

    /// One more program is traced, or the first one: its number.
    pub fn program(&mut self) -> Result<u32> {
        let number = self.programs.len() as u32;
        if number == MOST_PROGRAMS {
            return Err(Error::bad("there are more programs than a trace can have"));
        }
        self.programs.push(Program { blocks: Blocks::new(self.detail), sources: HashMap::new() });
        Ok(number)
    }

    /// Notes something about the whole.
    pub fn note(&mut self, key: &str, value: &str) -> Result<()> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, key);
        put_text(&mut bytes, value);
        self.out.section(tag::NOTE, Whose::default(), &bytes)
    }

    /// A file was mapped.
    pub fn module(&mut self, module: &Module) -> Result<()> {
        let mut bytes = Vec::new();
        for number in [module.time, module.start, module.end, module.offset] {
            put(&mut bytes, number);
        }
        put_text(&mut bytes, &module.path);
        self.out.section(tag::MODULE, Whose { program: module.program, thread: 0 }, &bytes)
    }

    /// There is a block of a program, which nobody has executed yet.
    pub fn block(&mut self, program: u32, number: u32, address: u64, bytes: &[u8]) -> Result<()> {
        if !self.programs[program as usize].blocks.add(number, address, bytes) {
            return Err(Error::bad(format!("block {number} cannot be, or is there twice")));
        }
        if self.out.code_of != program {
            self.out.flush_code()?;
            self.out.code_of = program;
        }
        for value in [number.into(), address, bytes.len() as u64] {
            put(&mut self.out.code, value);
        }
        self.out.code.extend(bytes);
        Ok(())
    }

    /// These words were written at one of the places that threads of a program write to: whole items, of blocks that are
    /// there.
    pub fn push(&mut self, program: u32, source: u32, words: &[u64]) -> Result<()> {
        let Self { out, programs, .. } = self;
        let Program { blocks, sources } = &mut programs[program as usize];
        let encoder = sources.entry(source).or_default();
        encoder.push(blocks, words, |chunk| out.chunk(program, &chunk))
    }

    /// The blocks of a program that are there.
    pub fn blocks(&self, program: u32) -> &Blocks {
        &self.programs[program as usize].blocks
    }

    /// Nothing is pushed any more of what a program does.
    pub fn end(&mut self, program: u32) -> Result<()> {
        let Self { out, programs, .. } = self;
        let Program { blocks, sources } = &mut programs[program as usize];
        let mut sources: Vec<_> = std::mem::take(sources).into_iter().collect();
        sources.sort_unstable_by_key(|source| source.0);
        for (_, mut encoder) in sources {
            encoder.finish(blocks, |chunk| out.chunk(program, &chunk))?;
        }
        // It is known what was executed: that it was has no more use.
        *blocks = Blocks::new(self.detail);
        Ok(())
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<()> {
        for program in 0..self.programs.len() as u32 {
            self.end(program)?;
        }
        self.out.flush_code()?;
        Ok(self.out.file.flush()?)
    }
}

impl Output {
    fn section(&mut self, tag: [u8; 4], whose: Whose, bytes: &[u8]) -> Result<()> {
        self.file.write_all(&tag)?;
        self.file.write_all(&whose.thread.to_le_bytes())?;
        self.file.write_all(&(bytes.len() as u64).to_le_bytes())?;
        self.file.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
        self.file.write_all(&whose.program.to_le_bytes())?;
        Ok(self.file.write_all(bytes)?)
    }

    fn chunk(&mut self, program: u32, chunk: &Chunk) -> Result<()> {
        self.flush_code()?;
        self.section(tag::CHUNK, Whose { program, thread: chunk.thread }, &chunk.pack()?)
    }

    fn flush_code(&mut self) -> Result<()> {
        if self.code.is_empty() {
            return Ok(());
        }
        let code = std::mem::take(&mut self.code);
        let mut bytes = Vec::new();
        put(&mut bytes, code.len() as u64);
        bytes.extend(zstd::bulk::compress(&code, 3)?);
        self.section(tag::CODE, Whose { program: self.code_of, thread: 0 }, &bytes)
    }
}
