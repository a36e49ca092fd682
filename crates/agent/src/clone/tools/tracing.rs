//! Traces: what the program executes, all of it and in order, for weft to keep.
//!
//! Each thread writes to buffers in a stripe of its own, which weft takes when they are full and gives back. The
//! clone writes a record for each run of instructions (`translate/traced.rs`), the agent writes events: what else a
//! thread has done, and where a run was left in its middle. A page behind each buffer may not be touched, so that
//! nothing has to be compared: a thread that faults there turns to the next one, and waits if weft has not taken it
//! yet.

use crate::clone::base::context::Context;
use crate::clone::base::{clock, host, program, system};
use crate::clone::thread::record::{Thread, stripe};
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use iced_x86::{Decoder, DecoderOptions, OpKind, Register};
use weft_abi::recording::{
    COUNTERS, EVENT, TRACE_BUFFER_SIZE, TRACE_BUFFERS, TRACE_CAPTURES, TRACE_GUARD, TraceHead,
    event, event_word, trace_buffer,
};
use weft_code::accesses::GONE;

/// How long to wait for weft at a time, and how often, before it is taken for gone: less if it has marked itself as
/// gone.
const PATIENCE: u64 = 100;
const ROUNDS: u32 = 100;
const LAST_ROUNDS: u32 = 10;
const PR_SET_NAME: u64 = 15;
/// How many bytes of a name the kernel takes.
const LONGEST_NAME: u64 = 15;

/// Where the number of captures of each run is. A thread that has filled a buffer reads it without the lock.
static CAPTURES: AtomicU64 = AtomicU64::new(0);

/// Notes how many captures a run has, before it is executed. `base` is where the recording is.
pub fn note_captures(base: u64, number: u32, count: usize) {
    CAPTURES.store(base + TRACE_CAPTURES, Relaxed);
    // SAFETY: one of the bytes that are kept for it, one for each number.
    unsafe { *((base + TRACE_CAPTURES + u64::from(number)) as *mut u8) = count as u8 };
}

fn captures_of(number: u64) -> u64 {
    let at = CAPTURES.load(Relaxed) + number.min(COUNTERS - 1);
    // SAFETY: one of these bytes; it was written before the record was.
    u64::from(unsafe { *(at as *const u8) })
}

/// The register that an instruction of a trace's stores by: `mov [base + place], ...`, as they are written.
pub fn base_of(pc: u64) -> usize {
    // SAFETY: an instruction of the clone, which was just executed.
    let [prefix, _, modes] = unsafe { *(pc as *const [u8; 3]) };
    usize::from(modes & 7 | (prefix & 1) << 3)
}

fn head_of(thread: &Thread) -> &'static TraceHead {
    // SAFETY: the front of its stripe, which it has as long as it is traced.
    unsafe { &*(thread.counters() as *const TraceHead) }
}

fn buffer(thread: &Thread, number: u32) -> u64 {
    thread.counters() + trace_buffer(number)
}

/// Prepares a new stripe.
pub fn prepare(thread: &Thread) {
    let head = head_of(thread);
    head.base.store(thread.counters(), Relaxed);
    head.cursor.store(buffer(thread, 0), Relaxed);
    for number in 0..TRACE_BUFFERS as u32 {
        let guard = buffer(thread, number) + TRACE_BUFFER_SIZE - TRACE_GUARD;
        // SAFETY: a page that is not used.
        unsafe {
            system::call3(system::MPROTECT, guard as usize, TRACE_GUARD as usize, 0);
        }
    }
    thread.is_traced.set(1);
}

/// Whether an address is in the page behind a buffer of this thread's.
pub fn has_filled_buffer(thread: &Thread, address: u64) -> bool {
    let offset = address.wrapping_sub(thread.counters());
    let last = trace_buffer(TRACE_BUFFERS as u32 - 1) + TRACE_BUFFER_SIZE;
    thread.is_traced.get() != 0
        && (TRACE_BUFFER_SIZE..last).contains(&offset)
        && offset % TRACE_BUFFER_SIZE >= TRACE_BUFFER_SIZE - TRACE_GUARD
}

/// Hands a full buffer to weft. Returns the next one when that is free; if weft does not take any, what is in the
/// buffer is lost, and it is used again.
pub fn turn_buffer(thread: &Thread) -> u64 {
    let head = head_of(thread);
    if thread.has_stripe.get() != stripe::SHARED {
        return lose_buffer(thread);
    }
    let number = head.filled.load(Relaxed);
    let filled = number.wrapping_add(1);
    let mut rounds = 0;
    loop {
        let drained = head.drained.load(Acquire);
        if filled.wrapping_sub(drained) < TRACE_BUFFERS as u32 {
            break;
        }
        let patience = if host::is_host_gone() { LAST_ROUNDS } else { ROUNDS };
        let mark = u64::from(drained) + 1;
        if rounds >= patience || head.forsaken.load(Relaxed) == mark {
            head.forsaken.store(mark, Relaxed);
            return lose_buffer(thread);
        }
        clock::wait_for(&head.drained, drained, PATIENCE);
        rounds += 1;
    }
    let length = head.cursor.load(Relaxed) - buffer(thread, number);
    head.lengths[number as usize % TRACE_BUFFERS].store(length, Relaxed);
    head.filled.store(filled, Release);
    let next = buffer(thread, filled);
    head.cursor.store(next, Relaxed);
    next
}

/// Begins a buffer anew with how much of what was in it is lost. Returns where it continues.
fn lose_buffer(thread: &Thread) -> u64 {
    let head = head_of(thread);
    let start = buffer(thread, head.filled.load(Relaxed));
    let end = head.cursor.load(Relaxed);
    let (mut at, mut lost) = (start, 0);
    while at < end {
        // SAFETY: in its own buffer, which it has written until there.
        let words = unsafe { core::slice::from_raw_parts(at as *const u64, 2) };
        at += 8 * match words[0] {
            word if word & EVENT == 0 => {
                lost += 1;
                1 + captures_of(word)
            }
            word => {
                // What was lost before.
                if word == event_word(event::LOST, 1) {
                    lost += words[1];
                }
                1 + u64::from(word as u32)
            }
        };
    }
    head.cursor.store(start, Relaxed);
    write_event(thread, event::LOST, &[lost]);
    // The record of the last change may be among what is lost.
    write_event(thread, event::BASES, &bases(thread));
    head.cursor.load(Relaxed)
}

/// Writes an event. Never while the thread is in the middle of a record.
pub fn write_event(thread: &Thread, kind: u32, words: &[u64]) {
    if thread.is_traced.get() == 0 {
        return;
    }
    let head = head_of(thread);
    let size = 8 * (1 + words.len() as u64);
    let mut at = head.cursor.load(Relaxed);
    if has_filled_buffer(thread, at + size - 8) {
        at = turn_buffer(thread);
    }
    // SAFETY: room in a buffer of its own.
    unsafe {
        *(at as *mut u64) = event_word(kind, words.len());
        core::ptr::copy_nonoverlapping(words.as_ptr(), (at + 8) as *mut u64, words.len());
    }
    head.cursor.store(at + size, Relaxed);
}

fn bases(thread: &Thread) -> [u64; 2] {
    [system::fs_base(), thread.gs_base.get()]
}

/// Skips a load that captures what the instruction before has read or written, where another thread has unmapped
/// that memory in between. Returns whether the context is at such a load.
pub fn skip_lookup(thread: &Thread, context: &mut Context) -> bool {
    // SAFETY: an instruction of the clone, which was just executed.
    let bytes = unsafe { core::slice::from_raw_parts(context.rip as *const u8, 15) };
    let instruction = Decoder::with_ip(64, bytes, context.rip, DecoderOptions::NONE).decode();
    let is_load =
        instruction.op1_kind() == OpKind::Memory && instruction.memory_segment() != Register::GS;
    let register = weft_code::number(instruction.op0_register());
    let Some(register) = register.filter(|_| thread.is_traced.get() != 0 && is_load) else {
        return false;
    };
    let mut general = context.general();
    general[usize::from(register.0)] = GONE;
    context.set_general(&general);
    context.rip = instruction.next_ip();
    true
}

/// Writes that a thread begins.
pub fn begin(thread: &Thread) {
    if thread.is_traced.get() != 0 {
        let [fs, gs] = bases(thread);
        let [tid, pid] = [&thread.tid, &thread.pid].map(|id| id.get().into());
        write_event(thread, event::THREAD, &[tid, pid, fs, gs, clock::now()]);
        write_name(thread);
    }
}

/// Writes its name, if it is known.
fn write_name(thread: &Thread) {
    if thread.name.get() != [0; 2] {
        write_event(thread, event::NAME, &thread.name.get());
    }
}

/// Writes that it ends.
pub fn end(thread: &Thread) {
    if thread.is_traced.get() != 0 {
        write_event(thread, event::END, &[clock::now()]);
    }
}

/// Writes that it makes a system call.
pub fn system_call(thread: &Thread) {
    if thread.is_traced.get() == 0 {
        return;
    }
    let [number, _, rdx, _, _, _, rsi, rdi, r8, r9, r10, ..] = thread.general();
    let words = [number, rdi, rsi, rdx, r10, r8, r9, clock::now()];
    write_event(thread, event::SYSTEM_CALL, &words);
}

/// Writes the result of a system call, and what that has changed.
pub fn result(thread: &Thread, number: usize, result: isize) {
    if thread.is_traced.get() == 0 {
        return;
    }
    write_event(thread, event::RESULT, &[result as u64, clock::now()]);
    if number == system::ARCH_PRCTL {
        write_event(thread, event::BASES, &bases(thread));
    }
    let [_, _, _, _, _, _, rsi, rdi, ..] = thread.general();
    if (number, rdi, result) == (system::PRCTL, PR_SET_NAME, 0) {
        thread.name.set(name_at(rsi));
        write_event(thread, event::NAME, &thread.name.get());
    }
}

/// Writes that it is about to handle a signal, or to end by it.
pub fn signal(thread: &Thread, signal: usize, is_fault: bool) {
    if thread.is_traced.get() != 0 {
        write_event(thread, event::SIGNAL, &[signal as u64, is_fault.into(), clock::now()]);
    }
}

/// The name that a thread has just got from an address. No system call reads it: a filter may forbid that.
fn name_at(address: u64) -> [u64; 2] {
    let mut name = 0;
    for index in 0..LONGEST_NAME {
        match program::read::<u8>(address.wrapping_add(index)) {
            Some(byte) if byte != 0 => name |= u128::from(byte) << (8 * index),
            _ => break,
        }
    }
    [name as u64, (name >> 64) as u64]
}
