//! What a body costs, before it runs: the sum of its operations on the longest path.

use crate::facts;
use crate::ir::{Buckets, Datum, DatumId, DatumKind, Expr, Statement, TimerClock, Weave};
use crate::site::Site;
use alloc::string::String;
use weft_code::FlagSet;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Finding the thread's slab.
    Slab,
    /// Adding to a word of it.
    Count,
    /// One step of integer arithmetic, a comparison or a branch.
    Step,
    /// An integer division.
    Divide,
    /// One step of arithmetic with doubles.
    Float,
    /// Saving and restoring what doubles need.
    FloatState,
    /// Reading the time stamp counter.
    Ticks,
    /// Ticks to nanoseconds.
    Convert,
    /// Reading the thread's clock.
    Cpu,
    /// A value into a histogram.
    Observe,
    /// A value into a map.
    Map,
    /// A record into a ring.
    Emit,
    /// A stamp, or its look-up, without the clock.
    Mark,
    /// A load by way of the kernel.
    Load,
    /// A call into the program, without what the function itself takes.
    Call,
    /// Saving and restoring one register.
    Save,
    /// Saving and restoring the flags.
    Flags,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 17] = [
        Self::Slab,
        Self::Count,
        Self::Step,
        Self::Divide,
        Self::Float,
        Self::FloatState,
        Self::Ticks,
        Self::Convert,
        Self::Cpu,
        Self::Observe,
        Self::Map,
        Self::Emit,
        Self::Mark,
        Self::Load,
        Self::Call,
        Self::Save,
        Self::Flags,
    ];

    /// A weave to time, and how many of this operation it does beyond `counter x; x += 1`, which
    /// is what to subtract. `None` for what a body cannot be made of alone.
    pub fn probe(self) -> Option<(String, u32)> {
        let eight = |line: &str| (line.repeat(8), 8);
        let (text, times) = match self {
            Self::Count => eight("x += 1\n"),
            Self::Divide => eight("x += reg(rdi) / reg(rsi)\n"),
            Self::Ticks => eight("x += ticks\n"),
            Self::Cpu => eight("x += cpu\n"),
            // Of memory that is there, and not on this page of the stack.
            Self::Load => eight("x += load64(reg(rsp) + 8192)\n"),
            Self::Observe => eight("h << reg(rdi)\n"),
            Self::Map => eight("m[reg(rdi)] += 1\n"),
            Self::Emit => ("emit r(1, 2)\n".into(), 1),
            _ => return None,
        };
        let data = "counter x\nhistogram h log2\nmap m[1] 64\nring r(a, b) 1024\n";
        Some((String::from(data) + "x += 1\n" + &text, times))
    }
}

/// Nanoseconds for each operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    nanoseconds: [f64; Operation::ALL.len()],
}

impl Default for Costs {
    /// As measured in a virtual machine on a server processor; the host measures its own.
    fn default() -> Self {
        let mut costs = Self { nanoseconds: [0.0; Operation::ALL.len()] };
        for (operation, nanoseconds) in [
            (Operation::Slab, 3.5),
            (Operation::Count, 0.7),
            (Operation::Step, 0.3),
            (Operation::Divide, 2.5),
            (Operation::Float, 1.0),
            (Operation::FloatState, 3.0),
            (Operation::Ticks, 19.0),
            (Operation::Convert, 1.5),
            (Operation::Cpu, 240.0),
            (Operation::Observe, 1.0),
            (Operation::Map, 2.0),
            (Operation::Emit, 2.5),
            (Operation::Mark, 2.0),
            (Operation::Load, 400.0),
            (Operation::Call, 100.0),
            (Operation::Save, 0.6),
            (Operation::Flags, 0.8),
        ] {
            costs.set(operation, nanoseconds);
        }
        costs
    }
}

impl Costs {
    /// What one costs.
    pub fn get(&self, operation: Operation) -> f64 {
        self.nanoseconds[operation as usize]
    }

    /// Sets what one costs, as measured.
    pub fn set(&mut self, operation: Operation, nanoseconds: f64) {
        self.nanoseconds[operation as usize] = nanoseconds;
    }
}

/// How long a body takes at a site, at most and roughly, in nanoseconds. What waits for a reader
/// and what a called function takes are not in it.
pub fn cost(data: &[Datum], body: &[Statement], site: &Site, costs: &Costs) -> f64 {
    if body.is_empty() {
        return 0.0;
    }
    let model = Model { data, costs };
    let mut sum = model.block(body);
    let (mut floats, mut registers) = (false, 2_usize);
    for statement in body {
        facts::walk_expressions(statement, &mut |expr| match expr {
            Expr::Float(_) | Expr::Unary(crate::Unary::ToFloat | crate::Unary::FromBits, _) => {
                floats = true;
            }
            Expr::Ticks | Expr::Now | Expr::Since(_) => registers = 4,
            _ => {}
        });
        facts::walk(statement, &mut |statement| {
            if !matches!(statement, Statement::Add { .. } | Statement::Let { .. }) {
                registers = registers.max(4);
            }
        });
    }
    if body.iter().any(facts::needs_slab) {
        sum += costs.get(Operation::Slab);
    }
    if floats {
        sum += costs.get(Operation::FloatState);
    }
    if site.live_flags.intersects(FlagSet::ARITHMETIC) {
        sum += costs.get(Operation::Flags);
    }
    let saved = registers.saturating_sub(site.dead.len());
    sum + saved as f64 * costs.get(Operation::Save)
}

/// The same for the sections of a weave: the dearest of them.
pub fn dearest(weave: &Weave, site: &Site, costs: &Costs) -> f64 {
    let all = weave.sections.iter().map(|section| cost(&weave.data, &section.body, site, costs));
    all.fold(0.0, f64::max)
}

struct Model<'a> {
    data: &'a [Datum],
    costs: &'a Costs,
}

impl Model<'_> {
    fn get(&self, operation: Operation) -> f64 {
        self.costs.get(operation)
    }

    fn kind(&self, id: DatumId) -> Option<&DatumKind> {
        self.data.get(usize::from(id.0)).map(|datum| &datum.kind)
    }

    fn block(&self, body: &[Statement]) -> f64 {
        body.iter().map(|statement| self.statement(statement)).sum()
    }

    fn statement(&self, statement: &Statement) -> f64 {
        let mut sum = 0.0;
        facts::direct_expressions(statement, &mut |expr| {
            facts::walk_expr(expr, &mut |inner| sum += self.expr(inner));
        });
        sum + match statement {
            Statement::Add { .. } | Statement::Set { .. } => self.get(Operation::Count),
            Statement::Let { .. } => 0.0,
            Statement::AddAt { .. } => self.get(Operation::Map),
            Statement::Observe { histogram, .. } => {
                let more = match self.kind(*histogram) {
                    Some(DatumKind::Histogram(Buckets::Linear { .. })) => {
                        self.get(Operation::Divide)
                    }
                    Some(DatumKind::Histogram(Buckets::Fine)) => 5.0 * self.get(Operation::Step),
                    _ => 0.0,
                };
                more + self.get(Operation::Observe)
            }
            Statement::Start(timer) | Statement::Stop(timer) => {
                let wall = self.kind(*timer) == Some(&DatumKind::Timer(TimerClock::Wall));
                let clock = if wall { Operation::Ticks } else { Operation::Cpu };
                self.get(clock) + 3.0 * self.get(Operation::Count)
            }
            Statement::Leave { datum, .. } => match self.kind(*datum) {
                // All its entries are looked at.
                Some(DatumKind::Mark) => 20.0 * self.get(Operation::Mark),
                _ => 3.0 * self.get(Operation::Count),
            },
            Statement::Stamp(_) => self.get(Operation::Mark) + self.get(Operation::Ticks),
            Statement::Emit { values, .. } => {
                self.get(Operation::Emit) + values.len() as f64 * self.get(Operation::Step)
            }
            Statement::If { then, otherwise, .. } => {
                self.get(Operation::Step) + self.block(then).max(self.block(otherwise))
            }
            Statement::Call(_) => self.get(Operation::Call),
            Statement::SetArg { .. } | Statement::SetResult(_) | Statement::Return(_) => {
                self.get(Operation::Step)
            }
        }
    }

    /// One expression without those inside it.
    fn expr(&self, expr: &Expr) -> f64 {
        match expr {
            Expr::Int(_) | Expr::Address | Expr::Let(_) | Expr::Register(_) => 0.0,
            Expr::Arg(_) | Expr::Result | Expr::AccessSize | Expr::CallNumber => 0.0,
            Expr::Ticks => self.get(Operation::Ticks),
            Expr::Now => self.get(Operation::Ticks) + self.get(Operation::Convert),
            Expr::Since(_) => {
                let clock = self.get(Operation::Ticks) + self.get(Operation::Convert);
                clock + self.get(Operation::Mark)
            }
            Expr::Cpu => self.get(Operation::Cpu),
            Expr::Load { .. } => self.get(Operation::Load),
            // Its bytes are looked at one by one.
            Expr::Text { .. } => self.get(Operation::Load) + 200.0 * self.get(Operation::Step),
            // It depends on how deep the stack is: twenty frames, most of which are in the cache.
            Expr::Stack { depth, .. } => {
                400.0 * self.get(Operation::Step) * f64::from(depth.unwrap_or(20).min(20)) / 20.0
            }
            Expr::Call(_) => self.get(Operation::Call),
            Expr::Float(_) | Expr::Unary(crate::Unary::ToFloat | crate::Unary::FromBits, _) => {
                self.get(Operation::Float)
            }
            Expr::Binary(
                crate::Binary::Div | crate::Binary::Rem | crate::Binary::UDiv | crate::Binary::URem,
                ..,
            ) => self.get(Operation::Divide),
            _ => self.get(Operation::Step),
        }
    }
}
