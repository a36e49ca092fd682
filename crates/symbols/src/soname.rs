//! The name that the linker gave to a shared library, by which programs ask for it.

use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, ReadCache};
use std::fs::File;
use std::path::Path;

/// The soname of a file; `None` if it has none, or cannot be read. Only the parts of the file that say it are read.
pub fn soname(path: &Path) -> Option<String> {
    if !path.metadata().ok()?.is_file() {
        // Opening another kind of file may have it wait, or do something.
        return None;
    }
    let cache = ReadCache::new(File::open(path).ok()?);
    let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, &cache).ok()?;
    let (entries, strings) = sections.dynamic(endian, &cache).ok()??;
    let strings = sections.strings(endian, &cache, strings).ok()?;
    let entry = entries.iter().find(|entry| entry.d_tag(endian) == elf::DT_SONAME)?;
    let name = strings.get(u32::try_from(entry.d_val(endian)).ok()?).ok()?;
    Some(String::from_utf8_lossy(name).into_owned())
}
