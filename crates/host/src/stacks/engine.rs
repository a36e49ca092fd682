//! The program's registers of a thread that runs from a clone.
//!
//! The program's stack holds the program's own return addresses, so that its registers are all that unwinding needs.
//! They are found from outside, in what the engine keeps: nothing is put into the process for it, it does not matter
//! whose clone it is, and a weft that was killed is not needed. What is read may be anything, and is not believed.

use crate::arch::Registers;
use crate::base::page::PAGE;
use crate::process::memory;
use crate::process::proc::{self, Tid};
use crate::process::stopped::Stopped;
use crate::visited::engine::{Stage, find};
use crate::{Result, TargetAddr};
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::time::{Duration, Instant};
use weft_abi::outline::{OUTLINE_WORDS, Outline};
use weft_abi::pieces::{Aside, Cold, InBlock, Kind, State};
use weft_abi::stored::{
    HEADER_LENGTH, LONGEST_CODE, LONGEST_TABLES, MAPPING_COUNT, StoredBlock, StoredHeader,
    StoredPiece, Table,
};
use weft_abi::{CLONE_THREAD_SIZE, CloneControl};

/// How long threads may take to come to where the program's registers are known. All others stand still meanwhile.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often they are let run at least: on a busy machine they may have had no turn.
const ROUNDS: usize = 6;

const IN_ENGINE: &str = "the thread is in weft's engine";
const FOREIGN: &str = "it runs from a clone of another version of weft";

const RCX: usize = 1;
const RSP: usize = 4;
const RBP: usize = 5;
/// How long `syscall` is.
const CALL_LENGTH: u64 = 2;
/// More than a list of the engine's ever has.
const LONGEST_LIST: u64 = 1 << 28;
/// More than the records of a block ever have.
const MOST_RECORDS: u64 = 1 << 20;

/// What is known of a thread from outside.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pc: u64,
    sp: u64,
    /// All its registers, and where its `gs` begins; not known of a thread that was left asleep.
    registers: Option<([u64; 16], u64)>,
    /// Whether it is in a system call.
    is_calling: bool,
}

impl Seen {
    /// A thread that is stopped.
    fn stopped(registers: &Registers) -> Self {
        let g = &registers.0;
        let is_calling = g.orig_rax as i64 >= 0;
        let known = Some((registers.general(), g.gs_base));
        Self { pc: g.rip, sp: g.rsp, registers: known, is_calling }
    }

    /// A thread that sleeps in a system call.
    pub fn asleep(pc: u64, sp: u64) -> Self {
        Self { pc, sp, registers: None, is_calling: true }
    }
}

/// What unwinding needs of the program's registers.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRegisters {
    pub pc: u64,
    pub sp: u64,
    pub bp: u64,
    /// A return address on the stack that is the clone's: where, and what the program's is.
    pub stacked: Option<(u64, u64)>,
    /// Whether the system call that it is in, if it is in one, is the program's.
    pub is_calling: bool,
}

/// Where a thread is in the program.
#[derive(Clone, Copy, Debug, Default)]
pub enum Place {
    /// Where it is seen: it is in the program's own code.
    #[default]
    AsSeen,
    Program(ProgramRegisters),
    /// That cannot be told.
    Hidden(&'static str),
}

/// Whether a process runs from a clone.
#[derive(Clone, Debug)]
pub enum Cloning {
    No,
    Engine(Box<Engine>),
    /// From one of an engine that this weft does not know.
    Foreign,
}

impl Cloning {
    pub fn of(pid: Tid) -> Result<Self> {
        let Some(found) = find(pid, &proc::maps(pid)?) else { return Ok(Self::No) };
        if !found.is_known {
            return Ok(Self::Foreign);
        }
        if found.stage != Stage::Joined {
            return Ok(Self::No);
        }
        let at = found.control.start + offset_of!(CloneControl, outline) as u64;
        let outline = memory::word(pid, at).and_then(|at| read_outline(pid, at));
        Ok(outline.map_or(Self::Foreign, |outline| Self::Engine(Box::new(Engine { pid, outline }))))
    }

    /// Finds where stopped threads are. One that is for a moment where that cannot be told is let run until it can.
    pub fn settle(&self, stopped: &mut Stopped) -> Result<BTreeMap<Tid, Place>> {
        let deadline = Instant::now() + PATIENCE;
        if let Self::Engine(engine) = self {
            // Whoever is let run must not get into a call that would notice being stopped.
            stopped.stop_before(TargetAddr(engine.outline.call[1]));
        }
        let mut round = 0;
        loop {
            let (mut places, mut busy, mut is_told) = (BTreeMap::new(), Vec::new(), true);
            for (&tid, registers) in stopped.threads() {
                let seen = Seen::stopped(registers);
                let place = self.place(&seen);
                let is_hidden = matches!(place, Place::Hidden(_));
                is_told &= !is_hidden;
                // One that it waits for may have the engine's lock.
                if is_hidden || self.is_at_work(&seen) {
                    busy.push(tid);
                }
                places.insert(tid, place);
            }
            let is_over = round >= ROUNDS && Instant::now() > deadline;
            if is_told || is_over || !matches!(self, Self::Engine(_)) {
                return Ok(places);
            }
            stopped.let_run(busy)?;
            round += 1;
        }
    }

    /// Where a thread is in the program.
    pub fn place(&self, seen: &Seen) -> Place {
        match self {
            Self::No => Place::AsSeen,
            Self::Foreign => Place::Hidden(FOREIGN),
            Self::Engine(engine) => engine.place(seen),
        }
    }

    /// Whether a thread is in the engine, and not in a system call of the program's.
    fn is_at_work(&self, seen: &Seen) -> bool {
        let Self::Engine(engine) = self else { return false };
        engine.is_in_image(seen.pc) && !engine.is_in_call(seen.pc)
    }
}

fn read_outline(pid: Tid, at: u64) -> Option<Outline> {
    let bytes = memory::read(pid, TargetAddr(at), OUTLINE_WORDS * 8).ok()?;
    memory::words(&bytes).try_into().ok().map(Outline::from_words)
}

/// The engine of a process, seen from outside.
#[derive(Clone, Copy, Debug)]
pub struct Engine {
    pid: Tid,
    outline: Outline,
}

impl Engine {
    fn place(&self, seen: &Seen) -> Place {
        let in_image = self.is_in_image(seen.pc);
        let found = if in_image {
            self.in_image(seen)
        } else if let Some(arena) = self.arena_of(seen.pc) {
            self.in_clone(seen, arena)
        } else if let Some(stored) = self.stored_of(seen.pc) {
            self.in_stored(seen, &stored)
        } else {
            return Place::AsSeen;
        };
        // What is not the program's is not shown as if it was.
        let is_own = |pc: u64| {
            self.is_in_image(pc) || self.arena_of(pc).is_some() || self.stored_of(pc).is_some()
        };
        match found {
            Some(found) if !is_own(found.pc) => Place::Program(found),
            _ => Place::Hidden(IN_ENGINE),
        }
    }

    fn is_in_image(&self, pc: u64) -> bool {
        let [start, end] = self.outline.image;
        (start..end).contains(&pc)
    }

    /// Whether it is in what makes the program's system calls.
    fn is_in_call(&self, pc: u64) -> bool {
        let [begin, instruction] = self.outline.call;
        (begin..=instruction.wrapping_add(CALL_LENGTH)).contains(&pc)
    }

    /// A thread that is in the engine, and what the engine keeps of it.
    fn in_image(&self, seen: &Seen) -> Option<ProgramRegisters> {
        let Outline { resume: [resume, jump, end], missing: [missing, out], .. } = self.outline;
        let record = self.record_of(seen)?;
        let fields = &self.outline.record;
        let (pc, native_pc) = (record.word(fields.pc)?, record.word(fields.native_pc)?);
        let is_in_call = self.is_in_call(seen.pc);
        if record.has_on_stack(seen.sp) {
            let pc = if (resume..end).contains(&seen.pc) || is_in_call {
                pc
            } else if native_pc != 0 {
                native_pc
            } else if seen.is_calling && record.word(fields.epoch)? == u64::MAX {
                // It waits in the kernel for the program: the result is not there yet.
                pc
            } else {
                // Right behind the way out of the clone, or before that into it.
                return None;
            };
            let general =
                |register: usize| record.word(fields.general.checked_add(8 * register as u64)?);
            let is_calling = is_in_call || native_pc == 0;
            let (sp, bp) = (general(RSP)?, general(RBP)?);
            return Some(ProgramRegisters { pc, sp, bp, stacked: None, is_calling });
        }
        // It has the program's stack until it has saved all registers, and when it has loaded them.
        let (general, _) = seen.registers?;
        let pc = match seen.pc {
            at if at == jump => pc,
            at if (missing..=out).contains(&at) => general[RCX],
            _ => return None,
        };
        Some(ProgramRegisters {
            pc,
            sp: seen.sp,
            bp: general[RBP],
            stacked: None,
            is_calling: false,
        })
    }

    /// A thread that is in the clone, in the arena of which this is the description.
    fn in_clone(&self, seen: &Seen, arena: Arena) -> Option<ProgramRegisters> {
        let (general, gs) = seen.registers?;
        let record = self.record_at(gs)?;
        let is_locked = self.number(self.outline.lock, 4)? != 0;
        if is_locked || seen.pc < arena.start.checked_add(self.outline.arena.head)? {
            return None;
        }
        let aside = record.aside(&self.outline.record.aside)?;
        let mut state = State { general, pc: seen.pc, stacked: None };
        let read = |at: u64, length: usize| self.number(at, length);
        let (half, blocks) = self.half_of(&arena, seen.pc)?;
        match self.piece_at(&half, seen.pc)? {
            Some((_, Cold::Snippet | Cold::Data)) => return None,
            Some((start, kind)) => kind.restore(&aside, &mut state, start, read)?,
            None => {
                let found = self.in_block(&half, blocks, seen.pc)?;
                let is_woven = found.kind == Kind::Snippet;
                let is_within = is_woven && (found.offset != 0 || found.before == Some(found.kind));
                if is_within || found.kind == Kind::Way {
                    return None;
                }
                found.restore(&aside, &mut state, read)?;
            }
        }
        let State { general, pc, stacked } = state;
        let (sp, bp) = (general[RSP], general[RBP]);
        Some(ProgramRegisters { pc, sp, bp, stacked, is_calling: false })
    }

    /// A thread that is in a clone from a file. Nothing is woven there, and nobody changes it.
    fn in_stored(&self, seen: &Seen, stored: &Stored) -> Option<ProgramRegisters> {
        let (general, gs) = seen.registers?;
        let aside = self.record_at(gs)?.aside(&self.outline.record.aside)?;
        let offset = seen.pc.checked_sub(stored.code)?;
        let is_locked = self.number(self.outline.lock, 4)? != 0;
        if is_locked || offset < self.outline.file.head {
            return None;
        }
        let mut state = State { general, pc: seen.pc, stacked: None };
        let read = |at: u64, length: usize| self.number(at, length);
        if offset >= stored.header.cold {
            let (start, kind) = self.stored_piece(stored, seen.pc)?;
            kind.restore(&aside, &mut state, start, read)?;
        } else {
            self.in_stored_block(stored, seen.pc)?.restore(&aside, &mut state, read)?;
        }
        let State { general, pc, stacked } = state;
        let (sp, bp) = (general[RSP], general[RBP]);
        Some(ProgramRegisters { pc, sp, bp, stacked, is_calling: false })
    }

    fn stored_piece(&self, stored: &Stored, pc: u64) -> Option<(u64, Cold)> {
        let Table { at, count } = stored.header.pieces;
        let end = stored.code.checked_add(stored.header.code_length)?;
        let distance = end.checked_sub(pc)?;
        let field = |index: u64, field: u64| {
            let entry = (size_of::<StoredPiece>() as u64).checked_mul(index)?;
            self.number(stored.at.checked_add(at)?.checked_add(entry)?.checked_add(field)?, 4)
        };
        let index = partition_point(count, |index| Some(field(index, 0)? < distance))?;
        let kind = Cold::of_number(field(index, offset_of!(StoredPiece, kind) as u64)? as u8)?;
        Some((end.checked_sub(field(index, 0)?)?, kind)).filter(|_| index < count)
    }

    fn in_stored_block(&self, stored: &Stored, pc: u64) -> Option<InBlock> {
        let Table { at, count } = stored.header.blocks;
        let offset = pc.checked_sub(stored.code)?;
        let field = |index: u64, field: usize| {
            let entry = (size_of::<StoredBlock>() as u64).checked_mul(index)?;
            let place = stored.at.checked_add(at)?.checked_add(entry)?;
            self.number(place.checked_add(field as u64)?, 4)
        };
        let [code, start, records] = [
            offset_of!(StoredBlock, code),
            offset_of!(StoredBlock, start),
            offset_of!(StoredBlock, records),
        ];
        let after = partition_point(count, |index| Some(field(index, code)? <= offset))?;
        let index = after.checked_sub(1)?;
        let first = field(index, records)?;
        let last = match after < count {
            true => field(after, records)?,
            false => stored.header.records.count,
        };
        let length = last.checked_sub(first).filter(|&length| length <= MOST_RECORDS)?;
        let place = stored.at.checked_add(stored.header.records.at)?.checked_add(first)?;
        let records = memory::read(self.pid, TargetAddr(place), length as usize).ok()?;
        let mapping = stored.code.wrapping_sub(stored.header.distance);
        let block = stored.code.checked_add(field(index, code)?)?;
        Some(InBlock::locate(&records, mapping.wrapping_add(field(index, start)?), block, pc))
    }

    /// The clone from a file that holds a place.
    fn stored_of(&self, pc: u64) -> Option<Stored> {
        let fields = &self.outline.file;
        let (all, count) = self.list(self.outline.stored)?;
        (0..count.min(MAPPING_COUNT as u64)).find_map(|index| {
            let element = all.checked_add(index.checked_mul(fields.size)?)?;
            let at = self.number(element.checked_add(fields.header)?, 8)?;
            pc.checked_sub(at).filter(|&far| far < LONGEST_TABLES + LONGEST_CODE)?;
            let bytes = memory::read(self.pid, TargetAddr(at), HEADER_LENGTH).ok()?;
            let header = StoredHeader::from_bytes(bytes.first_chunk()?);
            let length = header.tables_length.checked_add(header.code_length)?;
            let code = at.checked_add(header.tables_length)?;
            let is_in = pc.checked_sub(code).is_some_and(|offset| offset < header.code_length);
            (is_in && header.is_sound(length)).then_some(Stored { at, code, header })
        })
    }

    /// The piece of the cold part of a half that holds a place: where it begins, and its kind. `None` within if that is
    /// not in the cold part.
    fn piece_at(&self, half: &Half, pc: u64) -> Option<Option<(u64, Cold)>> {
        if !(half.cold..half.end).contains(&pc) {
            return Some(None);
        }
        let fields = &self.outline.piece;
        let (pieces, count) = self.list(half.at.checked_add(self.outline.half.pieces)?)?;
        let distance = half.end - pc;
        let piece = |index: u64| pieces.checked_add(index.checked_mul(fields.size)?);
        let start = |index: u64| self.number(piece(index)?.checked_add(fields.start)?, 4);
        let index = partition_point(count, |index| Some(start(index)? < distance))?;
        if index == count {
            return None;
        }
        let kind = self.number(piece(index)?.checked_add(fields.kind)?, 1)?;
        let begin = half.end.checked_sub(start(index)?)?;
        Some(Some((begin, Cold::of_number(kind as u8)?)))
    }

    /// Where a place is in the block that holds it.
    fn in_block(&self, half: &Half, blocks: u64, pc: u64) -> Option<InBlock> {
        let fields = &self.outline.block;
        let (numbers, count) = self.list(half.at.checked_add(self.outline.half.blocks)?)?;
        let (blocks, block_count) = self.list(blocks)?;
        let block = |index: u64| {
            let number = self.number(numbers.checked_add(index.checked_mul(4)?)?, 4)?;
            let offset = number.checked_mul(fields.size).filter(|_| number < block_count)?;
            blocks.checked_add(offset)
        };
        let word = |block: u64, field: u64| self.number(block.checked_add(field)?, 8);
        let index = partition_point(count, |index| Some(word(block(index)?, fields.code)? <= pc))?;
        let block = block(index.checked_sub(1)?)?;
        let (at, length) =
            (word(block, fields.records)?, word(block, fields.records.checked_add(8)?)?);
        let length = Some(length).filter(|&length| length <= MOST_RECORDS)? as usize;
        let records = memory::read(self.pid, TargetAddr(at), length).ok()?;
        let (start, code) = (word(block, fields.start)?, word(block, fields.code)?);
        Some(InBlock::locate(&records, start, code, pc))
    }

    /// The half of an arena that holds a place, and the list of its blocks.
    fn half_of(&self, arena: &Arena, pc: u64) -> Option<(Half, u64)> {
        let Outline { blocks, retired, .. } = self.outline;
        let fields = &self.outline.half;
        let halves = [(self.outline.arena.half, blocks), (self.outline.arena.retired, retired)];
        for (offset, blocks) in halves {
            let at = arena.at.checked_add(offset)?;
            let word = |field: u64| self.number(at.checked_add(field)?, 8);
            let half = Half { at, end: word(fields.end)?, cold: word(fields.cold)? };
            if (word(fields.start)?..half.end).contains(&pc) {
                return Some((half, blocks));
            }
        }
        None
    }

    /// The arena that holds a place.
    fn arena_of(&self, pc: u64) -> Option<Arena> {
        let fields = &self.outline.arena;
        let (arenas, count) = self.list(self.outline.arenas)?;
        // There are few: code within a gigabyte and a half shares one.
        (0..count.min(1 << 12)).find_map(|index| {
            let at = arenas.checked_add(index.checked_mul(fields.size)?)?;
            let start = self.number(at.checked_add(fields.start)?, 8)?;
            let is_in = pc.checked_sub(start).is_some_and(|offset| offset < fields.length);
            is_in.then_some(Arena { at, start })
        })
    }

    /// A list: where its elements are, and how many there are.
    fn list(&self, at: u64) -> Option<(u64, u64)> {
        let [elements, count] = self.outline.list;
        let word = |offset: u64| self.number(at.checked_add(offset)?, 8);
        Some((word(elements)?, word(count)?.min(LONGEST_LIST)))
    }

    /// What the engine keeps of a thread that is in it.
    fn record_of(&self, seen: &Seen) -> Option<Record> {
        if let Some((_, gs)) = seen.registers {
            return self.record_at(gs);
        }
        // It lies below its stacks, and begins with its own address.
        let top = seen.sp / PAGE * PAGE;
        let pages = (0..=CLONE_THREAD_SIZE as u64 / PAGE).map(|page| page * PAGE);
        let mut records = pages.filter_map(|below| self.record_at(top.checked_sub(below)?));
        records.find(|record| record.has_on_stack(seen.sp))
    }

    fn record_at(&self, at: u64) -> Option<Record> {
        if self.number(at, 8)? != at {
            return None;
        }
        let bytes = memory::read(self.pid, TargetAddr(at), PAGE as usize).ok()?;
        let mut record = Record { at, stack: 0, bytes };
        record.stack = record.word(self.outline.record.stack)?;
        Some(record)
    }

    /// A number of up to eight bytes.
    fn number(&self, at: u64, length: usize) -> Option<u64> {
        let read = memory::read(self.pid, TargetAddr(at), length).ok()?;
        let mut bytes = [0; 8];
        bytes.get_mut(..length)?.copy_from_slice(read.get(..length)?);
        Some(u64::from_le_bytes(bytes))
    }
}

/// An arena: where what the engine knows of it is, and where it begins.
struct Arena {
    at: u64,
    start: u64,
}

/// A clone from a file: where it is, where its code begins, and what it says of itself.
struct Stored {
    at: u64,
    code: u64,
    header: StoredHeader,
}

/// One half of it: where what the engine knows of it is, where it ends, and where its cold part begins.
struct Half {
    at: u64,
    end: u64,
    cold: u64,
}

/// What the engine keeps of a thread.
struct Record {
    at: u64,
    /// The end of the engine's stack for it.
    stack: u64,
    bytes: Vec<u8>,
}

impl Record {
    fn word(&self, offset: u64) -> Option<u64> {
        let bytes = self.bytes.get(usize::try_from(offset).ok()?..)?;
        bytes.first_chunk().copied().map(u64::from_le_bytes)
    }

    /// Whether an address is on the engine's stack for the thread, and not on that for the kernel's frames: there, the
    /// engine may be changing what it keeps.
    fn has_on_stack(&self, address: u64) -> bool {
        let is_near = self.stack.wrapping_sub(self.at) <= CLONE_THREAD_SIZE as u64;
        is_near && address > self.at && address <= self.stack
    }

    fn aside(&self, offsets: &[u64; 6]) -> Option<Aside> {
        let [rax, rcx, far, second_far, kept, kept_names] = *offsets;
        Some(Aside {
            rax: self.word(rax)?,
            rcx: self.word(rcx)?,
            far: self.word(far)?,
            second_far: self.word(second_far)?,
            kept: [self.word(kept)?, self.word(kept.checked_add(8)?)?],
            kept_names: self.word(kept_names)? as u32,
        })
    }
}

/// The first of so many for which something does not hold, which holds for all before it.
fn partition_point(count: u64, mut holds: impl FnMut(u64) -> Option<bool>) -> Option<u64> {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle)? {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    Some(low)
}
