//! From a place in the clone to the state that the program would have natively.

use crate::clone::base::keys::inner;
use crate::clone::cache::blocks::BlockView;
use crate::clone::cache::code_cache::CodeCache;
use crate::clone::cache::emit::ENTRY;
use crate::clone::cache::marks::Choice;
use crate::clone::cache::pieces::{Cold, Kind, stub};
use crate::clone::thread::record::Thread;
use core::cell::Cell;
use weft_abi::pieces::{Aside, InBlock, said_at};

pub use weft_abi::pieces::State;

/// What a thread has at a place in the clone becomes what the program would have. Returns whether the
/// place is in the clone at all.
pub fn restore(cache: &mut CodeCache, thread: &Thread, state: &mut State) -> bool {
    let is_in_clone = find(cache, thread, state);
    put_return_address(cache, state);
    is_in_clone
}

/// Puts a return address in its place that the clone has another one for.
pub fn put_return_address(cache: &mut CodeCache, state: &mut State) {
    if let Some((at, address)) = state.stacked.take() {
        if let Some(page) = cache.pages.guarded(at) {
            cache.release(page);
        }
        // SAFETY: the program's stack, which the clone has just written.
        unsafe { *(at as *mut u64) = address };
    }
}

/// The same, with a return address left as it is: it is in the state.
pub fn find(cache: &CodeCache, thread: &Thread, state: &mut State) -> bool {
    if let Some((start, kind)) = piece_at(cache, state.pc) {
        kind.restore(&aside(thread), state, start, read);
        return true;
    }
    let Some(block) = block_at(cache, state.pc) else { return false };
    InBlock::locate(block.records, block.start, block.code, state.pc).restore(
        &aside(thread),
        state,
        read,
    );
    true
}

/// The piece of the cold part that holds a place in the clone: where it begins, and what it is.
pub fn piece_at(cache: &CodeCache, place: u64) -> Option<(u64, Cold)> {
    if let Some(stored) = cache.store.at(place) {
        return stored.piece(place);
    }
    cache.half_of(place)?.0.piece(place)
}

/// The block that holds a place in the clone, if that is in one.
pub fn block_at(cache: &CodeCache, place: u64) -> Option<BlockView<'_>> {
    if let Some(stored) = cache.store.at(place) {
        return if stored.piece(place).is_some() { None } else { stored.block(place) };
    }
    let (half, blocks) = cache.half_of(place)?;
    if half.piece(place).is_some() {
        return None;
    }
    let position = half.blocks.partition_point(|&number| blocks[number as usize].code <= place);
    let &number = half.blocks.get(position.checked_sub(1)?)?;
    blocks.get(number as usize).map(BlockView::from)
}

/// Decodes a record: what became of an instruction, and how long the original is.
pub fn kind_and_length(record: &[u8]) -> (Kind, u8) {
    Kind::of_record(record[0])
}

/// How long a block's original is, and how long its code.
pub fn lengths(block: BlockView<'_>) -> (u64, u64) {
    let records = block.records.chunks_exact(2);
    records.fold((0, 0), |(original, copy), record| {
        (original + u64::from(kind_and_length(record).1), copy + u64::from(record[1]))
    })
}

/// Whether a place in the clone is between two instructions of the program, and not on the way from one to
/// the other. A snippet belongs to what follows it: a thread behind it has not executed anything yet.
pub fn is_between(cache: &CodeCache, pc: u64) -> bool {
    let Some(block) = block_at(cache, pc) else { return false };
    let (address, kind, offset, length, _) = locate(block, pc);
    let is_begun = kinds_around(block, pc).0 == Some(Kind::Snippet);
    let is_begun = is_begun && !is_let_in_at(cache, block, address, pc);
    // A check comes before the first instruction of its block.
    let is_whole = length != 0 || matches!(kind, Kind::Snippet | Kind::SystemCall);
    offset == 0 && !is_begun && is_whole
}

/// Whether the agent lets threads in at a place in a block, which is for an address: a snippet before it is
/// another's, or counts threads that come from elsewhere.
fn is_let_in_at(cache: &CodeCache, block: BlockView<'_>, address: u64, place: u64) -> bool {
    let is_inner = block.is_inner && block.start == address;
    let key = if is_inner { inner(address) } else { address };
    cache.find(key).is_some_and(|known| known.body == place)
}

/// Whether a thread at a place in a block is on its way into or out of it, by an indirect branch.
pub fn is_under_way(block: BlockView<'_>, pc: u64) -> bool {
    let (_, kind, offset, _, _) = locate(block, pc);
    match kind {
        Kind::Entry => true,
        Kind::Jump | Kind::JumpSegment | Kind::Return | Kind::CallIndirect | Kind::CallSegment => {
            offset != 0
        }
        _ => false,
    }
}

/// The instruction of the program that an instruction of the clone is for, if it is one.
pub fn original(cache: &CodeCache, pc: u64) -> Option<u64> {
    let (original, _, _, length, _) = locate(block_at(cache, pc)?, pc);
    (length != 0).then_some(original)
}

/// The original address of a place in a block, and what is done there: kind, how far into it, and how
/// long the original and the copy are.
pub fn locate(block: BlockView<'_>, pc: u64) -> (u64, Kind, u8, u8, u8) {
    let found = InBlock::locate(block.records, block.start, block.code, pc);
    (found.original, found.kind, found.offset, found.length, found.copied)
}

/// What is done at a place in a block, and what right before it.
pub fn kinds_around(block: BlockView<'_>, pc: u64) -> (Option<Kind>, Kind) {
    let mut copy = block.code;
    let mut before = None;
    for record in block.records.chunks_exact(2) {
        let kind = kind_and_length(record).0;
        copy += u64::from(record[1]);
        if pc < copy {
            return (before, kind);
        }
        before = Some(kind);
    }
    (before, Kind::Onward)
}

/// Where a thread is with respect to snippets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// In none, or at the beginning of one.
    Outside,
    /// In the middle of one, where the program's registers are not known.
    Within,
    /// Behind one, in code that stands for its instruction.
    Behind(u64),
}

/// How far a thread is at a place in the clone.
pub fn progress(cache: &CodeCache, pc: u64) -> Progress {
    match piece_at(cache, pc) {
        Some((_, Cold::Snippet)) => return Progress::Within,
        // Behind the way in there is what counts it, if that is counted.
        Some((start, Cold::Entry)) if pc > start + ENTRY as u64 && cache.is_recorded => {
            return Progress::Within;
        }
        // Whether it is counted is yet to be found out.
        Some((start, Cold::Stub)) if is_choice(cache, start) => return Progress::Within,
        _ => {}
    }
    let Some(block) = block_at(cache, pc) else { return Progress::Outside };
    let (mut original, mut copy, mut before) = (block.start, block.code, None);
    for record in block.records.chunks_exact(2) {
        let (kind, length) = kind_and_length(record);
        if pc < copy + u64::from(record[1]) {
            return match (before, kind) {
                // The branch is taken, and where to is not known here.
                (_, Kind::Way) => Progress::Within,
                (_, Kind::Snippet) if pc != copy => Progress::Within,
                (Some(Kind::Snippet), Kind::Snippet) => {
                    match is_let_in_at(cache, block, original, pc) {
                        true => Progress::Outside,
                        false => Progress::Within,
                    }
                }
                (_, Kind::Snippet) => Progress::Outside,
                (Some(Kind::Snippet), _) => Progress::Behind(original),
                _ => Progress::Outside,
            };
        }
        original += u64::from(length);
        copy += u64::from(record[1]);
        before = Some(kind);
    }
    Progress::Outside
}

/// Whether a place in the clone is for the start of a function as it is reached from within, where the
/// program is at `pc`: it cannot be seen from that.
pub fn is_inner(cache: &CodeCache, place: u64, pc: u64) -> bool {
    match piece_at(cache, place) {
        // SAFETY: a stub is as `translate` writes it.
        Some((start, Cold::Stub)) => unsafe { said(start + stub::TARGET) != pc },
        Some(_) => false,
        None => block_at(cache, place).is_some_and(|b| b.is_inner && b.start == pc),
    }
}

/// Whether a place in the clone is in a block that was forgotten or flushed.
pub fn is_old(cache: &CodeCache, pc: u64) -> bool {
    cache.is_in_clone(pc)
        && (!cache.is_current(pc) || block_at(cache, pc).is_some_and(|block| !block.is_valid))
}

/// Whether a stub is one of two ways of which one is counted.
fn is_choice(cache: &CodeCache, stub: u64) -> bool {
    // SAFETY: a stub is as `translate` writes it.
    let mark = unsafe { *((stub + stub::FAR) as *const u64) };
    cache.is_recorded && Choice::of_mark(mark).is_some()
}

/// The address that a word of the clone says.
///
/// # Safety
/// Such a word must be there.
pub unsafe fn said(place: u64) -> u64 {
    // SAFETY: the caller vouches for it.
    said_at(place, unsafe { *(place as *const u64) })
}

/// The program's values of registers that the clone may be using.
fn aside(thread: &Thread) -> Aside {
    Aside {
        rax: thread.rax.get(),
        rcx: thread.rcx.get(),
        far: thread.far.get(),
        second_far: thread.second_far.get(),
        kept: thread.kept.each_ref().map(Cell::get),
        kept_names: thread.kept_names.get(),
    }
}

/// Reads a word, a half, or a byte: of a piece as it was written, or of an instruction that the thread has just executed.
fn read(at: u64, length: usize) -> Option<u64> {
    // SAFETY: the caller is at such a piece or instruction.
    Some(unsafe {
        match length {
            8 => (at as *const u64).read_unaligned(),
            4 => u64::from((at as *const u32).read_unaligned()),
            _ => u64::from(*(at as *const u8)),
        }
    })
}
