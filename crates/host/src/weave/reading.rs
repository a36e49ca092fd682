//! Reading the code of a module out of a live process.

use super::functions::{Known, code_id, known_functions};
use super::goroutines::Goroutines;
use super::landing::{Unusual, unusual};
use super::parts;
use super::segments::{bytes_at, read_segments};
use super::text::ModuleText;
use crate::Result;
use crate::process::modules::{self, Module};
use crate::process::proc::Tid;
use crate::visited::others::OtherChange;
use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use weft_symbols::{Cache, Layout, ModuleFile, ModuleImage, ModuleSymbols, inside};

impl ModuleText {
    /// Reads the code of a module, which other wefts may have changed.
    pub fn read(pid: Tid, module: Module, others: &[OtherChange]) -> Result<Self> {
        let symbols = symbols_of(pid, &module)?;
        let segments = read_segments(pid, &module, others)?;
        let frames = symbols.frames_address().map(|frames| module.bias.wrapping_add(frames));
        let deferreturn = symbols.find("runtime.deferreturn").first().copied();
        let has_go = deferreturn.is_some();
        let goroutines = has_go.then(|| Goroutines::of(pid, &symbols, module.bias)).flatten();
        let unusual = frames.map_or_else(Unusual::default, |frames| {
            unusual(frames, |address| bytes_at(&segments, address))
        });
        let (functions, cold_parts) =
            known_functions(symbols.functions(), module.bias, &segments, &unusual.starts, has_go);
        let deferreturn = deferreturn.and_then(|index| symbols.functions().get(index as usize));
        let deferreturn = deferreturn.map(|f| module.bias.wrapping_add(f.offset()));
        let sweeps = segments.iter().map(|_| OnceCell::new()).collect();
        let code_id = code_id(&module, &segments, &functions);
        let mut text = Self {
            module,
            is_gone: false,
            segments,
            functions,
            deferreturn,
            goroutines,
            cold_parts,
            owners: HashMap::new(),
            sweeps,
            unusual,
            code_id,
            claims: BTreeMap::new(),
            others: Vec::new(),
        };
        text.find_owners();
        text.see_others(others);
        Ok(text)
    }

    /// Finds out which functions parts belong to.
    fn find_owners(&mut self) {
        for (&function, parts) in &self.cold_parts {
            self.owners.extend(parts.iter().map(|part| (part.start, function)));
        }
        let is_unclaimed =
            |f: &&Known| f.is_unnamed || f.is_cold && !self.owners.contains_key(&f.start);
        let unclaimed = self.functions.iter().filter(is_unclaimed).copied();
        let found = parts::owners(self, unclaimed);
        for part in &mut self.functions {
            if let Some(&owner) = found.get(&part.start) {
                part.is_cold = true;
                self.cold_parts.entry(owner).or_default().push(part.start..part.end);
            }
        }
        self.owners.extend(found);
    }
}

/// The symbols of a live module.
fn symbols_of(pid: Tid, module: &Module) -> Result<ModuleSymbols> {
    let cache = Cache::of_user();
    let root = inside::root_of(pid);
    let path = module.path.clone().into();
    match &module.open_path {
        Some(open_path) => {
            let file = ModuleFile { path, open_path: open_path.clone(), root };
            Ok(ModuleSymbols::open(file, &cache)?)
        }
        None => {
            let bytes: Arc<[u8]> = modules::image(pid, module)?.into();
            // The kernel maps the vDSO as one piece, so its image is a whole file.
            let layout = if module.path == "[vdso]" {
                Layout::File
            } else {
                Layout::Memory { bias: module.bias }
            };
            Ok(ModuleSymbols::from_image(ModuleImage { path, bytes, layout, root }, &cache)?)
        }
    }
}
