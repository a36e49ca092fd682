//! What snippets call: the few routines that are too long, or too rare, to be in each of them.
//!
//! A routine takes up to four values in rax, rdx, rcx and rsi (which it may change), gives one in
//! rax, and keeps everything else but flags. The stack pointer is below the program's red zone.
//! None waits without bound, takes a lock or allocates.

use crate::asm::{Alu, Asm, Cond, Label, Mem, Shift};
use crate::layout::{
    MAP_MIX, MAP_PROBES, MAP_WRITING, MARK_HOMES, MARK_PROBES, MARK_REACH, RING_STALLED, RING_TAIL,
    SALT_HOME_SHIFT, SALT_SHIFT, TEXT_BYTES, TEXT_ENTRY, TEXT_SIZE, TEXTS_CAPACITY, header,
};
use crate::routine::{MAY_FAULT, read_own_memory, restore, save, system_call};
use crate::site::{Env, Routines, Source};
use crate::system_calls::{CLOCK_GETTIME, GETPID, GETTID, NANOSLEEP};
use crate::walk;
use alloc::vec::Vec;
use weft_code::Register;

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;
const RBX: Register = Register::RBX;
const RSP: Register = Register::RSP;
const RBP: Register = Register::RBP;
const RSI: Register = Register::RSI;
const RDI: Register = Register::RDI;
const R8: Register = Register::R8;
const R9: Register = Register::R9;
const R10: Register = Register::R10;
const R11: Register = Register::R11;

const CLOCK_THREAD_CPUTIME_ID: i64 = 3;

/// How long a blocking ring's writer sleeps at a time, in nanoseconds.
const NAP: i32 = 200_000;
/// How often it does while the reader does not move: 100 ms in all.
const NAPS: i64 = 500;

/// How the function of the program is called, for which [`Routines::call`] is: `call r10`. What is behind
/// it, is on the stacks of threads that are in such functions, and on no others.
pub const CALL_OF_PROGRAM: [u8; 3] = [0x41, 0xff, 0xd2];

/// The routines' code, and where each begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The code, for the address that was given.
    pub code: Vec<u8>,
    /// Where its routines are, for [`Env::routines`].
    pub routines: Routines,
}

/// The routines, for an address. `env.routines` is not looked at.
pub fn runtime(env: &Env, at: u64) -> Runtime {
    let mut asm = Asm::new();
    let in_clone = env.engine.is_some();
    let claim = if in_clone { asm.here() } else { claim(&mut asm, env) };
    let load = if in_clone { load_in_clone } else { load };
    let load = [1, 2, 4, 8].map(|bytes| load(&mut asm, bytes));
    let text = text(&mut asm, if in_clone { read_text_in_clone } else { read_text });
    let stack = walk::stack(&mut asm, env);
    let cpu = cpu(&mut asm, env);
    let map1 = map1(&mut asm);
    let map2 = map2(&mut asm);
    let wait = wait(&mut asm);
    let stamp = stamp(&mut asm);
    let since = since(&mut asm);
    let leave = leave(&mut asm);
    let call = call(&mut asm, env);
    let address = |label: Label| at + u64::from(asm.offset(label));
    let routines = Routines {
        claim: address(claim),
        load: load.map(address),
        text: address(text),
        stack: address(stack),
        cpu: address(cpu),
        map1: address(map1),
        map2: address(map2),
        wait: address(wait),
        stamp: address(stamp),
        since: address(since),
        leave: address(leave),
        call: address(call),
    };
    Runtime { code: asm.place(at, at).0, routines }
}

/// Gives this thread's slab, claiming one if it has none: the first on its way that was given back, or
/// else the one that ends the search because it never was anybody's.
fn claim(asm: &mut Asm, env: &Env) -> Label {
    let region = &env.region;
    let saved = [RCX, RDX, RSI, RDI, R8, R9, R11];
    let last = region.count() as i32 - 1;
    let (have_salt, search, probe, next) = (asm.label(), asm.label(), asm.label(), asm.label());
    let (fresh, none_fresh, prepare, found) = (asm.label(), asm.label(), asm.label(), asm.label());
    let entry = asm.here();
    save(asm, &saved);
    asm.rdfsbase(RDX);
    asm.mov(RAX, Mem::Rip(env.salt));
    asm.test(RAX, RAX);
    asm.jcc(Cond::NotEqual, have_salt);
    // A forked child, for the first time.
    system_call(asm, GETPID);
    asm.mov(RCX, RAX);
    asm.shift_imm(Shift::Shl, RCX, SALT_HOME_SHIFT);
    asm.shift_imm(Shift::Shl, RAX, SALT_SHIFT);
    asm.alu(Alu::Or, RAX, RCX);
    asm.inc(RAX);
    asm.store(Mem::Rip(env.salt), RAX);
    asm.bind(have_salt);
    asm.alu(Alu::Xor, RDX, RAX);
    asm.mov(R8, RDX);
    asm.alu_imm(Alu::Xor, R8, header::PREPARING as i32);

    asm.bind(search);
    asm.mov32(RCX, RDX);
    asm.shift32_imm(Shift::Shr, RCX, region.key_shift);
    asm.alu32_imm(Alu::And, RCX, last);
    asm.mov_imm(RSI, region.count() as i64);
    asm.mov_imm(R9, 0);

    asm.bind(probe);
    asm.test(RCX, RCX);
    asm.jcc(Cond::Equal, next);
    asm.alu_imm(Alu::Cmp, RCX, last);
    asm.jcc(Cond::Equal, next);
    asm.mov(RDI, RCX);
    asm.shift_imm(Shift::Shl, RDI, region.stride_log2);
    asm.alu(Alu::Add, RDI, Mem::Rip(env.base));
    asm.mov(RAX, Mem::Base(RDI, 0));
    asm.alu(Alu::Cmp, RAX, RDX);
    asm.jcc(Cond::Equal, found);
    // This thread was preparing it when a signal came: the handler needs it now.
    asm.alu(Alu::Cmp, RAX, R8);
    asm.jcc(Cond::Equal, prepare);
    asm.test(RAX, RAX);
    asm.jcc(Cond::Equal, fresh);
    asm.alu_imm(Alu::Cmp, RAX, header::RETIRED as i32);
    asm.jcc(Cond::NotEqual, next);
    asm.test(R9, R9);
    asm.cmov(Cond::Equal, R9, RDI);
    asm.bind(next);
    asm.inc(RCX);
    asm.alu32_imm(Alu::And, RCX, last);
    asm.dec(RSI);
    asm.jcc(Cond::NotEqual, probe);

    asm.test(R9, R9);
    asm.jcc(Cond::NotEqual, none_fresh);
    // None is free.
    asm.mov_imm(RDI, i64::from(last) << region.stride_log2);
    asm.alu(Alu::Add, RDI, Mem::Rip(env.base));
    asm.lock();
    asm.alu32_imm(Alu::Or, Mem::Base(RDI, header::FLAGS as i32), header::OVERFLOWED as i32);
    asm.jmp(found);

    asm.bind(fresh);
    asm.test(R9, R9);
    asm.cmov(Cond::Equal, R9, RDI);
    asm.bind(none_fresh);
    asm.mov(RDI, R9);
    asm.mov(RAX, Mem::Base(RDI, 0));
    // Neither fresh nor given back: somebody was faster.
    asm.alu_imm(Alu::Cmp, RAX, header::RETIRED as i32);
    asm.jcc(Cond::Above, search);
    asm.lock();
    asm.cmpxchg(Mem::Base(RDI, 0), R8);
    asm.jcc(Cond::NotEqual, search);
    asm.mov(RAX, Mem::Rip(env.base));
    asm.lock();
    asm.inc(Mem::Base(RAX, header::CLAIMS as i32));

    asm.bind(prepare);
    thread_id(asm, env);
    asm.store32(Mem::Base(RDI, header::TID as i32), RAX);
    // Not by `getpid`: what a vforked child measures is its parent's, whose memory it runs in.
    asm.mov(RAX, Mem::Rip(env.salt));
    asm.shift_imm(Shift::Shr, RAX, SALT_SHIFT);
    asm.store32(Mem::Base(RDI, header::PID as i32), RAX);
    asm.store(Mem::Base(RDI, 0), RDX);

    asm.bind(found);
    asm.mov(RAX, RDI);
    restore(asm, &saved);
    asm.ret();
    entry
}

/// Gives this thread's id. rcx, rsi and r11 are lost.
fn thread_id(asm: &mut Asm, env: &Env) {
    let (ask, known) = (asm.label(), asm.label());
    if let Some(place) = &env.thread_id {
        asm.rdfsbase(RCX);
        asm.test(RCX, RCX);
        asm.jcc(Cond::Equal, ask);
        asm.alu(Alu::Cmp, RCX, Mem::Base(RCX, place.own_address));
        asm.jcc(Cond::NotEqual, ask);
        asm.mov32(RAX, Mem::Base(RCX, place.id));
        asm.test(RAX, RAX);
        asm.jcc(Cond::Equal, ask);
        asm.mov(RSI, Mem::Rip(env.salt));
        asm.shift_imm(Shift::Shr, RSI, SALT_SHIFT);
        asm.alu_imm(Alu::Cmp, RSI, place.process as i32);
        asm.jcc(Cond::Equal, known);
        // A child has the right id if its library made it; then it is the first thread's.
        asm.alu(Alu::Cmp, RAX, RSI);
        asm.jcc(Cond::Equal, known);
    }
    asm.bind(ask);
    system_call(asm, GETTID);
    asm.bind(known);
}

/// Where a thread goes on that has faulted in a load of a clone's snippet, given what is right before the instruction.
pub fn after_fault(before: [u8; 8], pc: u64) -> Option<u64> {
    let (mark, distance) = (&before[..7], before[7]);
    (mark == MAY_FAULT).then(|| pc - 1 - u64::from(distance))
}

/// rax: address, rdx: slab. The engine gets the fault, if it is one, and asks [`after_fault`]: no system call is
/// made, which a filter of the program's could forbid.
fn load_in_clone(asm: &mut Asm, bytes: i32) -> Label {
    let failed = asm.here();
    asm.inc(Mem::Base(RDX, header::FAULTS as i32));
    asm.mov_imm(RAX, 0);
    asm.ret();
    asm.bytes(&MAY_FAULT);
    let end = asm.here();
    let distance = asm.offset(end) - asm.offset(failed);
    asm.bytes(&[distance as u8]);
    let entry = asm.here();
    load_from_rax(asm, bytes);
    asm.ret();
    entry
}

fn load_from_rax(asm: &mut Asm, bytes: i32) {
    match bytes {
        1 => asm.movzx8(RAX, Mem::Base(RAX, 0)),
        2 => asm.movzx16(RAX, Mem::Base(RAX, 0)),
        4 => asm.mov32(RAX, Mem::Base(RAX, 0)),
        _ => asm.mov(RAX, Mem::Base(RAX, 0)),
    }
}

/// rax: address, rdx: slab. Reads what is on this page of the stack; asks the kernel for the rest.
fn load(asm: &mut Asm, bytes: i32) -> Label {
    let early = [RCX, RSI];
    let late = [RDI, R8, R9, R10, R11];
    const LOCAL: i32 = 0;
    const REMOTE: i32 = 16;
    const BUFFER: i32 = 32;
    const SLAB: i32 = 40;
    let (ask, read, done) = (asm.label(), asm.label(), asm.label());
    let entry = asm.here();
    save(asm, &early);
    asm.mov(RSI, RSP);
    asm.alu_imm(Alu::Or, RSI, 4095);
    asm.alu_imm(Alu::Sub, RSI, bytes - 1);
    asm.alu(Alu::Cmp, RAX, RSI);
    asm.jcc(Cond::Above, ask);
    asm.alu(Alu::Cmp, RAX, RSP);
    asm.jcc(Cond::Below, ask);
    load_from_rax(asm, bytes);
    asm.jmp(done);

    asm.bind(ask);
    save(asm, &late);
    asm.lea(RSP, Mem::Base(RSP, -48));
    asm.store(Mem::Base(RSP, SLAB), RDX);
    asm.lea(RSI, Mem::Base(RSP, BUFFER));
    asm.store(Mem::Base(RSP, LOCAL), RSI);
    asm.store_imm(Mem::Base(RSP, LOCAL + 8), bytes);
    asm.store(Mem::Base(RSP, REMOTE), RAX);
    asm.store_imm(Mem::Base(RSP, REMOTE + 8), bytes);
    asm.store_imm(Mem::Base(RSP, BUFFER), 0);
    read_own_memory(asm, RDX, REMOTE, 1);
    asm.alu_imm(Alu::Cmp, RAX, bytes);
    asm.jcc(Cond::Equal, read);
    asm.mov(RDX, Mem::Base(RSP, SLAB));
    asm.inc(Mem::Base(RDX, header::FAULTS as i32));
    asm.store_imm(Mem::Base(RSP, BUFFER), 0);
    asm.bind(read);
    asm.mov(RAX, Mem::Base(RSP, BUFFER));
    asm.lea(RSP, Mem::Base(RSP, 48));
    restore(asm, &late);
    asm.bind(done);
    restore(asm, &early);
    asm.ret();
    entry
}

/// Of [`text`]'s frame: what the kernel is to be told, and the text.
const TEXT_REMOTE: i32 = 16;
const TEXT_AT: i32 = 48;
const TEXT_FRAME: i32 = TEXT_AT + TEXT_SIZE as i32;

/// rax: address, rdx: slab, rcx: the most bytes, with a sign, rsi: the table. Gives the text's number, 0 if nothing
/// can be read. The code of `read` puts the text into the frame, which is zero: it finds the address in rax, the most
/// bytes in rcx, not 0, and the slab in rbx, and jumps to a label with the number of bytes in rdi if there are no more.
fn text(asm: &mut Asm, read: fn(&mut Asm, Label)) -> Label {
    const WORDS: i32 = TEXT_SIZE as i32 / 8;
    let saved = [RBX, RBP, RDI, R8, R9, R10, R11];
    let (failed, limited, hash, hashed) = (asm.label(), asm.label(), asm.label(), asm.label());
    let (probe, taken, copy, found, out) =
        (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    let entry = asm.here();
    save(asm, &saved);
    asm.lea(RSP, Mem::Base(RSP, -TEXT_FRAME));
    asm.mov(RBX, RDX);
    asm.mov(RBP, RSI);
    (0..WORDS).for_each(|word| asm.store_imm(Mem::Base(RSP, TEXT_AT + 8 * word), 0));
    asm.alu_imm(Alu::Cmp, RCX, TEXT_SIZE as i32);
    asm.jcc(Cond::LessEqual, limited);
    asm.mov_imm(RCX, TEXT_SIZE.into());
    asm.bind(limited);
    asm.test(RCX, RCX);
    asm.jcc(Cond::LessEqual, hash);
    read(asm, failed);

    asm.bind(hash);
    asm.mov_imm(RAX, 0);
    asm.mov_imm(RDI, 0);
    asm.mov_imm(R11, MAP_MIX as i64);
    let word = asm.here();
    asm.mov(RCX, Mem::Index(RSP, RDI, 8, TEXT_AT));
    asm.test(RCX, RCX);
    asm.jcc(Cond::Equal, hashed);
    asm.alu(Alu::Xor, RAX, RCX);
    asm.imul(RAX, R11);
    asm.mov(RCX, RAX);
    asm.shift_imm(Shift::Shr, RCX, 32);
    asm.alu(Alu::Xor, RAX, RCX);
    asm.inc(RDI);
    asm.alu_imm(Alu::Cmp, RDI, WORDS);
    asm.jcc(Cond::NotEqual, word);
    asm.bind(hashed);
    asm.alu_imm(Alu::Or, RAX, 1);
    asm.mov(R8, RAX);

    asm.mov(RDI, RAX);
    asm.shift_imm(Shift::Shr, RDI, 64 - TEXTS_CAPACITY.trailing_zeros() as u8);
    asm.imul_imm(RDI, RDI, TEXT_ENTRY as i32);
    asm.alu(Alu::Add, RDI, RBP);
    asm.mov_imm(R9, i64::from(MAP_PROBES));
    asm.mov_imm(R10, MAP_WRITING as i64);
    asm.bind(probe);
    asm.mov(RAX, Mem::Base(RDI, 0));
    asm.test(RAX, RAX);
    asm.jcc(Cond::NotEqual, taken);
    // A handler that comes now takes the next entry, perhaps for the same text.
    asm.cmpxchg(Mem::Base(RDI, 0), R10);
    asm.jcc(Cond::NotEqual, taken);
    asm.mov_imm(RCX, 0);
    asm.bind(copy);
    asm.mov(RAX, Mem::Index(RSP, RCX, 8, TEXT_AT));
    asm.store(Mem::Index(RDI, RCX, 8, TEXT_BYTES as i32), RAX);
    asm.inc(RCX);
    asm.alu_imm(Alu::Cmp, RCX, WORDS);
    asm.jcc(Cond::NotEqual, copy);
    asm.store(Mem::Base(RDI, 0), R8);
    asm.jmp(found);
    asm.bind(taken);
    asm.alu(Alu::Cmp, RAX, R8);
    asm.jcc(Cond::Equal, found);
    asm.alu_imm(Alu::Add, RDI, TEXT_ENTRY as i32);
    asm.dec(R9);
    asm.jcc(Cond::NotEqual, probe);
    // There is no room: its number stands for it all the same.
    asm.bind(found);
    asm.mov(RAX, R8);
    asm.jmp(out);

    asm.bind(failed);
    asm.inc(Mem::Base(RBX, header::FAULTS as i32));
    asm.test(RDI, RDI);
    asm.jcc(Cond::NotEqual, hash);
    asm.mov_imm(RAX, 0);
    asm.bind(out);
    asm.lea(RSP, Mem::Base(RSP, TEXT_FRAME));
    restore(asm, &saved);
    asm.ret();
    entry
}

/// See [`text`]. The engine gets the fault, if it is one: see [`load_in_clone`].
fn read_text_in_clone(asm: &mut Asm, failed: Label) {
    let (next, done) = (asm.label(), asm.label());
    asm.mov(RDX, RCX);
    asm.mov_imm(RDI, 0);
    asm.jmp(next);
    let fault = asm.here();
    asm.jmp(failed);
    asm.bytes(&MAY_FAULT);
    let end = asm.here();
    asm.bytes(&[(asm.offset(end) - asm.offset(fault)) as u8]);
    asm.bind(next);
    asm.movzx8(RCX, Mem::Index(RAX, RDI, 1, 0));
    asm.test(RCX, RCX);
    asm.jcc(Cond::Equal, done);
    asm.store8(Mem::Index(RSP, RDI, 1, TEXT_AT), RCX);
    asm.inc(RDI);
    asm.alu(Alu::Cmp, RDI, RDX);
    asm.jcc(Cond::NotEqual, next);
    asm.bind(done);
}

/// See [`text`]. Reads by way of the kernel, of which nothing may be known but the first page.
fn read_text(asm: &mut Asm, failed: Label) {
    const LENGTH: i32 = 8;
    let (scan, clear, done) = (asm.label(), asm.label(), asm.label());
    asm.lea(RDX, Mem::Base(RSP, TEXT_AT));
    asm.store(Mem::Base(RSP, 0), RDX);
    asm.store(Mem::Base(RSP, LENGTH), RCX);
    // To the end of the page, and what is behind it.
    asm.mov(RDX, RAX);
    asm.alu_imm(Alu::Or, RDX, -4096);
    asm.neg(RDX);
    asm.alu(Alu::Cmp, RDX, RCX);
    asm.cmov(Cond::Above, RDX, RCX);
    asm.store(Mem::Base(RSP, TEXT_REMOTE), RAX);
    asm.store(Mem::Base(RSP, TEXT_REMOTE + 8), RDX);
    asm.alu(Alu::Add, RAX, RDX);
    asm.alu(Alu::Sub, RCX, RDX);
    asm.store(Mem::Base(RSP, TEXT_REMOTE + 16), RAX);
    asm.store(Mem::Base(RSP, TEXT_REMOTE + 24), RCX);
    read_own_memory(asm, RBX, TEXT_REMOTE, 2);
    asm.mov_imm(RDI, 0);
    asm.test(RAX, RAX);
    asm.jcc(Cond::LessEqual, failed);
    asm.bind(scan);
    asm.movzx8(RCX, Mem::Index(RSP, RDI, 1, TEXT_AT));
    asm.test(RCX, RCX);
    asm.jcc(Cond::Equal, clear);
    asm.inc(RDI);
    asm.alu(Alu::Cmp, RDI, RAX);
    asm.jcc(Cond::NotEqual, scan);
    asm.alu(Alu::Cmp, RAX, Mem::Base(RSP, LENGTH));
    asm.jcc(Cond::NotEqual, failed);
    asm.jmp(done);
    // Behind the text are zeros.
    asm.bind(clear);
    asm.store8(Mem::Index(RSP, RDI, 1, TEXT_AT), RCX);
    asm.inc(RDI);
    asm.alu(Alu::Cmp, RDI, RAX);
    asm.jcc(Cond::NotEqual, clear);
    asm.bind(done);
}

/// Gives how long this thread has run, in nanoseconds.
fn cpu(asm: &mut Asm, env: &Env) -> Label {
    let entry = asm.here();
    if let Source::Word(address) = env.clock.source {
        asm.mov(RAX, Mem::Rip(address));
        asm.ret();
        return entry;
    }
    let saved = [RCX, RSI, RDI, R11];
    save(asm, &saved);
    asm.lea(RSP, Mem::Base(RSP, -16));
    asm.mov_imm(RDI, CLOCK_THREAD_CPUTIME_ID);
    asm.mov(RSI, RSP);
    system_call(asm, CLOCK_GETTIME);
    asm.mov(RAX, Mem::Base(RSP, 0));
    asm.imul_imm(RAX, RAX, 1_000_000_000);
    asm.alu(Alu::Add, RAX, Mem::Base(RSP, 8));
    asm.lea(RSP, Mem::Base(RSP, 16));
    restore(asm, &saved);
    asm.ret();
    entry
}

/// rax: the first entry, rdx: the word that marks it. Gives the entry, or 0.
fn map1(asm: &mut Asm) -> Label {
    let saved = [RCX, RSI];
    let (probe, taken, found) = (asm.label(), asm.label(), asm.label());
    let entry = asm.here();
    save(asm, &saved);
    asm.mov(RSI, RAX);
    asm.mov_imm(RCX, i64::from(MAP_PROBES));
    asm.bind(probe);
    asm.mov(RAX, Mem::Base(RSI, 0));
    asm.test(RAX, RAX);
    asm.jcc(Cond::NotEqual, taken);
    asm.cmpxchg(Mem::Base(RSI, 0), RDX);
    asm.jcc(Cond::Equal, found);
    asm.bind(taken);
    asm.alu(Alu::Cmp, RAX, RDX);
    asm.jcc(Cond::Equal, found);
    asm.alu_imm(Alu::Add, RSI, 16);
    asm.dec(RCX);
    asm.jcc(Cond::NotEqual, probe);
    asm.mov_imm(RSI, 0);
    asm.bind(found);
    asm.mov(RAX, RSI);
    restore(asm, &saved);
    asm.ret();
    entry
}

/// rax: the first entry, rdx: its tag, rcx and rsi: the keys. Gives the entry, or 0.
fn map2(asm: &mut Asm) -> Label {
    let saved = [RDI, R8, R9];
    let (probe, taken, next, found) = (asm.label(), asm.label(), asm.label(), asm.label());
    let entry = asm.here();
    save(asm, &saved);
    asm.mov(RDI, RAX);
    asm.mov_imm(R8, i64::from(MAP_PROBES));
    asm.mov_imm(R9, MAP_WRITING as i64);
    asm.bind(probe);
    asm.mov(RAX, Mem::Base(RDI, 0));
    asm.test(RAX, RAX);
    asm.jcc(Cond::NotEqual, taken);
    asm.cmpxchg(Mem::Base(RDI, 0), R9);
    asm.jcc(Cond::NotEqual, taken);
    // A handler that comes now takes the next entry: the reader adds up what has the same keys.
    asm.store(Mem::Base(RDI, 8), RCX);
    asm.store(Mem::Base(RDI, 16), RSI);
    asm.store(Mem::Base(RDI, 0), RDX);
    asm.jmp(found);
    asm.bind(taken);
    asm.alu(Alu::Cmp, RAX, RDX);
    asm.jcc(Cond::NotEqual, next);
    asm.alu_to(Alu::Cmp, Mem::Base(RDI, 8), RCX);
    asm.jcc(Cond::NotEqual, next);
    asm.alu_to(Alu::Cmp, Mem::Base(RDI, 16), RSI);
    asm.jcc(Cond::Equal, found);
    asm.bind(next);
    asm.alu_imm(Alu::Add, RDI, 32);
    asm.dec(R8);
    asm.jcc(Cond::NotEqual, probe);
    asm.mov_imm(RDI, 0);
    asm.bind(found);
    asm.mov(RAX, RDI);
    restore(asm, &saved);
    asm.ret();
    entry
}

/// rax: ring, rdx: the record's number, rcx: capacity. Gives 1 once there is room; 0 if the reader
/// does not move, and at once if it has not moved since that was found before.
fn wait(asm: &mut Asm) -> Label {
    let saved = [RBX, RBP, RSI, RDI, R8, R9, R10, R11];
    let (again, same, stalled, give_up, room, out) =
        (asm.label(), asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    let tail = Mem::Base(R8, RING_TAIL as i32);
    let stalled_at = Mem::Base(R8, RING_STALLED as i32);
    let entry = asm.here();
    save(asm, &saved);
    asm.lea(RSP, Mem::Base(RSP, -16));
    asm.mov(R8, RAX);
    asm.mov(R9, RDX);
    asm.mov(R10, RCX);
    asm.mov(RBX, tail);
    asm.lea(RAX, Mem::Base(RBX, 1));
    asm.alu(Alu::Cmp, RAX, stalled_at);
    asm.jcc(Cond::Equal, give_up);
    asm.mov_imm(RBP, NAPS);
    asm.store_imm(Mem::Base(RSP, 0), 0);
    asm.store_imm(Mem::Base(RSP, 8), NAP);
    asm.bind(again);
    asm.mov(RAX, tail);
    asm.mov(RDI, R9);
    asm.alu(Alu::Sub, RDI, RAX);
    asm.alu(Alu::Cmp, RDI, R10);
    asm.jcc(Cond::Below, room);
    asm.alu(Alu::Cmp, RAX, RBX);
    asm.jcc(Cond::Equal, same);
    asm.mov(RBX, RAX);
    asm.mov_imm(RBP, NAPS);
    asm.bind(same);
    asm.dec(RBP);
    asm.jcc(Cond::Equal, stalled);
    asm.mov(RDI, RSP);
    asm.mov_imm(RSI, 0);
    system_call(asm, NANOSLEEP);
    asm.jmp(again);
    asm.bind(stalled);
    asm.inc(RBX);
    asm.store(stalled_at, RBX);
    asm.bind(give_up);
    asm.mov_imm(RAX, 0);
    asm.jmp(out);
    asm.bind(room);
    asm.mov_imm(RAX, 1);
    asm.bind(out);
    asm.lea(RSP, Mem::Base(RSP, 16));
    restore(asm, &saved);
    asm.ret();
    entry
}

/// rax: the frame's home, rdx: the frame. Gives an entry: its own, else a free one, else one of a
/// frame that is gone, else its home, whose stamp is lost.
fn stamp(asm: &mut Asm) -> Label {
    let saved = [RCX, RSI, RDI, R8, R9];
    let (probe, occupied, next, own, out) =
        (asm.label(), asm.label(), asm.label(), asm.label(), asm.label());
    let entry = asm.here();
    save(asm, &saved);
    asm.mov(RSI, RAX);
    asm.mov_imm(RDI, 0);
    asm.mov_imm(R8, 0);
    asm.mov_imm(RCX, i64::from(MARK_PROBES));
    asm.bind(probe);
    asm.mov(R9, Mem::Base(RSI, 0));
    asm.alu(Alu::Cmp, R9, RDX);
    asm.jcc(Cond::Equal, own);
    asm.test(R9, R9);
    asm.jcc(Cond::NotEqual, occupied);
    asm.test(RDI, RDI);
    asm.cmov(Cond::Equal, RDI, RSI);
    asm.jmp(next);
    asm.bind(occupied);
    // A little below this frame: the stack has been unwound past it.
    asm.neg(R9);
    asm.alu(Alu::Add, R9, RDX);
    asm.alu_imm(Alu::Cmp, R9, MARK_REACH as i32);
    asm.jcc(Cond::AboveEqual, next);
    asm.test(R8, R8);
    asm.cmov(Cond::Equal, R8, RSI);
    asm.bind(next);
    asm.alu_imm(Alu::Add, RSI, 16);
    asm.dec(RCX);
    asm.jcc(Cond::NotEqual, probe);
    asm.test(R8, R8);
    asm.cmov(Cond::NotEqual, RAX, R8);
    asm.test(RDI, RDI);
    asm.cmov(Cond::NotEqual, RAX, RDI);
    asm.jmp(out);
    asm.bind(own);
    asm.mov(RAX, RSI);
    asm.bind(out);
    restore(asm, &saved);
    asm.ret();
    entry
}

/// rax: the frame's home, rdx: the frame. Gives its entry, or 0.
fn since(asm: &mut Asm) -> Label {
    let (probe, out) = (asm.label(), asm.label());
    let entry = asm.here();
    asm.push(RCX);
    asm.mov_imm(RCX, i64::from(MARK_PROBES));
    asm.bind(probe);
    asm.alu_to(Alu::Cmp, Mem::Base(RAX, 0), RDX);
    asm.jcc(Cond::Equal, out);
    asm.alu_imm(Alu::Add, RAX, 16);
    asm.dec(RCX);
    asm.jcc(Cond::NotEqual, probe);
    asm.mov_imm(RAX, 0);
    asm.bind(out);
    asm.pop(RCX);
    asm.ret();
    entry
}

/// rax: a mark's table, rdx: the lowest frame, rcx: the highest. Drops the stamps of frames between, and gives how many.
fn leave(asm: &mut Asm) -> Label {
    let saved = [RSI, RDI, R8];
    let (probe, next) = (asm.label(), asm.label());
    let entry = asm.here();
    save(asm, &saved);
    asm.mov(RSI, RAX);
    asm.mov_imm(RAX, 0);
    asm.mov_imm(RDI, i64::from(MARK_HOMES + MARK_PROBES - 1));
    asm.bind(probe);
    asm.mov(R8, Mem::Base(RSI, 0));
    asm.test(R8, R8);
    asm.jcc(Cond::Equal, next);
    asm.alu(Alu::Cmp, R8, RDX);
    asm.jcc(Cond::Below, next);
    asm.alu(Alu::Cmp, R8, RCX);
    asm.jcc(Cond::Above, next);
    asm.store_imm(Mem::Base(RSI, 0), 0);
    asm.inc(RAX);
    asm.bind(next);
    asm.alu_imm(Alu::Add, RSI, 16);
    asm.dec(RDI);
    asm.jcc(Cond::NotEqual, probe);
    restore(asm, &saved);
    asm.ret();
    entry
}

/// rax: six arguments, rdx: function, rcx: slab. Gives what the function returns; 0, without a
/// call, while another call of this thread runs.
fn call(asm: &mut Asm, env: &Env) -> Label {
    // What `fxsave` writes, and the header that `xsavec` adds.
    const LEGACY: i32 = 512;
    const HEADER: i32 = 64;
    let saved = [RBX, RSI, RDI, R8, R9, R10, R11];
    let size = (LEGACY + HEADER).max(env.xsave_size as i32);
    let skipped = asm.label();
    let mask = |asm: &mut Asm| {
        asm.mov_imm(RAX, i64::from(env.xsave_mask as u32));
        asm.mov_imm(RDX, (env.xsave_mask >> 32) as i64);
    };
    let entry = asm.here();
    asm.alu_imm(Alu::Cmp, Mem::Base(RCX, header::CALLING as i32), 0);
    asm.jcc(Cond::NotEqual, skipped);
    asm.push(RBP);
    asm.mov(RBP, RSP);
    save(asm, &saved);
    // The function may count on the direction flag being clear.
    asm.bytes(&[0x9c, 0xfc]);
    asm.store_imm(Mem::Base(RCX, header::CALLING as i32), 1);
    asm.mov(RBX, RCX);
    asm.mov(R10, RDX);
    asm.mov(R11, RAX);
    asm.lea(RSP, Mem::Base(RSP, -size));
    asm.alu_imm(Alu::And, RSP, -64);
    if env.xsave_mask == 0 {
        asm.fxsave(Mem::Base(RSP, 0));
    } else {
        (0..8).for_each(|word| asm.store_imm(Mem::Base(RSP, LEGACY + 8 * word), 0));
        mask(asm);
        asm.xsavec(Mem::Base(RSP, 0));
    }
    for (index, register) in [RDI, RSI, RDX, RCX, R8, R9].into_iter().enumerate() {
        asm.mov(register, Mem::Base(R11, 8 * index as i32));
    }
    asm.mov_imm(RAX, 0);
    asm.bytes(&CALL_OF_PROGRAM);
    // While the return address is on the stack, the host knows by it that the call goes on. No old one
    // may stay there.
    asm.store_imm(Mem::Base(RSP, -8), 0);
    asm.mov(R10, RAX);
    if env.xsave_mask == 0 {
        asm.fxrstor(Mem::Base(RSP, 0));
    } else {
        mask(asm);
        asm.xrstor(Mem::Base(RSP, 0));
    }
    asm.mov(RAX, R10);
    asm.store_imm(Mem::Base(RBX, header::CALLING as i32), 0);
    asm.lea(RSP, Mem::Base(RBP, -8 * (saved.len() as i32 + 1)));
    asm.bytes(&[0x9d]);
    restore(asm, &saved);
    asm.pop(RBP);
    asm.ret();
    asm.bind(skipped);
    asm.inc(Mem::Base(RCX, header::SKIPPED_CALLS as i32));
    asm.mov_imm(RAX, 0);
    asm.ret();
    entry
}
