//! What is known about the code of a module, from its file or from its image in memory: its functions, and
//! where in the source they are. Knows nothing of running processes.
//!
//! [`ModuleSymbols`] is the entry point. The readers (`elf`, `symtab`, `frames`, `plt`, `gopclntab`, `dwarf`,
//! `plausible`, `sources`, `line_table`, `results`, `instructions`, `jumps`, `strings`) turn bytes into facts;
//! `collect` merges the facts into one `table`; `debug_file` and `cache` find and keep files, `inside` opens
//! them within the root directory of a process.

mod backing;
mod block;
mod cache;
mod collect;
mod debug_file;
mod decompress;
mod demangle;
mod dwarf;
mod elf;
mod error;
mod frames;
mod glob;
mod gopclntab;
mod hex;
pub mod inside;
mod instructions;
mod json;
mod jumps;
mod line_table;
mod listing;
mod module;
mod names;
mod parallel;
mod plausible;
mod plt;
pub mod profile;
mod raw;
mod results;
mod slots;
mod soname;
mod sources;
mod strings;
mod symtab;
mod table;
mod units;
mod versions;
mod written;

pub use cache::Cache;
pub use decompress::section as decompress_section;
pub use demangle::demangle;
pub use dwarf::Frame;
pub use elf::{Layout, build_id_note};
pub use error::{Error, Result};
pub use glob::Glob;
pub use hex::hex;
pub use instructions::{Instructions, Transfer};
pub use jumps::Jump;
pub use line_table::LineTable;
pub use listing::disassemble;
pub use module::{ModuleFile, ModuleImage, ModuleSymbols};
pub use raw::{Binding, FunctionKind, Origin, Visibility};
pub use slots::{Candidates, Slot};
pub use soname::soname;
pub use sources::Sources;
pub use table::{Function, FunctionTable};
pub use written::{Executed, Line, Written};
