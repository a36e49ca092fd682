//! Random bodies and sites, made from a list of choices: shorter lists and smaller choices make
//! simpler ones, so that proptest shrinks them well (and fast, unlike its recursive strategies).
#![allow(dead_code, missing_docs)]

use super::parse;
use proptest::prelude::*;
use weft_code::{Access, Convention, FlagSet, Register, RegisterSet, Segment};
use weft_snippet::{
    Binary, Call, Datum, DatumId, DatumKind, Expr, LetId, PointKind, Site, Statement, Unary, Width,
};

/// One datum of each kind, and of each kind of kind.
pub fn data() -> Vec<Datum> {
    parse(
        "counter c\ncounter d shared\ntimer t wall\ntimer u cpu\nhistogram h log2\n\
         histogram i linear -50 16 20\nhistogram j linear 3 7 11\n\
         histogram k linear -9000000000000000000 4000000000 60\n\
         histogram l fine\nmap m[1] 4\nmap n[2] 2\nmap o[1] 1\nring r(a, b) 4\nring s(a, b, c) 2\n\
         ring w(a, b, c, d, e, f, g) 1\nring q(a, b) 2 blocking\nlocal x\nlocal y\nmark z\n\
         map tm[str] 4\nmap tn[int, str] 2\nring tr(a, str b) 2\ntexts str\n",
    )
    .data
}

pub fn choices() -> impl Strategy<Value = Vec<u32>> {
    proptest::collection::vec(any::<u32>(), 0..220)
}

const INTEGER: [Binary; 27] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Rem,
    Binary::UDiv,
    Binary::URem,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::Shl,
    Binary::Sar,
    Binary::Shr,
    Binary::Eq,
    Binary::Ne,
    Binary::Lt,
    Binary::Le,
    Binary::Gt,
    Binary::Ge,
    Binary::ULt,
    Binary::ULe,
    Binary::UGt,
    Binary::UGe,
    Binary::Min,
    Binary::Max,
    Binary::AndAlso,
    Binary::OrElse,
];
const FLOAT: [Binary; 4] = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div];
const FLOAT_COMPARE: [Binary; 6] =
    [Binary::Eq, Binary::Ne, Binary::Lt, Binary::Le, Binary::Gt, Binary::Ge];
/// Numbers where things change.
const EDGES: [i64; 20] = [
    0,
    1,
    -1,
    2,
    63,
    64,
    127,
    128,
    -128,
    -129,
    4096,
    i64::MAX,
    i64::MIN,
    i64::MIN + 1,
    i32::MAX as i64,
    i32::MIN as i64,
    1 << 31,
    1 << 32,
    -(1 << 31) - 1,
    0x9e37_79b9_7f4a_7c15_u64 as i64,
];
const DOUBLES: [f64; 11] =
    [0.0, -0.0, 1.0, 0.1, 1e308, -1e308, 5e-324, 9.3e18, -9.3e18, 9.2e18, f64::MAX];

/// Where calls and loads of random bodies go.
#[derive(Clone, Copy, Default)]
pub struct Goals {
    pub callee: u64,
    /// A readable page; the one after it is not.
    pub buffer: u64,
}

/// Makes things of choices. When these run out, all further ones are 0, the simplest.
pub struct Maker<'a> {
    choices: std::slice::Iter<'a, u32>,
    data: &'a [Datum],
    goals: Goals,
    site: Option<Site>,
    lets: Vec<(LetId, bool)>,
    next: u16,
}

impl<'a> Maker<'a> {
    pub fn new(choices: &'a [u32], data: &'a [Datum], goals: Goals) -> Self {
        Self { choices: choices.iter(), data, goals, site: None, lets: Vec::new(), next: 0 }
    }

    /// For a site that is there already.
    pub fn at(mut self, site: Site) -> Self {
        self.site = Some(site);
        self
    }

    pub fn word(&mut self) -> u32 {
        self.choices.next().copied().unwrap_or(0)
    }

    pub fn wide(&mut self) -> u64 {
        u64::from(self.word()) << 32 | u64::from(self.word())
    }

    /// One of `count` possibilities.
    pub fn pick(&mut self, count: usize) -> usize {
        self.word() as usize % count
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.pick(of.len())]
    }

    pub fn number(&mut self) -> i64 {
        match self.pick(8) {
            0..4 => self.pick(110) as i64 - if self.pick(2) == 1 { 10 } else { 0 },
            4..7 => self.one(&EDGES),
            _ => self.wide() as i64,
        }
    }

    pub fn site(&mut self) -> Site {
        // What is done at system calls is not compiled.
        let kind = self.one(&PointKind::ALL[..9]);
        let conventions =
            [Convention::SystemV, Convention::SystemV, Convention::Go, Convention::Unknown];
        let dead = match self.pick(3) {
            0 => 0,
            1 => self.word() as u16,
            _ => u16::MAX,
        };
        let flags = match self.pick(3) {
            0 => 0,
            1 => self.word() as u16 & FlagSet::ALL.0,
            _ => FlagSet::ALL.0,
        };
        let shift = if kind == PointKind::Entry { 0 } else { 8 * self.pick(8) as i64 };
        let site = Site {
            kind,
            convention: self.one(&conventions),
            dead: RegisterSet(dead).without(Register::RSP),
            live_flags: FlagSet(flags),
            red_zone: self.pick(2) == 1,
            address: self.word().into(),
            stack_shift: shift,
            access: matches!(kind, PointKind::Load | PointKind::Store).then(|| self.access()),
        };
        self.site = Some(site);
        site
    }

    fn access(&mut self) -> Access {
        let register = |maker: &mut Self| Register(maker.pick(16) as u8);
        let index = (self.pick(2) == 1).then(|| (register(self), self.pick(4) as u8));
        // The stack pointer is never an index.
        let index = index.filter(|index| index.0 != Register::RSP);
        Access {
            segment: [None, None, Some(Segment::Fs), Some(Segment::Gs)][self.pick(4)],
            base: (self.pick(4) != 3).then(|| register(self)),
            index,
            is_byte_index: index.is_some_and(|index| index.1 == 0) && self.pick(4) == 3,
            displacement: if self.pick(2) == 1 { self.number() } else { 0 },
            is_narrow: self.pick(4) == 3,
            size: 1 << self.pick(7),
            is_repeated: self.pick(4) == 3,
        }
    }

    fn datum(&mut self, test: fn(&DatumKind) -> bool) -> DatumId {
        let found: Vec<usize> =
            (0..self.data.len()).filter(|&index| test(&self.data[index].kind)).collect();
        DatumId(self.one(&found) as u16)
    }

    fn framed(&self) -> bool {
        self.site.is_none_or(|site| matches!(site.kind, PointKind::Entry | PointKind::Exit))
    }

    pub fn body(&mut self) -> Vec<Statement> {
        self.next = 0;
        self.lets.clear();
        self.block(0)
    }

    fn block(&mut self, depth: usize) -> Vec<Statement> {
        let visible = self.lets.len();
        let count = self.pick(if depth == 0 { 7 } else { 4 });
        let body = (0..count).filter_map(|_| self.statement(depth)).collect();
        self.lets.truncate(visible);
        body
    }

    fn words(&mut self, count: usize, texts: u16) -> Vec<Expr> {
        let is_text = |index: usize| texts >> index & 1 != 0;
        (0..count).map(|index| if is_text(index) { self.text() } else { self.int(3) }).collect()
    }

    fn text(&mut self) -> Expr {
        let texts = self.datum(|kind| matches!(kind, DatumKind::Texts));
        let address = Box::new(self.address(2));
        let length = (self.pick(2) == 1).then(|| match self.pick(3) {
            0 => Box::new(self.int(1)),
            _ => Box::new(Expr::Int(self.pick(130) as i64 - 4)),
        });
        Expr::Text { texts, address, length }
    }

    fn statement(&mut self, depth: usize) -> Option<Statement> {
        let kind = self.site.map(|site| site.kind);
        let is_known = self.site.is_none_or(|site| site.convention != Convention::Unknown);
        Some(match self.pick(16) {
            0 | 1 => {
                let to =
                    self.datum(|kind| matches!(kind, DatumKind::Counter(_) | DatumKind::Local));
                Statement::Add { to, value: self.int(5) }
            }
            2 => {
                let local = self.datum(|kind| matches!(kind, DatumKind::Local));
                Statement::Set { local, value: self.int(5) }
            }
            3 | 4 => {
                let map = self.datum(|kind| matches!(kind, DatumKind::Map { .. }));
                let DatumKind::Map { keys, texts, .. } = self.data[map.0 as usize].kind else {
                    unreachable!()
                };
                let keys = self.words(keys.into(), texts.into());
                Statement::AddAt { map, keys, value: self.int(3) }
            }
            5 => {
                let histogram = self.datum(|kind| matches!(kind, DatumKind::Histogram(_)));
                Statement::Observe { histogram, value: self.int(4) }
            }
            6 | 7 => {
                let ring = self.datum(|kind| matches!(kind, DatumKind::Ring { .. }));
                let DatumKind::Ring { fields, texts, .. } = &self.data[ring.0 as usize].kind else {
                    unreachable!()
                };
                Statement::Emit { ring, values: self.words(fields.len(), *texts) }
            }
            8 | 9 => {
                let float = self.pick(4) == 3;
                let value = if float { self.float(3) } else { self.int(4) };
                let id = LetId(self.next);
                self.next += 1;
                self.lets.push((id, float));
                Statement::Let { id, name: format!("v{}", id.0), value }
            }
            10 if self.framed() => {
                let timer = self.datum(|kind| matches!(kind, DatumKind::Timer(_)));
                if self.pick(2) == 0 { Statement::Start(timer) } else { Statement::Stop(timer) }
            }
            11 if self.framed() => match self.pick(3) {
                0 => Statement::Leave {
                    datum: self.datum(|kind| matches!(kind, DatumKind::Mark | DatumKind::Timer(_))),
                    low: self.int(3),
                    high: self.int(3),
                },
                _ => Statement::Stamp(self.datum(|kind| matches!(kind, DatumKind::Mark))),
            },
            12 if depth < 3 => Statement::If {
                condition: self.int(4),
                then: self.block(depth + 1),
                otherwise: self.block(depth + 1),
            },
            13 if !self.go() => Statement::Call(self.call()),
            14 if is_known && kind.is_none_or(|kind| kind == PointKind::Entry) => {
                let most = if self.go() { 9 } else { 10 };
                match self.pick(3) {
                    0 => Statement::Return(self.int(3)),
                    _ => Statement::SetArg { number: self.pick(most) as u8, value: self.int(3) },
                }
            }
            15 if is_known && kind.is_none_or(|kind| kind == PointKind::Exit) => {
                Statement::SetResult(self.int(3))
            }
            _ => return None,
        })
    }

    fn go(&self) -> bool {
        self.site.is_some_and(|site| site.convention == Convention::Go)
    }

    fn call(&mut self) -> Call {
        // All six: the function looks at all of them.
        Call { address: self.goals.callee, arguments: (0..6).map(|_| self.int(2)).collect() }
    }

    fn leaf(&mut self) -> Expr {
        let kind = self.site.map(|site| site.kind);
        match self.pick(17) {
            4..7 => {
                let number = self.pick(10) as u8;
                let there = self.site.is_none_or(|site| {
                    matches!(site.kind, PointKind::Entry | PointKind::CallBefore)
                        && match site.convention {
                            Convention::SystemV => true,
                            Convention::Go => number <= 8,
                            Convention::Unknown => false,
                        }
                });
                if there { Expr::Arg(number) } else { Expr::Int(number.into()) }
            }
            7..9 => Expr::Register(Register(self.pick(16) as u8)),
            9..11 => self.let_of(false).map_or(Expr::Int(7), Expr::Let),
            11..13 => Expr::Local(self.datum(|kind| matches!(kind, DatumKind::Local))),
            13 => {
                let timeless = [Expr::Now, Expr::Ticks, Expr::Cpu, Expr::Thread, Expr::Address];
                timeless[self.pick(5)].clone()
            }
            14 if self.framed() => match self.pick(3) {
                0 => Expr::Caller,
                1 => Expr::Frame,
                _ => Expr::Since(self.datum(|kind| matches!(kind, DatumKind::Mark))),
            },
            15 if kind
                .is_none_or(|kind| matches!(kind, PointKind::Exit | PointKind::CallAfter)) =>
            {
                Expr::Result
            }
            16 if kind.is_none_or(|kind| matches!(kind, PointKind::Load | PointKind::Store)) => {
                if self.pick(2) == 0 {
                    Expr::AccessAddress
                } else {
                    Expr::AccessSize
                }
            }
            _ => Expr::Int(self.number()),
        }
    }

    fn let_of(&mut self, float: bool) -> Option<LetId> {
        let found: Vec<LetId> =
            self.lets.iter().filter(|found| found.1 == float).map(|found| found.0).collect();
        if found.is_empty() { None } else { Some(self.one(&found)) }
    }

    fn int(&mut self, depth: usize) -> Expr {
        if depth == 0 {
            return self.leaf();
        }
        match self.pick(16) {
            0..5 => self.leaf(),
            5..12 => {
                let op = self.one(&INTEGER);
                Expr::Binary(op, Box::new(self.int(depth - 1)), Box::new(self.int(depth - 1)))
            }
            12 => {
                let op = self.one(&[Unary::Negate, Unary::Not, Unary::Complement]);
                Expr::Unary(op, Box::new(self.int(depth - 1)))
            }
            13 => {
                let width = self.one(&[Width::Byte, Width::Word, Width::Double, Width::Quad]);
                let signed = self.pick(2) == 1 && width != Width::Quad;
                Expr::Load { width, signed, address: Box::new(self.address(depth)) }
            }
            14 => match self.pick(3) {
                0 => Expr::Unary(Unary::ToInt, Box::new(self.float(3))),
                1 => Expr::Unary(Unary::ToBits, Box::new(self.float(3))),
                _ => {
                    let op = self.one(&FLOAT_COMPARE);
                    Expr::Binary(op, Box::new(self.float(3)), Box::new(self.float(3)))
                }
            },
            15 if self.pick(3) == 2 => {
                let op = self.one(&[Binary::Eq, Binary::Ne]);
                Expr::Binary(op, Box::new(self.text()), Box::new(self.text()))
            }
            _ if self.pick(4) == 3 && !self.go() => Expr::Call(Box::new(self.call())),
            _ => self.leaf(),
        }
    }

    fn address(&mut self, depth: usize) -> Expr {
        match self.pick(8) {
            0..4 => {
                // Without a red zone, what is below the stack pointer is anybody's.
                let below = if self.site.is_some_and(|site| site.red_zone) { 16 } else { 0 };
                let words = self.pick(40 + below) as i64 - below as i64;
                let base = Box::new(Expr::Register(Register::RSP));
                Expr::Binary(Binary::Add, base, Box::new(Expr::Int(8 * words)))
            }
            4..6 => Expr::Int(self.goals.buffer as i64 + self.pick(4096) as i64),
            6 => Expr::Int(self.pick(4096) as i64),
            _ => self.int(depth - 1),
        }
    }

    fn float(&mut self, depth: usize) -> Expr {
        if depth > 0 && self.pick(2) == 1 {
            if self.pick(5) == 4 {
                return Expr::Unary(Unary::Negate, Box::new(self.float(depth - 1)));
            }
            let op = self.one(&FLOAT);
            let (a, b) = (self.float(depth - 1), self.float(depth - 1));
            return Expr::Binary(op, Box::new(a), Box::new(b));
        }
        match self.pick(8) {
            0..3 => Expr::Float((self.pick(2000) as f64 - 1000.0) / 8.0),
            3 => Expr::Float(self.one(&DOUBLES)),
            4..6 => Expr::Unary(Unary::ToFloat, Box::new(self.int(2))),
            6 => Expr::Unary(Unary::FromBits, Box::new(self.int(2))),
            _ => self.let_of(true).map_or(Expr::Float(2.5), Expr::Let),
        }
    }
}
