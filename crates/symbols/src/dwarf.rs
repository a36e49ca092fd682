//! The debug information of a module, and the lines and inlined functions at an address.

use std::path::Path;
use std::sync::Arc;

use addr2line::Context;
use gimli::{
    AbbreviationsCacheStrategy, DwarfSections, EndianArcSlice, EndianSlice, LittleEndian, SectionId,
};

use crate::debug_file;
use crate::demangle::demangle;
use crate::elf::Elf;
use crate::plausible::is_plausible;
use crate::{Error, Result};

/// What all debug sections of one module may take.
const DEBUG_INFO_LIMIT: u64 = 16 << 30;

/// What nobody asks for: where variables are, and what macros were. Of a compressed file a quarter of the time of
/// reading goes into these.
const UNUSED: [SectionId; 4] =
    [SectionId::DebugLoc, SectionId::DebugLocLists, SectionId::DebugMacinfo, SectionId::DebugMacro];

/// The sections of `.debug_*`, loaded.
pub(crate) struct DebugInfo {
    own: DwarfSections<Arc<[u8]>>,
    /// What several modules of one package share.
    supplementary: Option<DwarfSections<Arc<[u8]>>>,
}

/// One function at an address, with the place in its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its name in the debug information, demangled.
    pub function: Option<String>,
    /// The source file.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The column in the line.
    pub column: Option<u32>,
    /// Whether the code has been inlined into the function of the next frame.
    pub inlined: bool,
}

/// The answers to "which line is this address", prepared as they are asked for.
pub(crate) struct Lines(Context<EndianArcSlice<LittleEndian>>);

impl DebugInfo {
    /// Loads the debug information of a module or its debug file; `None` when it has none.
    pub(crate) fn load(elf: &Elf, path: &Path, root: &Path) -> Result<Option<Self>> {
        if elf.section(".debug_info").or_else(|| elf.section(".debug_line")).is_none() {
            return Ok(None);
        }
        let supplementary = debug_file::supplementary(elf, path, root);
        let supplementary = supplementary.as_ref().map(load_sections);
        let loaded = Self { own: load_sections(elf), supplementary };
        let common = loaded.supplementary.as_ref();
        let common = common.map(|it| it.borrow(|section| EndianSlice::new(section, LittleEndian)));
        if !is_plausible(loaded.view()) || !common.is_none_or(is_plausible) {
            return Err(Error::new("the debug information is not used").why(
                "its parts refer to each other so often that reading it would fill the memory",
            ));
        }
        Ok(Some(loaded))
    }

    fn view(&self) -> gimli::Dwarf<EndianSlice<'_, LittleEndian>> {
        self.own.borrow_with_sup(self.supplementary.as_ref(), |section| {
            EndianSlice::new(section, LittleEndian)
        })
    }

    /// A view for reading all of it.
    pub(crate) fn borrow(&self) -> gimli::Dwarf<EndianSlice<'_, LittleEndian>> {
        let mut dwarf = self.view();
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        dwarf
    }

    /// Prepares for questions about addresses.
    pub(crate) fn lines(&self) -> Result<Lines> {
        let mut dwarf = self.own.borrow_with_sup(self.supplementary.as_ref(), |section| {
            EndianArcSlice::new(section.clone(), LittleEndian)
        });
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        Context::from_dwarf(dwarf).map(Lines).map_err(bad_debug_info)
    }
}

fn load_sections(elf: &Elf) -> DwarfSections<Arc<[u8]>> {
    let mut left = DEBUG_INFO_LIMIT;
    let loaded = DwarfSections::load(|id| {
        let section = Some(id.name()).filter(|_| !UNUSED.contains(&id));
        let section = section.and_then(|name| elf.section(name));
        let contents = section.and_then(|section| elf.contents(section));
        let contents = contents.unwrap_or_default();
        left = left.saturating_sub(contents.len() as u64);
        let within_limit = if left == 0 { &[] } else { &contents[..] };
        Ok::<_, std::convert::Infallible>(Arc::from(within_limit))
    });
    match loaded {
        Ok(sections) => sections,
        Err(never) => match never {},
    }
}

impl Lines {
    /// The functions at an address: first the innermost inlined one, last the one that has a
    /// symbol.
    pub(crate) fn frames(&self, address: u64) -> Result<Vec<Frame>> {
        /// Deeper inlining than this is no compiler's work.
        const DEEPEST: usize = 1024;
        let mut frames = Vec::new();
        let mut found = self.0.find_frames(address).skip_all_loads().map_err(bad_debug_info)?;
        while let Some(frame) = found.next().map_err(bad_debug_info)? {
            let name =
                frame.function.as_ref().and_then(|name| Some(name.raw_name().ok()?.into_owned()));
            let location = frame.location.as_ref();
            frames.push(Frame {
                function: name.map(|name| demangle(&name).unwrap_or(name)),
                file: location.and_then(|location| location.file).map(str::to_owned),
                line: location.and_then(|location| location.line),
                column: location.and_then(|location| location.column),
                inlined: true,
            });
            if frames.len() == DEEPEST {
                break;
            }
        }
        if let Some(outermost) = frames.last_mut() {
            outermost.inlined = false;
        }
        Ok(frames)
    }

    /// The source file and line of an address.
    pub(crate) fn location(&self, address: u64) -> Option<(&str, u32)> {
        let location = self.0.find_location(address).ok()??;
        Some((location.file?, location.line?))
    }
}

fn bad_debug_info(error: gimli::Error) -> Error {
    Error::new("the debug information cannot be read")
        .why(error.to_string())
        .advice("functions are listed without it; rebuild the program to have lines")
}
