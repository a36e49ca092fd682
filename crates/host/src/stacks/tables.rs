//! The unwind tables of modules, as the unwinder wants them.

use crate::process::modules::{Module, image};
use crate::process::proc::Tid;
use framehop::ExplicitModuleSectionInfo;
use gimli::{BaseAddresses, DebugFrame, EhFrame, EhFrameHdr, LittleEndian, UnwindSection};
use memmap2::Mmap;
use object::{Object, ObjectSection};
use std::fs::File;
use std::ops::{Deref, Range};
use std::sync::Arc;
use weft_symbols::decompress_section;

/// A part of a module's file, or of its memory.
#[derive(Clone)]
pub struct Piece {
    whole: Arc<dyn Deref<Target = [u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.whole.get(self.range.clone()).unwrap_or_default()
    }
}

/// Reads the tables of a module; nothing if it has none that can be read.
pub fn tables(pid: Tid, module: &Module) -> Option<ExplicitModuleSectionInfo<Piece>> {
    let whole: Arc<dyn Deref<Target = [u8]> + Send + Sync> = match &module.open_path {
        // SAFETY: a file that is truncated while it is read would end weft by SIGBUS; it is one that the target executes,
        // so that would end the target as well.
        Some(path) => Arc::new(unsafe { Mmap::map(&File::open(path).ok()?).ok()? }),
        None => Arc::new(image(pid, module).ok()?),
    };
    let file = object::File::parse(&**whole).ok()?;
    let section = |name: &str| file.section_by_name(name);
    let range = |name: &str| section(name).map(|one| one.address()..one.address() + one.size());
    let bytes = |name: &str| {
        let one = section(name)?;
        if let Some((start, size)) = one.file_range()
            && one.compressed_file_range().is_ok_and(|found| found.uncompressed_size == size)
        {
            let (start, end) = (usize::try_from(start).ok()?, usize::try_from(start + size).ok()?);
            return Some(Piece { whole: whole.clone(), range: start..end });
        }
        // As Go has them.
        let data = decompress_section(one.data().ok()?)?;
        let range = 0..data.len();
        Some(Piece { whole: Arc::new(data), range })
    };
    Some(ExplicitModuleSectionInfo {
        base_svma: 0,
        text_svma: range(".text"),
        text: bytes(".text"),
        got_svma: range(".got"),
        eh_frame_svma: range(".eh_frame"),
        eh_frame: bytes(".eh_frame"),
        eh_frame_hdr_svma: range(".eh_frame_hdr"),
        eh_frame_hdr: bytes(".eh_frame_hdr"),
        debug_frame: bytes(".debug_frame"),
        // Of other systems.
        stubs_svma: None,
        stub_helper_svma: None,
        unwind_info: None,
        text_segment_svma: None,
        text_segment: None,
    })
}

/// Which code has unwind rules. Where there are none the unwinder would go by frame pointers, which may not be any.
#[derive(Default)]
pub struct Rules {
    modules: Vec<(Range<u64>, u64, ModuleRules)>,
}

struct ModuleRules {
    eh_frame: Option<(Piece, Option<Piece>, BaseAddresses)>,
    debug_frame: Option<Piece>,
}

impl Rules {
    /// Takes note of a module.
    pub fn add(&mut self, module: &Module, sections: &ExplicitModuleSectionInfo<Piece>) {
        let start = |range: &Option<Range<u64>>| range.as_ref().map_or(0, |range| range.start);
        let bases = BaseAddresses::default()
            .set_eh_frame(start(&sections.eh_frame_svma))
            .set_eh_frame_hdr(start(&sections.eh_frame_hdr_svma))
            .set_text(start(&sections.text_svma))
            .set_got(start(&sections.got_svma));
        let rules = ModuleRules {
            eh_frame: sections
                .eh_frame
                .clone()
                .map(|bytes| (bytes, sections.eh_frame_hdr.clone(), bases)),
            debug_frame: sections.debug_frame.clone(),
        };
        self.modules.push((module.start.0..module.end.0, module.bias, rules));
    }

    /// Whether there is a rule for an address.
    pub fn cover(&self, address: u64) -> bool {
        let Some((_, bias, rules)) =
            self.modules.iter().find(|(range, ..)| range.contains(&address))
        else {
            return false;
        };
        let at = address.wrapping_sub(*bias);
        let in_eh_frame = rules.eh_frame.as_ref().is_some_and(|(bytes, index, bases)| {
            let section = EhFrame::new(bytes, LittleEndian);
            let index = index.as_ref().map(|bytes| EhFrameHdr::new(bytes, LittleEndian));
            let index = index.and_then(|index| index.parse(bases, 8).ok());
            match index.as_ref().and_then(gimli::ParsedEhFrameHdr::table) {
                Some(table) => {
                    table.fde_for_address(&section, bases, at, EhFrame::cie_from_offset).is_ok()
                }
                None => section.fde_for_address(bases, at, EhFrame::cie_from_offset).is_ok(),
            }
        });
        in_eh_frame
            || rules.debug_frame.as_ref().is_some_and(|bytes| {
                let section = DebugFrame::new(bytes, LittleEndian);
                let bases = BaseAddresses::default();
                section.fde_for_address(&bases, at, DebugFrame::cie_from_offset).is_ok()
            })
    }
}
