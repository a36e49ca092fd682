//! Libraries that were unloaded and loaded again while there were probes in them.

use super::weaver::{Weaver, forget};
use crate::Result;
use crate::process::edit::{self, Edit};
use crate::process::memory;
use std::collections::HashMap;
use std::ops::Range;
use weft_abi::weaving;

impl Weaver {
    /// Forgets the probes in modules that were unloaded and loaded again at the same place, and gives those
    /// places: nothing is woven there.
    pub fn see_reloaded(&mut self) -> Result<Vec<Range<u64>>> {
        let mut samples: HashMap<usize, &Edit> = HashMap::new();
        for woven in self.woven.values() {
            if let Some(edit) = woven.active.edits.first() {
                samples.entry(woven.text).or_insert(edit);
            }
        }
        let samples: Vec<(usize, &Edit)> = samples.into_iter().collect();
        let pieces: Vec<_> = samples.iter().map(|(_, edit)| (edit.at, edit.old.len())).collect();
        let found = memory::read_many(self.pid, &pieces)?.into_iter().zip(&samples);
        let is_original = |edit: &Edit, bytes: &[u8]| bytes == edit.old && edit.old != edit.new;
        let reloaded = found.filter(|(bytes, (_, edit))| {
            bytes.as_deref().is_some_and(|bytes| is_original(edit, bytes))
        });
        let reloaded: Vec<usize> = reloaded.map(|(_, (text, _))| *text).collect();
        reloaded.into_iter().for_each(|text| self.forget_text(text));
        let ranges = std::mem::take(&mut self.reloaded).into_iter().map(|text| {
            let range = self.texts[text].range();
            range.start.0..range.end.0
        });
        Ok(ranges.collect())
    }

    /// Forgets the probes in the modules of functions, if those were unloaded and loaded again. The next caller
    /// of [`Weaver::see_reloaded`] gets these modules.
    pub(super) fn forget_reloaded(&mut self, mut functions: Vec<u64>) -> Result<()> {
        functions.sort_unstable();
        functions.dedup();
        let mut edits: Vec<(Edit, usize)> = functions
            .iter()
            .filter_map(|function| self.woven.get(function))
            .flat_map(|woven| {
                woven.active.edits.iter().map(|edit| (edit.clone().reversed(), woven.text))
            })
            .collect();
        edits.sort_unstable_by_key(|(edit, _)| edit.at);
        let only_edits: Vec<Edit> = edits.iter().map(|(edit, _)| edit.clone()).collect();
        for index in edit::outdated(self.pid, &only_edits)? {
            self.forget_text(edits[index].1);
        }
        Ok(())
    }

    /// Forgets all probes in a module that was loaded again.
    fn forget_text(&mut self, text: usize) {
        let inside = self.woven.iter().filter(|(_, woven)| woven.text == text);
        let inside: Vec<u64> = inside.map(|(&function, _)| function).collect();
        inside.into_iter().for_each(|function| self.forget_code(function));
        self.reloaded.insert(text);
    }

    /// Forgets a function whose code is what it was before anything was woven into it.
    fn forget_code(&mut self, function: u64) {
        if let Some(woven) = self.woven.get(&function) {
            self.texts[woven.text].claim(function, &woven.plan.claims(), Vec::new());
        }
        forget(&mut self.woven, &mut self.limbo, &mut self.arenas, function);
    }

    /// What the engine of a clone is to be told: of probes in modules that are gone, it has places that are
    /// no longer theirs.
    pub fn unloaded_message(&mut self) -> Result<Vec<u64>> {
        self.forget_unloaded()?;
        let mut message = Vec::new();
        for id in std::mem::take(&mut self.unloaded) {
            if self.probes.get(&id).is_some_and(|probe| probe.enabled) {
                message.extend([weaving::REMOVE, id]);
                message.extend(self.probe_message(id)?);
            }
        }
        Ok(message)
    }
}
