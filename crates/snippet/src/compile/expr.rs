//! Expressions: values in registers, slots and immediates. Constants fold on the way.

use super::generator::{Generator, Held};
use super::value::{Compared, HEADROOM, Value};
use crate::asm::{Alu, Cond, Label, Mem, Rm, Shift};
use crate::facts;
use crate::ir::{Binary, Call, Expr, LetId, NAN, PointKind, Type, Unary, Width};
use crate::layout::{MARK_TICKS, MARK_UNKNOWN, Place, STACKS_DEPTH, TEXT_SIZE, header};
use crate::walk::asked;
use alloc::vec::Vec;
use weft_code::Register;

/// The condition of an integer comparison.
fn condition(op: Binary) -> Option<Cond> {
    Some(match op {
        Binary::Eq => Cond::Equal,
        Binary::Ne => Cond::NotEqual,
        Binary::Lt => Cond::Less,
        Binary::Le => Cond::LessEqual,
        Binary::Gt => Cond::Greater,
        Binary::Ge => Cond::GreaterEqual,
        Binary::ULt => Cond::Below,
        Binary::ULe => Cond::BelowEqual,
        Binary::UGt => Cond::Above,
        Binary::UGe => Cond::AboveEqual,
        _ => return None,
    })
}

/// The condition that compares the operands the other way round.
fn mirrored(cond: Cond) -> Cond {
    match cond {
        Cond::Less => Cond::Greater,
        Cond::LessEqual => Cond::GreaterEqual,
        Cond::Greater => Cond::Less,
        Cond::GreaterEqual => Cond::LessEqual,
        Cond::Below => Cond::Above,
        Cond::BelowEqual => Cond::AboveEqual,
        Cond::Above => Cond::Below,
        Cond::AboveEqual => Cond::BelowEqual,
        other => other,
    }
}

impl Generator<'_> {
    pub(super) fn slot_at(slot: u32) -> Mem {
        Mem::Base(Register::RSP, 8 * slot as i32)
    }

    /// As an operand; big numbers need a register.
    fn rm(&mut self, value: Value) -> (Rm, Value) {
        match value {
            Value::Own(register) | Value::Ref(register) => (register.into(), value),
            Value::OwnSlot(slot) => (Self::slot_at(slot).into(), value),
            Value::Stack(at) => (Mem::Base(Register::RSP, at).into(), value),
            Value::Int(_) => {
                let register = self.own(value);
                (register.into(), Value::Own(register))
            }
        }
    }

    /// A register of ours with the value.
    pub(super) fn own(&mut self, value: Value) -> Register {
        if let Value::Own(register) = value {
            return register;
        }
        let to = self.temp();
        self.move_to(to, value);
        self.release(value);
        to
    }

    pub(super) fn move_to(&mut self, to: Register, value: Value) {
        match value {
            Value::Int(number) => self.asm.mov_imm(to, number),
            Value::Own(from) | Value::Ref(from) => self.asm.mov(to, from),
            Value::OwnSlot(slot) => self.asm.mov(to, Self::slot_at(slot)),
            Value::Stack(at) => self.asm.mov(to, Mem::Base(Register::RSP, at)),
        }
    }

    /// The value in some register, which must not be changed.
    pub(super) fn readable(&mut self, value: Value) -> (Register, Value) {
        match value {
            Value::Own(register) | Value::Ref(register) => (register, value),
            other => {
                let register = self.own(other);
                (register, Value::Own(register))
            }
        }
    }

    /// Puts a value that must wait into a slot if registers get few.
    pub(super) fn hold(&mut self, value: Value) -> Value {
        match value {
            Value::Own(register) if self.free.len() < HEADROOM => {
                let slot = self.slot();
                self.asm.store(Self::slot_at(slot), register);
                self.release(value);
                Value::OwnSlot(slot)
            }
            other => other,
        }
    }

    /// `[mem] += value`.
    pub(super) fn add_to(&mut self, mem: Mem, value: Value) {
        match value {
            Value::Int(0) => {}
            Value::Int(1) => self.asm.inc(mem),
            Value::Int(-1) => self.asm.dec(mem),
            Value::Int(number) if i32::try_from(number).is_ok() => {
                self.asm.alu_imm(Alu::Add, mem, number as i32);
            }
            _ => {
                let (register, held) = self.readable(value);
                self.asm.alu_to(Alu::Add, mem, register);
                self.release_unless(held, value);
            }
        }
    }

    /// `[mem] = value`.
    pub(super) fn store_value(&mut self, mem: Mem, value: Value) {
        match value {
            Value::Int(number) if i32::try_from(number).is_ok() => {
                self.asm.store_imm(mem, number as i32);
            }
            _ => {
                let (register, held) = self.readable(value);
                self.asm.store(mem, register);
                self.release_unless(held, value);
            }
        }
    }

    /// Gives back what `readable` took beyond the value itself.
    fn release_unless(&mut self, held: Value, value: Value) {
        if held != value {
            self.release(held);
        }
    }

    pub(super) fn bind_let(&mut self, id: LetId, value: &Expr) {
        let float = self.type_of(value) == Type::Float;
        let value = if float {
            let number = self.eval_float(value);
            let slot = self.slot();
            self.asm.sse(0xf2, 0x11, number, Self::slot_at(slot));
            self.release_xmm(number);
            Value::OwnSlot(slot)
        } else {
            let value = self.eval(value);
            // What is not ours may belong to another `let` that ends sooner.
            let value =
                if matches!(value, Value::Int(_)) { value } else { Value::Own(self.own(value)) };
            // Lets wait long: leave them fewer registers than other values.
            if self.free.len() < HEADROOM + 3 { self.spill(value) } else { value }
        };
        self.lets.push(Held { id, value, float });
    }

    fn spill(&mut self, value: Value) -> Value {
        let Value::Own(register) = value else { return value };
        let slot = self.slot();
        self.asm.store(Self::slot_at(slot), register);
        self.release(value);
        Value::OwnSlot(slot)
    }

    pub(super) fn let_value(&self, id: LetId) -> Value {
        let held = self.lets.iter().rev().find(|held| held.id == id);
        match held.expect("verified").value {
            Value::Own(register) => Value::Ref(register),
            Value::OwnSlot(slot) => Value::Stack(8 * slot as i32),
            other => other,
        }
    }

    pub(super) fn type_of(&self, expr: &Expr) -> Type {
        facts::shallow_type(expr, &|id| {
            let held = self.lets.iter().rev().find(|held| held.id == id);
            if held.is_some_and(|held| held.float) { Type::Float } else { Type::Int }
        })
    }

    pub(super) fn eval(&mut self, expr: &Expr) -> Value {
        match expr {
            Expr::Int(number) => Value::Int(*number),
            Expr::Let(id) => self.let_value(*id),
            Expr::Local(local) => {
                let at = self.word_of(*local);
                let to = self.temp();
                self.asm.mov(to, at);
                Value::Own(to)
            }
            Expr::Arg(number) => {
                match facts::argument(self.site.kind, self.site.convention, *number) {
                    Some(register) => self.origin(register),
                    None => {
                        let to = self.temp();
                        let from = self.stacked(*number, to);
                        self.asm.mov(to, from);
                        Value::Own(to)
                    }
                }
            }
            Expr::Result => self.origin(Register::RAX),
            Expr::Register(register) => self.origin(*register),
            Expr::Caller => {
                let to = self.temp();
                let from = self.above(self.site.stack_shift, to);
                self.asm.mov(to, from);
                Value::Own(to)
            }
            Expr::Frame => {
                let to = self.frame();
                Value::Own(to)
            }
            Expr::Thread => {
                let at = self.slab(header::TID);
                let to = self.temp();
                self.asm.mov32(to, at);
                Value::Own(to)
            }
            Expr::Address => Value::Int(self.site.address as i64),
            Expr::AccessAddress => self.access_address(),
            Expr::AccessSize => self.access_size(),
            Expr::CallNumber => unreachable!("not where code is made"),
            Expr::Ticks => {
                self.ticks();
                self.accumulator()
            }
            Expr::Now => {
                self.ticks();
                self.convert_ticks();
                let offset = self.env.clock.offset;
                let value = self.accumulator();
                self.arithmetic(Alu::Add, value, Value::Int(offset as i64))
            }
            Expr::Cpu => {
                let to = self.temp();
                self.call_routine(self.env.routines.cpu, &[], to);
                Value::Own(to)
            }
            Expr::Since(mark) => self.since(*mark),
            Expr::Load { width, signed, address } => self.load(*width, *signed, address),
            Expr::Text { texts, address, length } => self.text(*texts, address, length.as_deref()),
            Expr::Stack { stacks, depth } => self.stack(*stacks, *depth),
            Expr::Unary(op, inner) => self.unary(*op, inner),
            Expr::Binary(op, a, b) => self.binary(*op, a, b),
            Expr::Call(call) => self.call_out(call),
            Expr::Float(_) => unreachable!("verified: not an integer"),
        }
    }

    /// Where an argument is on the stack, perhaps by way of a register.
    pub(super) fn stacked(&mut self, number: u8, way: Register) -> Mem {
        // Before a call its arguments are at the stack pointer itself.
        let is_before = self.site.kind == crate::PointKind::CallBefore;
        let shift = if is_before { 0 } else { self.site.stack_shift };
        self.above(shift + facts::stack_argument(self.site.kind, number), way)
    }

    /// The frame's address, in a register of ours.
    pub(super) fn frame(&mut self) -> Register {
        let to = self.temp();
        let at = self.above(self.site.stack_shift, to);
        self.asm.lea(to, at);
        to
    }

    fn accumulator(&mut self) -> Value {
        let to = self.temp();
        self.asm.mov(to, Register::RAX);
        Value::Own(to)
    }

    fn since(&mut self, mark: crate::DatumId) -> Value {
        let place = self.places[mark.0 as usize];
        let (frame, entry) = self.mark_entry(place.state);
        let (cold, found, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.alu_to(Alu::Cmp, Mem::Base(entry, 0), frame);
        self.asm.jcc(Cond::NotEqual, cold);
        self.asm.bind(found);
        self.ticks();
        self.asm.alu(Alu::Sub, Register::RAX, Mem::Base(entry, MARK_TICKS as i32));
        self.asm.store_imm(Mem::Base(entry, 0), 0);
        self.convert_ticks();
        self.asm.mov(frame, Register::RAX);
        self.asm.bind(done);
        let unknown = self.slab(place.sums + MARK_UNKNOWN);
        let routine = self.env.routines.since;
        self.cold(cold, |this| {
            this.call_routine(routine, &[entry, frame], entry);
            this.asm.test(entry, entry);
            this.asm.jcc(Cond::NotEqual, found);
            this.asm.inc(unknown);
            this.asm.mov_imm(frame, -1);
            this.asm.jmp(done);
        });
        self.release(Value::Own(entry));
        Value::Own(frame)
    }

    fn load(&mut self, width: Width, signed: bool, address: &Expr) -> Value {
        let value = self.eval(address);
        let (from, held) = self.readable(value);
        let to = self.temp();
        let routine = self.env.routines.load[width.bytes().trailing_zeros() as usize];
        let slab = self.slab;
        self.call_routine(routine, &[from, slab], to);
        if signed && width != Width::Quad {
            self.asm.movsx(to, to, width.bytes());
        }
        self.release(held);
        Value::Own(to)
    }

    fn text(&mut self, texts: crate::DatumId, address: &Expr, length: Option<&Expr>) -> Value {
        let value = self.eval(address);
        let value = self.hold(value);
        let most = match length {
            Some(length) => self.eval(length),
            None => Value::Int(TEXT_SIZE.into()),
        };
        let (most, most_held) = self.readable(most);
        let (from, from_held) = self.readable(value);
        let to = self.temp();
        let table = self.slab(self.places[texts.0 as usize].sums);
        self.asm.lea(to, table);
        let slab = self.slab;
        self.call_routine(self.env.routines.text, &[from, slab, most, to], to);
        self.release(from_held);
        self.release(most_held);
        Value::Own(to)
    }

    fn stack(&mut self, stacks: crate::DatumId, depth: Option<u8>) -> Value {
        let Place { state, sums } = self.places[stacks.0 as usize];
        // Where a function is entered or left, its frame ends behind its return address. No rule is needed.
        let is_at_edge = matches!(self.site.kind, PointKind::Entry | PointKind::Exit);
        let end = if is_at_edge { self.site.stack_shift + 8 } else { 0 };
        let asked = if depth.is_some() { i64::from(asked::DEPTH_ASKED) } else { 0 };
        let depth = depth.map_or(i64::from(STACKS_DEPTH), i64::from);
        let block = self.slots.len() as u32;
        self.slots.resize(self.slots.len() + asked::WORDS as usize, true);
        let words = [
            (asked::PC, Value::Int(self.site.address as i64)),
            (asked::PLACE, Value::Int((u64::from(sums) | u64::from(state) << 32) as i64)),
            (asked::HOW, Value::Int(depth | asked | end << 32)),
        ];
        let at = |word: i32| Self::slot_at(block + word as u32 / 8);
        for (word, value) in words {
            self.store_word(at(word), value);
        }
        for (word, register) in [(asked::SP, Register::RSP), (asked::BP, Register::RBP)] {
            let value = self.origin(register);
            self.store_word(at(word), value);
            self.release(value);
        }
        let arguments = self.temp();
        self.asm.lea(arguments, at(0));
        let slab = self.slab;
        self.call_routine(self.env.routines.stack, &[arguments, slab], arguments);
        let end = block + asked::WORDS;
        (block..end).for_each(|slot| self.release(Value::OwnSlot(slot)));
        Value::Own(arguments)
    }

    /// Stores a value, whatever it is.
    fn store_word(&mut self, at: Mem, value: Value) {
        let (register, held) = self.readable(value);
        self.asm.store(at, register);
        self.release_unless(held, value);
    }

    pub(super) fn call_out(&mut self, call: &Call) -> Value {
        let mut values = Vec::with_capacity(6);
        for argument in &call.arguments {
            let value = self.eval(argument);
            let value = self.hold(value);
            values.push(value);
        }
        // The routine reads six words one after the other.
        let block = self.slots.len() as u32;
        self.slots.resize(self.slots.len() + 6, true);
        for (index, value) in values.into_iter().enumerate() {
            self.store_value(Self::slot_at(block + index as u32), value);
            self.release(value);
        }
        let (arguments, target) = (self.temp(), self.temp());
        self.asm.lea(arguments, Self::slot_at(block));
        self.asm.mov_imm(target, call.address as i64);
        let slab = self.slab;
        self.call_routine(self.env.routines.call, &[arguments, target, slab], arguments);
        self.release(Value::Own(target));
        (block..block + 6).for_each(|slot| self.release(Value::OwnSlot(slot)));
        Value::Own(arguments)
    }

    fn unary(&mut self, op: Unary, inner: &Expr) -> Value {
        match op {
            Unary::ToInt | Unary::ToBits => {
                let number = self.eval_float(inner);
                let to = self.temp();
                if op == Unary::ToInt {
                    self.asm.sse_wide(0xf2, 0x2c, to.0, Rm::Reg(number));
                } else {
                    let (odd, back) = (self.asm.label(), self.asm.label());
                    self.asm.sse_wide(0x66, 0x7e, number, Rm::Reg(to.0));
                    self.asm.sse(0x66, 0x2e, number, Rm::Reg(number));
                    self.asm.jcc(Cond::Parity, odd);
                    self.asm.bind(back);
                    self.cold(odd, |this| {
                        this.asm.mov_imm(to, NAN as i64);
                        this.asm.jmp(back);
                    });
                }
                self.release_xmm(number);
                return Value::Own(to);
            }
            Unary::ToFloat | Unary::FromBits => unreachable!("verified: not an integer"),
            Unary::Negate | Unary::Not | Unary::Complement => {}
        }
        let value = self.eval(inner);
        if let Value::Int(number) = value {
            return Value::Int(match op {
                Unary::Negate => number.wrapping_neg(),
                Unary::Complement => !number,
                _ => i64::from(number == 0),
            });
        }
        match op {
            Unary::Negate => {
                let to = self.own(value);
                self.asm.neg(to);
                Value::Own(to)
            }
            Unary::Complement => {
                let to = self.own(value);
                self.asm.not(to);
                Value::Own(to)
            }
            _ => {
                let (register, held) = self.readable(value);
                self.asm.test(register, register);
                self.release(held);
                self.truth(Cond::Equal)
            }
        }
    }

    /// 1 if the condition holds, else 0.
    fn truth(&mut self, cond: Cond) -> Value {
        let to = self.temp();
        self.asm.set(cond, to);
        self.asm.movzx8(to, to);
        Value::Own(to)
    }

    pub(super) fn arithmetic(&mut self, op: Alu, a: Value, b: Value) -> Value {
        let to = self.own(a);
        match b {
            Value::Int(0) if op != Alu::And => {}
            Value::Int(number) if i32::try_from(number).is_ok() => {
                self.asm.alu_imm(op, to, number as i32);
            }
            _ => {
                let (operand, held) = self.rm(b);
                self.asm.alu(op, to, operand);
                self.release(held);
            }
        }
        Value::Own(to)
    }

    fn binary(&mut self, op: Binary, a: &Expr, b: &Expr) -> Value {
        if matches!(op, Binary::AndAlso | Binary::OrElse) {
            return self.lazily(op, a, b);
        }
        if op.compares() {
            return match self.compare(op, a, b) {
                Compared::Known(truth) => Value::Int(i64::from(truth)),
                Compared::Flags(cond) => self.truth(cond),
                Compared::FloatEqual(equal) => {
                    let value = self.truth(if equal { Cond::Equal } else { Cond::NotEqual });
                    let other = self.truth(if equal { Cond::NoParity } else { Cond::Parity });
                    self.arithmetic(if equal { Alu::And } else { Alu::Or }, value, other)
                }
            };
        }
        let a = self.eval(a);
        let a = self.hold(a);
        let b = self.eval(b);
        if let (Value::Int(x), Value::Int(y)) = (a, b) {
            return Value::Int(op.of(x, y));
        }
        let commutes = matches!(
            op,
            Binary::Add
                | Binary::Mul
                | Binary::And
                | Binary::Or
                | Binary::Xor
                | Binary::Min
                | Binary::Max
        );
        let (a, b) = if commutes && matches!(a, Value::Int(_)) { (b, a) } else { (a, b) };
        match op {
            Binary::Add => self.arithmetic(Alu::Add, a, b),
            Binary::Sub => self.arithmetic(Alu::Sub, a, b),
            Binary::And => self.arithmetic(Alu::And, a, b),
            Binary::Or => self.arithmetic(Alu::Or, a, b),
            Binary::Xor => self.arithmetic(Alu::Xor, a, b),
            Binary::Mul => self.multiply(a, b),
            Binary::Shl => self.shift(Shift::Shl, a, b),
            Binary::Sar => self.shift(Shift::Sar, a, b),
            Binary::Shr => self.shift(Shift::Shr, a, b),
            Binary::Min | Binary::Max => {
                let to = self.own(a);
                let (operand, held) = self.rm(b);
                self.asm.alu(Alu::Cmp, to, operand);
                let cond = if op == Binary::Min { Cond::Greater } else { Cond::Less };
                self.asm.cmov(cond, to, operand);
                self.release(held);
                Value::Own(to)
            }
            _ => self.divide(op, a, b),
        }
    }

    fn multiply(&mut self, a: Value, b: Value) -> Value {
        match b {
            Value::Int(number) if i32::try_from(number).is_ok() => {
                let (from, held) = self.readable(a);
                self.release(held);
                let to = self.temp();
                self.asm.imul_imm(to, from, number as i32);
                Value::Own(to)
            }
            _ => {
                let to = self.own(a);
                let (operand, held) = self.rm(b);
                self.asm.imul(to, operand);
                self.release(held);
                Value::Own(to)
            }
        }
    }

    pub(super) fn shift(&mut self, op: Shift, a: Value, b: Value) -> Value {
        let to = self.own(a);
        match b {
            Value::Int(count) => {
                if count & 63 != 0 {
                    self.asm.shift_imm(op, to, count as u8 & 63);
                }
            }
            _ if self.env.bmi2 => {
                let (count, held) = self.readable(b);
                self.asm.shift_x(op, to, to, count);
                self.release(held);
            }
            _ => {
                self.clobber(&[Register::RCX]);
                self.move_to(Register::RCX, b);
                self.asm.shift_cl(op, to);
                self.release(b);
            }
        }
        Value::Own(to)
    }

    /// Division as the language has it: nothing traps.
    fn divide(&mut self, op: Binary, a: Value, b: Value) -> Value {
        let (rax, rdx) = (Register::RAX, Register::RDX);
        let signed = matches!(op, Binary::Div | Binary::Rem);
        let quotient = matches!(op, Binary::Div | Binary::UDiv);
        if b == Value::Int(0) {
            self.release(a);
            return Value::Int(0);
        }
        self.clobber(&[rax, rdx]);
        let (divisor, held) = self.readable(b);
        self.move_to(rax, a);
        self.release(a);
        let to = self.temp();
        let (zero, minus, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        if !matches!(b, Value::Int(_)) {
            self.asm.test(divisor, divisor);
            self.asm.jcc(Cond::Equal, zero);
        }
        if signed && !matches!(b, Value::Int(number) if number != -1) {
            self.asm.alu_imm(Alu::Cmp, divisor, -1);
            self.asm.jcc(Cond::Equal, minus);
        }
        if signed {
            self.asm.cqo();
            self.asm.idiv(divisor);
        } else {
            self.asm.mov_imm(rdx, 0);
            self.asm.div(divisor);
        }
        self.asm.mov(to, if quotient { rax } else { rdx });
        self.asm.bind(done);
        self.release(held);
        if !matches!(b, Value::Int(_)) {
            self.cold(zero, |this| {
                this.asm.mov_imm(to, 0);
                this.asm.jmp(done);
            });
        }
        if signed && !matches!(b, Value::Int(number) if number != -1) {
            // The lowest number by -1 would trap.
            self.cold(minus, |this| {
                if quotient {
                    this.asm.mov(to, rax);
                    this.asm.neg(to);
                } else {
                    this.asm.mov_imm(to, 0);
                }
                this.asm.jmp(done);
            });
        }
        Value::Own(to)
    }

    /// `&&` and `||`: the right side only if it matters.
    fn lazily(&mut self, op: Binary, a: &Expr, b: &Expr) -> Value {
        let also = op == Binary::AndAlso;
        let (short, end) = (self.asm.label(), self.asm.label());
        match self.branch(a, !also, short) {
            Some(truth) if truth == also => {
                self.asm.bind(short);
                self.asm.bind(end);
                let value = self.eval(b);
                if let Value::Int(number) = value {
                    return Value::Int(i64::from(number != 0));
                }
                let (register, held) = self.readable(value);
                self.asm.test(register, register);
                self.release(held);
                self.truth(Cond::NotEqual)
            }
            Some(truth) => {
                self.asm.bind(short);
                self.asm.bind(end);
                Value::Int(i64::from(truth))
            }
            None => {
                let value = self.eval(b);
                let (register, held) = self.readable(value);
                self.asm.test(register, register);
                self.release(held);
                let Value::Own(to) = self.truth(Cond::NotEqual) else { unreachable!("it is ours") };
                self.asm.jmp(end);
                self.asm.bind(short);
                self.asm.mov_imm(to, i64::from(!also));
                self.asm.bind(end);
                Value::Own(to)
            }
        }
    }

    /// Jumps to the label if the expression's truth is `want`. Emits no jump if it is known.
    pub(super) fn branch(&mut self, expr: &Expr, want: bool, label: Label) -> Option<bool> {
        match expr {
            Expr::Unary(Unary::Not, inner) => self.branch(inner, !want, label).map(|truth| !truth),
            Expr::Binary(op @ (Binary::AndAlso | Binary::OrElse), a, b) => {
                let also = *op == Binary::AndAlso;
                // `a && b` is false, `a || b` true as soon as a is.
                if want != also {
                    match self.branch(a, want, label) {
                        Some(truth) if truth == want => Some(want),
                        Some(_) => self.branch(b, want, label),
                        None => match self.branch(b, want, label) {
                            Some(truth) if truth == want => {
                                self.asm.jmp(label);
                                None
                            }
                            _ => None,
                        },
                    }
                } else {
                    let past = self.asm.label();
                    let known = match self.branch(a, !want, past) {
                        Some(truth) if truth != want => Some(!want),
                        Some(_) => self.branch(b, want, label),
                        None => {
                            if self.branch(b, want, label) == Some(want) {
                                self.asm.jmp(label);
                            }
                            None
                        }
                    };
                    self.asm.bind(past);
                    known
                }
            }
            Expr::Binary(op, a, b) if op.compares() => match self.compare(*op, a, b) {
                Compared::Known(truth) => Some(truth),
                Compared::Flags(cond) => {
                    self.asm.jcc(if want { cond } else { cond.not() }, label);
                    None
                }
                Compared::FloatEqual(equal) => {
                    if equal == want {
                        // Equal, and in order.
                        let past = self.asm.label();
                        self.asm.jcc(Cond::Parity, past);
                        self.asm.jcc(Cond::Equal, label);
                        self.asm.bind(past);
                    } else {
                        self.asm.jcc(Cond::Parity, label);
                        self.asm.jcc(Cond::NotEqual, label);
                    }
                    None
                }
            },
            _ => {
                let value = self.eval(expr);
                if let Value::Int(number) = value {
                    return Some(number != 0);
                }
                let (register, held) = self.readable(value);
                self.asm.test(register, register);
                self.release(held);
                self.asm.jcc(if want { Cond::NotEqual } else { Cond::Equal }, label);
                None
            }
        }
    }

    fn compare(&mut self, op: Binary, a: &Expr, b: &Expr) -> Compared {
        if self.type_of(a) == Type::Float {
            return self.compare_floats(op, a, b);
        }
        let a = self.eval(a);
        let a = self.hold(a);
        let b = self.eval(b);
        if let (Value::Int(x), Value::Int(y)) = (a, b) {
            return Compared::Known(op.of(x, y) != 0);
        }
        let cond = condition(op).expect("it compares");
        let (a, b, cond) =
            if matches!(a, Value::Int(_)) { (b, a, mirrored(cond)) } else { (a, b, cond) };
        match b {
            Value::Int(number) if i32::try_from(number).is_ok() => {
                let (operand, held) = self.rm(a);
                self.asm.alu_imm(Alu::Cmp, operand, number as i32);
                self.release(held);
            }
            _ => {
                let (left, held) = self.readable(a);
                let (operand, other) = self.rm(b);
                self.asm.alu(Alu::Cmp, left, operand);
                self.release(held);
                self.release(other);
            }
        }
        Compared::Flags(cond)
    }
}
