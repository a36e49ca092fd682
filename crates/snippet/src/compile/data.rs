//! Statements over data that take more than one instruction.
//!
//! A signal may come between any two instructions, and its handler may run the same statements on
//! the same slab: the order of stores below is chosen for that.

use super::generator::Generator;
use super::value::Value;
use crate::asm::{Alu, Cond, Mem, Shift};
use crate::ir::{Buckets, DatumId, DatumKind, Expr, TimerClock};
use crate::layout::{
    FINE_STEPS, HISTOGRAM_BUCKETS, HISTOGRAM_SUM, MAP_ENTRIES, MAP_LOST, MAP_LOST_SUM, MAP_MIX,
    MARK_HOMES, MARK_LEFT, MARK_TICKS, RING_HEAD, RING_LOST, RING_RECORDS, RING_TAIL, TIMER_COUNT,
    TIMER_DEPTH, TIMER_FRAME, TIMER_LEFT, TIMER_START, TIMER_TOP, TIMER_TOTAL, map_entry_size,
    record_size,
};
use alloc::vec::Vec;
use weft_code::Register;

impl Generator<'_> {
    fn timer_clock(&self, timer: DatumId) -> TimerClock {
        match self.data[timer.0 as usize].kind {
            DatumKind::Timer(clock) => clock,
            _ => unreachable!("verified: a timer"),
        }
    }

    /// The time of a timer's clock, in rax.
    fn read_clock(&mut self, clock: TimerClock) {
        match clock {
            TimerClock::Wall => self.ticks(),
            TimerClock::Cpu => {
                self.clobber(&[Register::RAX]);
                self.call_routine(self.env.routines.cpu, &[], Register::RAX);
            }
        }
    }

    pub(super) fn start(&mut self, timer: DatumId) {
        let clock = self.timer_clock(timer);
        let state = self.places[timer.0 as usize].state;
        let at = |this: &mut Self, offset| this.slab(state + offset);
        let frame_at = at(self, TIMER_FRAME);
        let depth_at = at(self, TIMER_DEPTH);
        let start_at = at(self, TIMER_START);
        let top_at = at(self, TIMER_TOP);
        let frame = self.frame();
        let (runs, begin, left, back) =
            (self.asm.label(), self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.alu_imm(Alu::Cmp, frame_at, 0);
        self.asm.jcc(Cond::NotEqual, runs);
        self.asm.bind(begin);
        // A handler between these two times itself; after them, it nests.
        self.asm.store_imm(depth_at, 1);
        self.asm.store(frame_at, frame);
        let (higher, known) = (self.asm.label(), self.asm.label());
        self.asm.alu(Alu::Cmp, frame, top_at);
        self.asm.jcc(Cond::Above, higher);
        self.asm.bind(known);
        self.read_clock(clock);
        self.asm.store(start_at, Register::RAX);
        self.asm.bind(back);
        self.release(Value::Own(frame));
        self.cold(higher, |this| {
            this.asm.store(top_at, frame);
            this.asm.jmp(known);
        });
        let left_at = self.slab(self.places[timer.0 as usize].sums + TIMER_LEFT);
        self.cold(runs, |this| {
            this.asm.alu(Alu::Cmp, frame, frame_at);
            this.asm.jcc(Cond::AboveEqual, left);
            this.asm.inc(depth_at);
            this.asm.jmp(back);
            // Not below the outermost frame: that is gone, without having returned.
            this.asm.bind(left);
            this.asm.inc(left_at);
            this.asm.jmp(begin);
        });
    }

    /// What is at the frames from `low` to `high` is over: a timer that was started there stops, stamps are dropped.
    pub(super) fn leave(&mut self, datum: DatumId, low: &Expr, high: &Expr) {
        let place = self.places[datum.0 as usize];
        let low = self.eval(low);
        let low = self.hold(low);
        let high = self.eval(high);
        let (high, high_owner) = self.readable(high);
        let (low, low_owner) = self.readable(low);
        let kind = &self.data[datum.0 as usize].kind;
        if let DatumKind::Timer(clock) = *kind {
            let frame_at = self.slab(place.state + TIMER_FRAME);
            let start_at = self.slab(place.state + TIMER_START);
            let total_at = self.slab(place.sums + TIMER_TOTAL);
            let count_at = self.slab(place.sums + TIMER_COUNT);
            let (over, back) = (self.asm.label(), self.asm.label());
            let frame = self.temp();
            self.asm.mov(frame, frame_at);
            self.asm.test(frame, frame);
            self.asm.jcc(Cond::Equal, back);
            self.asm.alu(Alu::Cmp, frame, low);
            self.asm.jcc(Cond::Below, back);
            self.asm.alu(Alu::Cmp, frame, high);
            self.asm.jcc(Cond::BelowEqual, over);
            self.asm.bind(back);
            for value in [Value::Own(frame), low_owner, high_owner] {
                self.release(value);
            }
            self.cold(over, |this| {
                this.read_clock(clock);
                this.asm.alu(Alu::Sub, Register::RAX, start_at);
                this.asm.store_imm(frame_at, 0);
                this.asm.alu_to(Alu::Add, total_at, Register::RAX);
                this.asm.inc(count_at);
                this.asm.jmp(back);
            });
            return;
        }
        let left_at = self.slab(place.sums + MARK_LEFT);
        let table_at = self.slab(place.state);
        let table = self.temp();
        self.asm.lea(table, table_at);
        let routine = self.env.routines.leave;
        self.call_routine(routine, &[table, low, high], table);
        self.asm.alu_to(Alu::Add, left_at, table);
        for value in [Value::Own(table), low_owner, high_owner] {
            self.release(value);
        }
    }

    pub(super) fn stop(&mut self, timer: DatumId) {
        let clock = self.timer_clock(timer);
        let place = self.places[timer.0 as usize];
        let frame_at = self.slab(place.state + TIMER_FRAME);
        let depth_at = self.slab(place.state + TIMER_DEPTH);
        let start_at = self.slab(place.state + TIMER_START);
        let total_at = self.slab(place.sums + TIMER_TOTAL);
        let count_at = self.slab(place.sums + TIMER_COUNT);
        let frame = self.frame();
        let (other, account, back) = (self.asm.label(), self.asm.label(), self.asm.label());
        // In the outermost frame itself: whatever nested in it is over.
        self.asm.alu(Alu::Cmp, frame, frame_at);
        self.asm.jcc(Cond::NotEqual, other);
        self.asm.bind(account);
        self.read_clock(clock);
        self.asm.alu(Alu::Sub, Register::RAX, start_at);
        self.asm.store_imm(frame_at, 0);
        self.asm.alu_to(Alu::Add, total_at, Register::RAX);
        self.asm.inc(count_at);
        self.asm.bind(back);
        self.release(Value::Own(frame));
        let top_at = self.slab(place.state + TIMER_TOP);
        let left_at = self.slab(place.sums + TIMER_LEFT);
        let idle = self.asm.label();
        self.cold(other, |this| {
            this.asm.alu_imm(Alu::Cmp, frame_at, 0);
            this.asm.jcc(Cond::Equal, idle);
            this.asm.dec(depth_at);
            this.asm.jcc(Cond::NotEqual, back);
            this.asm.jmp(account);
            this.asm.bind(idle);
            this.asm.alu(Alu::Cmp, frame, top_at);
            this.asm.jcc(Cond::Above, back);
            this.asm.inc(left_at);
            this.asm.jmp(back);
        });
    }

    pub(super) fn observe(&mut self, histogram: DatumId, value: &Expr) {
        let DatumKind::Histogram(buckets) = self.data[histogram.0 as usize].kind else {
            unreachable!("verified: a histogram")
        };
        let sums = self.places[histogram.0 as usize].sums;
        let sum_at = self.slab(sums + HISTOGRAM_SUM);
        let value = self.eval(value);
        if let Value::Int(number) = value {
            let bucket = crate::layout::bucket(buckets, number);
            let at = self.slab(sums + HISTOGRAM_BUCKETS + 8 * bucket);
            self.add_to(sum_at, value);
            return self.asm.inc(at);
        }
        match buckets {
            Buckets::Log2 => {
                let (number, held) = self.readable(value);
                let zeros = self.temp();
                if self.env.bmi2 {
                    self.asm.lzcnt(zeros, number);
                } else {
                    // 127 becomes 64, as lzcnt has it for 0.
                    let none = self.temp();
                    self.asm.mov_imm(none, 127);
                    self.asm.bsr(zeros, number);
                    self.asm.cmov(Cond::Equal, zeros, none);
                    self.asm.alu_imm(Alu::Xor, zeros, 63);
                    self.release(Value::Own(none));
                }
                self.asm.alu_to(Alu::Add, sum_at, number);
                self.count_bucket(sums, zeros);
                self.release(Value::Own(zeros));
                self.release(held);
            }
            Buckets::Fine => {
                let number = self.own(value);
                let shift = self.temp();
                self.asm.alu_to(Alu::Add, sum_at, number);
                self.asm.mov(shift, number);
                self.asm.alu_imm(Alu::Or, shift, FINE_STEPS as i32);
                self.asm.bsr(shift, shift);
                self.asm.alu_imm(Alu::Sub, shift, FINE_STEPS.trailing_zeros() as i32);
                let Value::Own(high) =
                    self.shift(Shift::Shr, Value::Own(number), Value::Ref(shift))
                else {
                    unreachable!("a shift gives a register of its own")
                };
                self.asm.shift_imm(Shift::Shl, shift, FINE_STEPS.trailing_zeros() as u8);
                self.asm.alu(Alu::Add, high, shift);
                self.count_bucket(sums, high);
                self.release(Value::Own(shift));
                self.release(Value::Own(high));
            }
            Buckets::Linear { low, step, count } => {
                let number = self.own(value);
                self.asm.alu_to(Alu::Add, sum_at, number);
                self.linear_bucket(number, low, step, count);
                self.count_bucket(sums, number);
                self.release(Value::Own(number));
            }
        }
    }

    fn count_bucket(&mut self, sums: u32, bucket: Register) {
        let at = Mem::Index(self.slab, bucket, 8, (sums + HISTOGRAM_BUCKETS) as i32);
        self.asm.inc(at);
    }

    /// Makes a number the number of its bucket.
    fn linear_bucket(&mut self, number: Register, low: i64, step: u32, count: u32) {
        let (rax, rdx) = (Register::RAX, Register::RDX);
        let (below, above, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        let span = u64::from(step) * u64::from(count);
        let limit = self.temp();
        self.asm.mov_imm(limit, low);
        self.asm.alu(Alu::Cmp, number, limit);
        self.asm.jcc(Cond::Less, below);
        self.asm.alu(Alu::Sub, number, limit);
        self.asm.mov_imm(limit, span as i64);
        self.asm.alu(Alu::Cmp, number, limit);
        self.asm.jcc(Cond::AboveEqual, above);
        if step.is_power_of_two() {
            if step > 1 {
                self.asm.shift_imm(Shift::Shr, number, step.trailing_zeros() as u8);
            }
        } else {
            self.clobber(&[rax, rdx]);
            self.asm.mov(rax, number);
            self.asm.mov_imm(rdx, 0);
            self.asm.mov_imm(limit, i64::from(step));
            if u32::try_from(span).is_ok() {
                self.asm.div32(limit);
            } else {
                self.asm.div(limit);
            }
            self.asm.mov(number, rax);
        }
        self.asm.inc(number);
        self.asm.bind(done);
        self.release(Value::Own(limit));
        for (label, bucket) in [(below, 0), (above, count + 1)] {
            self.cold(label, |this| {
                this.asm.mov_imm(number, i64::from(bucket));
                this.asm.jmp(done);
            });
        }
    }

    pub(super) fn add_at(&mut self, map: DatumId, keys: &[Expr], value: &Expr) {
        let DatumKind::Map { capacity, .. } = self.data[map.0 as usize].kind else {
            unreachable!("verified: a map")
        };
        let two = keys.len() == 2;
        let sums = self.places[map.0 as usize].sums;
        let mut held = Vec::with_capacity(2);
        for key in keys {
            let key = self.eval(key);
            let key = self.hold(key);
            held.push(key);
        }
        let value = self.eval(value);
        let value = match value {
            Value::Int(number) if i32::try_from(number).is_ok() => value,
            // Read twice at most, in a register both times.
            other => self.readable(other).1,
        };
        let (lost, hit, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        let (miss, entry) = (self.asm.label(), self.temp());
        let log2 = capacity.trailing_zeros() as u8;
        let mut keys = Vec::with_capacity(2);
        let tag;
        if two {
            for key in held {
                let (register, owner) = self.readable(key);
                keys.push((register, owner));
            }
            tag = self.temp();
            self.asm.mov_imm(tag, MAP_MIX as i64);
            self.asm.mov(entry, keys[0].0);
            self.asm.imul(entry, tag);
            self.asm.alu(Alu::Add, entry, keys[1].0);
            self.asm.imul(entry, tag);
            self.asm.mov(tag, entry);
            self.asm.alu_imm(Alu::Or, tag, 1);
        } else {
            tag = self.own(held[0]);
            self.asm.mov_imm(entry, MAP_MIX as i64);
            self.asm.alu(Alu::Xor, tag, entry);
            self.asm.jcc(Cond::Equal, lost);
            self.asm.imul(entry, tag);
        }
        let size = map_entry_size(1 + u8::from(two));
        if log2 == 0 {
            self.asm.mov_imm(entry, 0);
        } else {
            self.asm.shift_imm(Shift::Shr, entry, 64 - log2);
            self.asm.shift_imm(Shift::Shl, entry, size.trailing_zeros() as u8);
        }
        self.asm.lea(entry, Mem::Index(self.slab, entry, 1, (sums + MAP_ENTRIES) as i32));
        self.asm.alu_to(Alu::Cmp, Mem::Base(entry, 0), tag);
        self.asm.jcc(Cond::NotEqual, miss);
        for (index, key) in keys.iter().enumerate() {
            self.asm.alu_to(Alu::Cmp, Mem::Base(entry, 8 + 8 * index as i32), key.0);
            self.asm.jcc(Cond::NotEqual, miss);
        }
        self.asm.bind(hit);
        self.add_to(Mem::Base(entry, size as i32 - 8), value);
        self.asm.bind(done);
        let lost_at = self.slab(sums + MAP_LOST);
        let lost_sum_at = self.slab(sums + MAP_LOST_SUM);
        let routines = &self.env.routines;
        let routine = if two { routines.map2 } else { routines.map1 };
        let inputs: Vec<Register> =
            [entry, tag].into_iter().chain(keys.iter().map(|key| key.0)).collect();
        self.cold(miss, |this| {
            this.call_routine(routine, &inputs, entry);
            this.asm.test(entry, entry);
            this.asm.jcc(Cond::NotEqual, hit);
            this.asm.bind(lost);
            this.asm.inc(lost_at);
            this.add_to(lost_sum_at, value);
            this.asm.jmp(done);
        });
        self.release(Value::Own(entry));
        self.release(Value::Own(tag));
        self.release(value);
        for (_, owner) in keys {
            self.release(owner);
        }
    }

    /// The frame, and where its stamp is looked for first.
    pub(super) fn mark_entry(&mut self, state: u32) -> (Register, Register) {
        let frame = self.frame();
        let entry = self.temp();
        // Frames are 8 apart at least, mostly 16: their bits 4 to 9 pick an entry of 16 bytes.
        self.asm.mov(entry, frame);
        self.asm.alu32_imm(Alu::And, entry, (MARK_HOMES as i32 - 1) * 16);
        self.asm.lea(entry, Mem::Index(self.slab, entry, 1, state as i32));
        (frame, entry)
    }

    pub(super) fn stamp(&mut self, mark: DatumId) {
        let place = self.places[mark.0 as usize];
        let (frame, entry) = self.mark_entry(place.state);
        let (taken, write) = (self.asm.label(), self.asm.label());
        self.asm.alu_imm(Alu::Cmp, Mem::Base(entry, 0), 0);
        self.asm.jcc(Cond::NotEqual, taken);
        self.asm.bind(write);
        // The entry is taken before the clock is read: a handler looks for another one.
        self.asm.store(Mem::Base(entry, 0), frame);
        self.ticks();
        self.asm.store(Mem::Base(entry, MARK_TICKS as i32), Register::RAX);
        let routine = self.env.routines.stamp;
        let left_at = self.slab(place.sums + MARK_LEFT);
        self.cold(taken, |this| {
            this.call_routine(routine, &[entry, frame], entry);
            this.asm.alu_imm(Alu::Cmp, Mem::Base(entry, 0), 0);
            this.asm.jcc(Cond::Equal, write);
            // The call of the stamp that was there has not returned.
            this.asm.inc(left_at);
            this.asm.jmp(write);
        });
        self.release(Value::Own(frame));
        self.release(Value::Own(entry));
    }

    pub(super) fn emit(&mut self, ring: DatumId, values: &[Expr]) {
        let DatumKind::Ring { fields, capacity, blocking, .. } = &self.data[ring.0 as usize].kind
        else {
            unreachable!("verified: a ring")
        };
        let (capacity, blocking, size) = (*capacity, *blocking, record_size(fields.len()));
        let sums = self.places[ring.0 as usize].sums;
        // All values first: a record that is begun must be ended soon.
        let mut held = Vec::with_capacity(values.len());
        for value in values {
            let value = self.eval(value);
            let value = self.hold(value);
            held.push(value);
        }
        let head_at = self.slab(sums + RING_HEAD);
        let tail_at = self.slab(sums + RING_TAIL);
        let lost_at = self.slab(sums + RING_LOST);
        let (number, record) = (self.temp(), self.temp());
        let limit = blocking.then(|| self.temp());
        let (full, write, done) = (self.asm.label(), self.asm.label(), self.asm.label());
        self.asm.mov_imm(number, 1);
        self.asm.xadd(head_at, number);
        self.asm.mov(record, number);
        self.asm.alu(Alu::Sub, record, tail_at);
        self.asm.alu_imm(Alu::Cmp, record, capacity as i32);
        self.asm.jcc(Cond::AboveEqual, full);
        self.asm.bind(write);
        self.asm.mov32(record, number);
        self.asm.alu32_imm(Alu::And, record, capacity as i32 - 1);
        if size.is_power_of_two() {
            self.asm.shift_imm(Shift::Shl, record, size.trailing_zeros() as u8);
        } else {
            self.asm.imul_imm(record, record, size as i32);
        }
        self.asm.lea(record, Mem::Index(self.slab, record, 1, (sums + RING_RECORDS) as i32));
        for (index, value) in held.into_iter().enumerate() {
            self.store_value(Mem::Base(record, 8 * index as i32), value);
            self.release(value);
        }
        // Last: the reader takes a record for whole once it has its number.
        self.asm.inc(number);
        self.asm.store(Mem::Base(record, size as i32 - 8), number);
        self.asm.bind(done);
        let skip = self.is_at_red_zone();
        let ring_at = self.slab(sums);
        let wait = self.env.routines.wait;
        self.cold(full, |this| {
            if let Some(limit) = limit {
                this.asm.lea(record, ring_at);
                this.asm.mov_imm(limit, i64::from(capacity));
                this.call_routine(wait, &[record, number, limit], record);
                this.asm.test(record, record);
                this.asm.jcc(Cond::NotEqual, write);
            }
            // Give the number back. If that fails, a handler has got a record after this one in:
            // there is room for this one too.
            if skip {
                this.asm.lea(Register::RSP, Mem::Base(Register::RSP, -128));
            }
            this.asm.push(Register::RAX);
            this.asm.lea(Register::RAX, Mem::Base(number, 1));
            this.asm.cmpxchg(head_at, number);
            this.asm.pop(Register::RAX);
            if skip {
                this.asm.lea(Register::RSP, Mem::Base(Register::RSP, 128));
            }
            this.asm.jcc(Cond::NotEqual, write);
            this.asm.inc(lost_at);
            this.asm.jmp(done);
        });
        if let Some(limit) = limit {
            self.release(Value::Own(limit));
        }
        self.release(Value::Own(number));
        self.release(Value::Own(record));
    }
}
