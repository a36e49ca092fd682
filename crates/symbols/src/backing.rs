//! Where the bytes of a module come from: a file or memory.
//!
//! Files are read with `pread`, never mapped: a file that its owner truncates while weft reads it
//! then gives a short read (an error), where a mapping would give `SIGBUS` (the end of weft).

use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The bytes of one module, read a range at a time.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    /// A regular file and its length when it was opened.
    File(Arc<File>, u64),
    /// Bytes that somebody else has read.
    Bytes(Arc<[u8]>),
}

impl Backing {
    pub(crate) fn from_file(file: File) -> std::io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self::File(Arc::new(file), len))
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(_, len) => *len,
            Self::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// The bytes of a range, or nothing when the range is not all there. Memory is only taken for
    /// ranges that lie within the file, so no header can ask for more than the file has.
    pub(crate) fn read(&self, offset: u64, len: u64) -> Option<Cow<'_, [u8]>> {
        let end = offset.checked_add(len)?;
        if end > self.len() {
            return None;
        }
        match self {
            Self::File(file, _) => {
                let mut bytes = vec![0; usize::try_from(len).ok()?];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(Cow::Owned(bytes))
            }
            Self::Bytes(bytes) => Some(Cow::Borrowed(&bytes[offset as usize..end as usize])),
        }
    }

    /// The CRC-32 that a debug link states for its file.
    pub(crate) fn crc32(&self) -> Option<u32> {
        const CHUNK: u64 = 1 << 20;
        let mut hasher = crc32fast::Hasher::new();
        let mut offset = 0;
        while offset < self.len() {
            let len = CHUNK.min(self.len() - offset);
            hasher.update(&self.read(offset, len)?);
            offset += len;
        }
        Some(hasher.finalize())
    }
}
