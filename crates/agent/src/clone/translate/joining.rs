//! Calls that are made in one place of the clone.
//!
//! Where several blocks have the same call, returns from it go to one of them, since a table says where; and the processor
//! expects each right behind the call that was made. So all but one of those calls would never be foreseen to return. The
//! others go on at the one that is there.

use crate::clone::cache::emit::{LINE, SAVE, in_reach};
use crate::clone::cache::links::Link;
use crate::clone::cache::pieces::thunk;
use crate::clone::translate::translator::{Extent, Translator};
use core::ops::Range;
use core::slice;
use weft_abi::pieces::said_at;

/// How long a call is in the clone.
const CALL: u64 = 5;
/// What a direct call's thunk begins with: it saves `rax`.
const THUNK: [u8; 5] = [0x65, 0x48, 0x89, 0x04, 0x25];
/// Where the distance to its operand is in the clone of an indirect call: behind what saves `rcx`, and the beginning of
/// `mov rcx, [rip + distance]`.
const DISTANCE: Range<usize> = SAVE as usize + 3..SAVE as usize + 7;

impl Translator<'_> {
    /// Goes on at the direct call of another block, if that has it. Returns whether it does.
    pub fn join_call(&mut self, target: u64, next: u64) -> bool {
        let Some(behind) = self.other_call(next) else { return false };
        // SAFETY: behind a call there is a thunk, and something behind that.
        let is_same = unsafe {
            let thunk = behind.wrapping_add_signed(self.read::<i32>(behind - 4).into());
            let said = said_at(thunk + thunk::TARGET, self.read(thunk + thunk::TARGET));
            self.read::<[u8; 5]>(thunk) == THUNK && said == target
        };
        let joins = is_same && self.share_mark();
        if joins {
            self.join(behind - CALL, next);
        }
        joins
    }

    /// The first time that the call is made is noted where it is made: for all blocks that come to it. Returns whether it is
    /// noted there, if it has to be.
    fn share_mark(&mut self) -> bool {
        if !self.is_marking() {
            return true;
        }
        let mark = self.recorder.as_ref().and_then(|it| it.marked_calls.get(&self.address));
        let (Some(&mark), Some(run)) = (mark, &mut self.run) else { return false };
        run.taken = mark;
        self.mark = 0;
        true
    }

    /// The same for an indirect call, up to which its block has what was written from `before` on. `operand` is where it
    /// reads its target, if that is told by a distance.
    pub fn join_indirect_call(&mut self, before: u64, operand: Option<u64>, next: u64) -> bool {
        let Some(behind) = self.other_call(next) else { return false };
        let length = (self.out.here() - before) as usize;
        let start = self.out.length - length;
        let call = behind - CALL - length as u64;
        // SAFETY: what was just written; and as much of the other block, which has its beginning and more before that.
        let (own, other) = unsafe {
            (
                slice::from_raw_parts(self.out.rw.add(start), length),
                slice::from_raw_parts(self.readable(call), length),
            )
        };
        let is_same = match operand {
            None => own == other,
            // Where the operand is out of reach it is read in another way, which is longer.
            Some(operand) => {
                let distance =
                    other[DISTANCE].first_chunk().map_or(0, |it| i32::from_le_bytes(*it));
                let end = call + DISTANCE.end as u64;
                own[..DISTANCE.start] == other[..DISTANCE.start]
                    && own[DISTANCE.end..] == other[DISTANCE.end..]
                    && end.wrapping_add_signed(distance.into()) == operand
            }
        };
        if is_same {
            self.out.length = start;
            self.join(call, next);
        }
        is_same
    }

    /// Where the call ends that returns to an address, if another block has one.
    fn other_call(&self, next: u64) -> Option<u64> {
        let may_leave = self.is_linking && !self.may_trap_next;
        let is_plain = self.extent == Extent::Block && self.known.is_fixed && may_leave;
        // Where each run tells that it was executed, it has to be left by its own end.
        let is_told =
            self.recorder.as_ref().is_some_and(|it| !it.is_for_counts() && !it.is_for_hits());
        // What counts those that come to the call itself would be left out.
        let is_counted = self.recorder.is_some()
            && self.block.starts.iter().any(|start| start.address == self.address);
        if !is_plain || is_told || is_counted || !self.weaving.is_empty() {
            return None;
        }
        let place = self.known.find(next)?;
        let is_near = in_reach(self.out.here() + 2 * LINE, place.entry);
        // A prefix may do nothing: one who comes to the call behind it is at another instruction.
        let is_there = u64::from(place.call_length) == next - self.address;
        (is_there && is_near).then_some(place.entry)
    }

    /// Jumps to the clone of the instruction that is being translated, in the block that knows where it returns to. Who
    /// comes to that instruction goes there at once: with the trap flag set, a thread that came to a jump instead would
    /// be trapped behind it, with nothing of the program's executed.
    fn join(&mut self, to: u64, next: u64) {
        let own = self.address;
        self.block.starts.iter_mut().filter(|it| it.address == own).for_each(|it| it.body = to);
        self.out.align_distance(1);
        self.out.byte(0xe9);
        self.block.joins.push((Link { site: self.out.here(), target: own }, next));
        self.out.distance(to);
    }

    /// Reads what was written to the clone.
    ///
    /// # Safety
    /// There must be as much.
    unsafe fn read<T: Copy>(&self, at: u64) -> T {
        // SAFETY: the caller vouches for it.
        unsafe { self.readable(at).cast::<T>().read_unaligned() }
    }

    /// Where a place in the clone can be read: what is made for a file will be executed elsewhere.
    fn readable(&self, at: u64) -> *const u8 {
        if self.arena.contains(at) { self.arena.writable(at) } else { at as *const u8 }
    }
}
