//! Writes a trace while the program runs.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crate::blocks::Blocks;
use crate::bytes::put;
use crate::chunk::Chunk;
use crate::encode::Encoder;
use crate::file::{MAGIC, Module, VERSION, put_text, tag};
use crate::{Error, Result};

/// Writes the file of a trace.
#[derive(Debug)]
pub struct Writer {
    out: Output,
    blocks: Blocks,
    /// By whoever writes: threads that come after each other may write to the same place.
    sources: HashMap<u32, Encoder>,
}

#[derive(Debug)]
struct Output {
    file: BufWriter<File>,
    /// Blocks that are not in the file yet.
    code: Vec<u8>,
}

impl Writer {
    /// Begins a file.
    pub fn create(path: &Path) -> Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(MAGIC)?;
        file.write_all(&VERSION.to_le_bytes())?;
        file.write_all(&[0; 4])?;
        let out = Output { file, code: Vec::new() };
        Ok(Self { out, blocks: Blocks::default(), sources: HashMap::new() })
    }

    /// Notes something about the whole.
    pub fn note(&mut self, key: &str, value: &str) -> Result<()> {
        let mut bytes = Vec::new();
        put_text(&mut bytes, key);
        put_text(&mut bytes, value);
        self.out.section(tag::NOTE, 0, &bytes)
    }

    /// A file was mapped.
    pub fn module(&mut self, module: &Module) -> Result<()> {
        let mut bytes = Vec::new();
        for number in [module.time, module.start, module.end, module.offset] {
            put(&mut bytes, number);
        }
        put_text(&mut bytes, &module.path);
        self.out.section(tag::MODULE, 0, &bytes)
    }

    /// There is a block, which nobody has executed yet.
    pub fn block(&mut self, number: u32, address: u64, bytes: &[u8]) -> Result<()> {
        if !self.blocks.add(number, address, bytes) {
            return Err(Error::bad(format!("block {number} cannot be, or is there twice")));
        }
        for value in [number.into(), address, bytes.len() as u64] {
            put(&mut self.out.code, value);
        }
        self.out.code.extend(bytes);
        Ok(())
    }

    /// These words were written at one of the places that threads write to: whole items, of blocks that are there.
    pub fn push(&mut self, source: u32, words: &[u64]) -> Result<()> {
        let Self { out, blocks, sources } = self;
        let encoder = sources.entry(source).or_default();
        encoder.push(blocks, words, |chunk| out.chunk(&chunk))
    }

    /// The blocks that are there.
    pub fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Ends the file.
    pub fn finish(mut self) -> Result<()> {
        let mut sources: Vec<_> = std::mem::take(&mut self.sources).into_iter().collect();
        sources.sort_unstable_by_key(|source| source.0);
        for (_, mut encoder) in sources {
            encoder.finish().map_or(Ok(()), |chunk| self.out.chunk(&chunk))?;
        }
        self.out.flush_code()?;
        Ok(self.out.file.flush()?)
    }
}

impl Output {
    fn section(&mut self, tag: [u8; 4], thread: u32, bytes: &[u8]) -> Result<()> {
        self.file.write_all(&tag)?;
        self.file.write_all(&thread.to_le_bytes())?;
        self.file.write_all(&(bytes.len() as u64).to_le_bytes())?;
        self.file.write_all(&crc32fast::hash(bytes).to_le_bytes())?;
        self.file.write_all(&[0; 4])?;
        Ok(self.file.write_all(bytes)?)
    }

    fn chunk(&mut self, chunk: &Chunk) -> Result<()> {
        self.flush_code()?;
        self.section(tag::CHUNK, chunk.thread, &chunk.pack()?)
    }

    fn flush_code(&mut self) -> Result<()> {
        if self.code.is_empty() {
            return Ok(());
        }
        let code = std::mem::take(&mut self.code);
        let mut bytes = Vec::new();
        put(&mut bytes, code.len() as u64);
        bytes.extend(zstd::bulk::compress(&code, 3)?);
        self.section(tag::CODE, 0, &bytes)
    }
}
