//! The state of the code generator: registers, the stack, and what is emitted around bodies.

use super::plan::{self, FlagsHome, Home, Plan};
use super::value::{self, Value};
use crate::asm::{Alu, Asm, Cond, Label, Mem, Piece, Shift};
use crate::facts;
use crate::ir::{Buckets, Datum, DatumId, DatumKind, Expr, LetId, Statement};
use crate::layout::Place;
use crate::site::{Env, OwnStack, Site, Source};
use alloc::vec::Vec;
use weft_code::{FlagSet, Register, RegisterSet};

/// What bodies need, found before any code is made.
#[derive(Default)]
pub(super) struct Needs {
    /// Registers of the program that it reads.
    pub(super) reads: RegisterSet,
    /// Registers that instructions insist on: no values are kept there.
    pub(super) fixed: RegisterSet,
    pub(super) slab: bool,
    pub(super) flags: bool,
}

impl Needs {
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            reads: self.reads | other.reads,
            fixed: self.fixed | other.fixed,
            slab: self.slab || other.slab,
            flags: self.flags || other.flags,
        }
    }

    pub(super) fn of(data: &[Datum], body: &[Statement], site: &Site, env: &Env) -> Self {
        let mut needs = Self {
            reads: facts::registers_read(body, site.kind, site.convention, site.access.as_ref())
                .without(Register::RSP),
            fixed: RegisterSet::NONE,
            slab: needs_slab(body),
            flags: !body.is_empty() && site.live_flags.intersects(FlagSet::ARITHMETIC),
        };
        let wide = RegisterSet::of(&[Register::RAX, Register::RDX]);
        for statement in body {
            facts::walk(statement, &mut |statement| {
                let kind = |id: DatumId| &data[id.0 as usize].kind;
                match statement {
                    Statement::Start(_)
                    | Statement::Stop(_)
                    | Statement::Stamp(_)
                    | Statement::Leave { .. } => {
                        needs.fixed = needs.fixed | wide;
                    }
                    Statement::Observe { histogram, .. } => match kind(*histogram) {
                        DatumKind::Histogram(Buckets::Linear { .. }) => {
                            needs.fixed = needs.fixed | wide;
                        }
                        DatumKind::Histogram(Buckets::Fine) if !env.bmi2 => {
                            needs.fixed = needs.fixed.with(Register::RCX);
                        }
                        _ => {}
                    },
                    Statement::Emit { .. } => needs.fixed = needs.fixed.with(Register::RAX),
                    _ => {}
                }
            });
            facts::walk_expressions(statement, &mut |expr| match expr {
                Expr::Ticks | Expr::Now | Expr::Since(_) => needs.fixed = needs.fixed | wide,
                Expr::Binary(op, ..) if value::divides(*op) => needs.fixed = needs.fixed | wide,
                Expr::Binary(op, ..) if value::shifts(*op) && !env.bmi2 => {
                    needs.fixed = needs.fixed.with(Register::RCX);
                }
                _ => {}
            });
        }
        needs
    }
}

/// Where a `let` is kept.
pub(super) struct Held {
    pub(super) id: LetId,
    pub(super) value: Value,
    pub(super) float: bool,
}

pub(super) struct Generator<'a> {
    pub(super) asm: Asm,
    pub(super) data: &'a [Datum],
    pub(super) places: &'a [Place],
    pub(super) site: &'a Site,
    pub(super) env: &'a Env,
    pub(super) plan: &'a Plan,
    /// Registers for values, best first.
    pub(super) pool: [Register; 16],
    pub(super) pool_len: usize,
    pub(super) free: RegisterSet,
    pub(super) used: RegisterSet,
    pub(super) xmm_free: u8,
    pub(super) xmm_used: u8,
    pub(super) floats: bool,
    pub(super) slab: Register,
    pub(super) slab_ready: bool,
    pub(super) lets: Vec<Held>,
    pub(super) slots: Vec<bool>,
    /// Which statements are still to come, innermost block last: whether they need the slab.
    pub(super) slab_later: Vec<bool>,
    /// Where the function is left before it has begun.
    pub(super) returns: Option<Label>,
}

impl<'a> Generator<'a> {
    pub(super) fn new(site: &'a Site, env: &'a Env, needs: &Needs, plan: &'a Plan) -> Self {
        let barred = needs.fixed | plan.home_registers() | RegisterSet::of(&[Register::RSP]);
        let dead = site.dead & !needs.reads;
        let mut pool = [Register::RSP; 16];
        let mut pool_len = 0;
        let mut take = |set: RegisterSet| {
            for register in (set & !barred).iter() {
                pool[pool_len] = register;
                pool_len += 1;
            }
        };
        let rax = RegisterSet::of(&[Register::RAX]);
        // Flags are kept in rax if they are kept: it comes last then.
        let last = if needs.flags { rax } else { RegisterSet::NONE };
        take(dead & !last);
        take(!dead & !needs.reads & !last);
        take(last & !needs.reads);
        take(needs.reads);
        let free = pool[..pool_len].iter().fold(RegisterSet::NONE, |set, &r| set.with(r));
        Self {
            asm: Asm::new(),
            data: &[],
            places: &[],
            site,
            env,
            plan,
            pool,
            pool_len,
            free: if needs.slab { free.without(pool[0]) } else { free },
            used: RegisterSet::NONE,
            xmm_free: 0b1111,
            xmm_used: 0,
            floats: false,
            slab: pool[0],
            slab_ready: false,
            lets: Vec::new(),
            slots: Vec::new(),
            slab_later: Vec::new(),
            returns: None,
        }
    }

    pub(super) fn run(&mut self, parts: &[Part<'a>]) {
        self.prologue();
        for part in parts {
            (self.data, self.places) = (part.data, part.places);
            self.block(part.body);
        }
        self.epilogue();
        if let Some(returns) = self.returns {
            let end = self.asm.label();
            self.asm.jmp(end);
            self.asm.bind(returns);
            self.epilogue();
            match self.env.engine {
                // Where a function is entered, its return address is what the stack pointer points to.
                None => self.asm.ret(),
                Some(engine) => self.asm.jmp_to(engine.returns),
            }
            self.asm.bind(end);
        }
    }

    pub(super) fn next_plan(&self, needs: &Needs) -> Plan {
        let mut next = self.plan.clone();
        next.extend(plan::Use {
            used: self.used,
            reads: needs.reads,
            flags: needs.flags,
            slots: self.slots.len() as u32,
            xmm: self.xmm_used,
            floats: self.floats,
            site: self.site,
        });
        next
    }

    // --- the frame ---

    pub(super) fn prologue(&mut self) {
        let plan = self.plan;
        if let Some(stack) = self.own_stack() {
            self.asm.set_engine_word(stack.program, Register::RSP);
            self.asm.engine_word(Register::RSP, stack.top);
        } else if plan.uses_stack() && self.site.red_zone {
            self.asm.lea(Register::RSP, Mem::Base(Register::RSP, -128));
        }
        for &(register, home) in &plan.homes {
            match home {
                Home::Register(to) => self.asm.mov(to, register),
                Home::Stack => self.asm.push(register),
            }
        }
        if plan.flags.is_some() {
            self.save_flags();
        }
        match plan.flags {
            Some(FlagsHome::Register(to)) => self.asm.mov(to, Register::RAX),
            Some(FlagsHome::Stack) => self.asm.push(Register::RAX),
            _ => {}
        }
        let locals = plan.locals() as i32;
        if locals > 0 {
            self.asm.lea(Register::RSP, Mem::Base(Register::RSP, -locals));
        }
        for (number, at) in plan.xmm_homes() {
            self.asm.sse(0, 0x11, number, Mem::Base(Register::RSP, at));
        }
        if let Some(at) = plan.mxcsr() {
            self.default_float_mode(at);
        }
    }

    /// The program's rounding and exceptions are not the snippet's. They rarely differ, and setting
    /// the mode costs more than all else: so look first.
    pub(super) fn default_float_mode(&mut self, at: i32) {
        const DEFAULT: i32 = 0x1f80;
        /// All but what has happened so far.
        const CONTROL: i32 = 0xffc0;
        let (saved, copy) = (Mem::Base(Register::RSP, at), Mem::Base(Register::RSP, at + 8));
        let (other, back) = (self.asm.label(), self.asm.label());
        self.asm.stmxcsr(saved);
        self.asm.stmxcsr(copy);
        self.asm.alu32_imm(Alu::And, copy, CONTROL);
        self.asm.alu32_imm(Alu::Cmp, copy, DEFAULT);
        self.asm.jcc(Cond::NotEqual, other);
        self.asm.bind(back);
        self.cold(other, |this| {
            this.asm.store_imm(copy, DEFAULT);
            this.asm.ldmxcsr(copy);
            this.asm.jmp(back);
        });
    }

    /// The program's mode again, if anything has changed.
    pub(super) fn restore_float_mode(&mut self, at: i32) {
        let (saved, copy) = (Mem::Base(Register::RSP, at), Mem::Base(Register::RSP, at + 8));
        let (other, back) = (self.asm.label(), self.asm.label());
        // Values are all done with, but rax may be the program's or hold its flags.
        let held = Mem::Base(Register::RSP, at + 16);
        self.asm.stmxcsr(copy);
        self.asm.store(held, Register::RAX);
        self.asm.mov32(Register::RAX, copy);
        self.asm.cmp32(Register::RAX, saved);
        self.asm.jcc(Cond::NotEqual, other);
        self.asm.bind(back);
        self.asm.mov(Register::RAX, held);
        self.cold(other, |this| {
            this.asm.ldmxcsr(saved);
            this.asm.jmp(back);
        });
    }

    pub(super) fn epilogue(&mut self) {
        let plan = self.plan;
        if let Some(at) = plan.mxcsr() {
            self.restore_float_mode(at);
        }
        for (number, at) in plan.xmm_homes() {
            self.asm.sse(0, 0x10, number, Mem::Base(Register::RSP, at));
        }
        let locals = plan.locals() as i32;
        if locals > 0 {
            self.asm.lea(Register::RSP, Mem::Base(Register::RSP, locals));
        }
        match plan.flags {
            Some(FlagsHome::Register(from)) => self.asm.mov(Register::RAX, from),
            Some(FlagsHome::Stack) => self.asm.pop(Register::RAX),
            _ => {}
        }
        if plan.flags.is_some() {
            self.restore_flags();
        }
        for &(register, home) in plan.homes.iter().rev() {
            match home {
                Home::Register(from) => self.asm.mov(register, from),
                Home::Stack => self.asm.pop(register),
            }
        }
        if let Some(stack) = self.own_stack() {
            self.asm.engine_word(Register::RSP, stack.program);
        } else if plan.uses_stack() && self.site.red_zone {
            self.asm.lea(Register::RSP, Mem::Base(Register::RSP, 128));
        }
    }

    pub(super) fn own_stack(&self) -> Option<OwnStack> {
        self.env.engine.and_then(|engine| engine.stack)
    }

    /// Whether the program may have something right below the stack pointer as it is.
    pub(super) fn is_at_red_zone(&self) -> bool {
        self.site.red_zone && !self.plan.uses_stack() && self.own_stack().is_none()
    }

    pub(super) fn save_flags(&mut self) {
        if self.site.live_flags.intersects(low_flags()) {
            self.asm.lahf();
        }
        if self.site.live_flags.intersects(FlagSet::OF) {
            self.asm.set(Cond::Overflow, Register::RAX);
        }
    }

    pub(super) fn restore_flags(&mut self) {
        if self.site.live_flags.intersects(FlagSet::OF) {
            self.asm.overflow_if_al();
        }
        if self.site.live_flags.intersects(low_flags()) {
            self.asm.sahf();
        }
    }

    /// How far the stack pointer is below the program's.
    pub(super) fn depth(&self) -> i32 {
        let red_zone = if self.plan.uses_stack() && self.site.red_zone { 128 } else { 0 };
        red_zone + self.plan.stack_size() as i32
    }

    /// Something above the program's stack pointer, perhaps by way of a register.
    pub(super) fn above(&mut self, distance: i64, way: Register) -> Mem {
        match self.own_stack() {
            Some(stack) => {
                self.asm.engine_word(way, stack.program);
                Mem::Base(way, distance as i32)
            }
            None => Mem::Base(Register::RSP, self.depth() + distance as i32),
        }
    }

    /// The value that a register of the program had at the site.
    pub(super) fn origin(&mut self, register: Register) -> Value {
        if register == Register::RSP {
            let to = self.temp();
            let at = self.above(0, to);
            self.asm.lea(to, at);
            return Value::Own(to);
        }
        match self.plan.home_of(register) {
            None => Value::Ref(register),
            Some(Home::Register(home)) => Value::Ref(home),
            Some(Home::Stack) => Value::Stack(self.plan.saved_at(register)),
        }
    }

    /// Changes a register of the program as of the end of the snippet.
    pub(super) fn set_origin(&mut self, register: Register, value: Value) {
        match self.plan.home_of(register) {
            None => self.move_to(register, value),
            Some(Home::Register(home)) => self.move_to(home, value),
            Some(Home::Stack) => {
                let at = Mem::Base(Register::RSP, self.plan.saved_at(register));
                self.store_value(at, value);
            }
        }
    }

    // --- registers and slots ---

    pub(super) fn temp(&mut self) -> Register {
        let found = self.pool[..self.pool_len].iter().find(|&&r| self.free.contains(r));
        // Values are spilled long before: see `Value::hold` and `binary`.
        let register = *found.expect("a register is free");
        self.free = self.free.without(register);
        self.used = self.used.with(register);
        register
    }

    pub(super) fn release(&mut self, value: Value) {
        match value {
            Value::Own(register) => self.free = self.free.with(register),
            Value::OwnSlot(slot) => self.slots[slot as usize] = false,
            Value::Int(_) | Value::Ref(_) | Value::Stack(_) => {}
        }
    }

    pub(super) fn slot(&mut self) -> u32 {
        let index = self.slots.iter().position(|taken| !taken).unwrap_or(self.slots.len());
        if index == self.slots.len() {
            self.slots.push(true);
        }
        self.slots[index] = true;
        index as u32
    }

    /// Marks registers that an instruction insists on as used.
    pub(super) fn clobber(&mut self, registers: &[Register]) {
        self.used = self.used | RegisterSet::of(registers);
    }

    // --- the slab ---

    /// The slab pointer. Made ready before any statement that needs it.
    pub(super) fn slab(&mut self, offset: u32) -> Mem {
        debug_assert!(self.slab_ready, "the slab is looked up first");
        Mem::Base(self.slab, offset as i32)
    }

    pub(super) fn ready_slab(&mut self) {
        if self.slab_ready {
            return;
        }
        self.slab_ready = true;
        let (slab, region) = (self.slab, &self.env.region);
        self.clobber(&[slab]);
        if let Some(engine) = self.env.engine {
            self.asm.engine_word(slab, engine.slab);
            return;
        }
        let key = self.temp();
        let rotate = (32 + region.key_shift - region.stride_log2 % 32) % 32;
        let mask = (region.count() as i32 - 1) << region.stride_log2;
        if self.env.thread_pointer {
            self.asm.thread_pointer(key);
        } else {
            self.asm.rdfsbase(key);
        }
        self.asm.alu(Alu::Xor, key, Mem::Rip(self.env.salt));
        if self.env.bmi2 {
            self.asm.rorx32(slab, key, rotate);
        } else {
            self.asm.mov32(slab, key);
            self.asm.shift32_imm(Shift::Ror, slab, rotate);
        }
        self.asm.alu32_imm(Alu::And, slab, mask);
        self.asm.alu(Alu::Add, slab, Mem::Rip(self.env.base));
        self.asm.alu_to(Alu::Cmp, Mem::Base(slab, 0), key);
        let claim = self.env.routines.claim;
        let (cold, back) = (self.asm.label(), self.asm.label());
        self.asm.jcc(Cond::NotEqual, cold);
        self.asm.bind(back);
        self.cold(cold, |this| {
            this.call_routine(claim, &[], slab);
            this.asm.jmp(back);
        });
        self.free = self.free.with(key);
    }

    /// Code out of the way, from a label.
    pub(super) fn cold(&mut self, label: Label, code: impl FnOnce(&mut Self)) {
        let before = self.asm.switch(Piece::Cold);
        self.asm.bind(label);
        code(self);
        self.asm.switch(before);
    }

    /// Calls a routine of the runtime: it takes `inputs` in rax, rdx, rcx and rsi, gives rax and
    /// keeps everything else but flags.
    pub(super) fn call_routine(&mut self, routine: u64, inputs: &[Register], output: Register) {
        const TAKES: [Register; 4] = [Register::RAX, Register::RDX, Register::RCX, Register::RSI];
        let takes = &TAKES[..inputs.len().max(1)];
        let skip = self.is_at_red_zone();
        if skip {
            self.asm.lea(Register::RSP, Mem::Base(Register::RSP, -128));
        }
        for &register in takes {
            if register != output {
                self.asm.push(register);
            }
        }
        if let &[input] = inputs {
            self.asm.mov(Register::RAX, input);
        } else {
            // By way of the stack: they may be each other's.
            inputs.iter().for_each(|&input| self.asm.push(input));
            takes[..inputs.len()].iter().rev().for_each(|&register| self.asm.pop(register));
        }
        self.asm.call(routine);
        self.asm.mov(output, Register::RAX);
        for &register in takes.iter().rev() {
            if register != output {
                self.asm.pop(register);
            }
        }
        if skip {
            self.asm.lea(Register::RSP, Mem::Base(Register::RSP, 128));
        }
    }

    // --- statements ---

    pub(super) fn block(&mut self, body: &[Statement]) {
        let lets = self.lets.len();
        for (index, statement) in body.iter().enumerate() {
            let rest = &body[index + 1..];
            let outer = self.slab_later.last().copied().unwrap_or(false);
            self.slab_later.push(outer || needs_slab(rest));
            self.statement(statement);
            self.slab_later.pop();
        }
        while self.lets.len() > lets {
            if let Some(held) = self.lets.pop() {
                self.release(held.value);
            }
        }
    }

    pub(super) fn statement(&mut self, statement: &Statement) {
        if let Statement::If { condition, then, otherwise } = statement {
            return self.conditional(condition, then, otherwise);
        }
        if needs_slab(core::slice::from_ref(statement)) {
            self.ready_slab();
        }
        match statement {
            Statement::Add { to, value } => {
                let at = self.word_of(*to);
                let value = self.eval(value);
                self.add_to(at, value);
                self.release(value);
            }
            Statement::Set { local, value } => {
                let at = self.word_of(*local);
                let value = self.eval(value);
                self.store_value(at, value);
                self.release(value);
            }
            Statement::Let { id, value, .. } => self.bind_let(*id, value),
            Statement::AddAt { map, keys, value } => self.add_at(*map, keys, value),
            Statement::Observe { histogram, value } => self.observe(*histogram, value),
            Statement::Start(timer) => self.start(*timer),
            Statement::Stop(timer) => self.stop(*timer),
            Statement::Stamp(mark) => self.stamp(*mark),
            Statement::Leave { datum, low, high } => self.leave(*datum, low, high),
            Statement::Emit { ring, values } => self.emit(*ring, values),
            Statement::Call(call) => {
                let value = self.call_out(call);
                self.release(value);
            }
            Statement::SetArg { number, value } => {
                let value = self.eval(value);
                match facts::argument(self.site.kind, self.site.convention, *number) {
                    Some(register) => self.set_origin(register, value),
                    None => {
                        let way = self.temp();
                        let at = self.stacked(*number, way);
                        self.store_value(at, value);
                        self.release(Value::Own(way));
                    }
                }
                self.release(value);
            }
            Statement::SetResult(value) => {
                let value = self.eval(value);
                self.set_origin(Register::RAX, value);
                self.release(value);
            }
            Statement::Return(value) => {
                let value = self.eval(value);
                self.set_origin(Register::RAX, value);
                self.release(value);
                let returns = *self.returns.get_or_insert_with(|| self.asm.label());
                self.asm.jmp(returns);
            }
            Statement::If { .. } => unreachable!("done above"),
        }
    }

    /// The word of a counter or a local.
    pub(super) fn word_of(&mut self, id: DatumId) -> Mem {
        let place = self.places[id.0 as usize];
        let local = matches!(self.data[id.0 as usize].kind, DatumKind::Local);
        self.slab(if local { place.state } else { place.sums })
    }

    pub(super) fn conditional(
        &mut self,
        condition: &Expr,
        then: &[Statement],
        otherwise: &[Statement],
    ) {
        let later = self.slab_later.last().copied().unwrap_or(false);
        if later || facts::expr_needs_slab(condition) {
            self.ready_slab();
        }
        let (no, end) = (self.asm.label(), self.asm.label());
        match self.branch(condition, false, no) {
            Some(true) => self.block(then),
            Some(false) => self.block(otherwise),
            None => {
                let ready = self.slab_ready;
                self.block(then);
                if !otherwise.is_empty() {
                    self.asm.jmp(end);
                }
                self.slab_ready = ready;
                self.asm.bind(no);
                self.block(otherwise);
                self.slab_ready = ready;
                self.asm.bind(end);
                return;
            }
        }
        self.asm.bind(no);
        self.asm.bind(end);
    }

    /// Ticks, in rax; rdx is used.
    pub(super) fn ticks(&mut self) {
        self.clobber(&[Register::RAX, Register::RDX]);
        match self.env.clock.source {
            Source::Word(address) => self.asm.mov(Register::RAX, Mem::Rip(address)),
            Source::Processor => {
                self.asm.rdtsc();
                self.asm.shift_imm(Shift::Shl, Register::RDX, 32);
                self.asm.alu(Alu::Or, Register::RAX, Register::RDX);
            }
        }
    }

    /// Makes the ticks in rax nanoseconds.
    pub(super) fn convert_ticks(&mut self) {
        let factor = self.temp();
        self.asm.mov_imm(factor, self.env.clock.multiplier as i64);
        self.asm.mul(factor);
        self.free = self.free.with(factor);
        if self.env.clock.shift > 0 {
            self.asm.shrd(Register::RAX, Register::RDX, self.env.clock.shift);
        }
    }
}

fn low_flags() -> FlagSet {
    FlagSet(FlagSet::ARITHMETIC.0 & !FlagSet::OF.0)
}

fn needs_slab(body: &[Statement]) -> bool {
    body.iter().any(facts::needs_slab)
}

/// One of the bodies of a site, with its data and one place for each of them.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What it measures into.
    pub data: &'a [Datum],
    /// What it does.
    pub body: &'a [Statement],
    /// Where its data are.
    pub places: &'a [Place],
}
