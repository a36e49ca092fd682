//! What a body means, without machine code: the oracle that generated code is tested against.

use crate::facts;
use crate::ir::{
    Binary, Buckets, Call, Datum, DatumId, DatumKind, Expr, LetId, NAN, PointKind, Statement,
    TimerClock, Unary, Width,
};
use crate::layout::{
    HISTOGRAM_BUCKETS, HISTOGRAM_SUM, MAP_ENTRIES, MAP_LOST, MAP_LOST_SUM, MAP_PROBES, MARK_HOMES,
    MARK_LEFT, MARK_PROBES, MARK_REACH, MARK_TICKS, MARK_UNKNOWN, Place, RING_HEAD, RING_LOST,
    RING_RECORDS, RING_STALLED, RING_TAIL, TEXT_BYTES, TEXT_ENTRY, TEXT_SIZE, TIMER_COUNT,
    TIMER_DEPTH, TIMER_FRAME, TIMER_LEFT, TIMER_START, TIMER_TOP, TIMER_TOTAL, bucket, header,
    map_entry_size, map_hash, record_size, text_home, text_id,
};
use crate::site::{Clock, Site};
use alloc::vec::Vec;
use weft_code::{Access, Register, Segment};

/// The world that a body is interpreted in.
pub trait World {
    /// A register's value at the site.
    fn register(&self, register: Register) -> u64;
    /// Changes a register; does nothing where none can be changed.
    fn set_register(&mut self, _: Register, _: u64) {}
    /// Changes 8 bytes of the stack; does nothing where none can be changed.
    fn write(&mut self, _: u64, _: u64) {}
    /// The number of the system call, at points of the kernel.
    fn call_number(&self) -> u64 {
        0
    }
    /// Where a segment begins.
    fn segment_base(&self, _: Segment) -> u64 {
        0
    }
    /// Up to 8 bytes of memory, without a sign; `None` if they cannot be read.
    fn read(&self, address: u64, bytes: usize) -> Option<u64>;
    /// The time stamp counter.
    fn ticks(&mut self) -> u64;
    /// The thread's clock, in nanoseconds.
    fn cpu(&mut self) -> u64;
    /// A call into the program.
    fn call(&mut self, address: u64, arguments: &[i64]) -> i64;
    /// The thread's slab.
    fn slab(&mut self) -> &mut [u8];
}

/// Does what a body says; gives what it returns, if it does. A full blocking ring is taken to have a reader that is
/// gone.
pub fn interpret(
    data: &[Datum],
    body: &[Statement],
    site: &Site,
    clock: &Clock,
    places: &[Place],
    world: &mut dyn World,
) -> Option<i64> {
    let mut interpreter =
        Interpreter { data, site, clock, places, world, lets: Vec::new(), returned: None };
    interpreter.block(body);
    interpreter.returned
}

#[derive(Clone, Copy)]
enum Value {
    Int(i64),
    Float(f64),
}

struct Interpreter<'a> {
    data: &'a [Datum],
    site: &'a Site,
    clock: &'a Clock,
    places: &'a [Place],
    world: &'a mut dyn World,
    lets: Vec<(LetId, Value)>,
    /// What it has returned.
    returned: Option<i64>,
}

impl Interpreter<'_> {
    fn block(&mut self, body: &[Statement]) {
        let visible = self.lets.len();
        for statement in body {
            self.statement(statement);
            if self.returned.is_some() {
                break;
            }
        }
        self.lets.truncate(visible);
    }

    fn get(&mut self, at: u32) -> u64 {
        let bytes = self.world.slab()[at as usize..].first_chunk().copied();
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    fn set(&mut self, at: u32, value: u64) {
        self.world.slab()[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn add(&mut self, at: u32, value: i64) {
        let sum = self.get(at).wrapping_add(value as u64);
        self.set(at, sum);
    }

    fn place(&self, id: DatumId) -> Place {
        self.places[usize::from(id.0)]
    }

    fn kind(&self, id: DatumId) -> &DatumKind {
        &self.data[usize::from(id.0)].kind
    }

    fn word_of(&self, id: DatumId) -> u32 {
        let place = self.place(id);
        if *self.kind(id) == DatumKind::Local { place.state } else { place.sums }
    }

    fn frame(&self) -> u64 {
        self.world.register(Register::RSP).wrapping_add(self.site.stack_shift as u64)
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Add { to, value } => {
                let value = self.int(value);
                self.add(self.word_of(*to), value);
            }
            Statement::Set { local, value } => {
                let value = self.int(value);
                self.set(self.word_of(*local), value as u64);
            }
            Statement::AddAt { map, keys, value } => self.add_at(*map, keys, value),
            Statement::Observe { histogram, value } => {
                let value = self.int(value);
                let sums = self.place(*histogram).sums;
                let buckets = match self.kind(*histogram) {
                    DatumKind::Histogram(buckets) => *buckets,
                    _ => Buckets::Log2,
                };
                self.add(sums + HISTOGRAM_SUM, value);
                self.add(sums + HISTOGRAM_BUCKETS + 8 * bucket(buckets, value), 1);
            }
            Statement::Start(timer) => self.start(*timer),
            Statement::Stop(timer) => self.stop(*timer),
            Statement::Emit { ring, values } => self.emit(*ring, values),
            Statement::Let { id, value, .. } => {
                let value = self.eval(value);
                self.lets.push((*id, value));
            }
            Statement::If { condition, then, otherwise } => {
                let truth = self.int(condition) != 0;
                self.block(if truth { then } else { otherwise });
            }
            Statement::Stamp(mark) => self.stamp(*mark),
            Statement::Leave { datum, low, high } => self.leave(*datum, low, high),
            Statement::Call(call) => {
                self.call(call);
            }
            Statement::SetArg { number, value } => {
                let value = self.int(value) as u64;
                match facts::argument(self.site.kind, self.site.convention, *number) {
                    Some(register) => self.world.set_register(register, value),
                    None => self.world.write(self.stacked(*number), value),
                }
            }
            Statement::SetResult(value) => {
                let value = self.int(value) as u64;
                self.world.set_register(Register::RAX, value);
            }
            Statement::Return(value) => {
                let value = self.int(value);
                self.world.set_register(Register::RAX, value as u64);
                self.returned = Some(value);
            }
        }
    }

    fn time_of(&mut self, timer: DatumId) -> u64 {
        match self.kind(timer) {
            DatumKind::Timer(TimerClock::Cpu) => self.world.cpu(),
            _ => self.world.ticks(),
        }
    }

    fn start(&mut self, timer: DatumId) {
        let (state, frame) = (self.place(timer).state, self.frame());
        if frame < self.get(state + TIMER_FRAME) {
            return self.add(state + TIMER_DEPTH, 1);
        }
        if self.get(state + TIMER_FRAME) != 0 {
            self.add(self.place(timer).sums + TIMER_LEFT, 1);
        }
        self.set(state + TIMER_DEPTH, 1);
        self.set(state + TIMER_FRAME, frame);
        let top = self.get(state + TIMER_TOP).max(frame);
        self.set(state + TIMER_TOP, top);
        let time = self.time_of(timer);
        self.set(state + TIMER_START, time);
    }

    fn stop(&mut self, timer: DatumId) {
        let (place, frame) = (self.place(timer), self.frame());
        let outermost = self.get(place.state + TIMER_FRAME);
        if frame != outermost {
            if outermost == 0 {
                if frame <= self.get(place.state + TIMER_TOP) {
                    self.add(place.sums + TIMER_LEFT, 1);
                }
                return;
            }
            self.add(place.state + TIMER_DEPTH, -1);
            if self.get(place.state + TIMER_DEPTH) != 0 {
                return;
            }
        }
        let time = self.time_of(timer).wrapping_sub(self.get(place.state + TIMER_START));
        self.set(place.state + TIMER_FRAME, 0);
        self.add(place.sums + TIMER_TOTAL, time as i64);
        self.add(place.sums + TIMER_COUNT, 1);
    }

    fn add_at(&mut self, map: DatumId, keys: &[Expr], value: &Expr) {
        let keys: Vec<u64> = keys.iter().map(|key| self.int(key) as u64).collect();
        let value = self.int(value);
        let sums = self.place(map).sums;
        let DatumKind::Map { capacity, .. } = *self.kind(map) else { return };
        let size = map_entry_size(keys.len() as u8);
        let (home, tag) = map_hash(&keys, capacity);
        for index in home..home + MAP_PROBES {
            let entry = sums + MAP_ENTRIES + index * size;
            let found = self.get(entry);
            if tag == 0 {
                break;
            }
            if found == 0 {
                if keys.len() == 2 {
                    self.set(entry + 8, keys[0]);
                    self.set(entry + 16, keys[1]);
                }
                self.set(entry, tag);
            } else if found != tag
                || keys.len() == 2
                    && (self.get(entry + 8) != keys[0] || self.get(entry + 16) != keys[1])
            {
                continue;
            }
            return self.add(entry + size - 8, value);
        }
        self.add(sums + MAP_LOST, 1);
        self.add(sums + MAP_LOST_SUM, value);
    }

    fn mark_home(&self, mark: DatumId) -> u32 {
        self.place(mark).state + (self.frame() as u32 & ((MARK_HOMES - 1) * 16))
    }

    fn stamp(&mut self, mark: DatumId) {
        let (home, frame) = (self.mark_home(mark), self.frame());
        let window = || (0..MARK_PROBES).map(|index| home + 16 * index);
        let entry = if self.get(home) == 0 {
            home
        } else {
            let own = window().find(|&entry| self.get(entry) == frame);
            let free = own.or_else(|| window().find(|&entry| self.get(entry) == 0));
            let gone = |&entry: &u32| frame.wrapping_sub(self.get(entry)) < u64::from(MARK_REACH);
            free.or_else(|| window().find(gone)).unwrap_or(home)
        };
        if self.get(entry) != 0 {
            self.add(self.place(mark).sums + MARK_LEFT, 1);
        }
        self.set(entry, frame);
        let ticks = self.world.ticks();
        self.set(entry + MARK_TICKS, ticks);
    }

    fn leave(&mut self, datum: DatumId, low: &Expr, high: &Expr) {
        let low = self.int(low) as u64;
        let high = self.int(high) as u64;
        let place = self.place(datum);
        let is_over = |frame: u64| frame != 0 && (low..=high).contains(&frame);
        if let DatumKind::Timer(_) = self.kind(datum) {
            if is_over(self.get(place.state + TIMER_FRAME)) {
                let time = self.time_of(datum).wrapping_sub(self.get(place.state + TIMER_START));
                self.set(place.state + TIMER_FRAME, 0);
                self.add(place.sums + TIMER_TOTAL, time as i64);
                self.add(place.sums + TIMER_COUNT, 1);
            }
            return;
        }
        for index in 0..MARK_HOMES + MARK_PROBES - 1 {
            let entry = place.state + 16 * index;
            if is_over(self.get(entry)) {
                self.set(entry, 0);
                self.add(place.sums + MARK_LEFT, 1);
            }
        }
    }

    fn since(&mut self, mark: DatumId) -> i64 {
        let (home, frame) = (self.mark_home(mark), self.frame());
        let mut window = (0..MARK_PROBES).map(|index| home + 16 * index);
        let Some(entry) = window.find(|&entry| self.get(entry) == frame) else {
            self.add(self.place(mark).sums + MARK_UNKNOWN, 1);
            return -1;
        };
        let ticks = self.world.ticks().wrapping_sub(self.get(entry + MARK_TICKS));
        self.set(entry, 0);
        self.clock.nanoseconds(ticks) as i64
    }

    fn emit(&mut self, ring: DatumId, values: &[Expr]) {
        let values: Vec<i64> = values.iter().map(|value| self.int(value)).collect();
        let sums = self.place(ring).sums;
        let DatumKind::Ring { capacity, blocking, .. } = *self.kind(ring) else { return };
        let (number, tail) = (self.get(sums + RING_HEAD), self.get(sums + RING_TAIL));
        if number.wrapping_sub(tail) >= u64::from(capacity) {
            if blocking {
                self.set(sums + RING_STALLED, tail.wrapping_add(1));
            }
            return self.add(sums + RING_LOST, 1);
        }
        self.add(sums + RING_HEAD, 1);
        let size = record_size(values.len());
        let record = sums + RING_RECORDS + (number as u32 & (capacity - 1)) * size;
        for (index, value) in values.iter().enumerate() {
            self.set(record + 8 * index as u32, *value as u64);
        }
        self.set(record + size - 8, number.wrapping_add(1));
    }

    fn call(&mut self, call: &Call) -> i64 {
        let arguments: Vec<i64> = call.arguments.iter().map(|value| self.int(value)).collect();
        if self.get(header::CALLING) != 0 {
            self.add(header::SKIPPED_CALLS, 1);
            return 0;
        }
        self.world.call(call.address, &arguments)
    }

    fn load(&mut self, address: u64, width: Width, signed: bool) -> i64 {
        let Some(value) = self.world.read(address, width.bytes()) else {
            self.add(header::FAULTS, 1);
            return 0;
        };
        let unused = 64 - 8 * width.bytes() as u32;
        if signed { (value as i64).wrapping_shl(unused).wrapping_shr(unused) } else { value as i64 }
    }

    fn text(&mut self, texts: DatumId, address: u64, length: i64) -> i64 {
        let mut bytes = [0_u8; TEXT_SIZE as usize];
        for (index, byte) in bytes.iter_mut().take(length.max(0) as usize).enumerate() {
            let Some(value) = self.world.read(address.wrapping_add(index as u64), 1) else {
                self.add(header::FAULTS, 1);
                if index == 0 {
                    return 0;
                }
                break;
            };
            *byte = value as u8;
            if value == 0 {
                break;
            }
        }
        let mut words = [0; TEXT_SIZE as usize / 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.first_chunk().copied().unwrap_or_default());
        }
        let id = text_id(&words);
        let home = self.place(texts).sums + text_home(id) * TEXT_ENTRY;
        for entry in (0..MAP_PROBES).map(|index| home + index * TEXT_ENTRY) {
            let found = self.get(entry);
            if found == 0 {
                for (index, word) in words.iter().enumerate() {
                    self.set(entry + TEXT_BYTES + 8 * index as u32, *word);
                }
                self.set(entry, id);
            }
            if found == 0 || found == id {
                break;
            }
        }
        id as i64
    }

    fn int(&mut self, expr: &Expr) -> i64 {
        match self.eval(expr) {
            Value::Int(value) => value,
            // Verified bodies have no doubles here.
            Value::Float(_) => 0,
        }
    }

    fn access(&self) -> Access {
        // Verified bodies ask for it where there is one.
        self.site.access.unwrap_or_default()
    }

    fn access_address(&self) -> u64 {
        let access = self.access();
        let index = access.index.map_or(0, |(register, shift)| {
            let value = self.world.register(register);
            (if access.is_byte_index { value & 0xff } else { value }) << shift
        });
        let base = access.base.map_or(0, |register| self.world.register(register));
        let sum = base.wrapping_add(index).wrapping_add(access.displacement as u64);
        let sum = if access.is_narrow { sum & 0xffff_ffff } else { sum };
        let segment = access.segment.map_or(0, |segment| self.world.segment_base(segment));
        sum.wrapping_add(segment)
    }

    fn access_size(&self) -> u64 {
        let access = self.access();
        let count = match (access.is_repeated, access.is_narrow) {
            (false, _) => 1,
            (true, false) => self.world.register(Register::RCX),
            (true, true) => self.world.register(Register::RCX) & 0xffff_ffff,
        };
        count.wrapping_mul(access.size.into())
    }

    /// Where an argument is on the stack.
    fn stacked(&self, number: u8) -> u64 {
        let before = self.site.kind == PointKind::CallBefore;
        let shift = if before { 0 } else { self.site.stack_shift };
        let at = shift + facts::stack_argument(self.site.kind, number);
        self.world.register(Register::RSP).wrapping_add(at as u64)
    }

    fn stack(&self, at: u64) -> i64 {
        self.world.read(at, 8).unwrap_or(0) as i64
    }

    fn eval(&mut self, expr: &Expr) -> Value {
        Value::Int(match expr {
            Expr::Int(value) => *value,
            Expr::Float(value) => return Value::Float(*value),
            Expr::Let(id) => {
                let found = self.lets.iter().find(|(other, _)| other == id);
                return found.map_or(Value::Int(0), |(_, value)| *value);
            }
            Expr::Local(local) => self.get(self.word_of(*local)) as i64,
            Expr::Arg(number) => {
                match facts::argument(self.site.kind, self.site.convention, *number) {
                    Some(register) => self.world.register(register) as i64,
                    None => self.stack(self.stacked(*number)),
                }
            }
            Expr::Result => self.world.register(Register::RAX) as i64,
            Expr::Register(register) => self.world.register(*register) as i64,
            Expr::Caller => self.stack(self.frame()),
            Expr::Thread => self.get(header::TID) as u32 as i64,
            Expr::Address => self.site.address as i64,
            Expr::Frame => self.frame() as i64,
            Expr::AccessAddress => self.access_address() as i64,
            Expr::AccessSize => self.access_size() as i64,
            Expr::CallNumber => self.world.call_number() as i64,
            Expr::Now => {
                let ticks = self.world.ticks();
                self.clock.nanoseconds(ticks).wrapping_add(self.clock.offset) as i64
            }
            Expr::Ticks => self.world.ticks() as i64,
            Expr::Cpu => self.world.cpu() as i64,
            Expr::Since(mark) => self.since(*mark),
            Expr::Load { width, signed, address } => {
                let address = self.int(address) as u64;
                self.load(address, *width, *signed)
            }
            Expr::Text { texts, address, length } => {
                let address = self.int(address) as u64;
                let most = i64::from(TEXT_SIZE);
                let length = length.as_ref().map_or(most, |length| self.int(length));
                self.text(*texts, address, length)
            }
            // Where snippets are interpreted, none takes stacks: see `verify`.
            Expr::Stack { .. } => 0,
            Expr::Unary(op, inner) => {
                let inner = self.eval(inner);
                return unary(*op, inner);
            }
            Expr::Binary(Binary::AndAlso, a, b) => i64::from(self.int(a) != 0 && self.int(b) != 0),
            Expr::Binary(Binary::OrElse, a, b) => i64::from(self.int(a) != 0 || self.int(b) != 0),
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.eval(a), self.eval(b));
                match (a, b) {
                    (Value::Int(a), Value::Int(b)) => op.of(a, b),
                    (Value::Float(a), Value::Float(b)) => return floats(*op, a, b),
                    _ => 0,
                }
            }
            Expr::Call(call) => self.call(call),
        })
    }
}

fn unary(op: Unary, inner: Value) -> Value {
    match (op, inner) {
        (Unary::Negate, Value::Int(value)) => Value::Int(value.wrapping_neg()),
        (Unary::Negate, Value::Float(value)) => Value::Float(-value),
        (Unary::Not, Value::Int(value)) => Value::Int(i64::from(value == 0)),
        (Unary::Complement, Value::Int(value)) => Value::Int(!value),
        (Unary::ToFloat, Value::Int(value)) => Value::Float(value as f64),
        (Unary::FromBits, Value::Int(value)) => Value::Float(f64::from_bits(value as u64)),
        (Unary::ToBits, Value::Float(value)) if value.is_nan() => Value::Int(NAN as i64),
        (Unary::ToBits, Value::Float(value)) => Value::Int(value.to_bits() as i64),
        (Unary::ToInt, Value::Float(value)) => Value::Int(truncate(value)),
        (_, other) => other,
    }
}

/// Towards 0, and the lowest integer for all that does not fit: as the processor does it.
fn truncate(value: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&value) { value as i64 } else { i64::MIN }
}

fn floats(op: Binary, a: f64, b: f64) -> Value {
    let value = match op {
        Binary::Add => a + b,
        Binary::Sub => a - b,
        Binary::Mul => a * b,
        Binary::Div => a / b,
        _ => {
            return Value::Int(i64::from(match op {
                Binary::Eq => a == b,
                Binary::Ne => a != b,
                Binary::Lt => a < b,
                Binary::Le => a <= b,
                Binary::Gt => a > b,
                _ => a >= b,
            }));
        }
    };
    Value::Float(value)
}
