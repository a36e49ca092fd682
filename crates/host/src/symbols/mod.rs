//! What is known about the code of a module: its functions, and where in the source they are.
//!
//! [`ModuleSymbols`] is the way in. The readers (`elf`, `symtab`, `frames`, `plt`, `gopclntab`,
//! `dwarf`, `plausible`, `sources`, `line_table`, `results`, `instructions`, `jumps`, `strings`) turn bytes into facts; `collect`
//! merges the facts into one `table`; where files are found and kept is the matter of `debug_file` and `cache`.

mod backing;
mod block;
mod cache;
mod collect;
mod debug_file;
mod decompress;
mod demangle;
mod dwarf;
mod elf;
mod frames;
mod glob;
mod gopclntab;
mod instructions;
mod json;
mod jumps;
mod line_table;
mod module;
mod names;
mod parallel;
mod plausible;
mod plt;
mod raw;
mod results;
mod slots;
mod sources;
mod strings;
mod symtab;
mod table;
mod units;
mod versions;

pub use cache::Cache;
pub use demangle::demangle;
pub use dwarf::Frame;
pub use elf::Layout;
pub(crate) use elf::build_id_note;
pub use glob::Glob;
pub use instructions::{Instructions, Transfer};
pub use jumps::Jump;
pub use line_table::LineTable;
pub use module::{ModuleFile, ModuleImage, ModuleSymbols};
pub use raw::{Binding, FunctionKind, Origin, Visibility};
pub use slots::{Candidates, Slot};
pub use sources::Sources;
pub use table::{Function, FunctionTable};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
