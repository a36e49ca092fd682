//! Direct branches, and what is executed between a branch and its target.

use crate::clone::base::keys::{inner, real};
use crate::clone::cache::arena::Arena;
use crate::clone::cache::blocks::Start;
use crate::clone::cache::emit;
use crate::clone::cache::emit::in_reach;
use crate::clone::cache::emit::{Out, RAX};
use crate::clone::cache::links::{Link, stub_for};
use crate::clone::cache::pieces::{Cold, stub, thunk};
use crate::clone::thread::record::{at, at_counter};
use crate::clone::tools::recorder::are_flags_free_at;
use crate::clone::translate::translator::{Extent, Translator};
use weft_abi::recording::ending;
use weft_abi::weaving;
use weft_snippet::Compiled;

impl Translator<'_> {
    /// A direct call: its thunk has the return address.
    pub fn call(&mut self, target: u64, next: u64) {
        let (mut thunk, word) = self.thunk(Cold::CallThunk, thunk::SIZE, next);
        thunk.save(RAX, at!(far));
        emit::return_address(&mut thunk, next, word);
        thunk.load(RAX, at!(far));
        thunk.align_distance(1);
        core::mem::swap(&mut self.out, &mut thunk);
        self.branch_unaligned(&[0xe9], target);
        core::mem::swap(&mut self.out, &mut thunk);
        // For finding the program's state of a thread that is here.
        while thunk.length < thunk::TARGET as usize {
            thunk.byte(0xcc);
        }
        thunk.say(target);
        self.out.byte(0xe8);
        self.out.distance(thunk.rx);
    }

    /// Room for a call's thunk; and where the return address stands in it, behind all else, if it is out of reach.
    pub fn thunk(&mut self, kind: Cold, length: usize, next: u64) -> (Out, Option<u64>) {
        let is_near = self.arena.reaches(next);
        let thunk = self.arena.cold(length + if is_near { 0 } else { 8 }, kind);
        if is_near {
            return (thunk, None);
        }
        self.block.is_absolute = true;
        // SAFETY: there is room for it.
        unsafe { thunk.rw.add(length).cast::<u64>().write_unaligned(next) };
        let word = thunk.rx + length as u64;
        (thunk, Some(word))
    }

    /// A direct jump of the program's, through what is woven between it and its target.
    pub fn jump(&mut self, opcode: &[u8], target: u64) {
        self.out.align_distance(opcode.len() as u64);
        self.jump_unaligned(opcode, target);
    }

    /// The same where the distance need not be aligned.
    pub fn jump_unaligned(&mut self, opcode: &[u8], target: u64) {
        let target = self.target_from_here(target);
        let counted = self
            .run
            .filter(|run| run.ending == ending::BRANCH && run.fall == 0 && self.is_counting());
        if !self.is_woven(weaving::TAKEN) && counted.is_none() {
            self.branch_unaligned(opcode, target);
            return;
        }
        let place = (self.number, &mut *self.arena, self.known.table);
        let way = (self.address, weaving::TAKEN);
        let code = self.weaving.code(way, (real(target), &[]), false, place);
        let length: usize = code.iter().map(Compiled::main_len).sum();
        let mut on_the_way = self.arena.cold(length + emit::COUNT + 16, Cold::Snippet);
        self.out.bytes(opcode);
        self.out.distance(on_the_way.rx);
        if let Some(run) = counted {
            emit::count(&mut on_the_way, at_counter(run.taken), are_flags_free_at(real(target)));
        }
        write_snippets(&code, self.arena, &mut on_the_way);
        core::mem::swap(&mut self.out, &mut on_the_way);
        self.branch(&[0xe9], target);
        core::mem::swap(&mut self.out, &mut on_the_way);
    }

    /// The key of what a jump of this instruction leads to. A jump to the start of the function that it is in does
    /// not enter the function, and a jump to where a call returns to is no return: snippets there are not executed.
    pub fn target_from_here(&self, target: u64) -> u64 {
        let is_inner = self.extent != Extent::Single
            && self.weaving.is_passed(target, self.address)
            && !self.known.sequences.holds(target);
        if is_inner { inner(target) } else { target }
    }

    /// A direct branch.
    pub fn branch(&mut self, opcode: &[u8], target: u64) {
        self.out.align_distance(opcode.len() as u64);
        self.branch_unaligned(opcode, target);
    }

    /// The same where the distance need not be aligned.
    pub fn branch_unaligned(&mut self, opcode: &[u8], target: u64) {
        self.out.bytes(opcode);
        let site = self.out.here();
        if self.is_in_sequences(target) {
            match self.inside(target) {
                Some(body) => {
                    self.block.loops.push(Link { site, target });
                    self.out.distance(body);
                }
                None => {
                    self.forward.push(Link { site, target });
                    self.out.u32(0);
                }
            }
            return;
        }
        if !self.is_linking {
            let stub = stub_for(self.arena, target, 0);
            if self.is_at_end {
                // Nothing is linked that would need this.
                self.mark_stub(stub, 1);
            }
            self.out.distance(stub);
            return;
        }
        let link = Link { site, target };
        let known = self.known.find(target).map(|place| place.body);
        let mark = core::mem::take(&mut self.mark);
        if mark != 0 {
            // The first time that it is taken, it leaves the clone to be counted.
            let stub = stub_for(self.arena, target, site);
            self.mark_stub(stub, mark);
            self.out.distance(stub);
        } else if let Some(body) = self.inside(target) {
            self.block.loops.push(link);
            self.out.distance(body);
        } else if let Some(body) = known.filter(|&body| in_reach(site + 4, body)) {
            self.block.links.push(link);
            self.out.distance(body);
        } else if self.known.is_for_file() {
            self.block.open.push(link);
            self.out.u32(0);
        } else {
            let stub = stub_for(self.arena, target, site);
            self.out.distance(stub);
        }
    }

    /// Marks a stub that was just written.
    pub fn mark_stub(&self, stub: u64, mark: u64) {
        // SAFETY: a stub that was just written.
        unsafe { *self.arena.writable(stub + stub::FAR).cast::<u64>() = mark };
    }

    /// Where an earlier instruction of this block went, which becomes an entry of the block if it may.
    pub fn inside(&mut self, target: u64) -> Option<u64> {
        let index = self.places.binary_search_by_key(&target, |place| place.0).ok()?;
        let body = self.places[index].1;
        // A branch from elsewhere has to check first whether the original has changed.
        let is_open = self.extent != Extent::Checked;
        if is_open && !self.block.starts.iter().any(|start| start.address == target) {
            self.block.starts.push(Start::new(target, body));
        }
        Some(body)
    }
}

/// Writes snippets one after the other.
pub fn write_snippets(code: &[Compiled], arena: &mut Arena, out: &mut Out) {
    for snippet in code {
        let mut cold = arena.cold(snippet.cold_len(), Cold::Snippet);
        let (main, rest) = snippet.place(out.here(), cold.rx);
        out.bytes(&main);
        cold.bytes(&rest);
    }
}
