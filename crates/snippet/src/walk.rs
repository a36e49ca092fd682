//! The routine that takes the stack of a thread: it goes from frame to frame by the [rules](crate::unwind) that the host
//! has compiled, and keeps the addresses that it finds beside the values of the thread.
//!
//! Like all routines it makes no calls, takes no locks and allocates nothing. It reads memory of the program's stack,
//! which must not fault whatever is there. In a clone the engine gets the fault. Elsewhere a word is read only where
//! memory is known to be there: on the page of the stack pointer, and from there on up to where the kernel has been
//! asked, one page after the other. That is remembered for the next time: while a thread runs on a stack, what is above
//! its stack pointer stays there. It is not taken for granted behind a frame of a signal, and where frames are found by
//! frame pointers alone: there the kernel is asked about each page.
//!
//! What cannot be gone on from is kept as far as it was found, and marked.

use crate::asm::{Alu, Asm, Cond, Label, Mem, Shift};
use crate::layout::{
    GUESSED_FRAME, MAP_MIX, MAP_PROBES, MAP_WRITING, SIGNAL_FRAME, STACK_CUT, STACKS_ARENA,
    STACKS_CACHE, STACKS_CACHE_LOG2, STACKS_CAPACITY, STACKS_DEPTH, STACKS_ENTRIES,
    STACKS_GENERATION, STACKS_RANGE, STACKS_TOP, STACKS_WORDS,
};
use crate::routine::{MAY_FAULT, read_own_memory, restore, save};
use crate::site::Env;
use crate::unwind::{
    BP_AT_BP, BP_AT_CFA, BP_DISTANCE_SHIFT, BP_SAME, BP_SHIFT, CFA_SHIFT, HEAD, KIND_BP, KIND_END,
    KIND_NONE, KIND_OUTSIDE, KIND_PLT, KIND_SIGNAL, KIND_SP, KIND_STORED, LIST_REGIONS,
    REGION_SIZE, RULES,
};
use weft_code::Register;

const RAX: Register = Register::RAX;
const RCX: Register = Register::RCX;
const RDX: Register = Register::RDX;
const RSP: Register = Register::RSP;
const RSI: Register = Register::RSI;

/// Where the current function's frame begins: the stack pointer, as it was or will be in it.
const SP: Register = Register::RBX;
/// The frame pointer.
const BP: Register = Register::RBP;
/// The instruction.
const PC: Register = Register::RDI;
/// How many frames there are.
const COUNT: Register = Register::R8;
/// Where their addresses are kept.
const OUT: Register = Register::R9;
/// Of the addresses so far.
const HASH: Register = Register::R10;
/// Where the rules are.
const TABLES: Register = Register::R11;
/// What the thread has for stacks, see [`STACKS_CACHE`].
const STATE: Register = Register::R12;
/// What cache entries have beside the address: the number of the list, and whether the address is that of a return.
const MODE: Register = Register::R13;
/// From where on memory is known to be there.
const LOW: Register = Register::R14;
/// To where.
const HIGH: Register = Register::R15;

const SAVED: [Register; 13] =
    [RCX, RSI, SP, BP, PC, COUNT, OUT, HASH, TABLES, STATE, MODE, LOW, HIGH];

/// What a snippet gives the routine, as words one after the other.
pub(crate) mod asked {
    /// The address of the instruction.
    pub(crate) const PC: i32 = 0;
    /// The stack pointer.
    pub(crate) const SP: i32 = 8;
    /// The frame pointer.
    pub(crate) const BP: i32 = 16;
    /// Where the datum is in the slab: its sums, and in the upper half its state.
    pub(crate) const PLACE: i32 = 24;
    /// How many frames at most; [`DEPTH_ASKED`] if that was asked for; in the upper half how far the end of the first
    /// frame is above the stack pointer, if that is known without a rule.
    pub(crate) const HOW: i32 = 32;
    /// How many words.
    pub(crate) const WORDS: u32 = 5;
    /// See [`HOW`].
    pub(crate) const DEPTH_ASKED: i32 = 1 << 8;
}

// The routine's own frame.
const HOW: i32 = 0;
const SLAB: i32 = 8;
/// What hashes are made with.
const MIX: i32 = 16;
/// Whether what is known to be there may be remembered.
const TRUSTED: i32 = 24;
/// How many frames there were when the last one was found by its frame pointer alone.
const GUESSED: i32 = 32;
/// Where the datum's sums are.
const SUMS: i32 = 40;
/// The first of the words that were taken for addresses.
const FIRST: i32 = 48;
const LIST: i32 = 56;
const FRAME: i32 = 64;

/// Of [`MODE`]: addresses are those that calls return to.
const RETURNS_BIT: u8 = 37;
const GENERATION_BIT: u8 = 38;
const GENERATIONS: i32 = (1 << 10) - 1;
/// Of a cache entry: the index of the rule.
const RULE_BITS: u8 = 16;

/// Of the range that is remembered: how many pages.
const PAGES_BITS: u8 = 28;
const PAGE_BITS: u8 = 12;
const PAGE: i32 = 1 << PAGE_BITS;
/// How far the kernel is asked, page by page, for one word.
const REACH: i32 = 64 * PAGE;

/// Of the kernel's `ucontext`, which the stack pointer points to when a handler has returned.
const INTERRUPTED_SP: i32 = 0xa0;
const INTERRUPTED_PC: i32 = 0xa8;
const INTERRUPTED_BP: i32 = 0x78;

/// Indexes of [`crate::unwind::USUAL`].
const OUTSIDE: i64 = 0;
const NONE: i64 = 1;
const SIGNAL: i64 = 2;
const OTHER: i64 = 4;

struct Walk<'a> {
    asm: &'a mut Asm,
    in_clone: bool,
    cut: Label,
    /// Asks the kernel whether the word at rsi is there.
    ask: Label,
}

/// rax: what is [asked], rdx: slab. Gives the stack's number, or 0 if there are no rules.
pub(crate) fn stack(asm: &mut Asm, env: &Env) -> Label {
    let Some(tables) = env.unwind else {
        let entry = asm.here();
        asm.mov_imm(RAX, 0);
        asm.ret();
        return entry;
    };
    let (cut, ask) = (asm.label(), asm.label());
    let in_clone = env.engine.is_some();
    let mut walk = Walk { asm, in_clone, cut, ask };
    if !in_clone {
        walk.ask_kernel();
    }
    walk.run(tables)
}

impl Walk<'_> {
    fn run(&mut self, tables: u64) -> Label {
        let [frame, look_up, ruled, by_cfa, special, rare] = labels(self.asm);
        let [signal, whole, limit, finish, by_frame_pointer, stored, plt] = labels(self.asm);
        let entry = self.asm.here();
        self.begin(tables);

        // At a function's entry or return, the frame is what is known without a rule.
        let asm = &mut *self.asm;
        asm.mov32(RSI, Mem::Base(RSP, HOW + 4));
        asm.test(RSI, RSI);
        asm.jcc(Cond::Equal, frame);
        self.push(PC);
        let asm = &mut *self.asm;
        asm.movzx8(RCX, Mem::Base(RSP, HOW));
        asm.alu(Alu::Cmp, COUNT, RCX);
        asm.jcc(Cond::AboveEqual, limit);
        asm.alu(Alu::Add, RSI, SP);
        asm.mov_imm(RAX, i64::from(BP_SAME << BP_SHIFT));
        asm.jmp(by_cfa);

        asm.bind(frame);
        asm.mov(RAX, MODE);
        asm.shift_imm(Shift::Shr, RAX, RETURNS_BIT);
        asm.alu32_imm(Alu::And, RAX, 1);
        asm.mov(RCX, PC);
        asm.alu(Alu::Sub, RCX, RAX);
        // Addresses of programs have 47 bits.
        asm.mov(RSI, RCX);
        asm.shift_imm(Shift::Shr, RSI, 47);
        asm.mov_imm(RAX, i64::from(KIND_OUTSIDE));
        asm.test(RSI, RSI);
        asm.jcc(Cond::NotEqual, ruled);
        asm.mov(RAX, RCX);
        asm.shift_imm(Shift::Shr, RAX, STACKS_CACHE_LOG2);
        asm.mov(RSI, RAX);
        asm.alu(Alu::Xor, RSI, RCX);
        asm.alu32_imm(Alu::And, RSI, (1 << STACKS_CACHE_LOG2) - 1);
        asm.alu(Alu::Or, RAX, MODE);
        asm.mov(RDX, Mem::Index(STATE, RSI, 8, STACKS_CACHE as i32));
        asm.mov(RCX, RDX);
        asm.shift_imm(Shift::Shr, RCX, RULE_BITS);
        asm.alu(Alu::Cmp, RCX, RAX);
        asm.jcc(Cond::NotEqual, look_up);
        let known = asm.here();
        asm.movzx16(RDX, RDX);
        asm.mov(RAX, Mem::Index(TABLES, RDX, 8, RULES as i32));
        asm.bind(ruled);
        asm.mov(RCX, RAX);
        asm.alu32_imm(Alu::And, RCX, 15);
        asm.alu_imm(Alu::Cmp, RCX, KIND_OUTSIDE);
        asm.jcc(Cond::AboveEqual, special);
        self.push(PC);
        let asm = &mut *self.asm;
        asm.alu_imm(Alu::Cmp, RCX, KIND_END);
        asm.jcc(Cond::Equal, whole);
        asm.movzx8(RDX, Mem::Base(RSP, HOW));
        asm.alu(Alu::Cmp, COUNT, RDX);
        asm.jcc(Cond::AboveEqual, limit);
        self.distance(CFA_SHIFT, 32);
        let asm = &mut *self.asm;
        let by_sp = asm.label();
        asm.alu_imm(Alu::Cmp, RCX, KIND_SP);
        asm.jcc(Cond::Equal, by_sp);
        asm.alu_imm(Alu::Cmp, RCX, KIND_BP);
        asm.jcc(Cond::NotEqual, rare);
        asm.alu(Alu::Add, RSI, BP);
        asm.jmp(by_cfa);
        asm.bind(by_sp);
        asm.alu(Alu::Add, RSI, SP);

        // rsi: the end of the frame, rax: the rule.
        asm.bind(by_cfa);
        asm.alu(Alu::Cmp, RSI, SP);
        asm.jcc(Cond::BelowEqual, self.cut);
        self.check_alignment();
        self.asm.mov(SP, RSI);
        self.asm.alu_imm(Alu::Sub, RSI, 8);
        self.read(PC);
        let asm = &mut *self.asm;
        let (stored_bp, at_bp, lost, stepped) =
            (asm.label(), asm.label(), asm.label(), asm.label());
        asm.mov(RCX, RAX);
        asm.shift_imm(Shift::Shr, RCX, BP_SHIFT);
        asm.alu32_imm(Alu::And, RCX, 3);
        asm.jcc(Cond::Equal, stepped);
        self.distance(BP_DISTANCE_SHIFT, 24);
        let asm = &mut *self.asm;
        asm.alu_imm(Alu::Cmp, RCX, BP_AT_CFA);
        asm.jcc(Cond::NotEqual, at_bp);
        asm.alu(Alu::Add, RSI, SP);
        asm.bind(stored_bp);
        self.read(BP);
        let asm = &mut *self.asm;
        asm.bind(stepped);
        asm.mov_imm(RDX, 1 << RETURNS_BIT);
        asm.alu(Alu::Or, MODE, RDX);
        asm.test(PC, PC);
        asm.jcc(Cond::NotEqual, frame);
        asm.jmp(whole);
        asm.bind(at_bp);
        asm.alu_imm(Alu::Cmp, RCX, BP_AT_BP);
        asm.jcc(Cond::NotEqual, lost);
        asm.alu(Alu::Add, RSI, BP);
        self.check_alignment();
        self.asm.jmp(stored_bp);
        let asm = &mut *self.asm;
        asm.bind(lost);
        asm.mov_imm(BP, 0);
        asm.jmp(stepped);

        asm.bind(rare);
        asm.alu_imm(Alu::Cmp, RCX, KIND_STORED);
        asm.jcc(Cond::Equal, stored);
        asm.alu_imm(Alu::Cmp, RCX, KIND_PLT);
        asm.jcc(Cond::Equal, plt);
        asm.alu_imm(Alu::Cmp, RCX, KIND_NONE);
        asm.jcc(Cond::Equal, by_frame_pointer);
        asm.jmp(self.cut);

        asm.bind(stored);
        asm.alu(Alu::Add, RSI, BP);
        self.check_alignment();
        self.read(RSI);
        self.asm.jmp(by_cfa);

        let asm = &mut *self.asm;
        asm.bind(plt);
        let early = asm.label();
        asm.mov(RCX, PC);
        asm.alu32_imm(Alu::And, RCX, 15);
        asm.alu(Alu::Cmp, RCX, RSI);
        asm.lea(RSI, Mem::Base(SP, 8));
        asm.jcc(Cond::Less, early);
        asm.alu_imm(Alu::Add, RSI, 8);
        asm.bind(early);
        asm.jmp(by_cfa);

        asm.bind(by_frame_pointer);
        self.step_by_frame_pointer(frame);

        let asm = &mut *self.asm;
        asm.bind(special);
        asm.alu_imm(Alu::Cmp, RCX, KIND_SIGNAL);
        asm.jcc(Cond::Equal, signal);
        // What a frame pointer alone has led to must be code.
        asm.alu(Alu::Cmp, COUNT, Mem::Base(RSP, GUESSED));
        asm.jcc(Cond::Equal, self.cut);
        // It may be anything, and two bits have a meaning.
        asm.shift_imm(Shift::Shl, PC, 2);
        asm.shift_imm(Shift::Shr, PC, 2);
        self.push(PC);
        self.asm.jmp(self.cut);

        self.asm.bind(signal);
        self.step_over_signal(frame, limit);

        let asm = &mut *self.asm;
        asm.bind(look_up);
        search(asm);
        asm.jmp(known);

        asm.bind(limit);
        asm.mov_imm(RDX, 0);
        asm.mov32(RCX, Mem::Base(RSP, HOW));
        asm.alu32_imm(Alu::And, RCX, asked::DEPTH_ASKED);
        asm.jcc(Cond::NotEqual, finish);
        asm.bind(self.cut);
        asm.mov_imm(RDX, STACK_CUT as i64);
        asm.jmp(finish);
        asm.bind(whole);
        asm.mov_imm(RDX, 0);
        asm.bind(finish);
        self.mark_guess();
        if !self.in_clone {
            self.remember();
        }
        keep(self.asm);
        entry
    }

    fn begin(&mut self, tables: u64) {
        let asm = &mut *self.asm;
        let (current, room) = (asm.label(), asm.label());
        save(asm, &SAVED);
        asm.lea(RSP, Mem::Base(RSP, -FRAME));
        asm.mov(PC, Mem::Base(RAX, asked::PC));
        asm.mov(SP, Mem::Base(RAX, asked::SP));
        asm.mov(BP, Mem::Base(RAX, asked::BP));
        asm.mov32(STATE, Mem::Base(RAX, asked::PLACE + 4));
        asm.alu(Alu::Add, STATE, RDX);
        asm.mov32(OUT, Mem::Base(RAX, asked::PLACE));
        asm.alu(Alu::Add, OUT, RDX);
        asm.mov(RCX, Mem::Base(RAX, asked::HOW));
        asm.store(Mem::Base(RSP, HOW), RCX);
        asm.store(Mem::Base(RSP, SLAB), RDX);
        asm.store(Mem::Base(RSP, SUMS), OUT);
        asm.store_imm(Mem::Base(RSP, GUESSED), -1);

        asm.mov_imm(TABLES, tables as i64);
        asm.mov(RAX, Mem::Base(TABLES, HEAD as i32));
        asm.mov(RCX, RAX);
        asm.shift_imm(Shift::Shr, RCX, 32);
        asm.mov32(RAX, RAX);
        asm.alu(Alu::Add, RAX, TABLES);
        asm.store(Mem::Base(RSP, LIST), RAX);
        asm.mov(MODE, RCX);
        asm.alu32_imm(Alu::And, MODE, GENERATIONS);
        asm.shift_imm(Shift::Shl, MODE, GENERATION_BIT);
        // What was known of addresses may be wrong where libraries have come or gone.
        let generation = Mem::Base(STATE, STACKS_GENERATION as i32);
        asm.alu(Alu::Cmp, RCX, generation);
        asm.jcc(Cond::Equal, current);
        asm.store(generation, RCX);
        asm.mov_imm(RAX, 0);
        asm.mov_imm(RSI, 1 << STACKS_CACHE_LOG2);
        let clear = asm.here();
        asm.store(Mem::Index(STATE, RSI, 8, STACKS_CACHE as i32 - 8), RAX);
        asm.dec(RSI);
        asm.jcc(Cond::NotEqual, clear);
        asm.bind(current);

        asm.mov_imm(HASH, MAP_MIX as i64);
        asm.store(Mem::Base(RSP, MIX), HASH);
        asm.mov_imm(HASH, 0);
        asm.mov_imm(COUNT, 0);
        // A handler that comes now takes what is behind.
        asm.mov(RAX, Mem::Base(OUT, STACKS_TOP as i32));
        asm.movzx8(RCX, Mem::Base(RSP, HOW));
        asm.alu(Alu::Add, RCX, RAX);
        asm.alu_imm(Alu::Cmp, RAX, (STACKS_WORDS - STACKS_DEPTH) as i32);
        let full = asm.label();
        asm.jcc(Cond::Above, full);
        asm.store(Mem::Base(OUT, STACKS_TOP as i32), RCX);
        asm.jmp(room);
        asm.bind(full);
        asm.mov_imm(RAX, i64::from(STACKS_WORDS));
        asm.bind(room);
        asm.store(Mem::Base(RSP, FIRST), RAX);
        asm.lea(OUT, Mem::Index(OUT, RAX, 8, STACKS_ARENA as i32));
        if !self.in_clone {
            self.recall();
        }
    }

    /// Takes what is remembered of the stack, if the thread is still on it; or else the page of its stack pointer.
    fn recall(&mut self) {
        let asm = &mut *self.asm;
        let (fresh, done) = (asm.label(), asm.label());
        asm.store_imm(Mem::Base(RSP, TRUSTED), 1);
        asm.mov(HIGH, Mem::Base(STATE, STACKS_RANGE as i32));
        asm.mov(LOW, HIGH);
        asm.shift_imm(Shift::Shr, LOW, PAGES_BITS);
        asm.shift_imm(Shift::Shl, LOW, PAGE_BITS);
        asm.alu32_imm(Alu::And, HIGH, (1 << PAGES_BITS) - 1);
        asm.shift_imm(Shift::Shl, HIGH, PAGE_BITS);
        asm.alu(Alu::Add, HIGH, LOW);
        asm.mov(RAX, RSP);
        asm.alu_imm(Alu::And, RAX, -PAGE);
        asm.alu(Alu::Cmp, RAX, HIGH);
        asm.jcc(Cond::AboveEqual, fresh);
        asm.alu(Alu::Cmp, RAX, LOW);
        asm.jcc(Cond::AboveEqual, done);
        // Right below what is known, so all is there from here on.
        asm.lea(RCX, Mem::Base(LOW, -PAGE));
        asm.mov(LOW, RAX);
        asm.alu(Alu::Cmp, RAX, RCX);
        asm.jcc(Cond::Equal, done);
        asm.bind(fresh);
        asm.mov(LOW, RAX);
        asm.lea(HIGH, Mem::Base(RAX, PAGE));
        asm.bind(done);
    }

    /// rdx is kept.
    fn remember(&mut self) {
        let asm = &mut *self.asm;
        let done = asm.label();
        asm.alu_imm(Alu::Cmp, Mem::Base(RSP, TRUSTED), 0);
        asm.jcc(Cond::Equal, done);
        asm.alu(Alu::Sub, HIGH, LOW);
        asm.shift_imm(Shift::Shr, HIGH, PAGE_BITS);
        asm.shift_imm(Shift::Shl, LOW, PAGES_BITS - PAGE_BITS);
        asm.alu(Alu::Or, HIGH, LOW);
        asm.store(Mem::Base(STATE, STACKS_RANGE as i32), HIGH);
        asm.bind(done);
    }

    /// Adds an address. rdx is lost.
    fn push(&mut self, address: Register) {
        let asm = &mut *self.asm;
        asm.store(Mem::Index(OUT, COUNT, 8, 0), address);
        asm.inc(COUNT);
        mix(asm, address);
    }

    /// Of the rule in rax: a number with a sign, in rsi.
    fn distance(&mut self, shift: u8, bits: u8) {
        let asm = &mut *self.asm;
        asm.mov(RSI, RAX);
        if shift + bits < 64 {
            asm.shift_imm(Shift::Shl, RSI, 64 - shift - bits);
        }
        asm.shift_imm(Shift::Sar, RSI, 64 - bits);
    }

    /// A stack is made of words: rsi must be the address of one. rdx is lost.
    fn check_alignment(&mut self) {
        let asm = &mut *self.asm;
        asm.mov(RDX, RSI);
        asm.alu32_imm(Alu::And, RDX, 7);
        asm.jcc(Cond::NotEqual, self.cut);
    }

    /// Reads the word at rsi, an address of a word. rcx and rdx are lost.
    fn read(&mut self, to: Register) {
        let (cut, ask) = (self.cut, self.ask);
        let asm = &mut *self.asm;
        if self.in_clone {
            let over = asm.label();
            asm.jmp(over);
            let fault = asm.here();
            asm.jmp(cut);
            asm.bytes(&MAY_FAULT);
            let end = asm.here();
            asm.bytes(&[(asm.offset(end) - asm.offset(fault)) as u8]);
            asm.bind(over);
            asm.mov(to, Mem::Base(RSI, 0));
            return;
        }
        let (unknown, known) = (asm.label(), asm.label());
        asm.alu(Alu::Cmp, RSI, LOW);
        asm.jcc(Cond::Below, unknown);
        asm.alu(Alu::Cmp, RSI, HIGH);
        asm.jcc(Cond::Below, known);
        asm.bind(unknown);
        asm.call_label(ask);
        asm.test(RCX, RCX);
        asm.jcc(Cond::Equal, cut);
        asm.bind(known);
        asm.mov(to, Mem::Base(RSI, 0));
    }

    /// Finds out whether the word at rsi is there, and makes it known. Gives in rcx whether it is; rdx is lost.
    fn ask_kernel(&mut self) {
        const KEPT: [Register; 7] = [RAX, PC, RSI, COUNT, OUT, HASH, TABLES];
        // What the kernel is told; the frames of the routine are above, with the return address between.
        const REMOTE: i32 = 16;
        const BUFFER: i32 = 32;
        const ROOM: i32 = 40;
        const OUTER: i32 = ROOM + 8 * KEPT.len() as i32 + 8;
        let asm = &mut *self.asm;
        let [alone, next, out] = labels(asm);
        asm.bind(self.ask);
        save(asm, &KEPT);
        asm.lea(RSP, Mem::Base(RSP, -ROOM));
        asm.alu_imm(Alu::Cmp, Mem::Base(RSP, OUTER + TRUSTED), 0);
        asm.jcc(Cond::Equal, alone);
        asm.mov(RAX, RSI);
        asm.alu(Alu::Sub, RAX, HIGH);
        asm.jcc(Cond::Below, alone);
        asm.alu_imm(Alu::Cmp, RAX, REACH);
        asm.jcc(Cond::AboveEqual, alone);
        asm.jmp(next);
        asm.bind(alone);
        asm.store_imm(Mem::Base(RSP, OUTER + TRUSTED), 0);
        asm.mov(LOW, RSI);
        asm.alu_imm(Alu::And, LOW, -PAGE);
        asm.mov(HIGH, LOW);

        asm.bind(next);
        asm.lea(RAX, Mem::Base(RSP, BUFFER));
        asm.store(Mem::Base(RSP, 0), RAX);
        asm.store_imm(Mem::Base(RSP, 8), 8);
        asm.store(Mem::Base(RSP, REMOTE), HIGH);
        asm.store_imm(Mem::Base(RSP, REMOTE + 8), 8);
        asm.mov(RDX, Mem::Base(RSP, OUTER + SLAB));
        read_own_memory(asm, RDX, REMOTE, 1);
        asm.mov_imm(RCX, 0);
        asm.alu_imm(Alu::Cmp, RAX, 8);
        asm.jcc(Cond::NotEqual, out);
        asm.alu_imm(Alu::Add, HIGH, PAGE);
        // The word, as it was saved.
        asm.mov(RSI, Mem::Base(RSP, ROOM + 8 * 4));
        asm.alu(Alu::Cmp, RSI, HIGH);
        asm.jcc(Cond::AboveEqual, next);
        asm.mov_imm(RCX, 1);
        asm.bind(out);
        asm.lea(RSP, Mem::Base(RSP, ROOM));
        restore(asm, &KEPT);
        asm.ret();
    }

    /// What is there is not known any more but for one page, on which something was read last.
    fn trust_one_page(&mut self) {
        if self.in_clone {
            return;
        }
        let asm = &mut *self.asm;
        let already = asm.label();
        asm.alu_imm(Alu::Cmp, Mem::Base(RSP, TRUSTED), 0);
        asm.jcc(Cond::Equal, already);
        asm.store_imm(Mem::Base(RSP, TRUSTED), 0);
        asm.lea(LOW, Mem::Base(SP, -8));
        asm.alu_imm(Alu::And, LOW, -PAGE);
        asm.lea(HIGH, Mem::Base(LOW, PAGE));
        asm.bind(already);
    }

    /// A function without a rule: it has made a call, so if it uses frame pointers, it has set up its own.
    fn step_by_frame_pointer(&mut self, frame: Label) {
        let asm = &mut *self.asm;
        asm.mov(RCX, MODE);
        asm.shift_imm(Shift::Shr, RCX, RETURNS_BIT);
        asm.alu32_imm(Alu::And, RCX, 1);
        asm.jcc(Cond::Equal, self.cut);
        asm.alu(Alu::Cmp, BP, SP);
        asm.jcc(Cond::Below, self.cut);
        asm.mov(RSI, BP);
        self.check_alignment();
        self.trust_one_page();
        self.asm.lea(RSI, Mem::Base(BP, 8));
        self.read(PC);
        self.asm.mov(RSI, BP);
        self.asm.lea(SP, Mem::Base(BP, 16));
        self.read(BP);
        let asm = &mut *self.asm;
        asm.test(PC, PC);
        asm.jcc(Cond::Equal, self.cut);
        self.mark_guess();
        let asm = &mut *self.asm;
        asm.store(Mem::Base(RSP, GUESSED), COUNT);
        asm.jmp(frame);
    }

    /// Marks the frame that a frame pointer alone has led to last, if it was kept. rdx is kept.
    fn mark_guess(&mut self) {
        let asm = &mut *self.asm;
        let none = asm.label();
        asm.mov(RCX, Mem::Base(RSP, GUESSED));
        asm.alu(Alu::Cmp, RCX, COUNT);
        asm.jcc(Cond::AboveEqual, none);
        asm.mov_imm(RAX, GUESSED_FRAME as i64);
        asm.alu(Alu::Or, RAX, Mem::Index(OUT, RCX, 8, 0));
        asm.store(Mem::Index(OUT, RCX, 8, 0), RAX);
        asm.bind(none);
    }

    fn step_over_signal(&mut self, frame: Label, limit: Label) {
        let asm = &mut *self.asm;
        asm.mov_imm(RCX, SIGNAL_FRAME as i64);
        asm.alu(Alu::Or, RCX, PC);
        self.push(RCX);
        let asm = &mut *self.asm;
        asm.movzx8(RDX, Mem::Base(RSP, HOW));
        asm.alu(Alu::Cmp, COUNT, RDX);
        asm.jcc(Cond::AboveEqual, limit);
        asm.mov(RSI, SP);
        self.check_alignment();
        for (offset, to) in [(INTERRUPTED_PC, PC), (INTERRUPTED_BP, BP), (INTERRUPTED_SP, SP)] {
            self.asm.lea(RSI, Mem::Base(SP, offset));
            self.read(to);
        }
        let asm = &mut *self.asm;
        if !self.in_clone {
            // It may be another stack.
            asm.store_imm(Mem::Base(RSP, TRUSTED), 0);
            asm.mov_imm(LOW, 0);
            asm.mov_imm(HIGH, 0);
        }
        asm.mov_imm(RDX, !(1 << RETURNS_BIT));
        asm.alu(Alu::And, MODE, RDX);
        asm.jmp(frame);
    }
}

fn labels<const N: usize>(asm: &mut Asm) -> [Label; N] {
    core::array::from_fn(|_| asm.label())
}

/// Adds to the hash. rdx is lost.
fn mix(asm: &mut Asm, word: Register) {
    asm.alu(Alu::Xor, HASH, word);
    asm.imul(HASH, Mem::Base(RSP, MIX));
    asm.mov(RDX, HASH);
    asm.shift_imm(Shift::Shr, RDX, 32);
    asm.alu(Alu::Xor, HASH, RDX);
}

/// Looks a rule up: rax has the tag of its cache entry, rsi the entry's index. Gives its index in rdx and puts it into the
/// cache. rax, rcx and rsi are lost.
fn search(asm: &mut Asm) {
    const TAKEN: [Register; 6] = [RAX, RSI, PC, COUNT, OUT, HASH];
    const OUTER: i32 = 8 * TAKEN.len() as i32;
    let (key, low, high, at) = (PC, COUNT, OUT, HASH);
    let [found, rows, not_return, next_signal, is_outside] = labels(asm);
    save(asm, &TAKEN);
    asm.mov(RSI, Mem::Base(RSP, OUTER + LIST));
    asm.mov32(high, Mem::Base(RSI, 0));
    asm.mov(RCX, MODE);
    asm.shift_imm(Shift::Shr, RCX, RETURNS_BIT);
    asm.alu32_imm(Alu::And, RCX, 1);
    asm.jcc(Cond::Equal, not_return);
    // What signal handlers return to is known by its address.
    asm.mov32(RCX, Mem::Base(RSI, 4));
    asm.mov(at, high);
    asm.shift_imm(Shift::Shl, at, REGION_SIZE.trailing_zeros() as u8);
    asm.alu(Alu::Add, at, RSI);
    asm.bind(next_signal);
    asm.dec(RCX);
    let no_signal = asm.label();
    asm.jcc(Cond::Less, no_signal);
    asm.mov_imm(RDX, SIGNAL);
    asm.alu(Alu::Cmp, PC, Mem::Index(at, RCX, 8, LIST_REGIONS as i32));
    asm.jcc(Cond::Equal, found);
    asm.jmp(next_signal);
    asm.bind(no_signal);
    asm.dec(key);
    asm.bind(not_return);

    // The last region that begins at the key or before.
    asm.mov_imm(low, 0);
    let more = asm.here();
    let (narrow, done) = (asm.label(), asm.label());
    asm.alu(Alu::Cmp, low, high);
    asm.jcc(Cond::AboveEqual, done);
    asm.lea(at, Mem::Index(low, high, 1, 0));
    asm.shift_imm(Shift::Shr, at, 1);
    asm.mov(RDX, at);
    asm.shift_imm(Shift::Shl, RDX, REGION_SIZE.trailing_zeros() as u8);
    asm.alu(Alu::Cmp, key, Mem::Index(RSI, RDX, 1, LIST_REGIONS as i32));
    asm.jcc(Cond::Below, narrow);
    asm.lea(low, Mem::Base(at, 1));
    asm.jmp(more);
    asm.bind(narrow);
    asm.mov(high, at);
    asm.jmp(more);
    asm.bind(done);
    asm.dec(low);
    asm.jcc(Cond::Less, is_outside);
    asm.shift_imm(Shift::Shl, low, REGION_SIZE.trailing_zeros() as u8);
    asm.lea(RSI, Mem::Index(RSI, low, 1, LIST_REGIONS as i32));
    asm.alu(Alu::Cmp, key, Mem::Base(RSI, 8));
    asm.jcc(Cond::Below, rows);
    asm.bind(is_outside);
    asm.mov_imm(RDX, OUTSIDE);
    asm.jmp(found);

    // The last row from the key or before on.
    asm.bind(rows);
    asm.alu(Alu::Sub, key, Mem::Base(RSI, 16));
    asm.mov_imm(RDX, OTHER);
    asm.mov(RCX, key);
    asm.shift_imm(Shift::Shr, RCX, 32);
    asm.test(RCX, RCX);
    asm.jcc(Cond::NotEqual, found);
    asm.mov32(high, Mem::Base(RSI, 28));
    asm.mov32(RSI, Mem::Base(RSI, 24));
    asm.alu(Alu::Add, RSI, TABLES);
    asm.mov_imm(low, 0);
    let more = asm.here();
    let (narrow, done) = (asm.label(), asm.label());
    asm.alu(Alu::Cmp, low, high);
    asm.jcc(Cond::AboveEqual, done);
    asm.lea(at, Mem::Index(low, high, 1, 0));
    asm.shift_imm(Shift::Shr, at, 1);
    asm.mov32(RDX, Mem::Index(RSI, at, 8, 0));
    asm.alu(Alu::Cmp, key, RDX);
    asm.jcc(Cond::Below, narrow);
    asm.lea(low, Mem::Base(at, 1));
    asm.jmp(more);
    asm.bind(narrow);
    asm.mov(high, at);
    asm.jmp(more);
    asm.bind(done);
    asm.mov_imm(RDX, NONE);
    asm.dec(low);
    asm.jcc(Cond::Less, found);
    asm.mov32(RDX, Mem::Index(RSI, low, 8, 4));

    asm.bind(found);
    restore(asm, &TAKEN);
    asm.shift_imm(Shift::Shl, RAX, RULE_BITS);
    asm.alu(Alu::Or, RAX, RDX);
    asm.store(Mem::Index(STATE, RSI, 8, STACKS_CACHE as i32), RAX);
}

/// Finds the stack among those that are kept, or keeps it; rdx has its flags. Gives its number, and returns.
fn keep(asm: &mut Asm) {
    let (flags, entry, probes, sums) = (SP, RSI, RCX, BP);
    let [probe, taken, found, no_room, give_back, out] = labels(asm);
    asm.mov(flags, RDX);
    mix(asm, flags);
    asm.alu_imm(Alu::Or, HASH, 1);
    asm.mov(sums, Mem::Base(RSP, SUMS));
    asm.mov(entry, HASH);
    asm.shift_imm(Shift::Shr, entry, 64 - STACKS_CAPACITY.trailing_zeros() as u8);
    asm.shift_imm(Shift::Shl, entry, 4);
    asm.lea(entry, Mem::Index(sums, entry, 1, STACKS_ENTRIES as i32));
    asm.mov(OUT, Mem::Base(RSP, FIRST));
    asm.mov_imm(probes, i64::from(MAP_PROBES));
    asm.mov_imm(PC, MAP_WRITING as i64);
    asm.bind(probe);
    asm.mov(RAX, Mem::Base(entry, 0));
    asm.test(RAX, RAX);
    asm.jcc(Cond::NotEqual, taken);
    asm.alu_imm(Alu::Cmp, OUT, STACKS_WORDS as i32);
    asm.jcc(Cond::AboveEqual, no_room);
    // A handler that comes now takes the next entry, perhaps for the same stack.
    asm.cmpxchg(Mem::Base(entry, 0), PC);
    asm.jcc(Cond::NotEqual, taken);
    asm.mov(RAX, COUNT);
    asm.shift_imm(Shift::Shl, RAX, 32);
    asm.alu(Alu::Or, RAX, OUT);
    asm.shift_imm(Shift::Shl, flags, 48);
    asm.alu(Alu::Or, RAX, flags);
    asm.store(Mem::Base(entry, 8), RAX);
    asm.store(Mem::Base(entry, 0), HASH);
    asm.lea(PC, Mem::Index(OUT, COUNT, 1, 0));
    asm.jmp(give_back);
    asm.bind(taken);
    asm.alu(Alu::Cmp, RAX, HASH);
    asm.jcc(Cond::Equal, found);
    asm.alu_imm(Alu::Add, entry, 16);
    asm.dec(probes);
    asm.jcc(Cond::NotEqual, probe);
    // There is no room: its number stands for it all the same.
    asm.bind(no_room);
    asm.bind(found);
    asm.mov(PC, OUT);
    asm.alu_imm(Alu::Cmp, OUT, STACKS_WORDS as i32);
    asm.jcc(Cond::AboveEqual, out);
    asm.bind(give_back);
    // Unless a handler has kept something behind it.
    asm.movzx8(RAX, Mem::Base(RSP, HOW));
    asm.alu(Alu::Add, RAX, OUT);
    asm.cmpxchg(Mem::Base(sums, STACKS_TOP as i32), PC);
    asm.bind(out);
    asm.mov(RAX, HASH);
    asm.lea(RSP, Mem::Base(RSP, FRAME));
    restore(asm, &SAVED);
    asm.ret();
}
