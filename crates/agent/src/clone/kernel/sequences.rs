//! Restartable sequences (`rseq`): code that the kernel sends elsewhere when it is interrupted.
//!
//! The program tells the kernel by a *descriptor* where such code is and where to go from it. The kernel
//! looks there whenever it has interrupted a thread, but what it finds are addresses of the program, and
//! what runs is the clone. So a sequence is translated in one piece, with a descriptor of its own, and
//! where it begins the clone tells the kernel of that one in place of the program's. All of it happens as
//! it would natively then, except that what the kernel goes to leads to the agent first.

use crate::clone::record::Thread;
use crate::clone::regions::{Region, Regions};
use crate::clone::system::{self, PROT_READ};
use crate::clone::{Engine, Exit, calls, engine, pages, program};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

/// What glibc and all others have before the code that a sequence is aborted to.
const USUAL_SIGNATURE: u32 = 0x5305_3053;
/// How descriptors are aligned.
pub const ALIGNMENT: u64 = 32;
/// The longest sequence that is seen as one.
const LONGEST: u64 = 2048;
/// What may be set in a descriptor's flags.
const FLAGS: u64 = 7 << 32;
const UNREGISTER: u64 = 1;
/// Where an area names the descriptor.
pub const CURRENT: u64 = 8;
/// How often in a row the beginning of a sequence may be found without a descriptor before that is taken
/// for what the program wants. The kernel takes it away where a thread is interrupted right before.
const MOST_MISSED: u32 = 16;

/// What the kernel reads of a sequence's clone, and the engine behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    pub kind: u64,
    pub start: u64,
    pub length: u64,
    pub abort: u64,
    /// Of the program.
    pub original: [u64; 3],
}

/// A sequence of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// By what the program tells the kernel of it.
    pub descriptor: u64,
    pub start: u64,
    pub end: u64,
    /// Where the program goes on when it was interrupted.
    pub abort: u64,
    /// What stands before that.
    pub signature: u32,
}

/// All sequences that are known.
#[derive(Debug)]
pub struct Sequences {
    known: Vec<Sequence>,
    /// What threads have registered with.
    signatures: Vec<u32>,
}

impl Default for Sequences {
    fn default() -> Self {
        Self { known: Vec::new(), signatures: vec![USUAL_SIGNATURE] }
    }
}

impl Sequences {
    /// Whether an address is in a sequence.
    pub fn holds(&self, address: u64) -> bool {
        self.known.iter().any(|one| (one.start..one.end).contains(&address))
    }

    /// The sequence that holds an address, with all that it overlaps.
    pub fn around(&self, address: u64) -> Option<Range<u64>> {
        let first = self.known.iter().find(|one| (one.start..one.end).contains(&address))?;
        let mut range = first.start..first.end;
        while let Some(other) = self.known.iter().find(|one| {
            let overlaps = one.start < range.end && range.start < one.end;
            overlaps && (one.start < range.start || one.end > range.end)
        }) {
            range = range.start.min(other.start)..range.end.max(other.end);
        }
        Some(range)
    }

    /// The sequences that begin at an address.
    pub fn starting_at(&self, address: u64) -> impl Iterator<Item = Sequence> + '_ {
        self.known.iter().filter(move |one| one.start == address).copied()
    }

    /// Whether a signature is new.
    pub fn add_signature(&mut self, signature: u32) -> bool {
        let is_new = !self.signatures.contains(&signature);
        if is_new {
            self.signatures.push(signature);
        }
        is_new
    }

    /// Forgets what is not mapped any more.
    pub fn remove(&mut self, start: u64, end: u64) {
        let range = start..end;
        self.known.retain(|one| {
            let overlaps = one.start < end && start < one.end;
            !overlaps && !range.contains(&one.descriptor) && !range.contains(&one.abort)
        });
    }

    /// Looks whether words from an address are a descriptor. Returns where its sequence is, if that is new.
    fn learn(&mut self, at: u64, words: [u64; 4], regions: &Regions) -> Option<Range<u64>> {
        let [kind, start, length, abort] = words;
        let end = start.checked_add(length)?;
        let can_be = kind & !FLAGS == 0
            && (1..=LONGEST).contains(&length)
            && abort.wrapping_sub(start) >= length
            && regions.code_end(start).is_some_and(|code_end| code_end >= end)
            && regions.code_end(abort).is_some();
        if !can_be {
            return None;
        }
        let signature = program::read::<u32>(abort - 4)?;
        let found = Sequence { descriptor: at, start, end, abort, signature };
        if !self.signatures.contains(&signature) || self.known.contains(&found) {
            return None;
        }
        self.known.retain(|one| one.descriptor != at);
        self.known.push(found);
        Some(start..end)
    }
}

/// Reads memory of the program that is mapped, as far as is known. What is shared may be a device's, which
/// is not to be asked without need.
fn read<T: Copy + Default>(regions: &Regions, at: u64) -> Option<T> {
    let is_plain = |region: &&Region| !region.is_shared && region.protection & PROT_READ != 0;
    regions.at(at).filter(is_plain)?;
    program::read(at)
}

impl Engine {
    /// Looks whether a descriptor is at an address, or named there. If it is new, what was translated of its
    /// sequence is forgotten.
    pub fn learn(&mut self, lead: Lead) -> bool {
        let at = match lead {
            Lead::Address(at) | Lead::Named(at) => at,
            Lead::Pointer(at) => read::<u64>(&self.regions, at).unwrap_or_default(),
        };
        if !at.is_multiple_of(ALIGNMENT) {
            return false;
        }
        let words = match lead {
            Lead::Named(_) => program::read(at),
            _ => read(&self.regions, at),
        };
        let learnt = words.and_then(|words| self.sequences.learn(at, words, &self.regions));
        let Some(range) = learnt else { return false };
        let pages = (range.end - 1) / system::PAGE - range.start / system::PAGE + 1;
        for page in self.pages.guarded_after(range.start, pages) {
            pages::release(self, page);
        }
        self.forget(range.start, range.end);
        true
    }

    /// A thread that is taken over may be on its way into a sequence, with what leads there in a register.
    pub fn learn_from(&mut self, thread: &Thread) {
        for value in thread.general() {
            self.learn(Lead::Address(value));
        }
    }

    /// A thread has left the clone: the kernel must not find a descriptor there that may be thrown away.
    /// Returns where the thread goes on that was about to go on somewhere.
    pub fn out_of_sequence(&mut self, thread: &Thread, pc: u64) -> u64 {
        let current = thread.sequence();
        if current == 0 || !thread.is_registered() {
            return pc;
        }
        if self.arena_of(current).is_none() {
            self.learn(Lead::Named(current));
            return pc;
        }
        thread.forget_sequence();
        // SAFETY: written by the translator; it stays until this thread says that it is out.
        let [start, end, abort] = unsafe { (*(current as *const Descriptor)).original };
        // As if it had been interrupted: it may be at any time.
        if (start..end).contains(&pc) { abort } else { pc }
    }

    /// The start of a sequence that the kernel has not been told of, or has forgotten because it has
    /// interrupted the thread right before.
    pub fn sequence(&mut self, thread: &Thread, exit: &Exit) {
        thread.missed.set(thread.missed.get() + 1);
        let abort = self.sequences.starting_at(exit.target).next().map(|one| one.abort);
        match abort {
            Some(abort) if thread.missed.get() <= MOST_MISSED => {
                self.go(thread, abort);
            }
            _ if exit.epoch == self.epoch => {
                thread.missed.set(0);
                thread.pc.set(exit.target);
                thread.target.set(thread.exit.get() + 8);
                thread.epoch.store(self.epoch, Relaxed);
            }
            _ => {
                self.go(thread, exit.target);
            }
        }
    }

    /// A sequence that was interrupted.
    pub fn abort(&mut self, thread: &Thread, abort: u64) {
        let mut general = thread.general();
        thread.give_kept(&mut general);
        thread.set_general(&general);
        self.go(thread, abort);
    }

    /// Takes a thread out of the sequence that it has left the clone from. Says whether that was aborted.
    pub fn leave_sequence(&mut self, thread: &Thread) -> bool {
        let pc = self.out_of_sequence(thread, thread.pc.get());
        let is_aborted = pc != thread.pc.get();
        if is_aborted {
            self.go(thread, pc);
        }
        is_aborted
    }
}

/// What may be the address of a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum Lead {
    Address(u64),
    /// Where the address is.
    Pointer(u64),
    /// What a thread's area names, which the kernel reads as well.
    Named(u64),
}

/// `rseq`
pub fn register(thread: &Thread) -> Option<isize> {
    let [_, _, flags, _, _, _, _, area, _, _, signature, ..] = thread.general();
    let result = calls::pass(thread)?;
    if result == 0 && flags & UNREGISTER != 0 {
        thread.unregister();
    } else if result == 0 {
        thread.register(area);
        let mut engine = engine();
        // The kernel writes to it at any time.
        if let Some(page) = engine.pages.never_guard(area) {
            pages::release(&mut engine, page);
        }
        // What was translated was not searched for it.
        engine.is_full |= engine.sequences.add_signature(signature as u32);
    }
    Some(result)
}
