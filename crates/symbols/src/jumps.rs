//! Where the indirect jumps of a module lead, from its file.

use std::borrow::Cow;
use std::ops::Range;

use weft_code::{Callee, Convention, Function, Program, graph};

use crate::elf::{CodeRanges, Elf};
use crate::parallel;

/// Of an indirect jump, where it is and where the entries of its table lead.
pub type Jump = (u64, Vec<u64>);

/// A module as its file has it. Of the functions that it calls nothing is said: what matters here is inside of one.
struct File<'a> {
    segments: Vec<(Range<u64>, Cow<'a, [u8]>)>,
    code: CodeRanges,
}

impl Program for File<'_> {
    fn bytes(&self, address: u64) -> &[u8] {
        let segment = self.segments.iter().find(|(range, _)| range.contains(&address));
        segment.map_or(&[], |(range, bytes)| &bytes[(address - range.start) as usize..])
    }

    fn is_code(&self, address: u64) -> bool {
        self.code.contains(address)
    }

    fn callee(&self, _: u64) -> Option<Callee> {
        None
    }
}

/// The indirect jumps of functions, each an offset and a size, whose tables are found. A table that nothing limits is
/// left out: that is most often the table of a computed `goto`, and its size would be a guess.
pub(crate) fn read(elf: &Elf, functions: &[(u64, u64)]) -> Vec<Jump> {
    const CHUNK: usize = 16;
    let segments = elf.loaded().filter_map(|segment| {
        let bytes = elf.at_address(segment.address, segment.file_size)?;
        Some((segment.address..segment.address.saturating_add(bytes.len() as u64), bytes))
    });
    let file = File { segments: segments.collect(), code: elf.code() };
    let found = parallel::map_chunks(functions, CHUNK, |chunk| {
        let mut jumps: Vec<Jump> = Vec::new();
        for &(offset, size) in chunk {
            let range = offset..offset.saturating_add(size);
            let tables = graph(&file, &Function::new(range, Convention::SystemV)).tables;
            let limited = tables.into_iter().filter(|table| !table.guessed);
            jumps.extend(limited.map(|table| (table.jump, table.targets)));
        }
        jumps
    });
    found.into_iter().flatten().collect()
}
