//! Random weaves, states and sites.
#![allow(dead_code, missing_docs)]

use super::parse;
use proptest::prelude::*;
use weft_code::{Convention, FlagSet, Register, RegisterSet};
use weft_snippet::{
    Binary, Call, Datum, DatumId, DatumKind, Expr, LetId, PointKind, Site, Statement, Unary, Width,
};

/// One datum of each kind, and of each kind of kind.
pub fn data() -> Vec<Datum> {
    parse(
        "counter c\ncounter d shared\ntimer t wall\ntimer u cpu\nhistogram h log2\n\
         histogram i linear -50 16 20\nhistogram j linear 3 7 11\n\
         histogram k linear -9000000000000000000 4000000000 60\n\
         map m[1] 4\nmap n[2] 2\nmap o[1] 1\nring r(a, b) 4\nring s(a, b, c) 2\n\
         ring w(a, b, c, d, e, f, g) 1\nlocal x\nlocal y\nmark z\n",
    )
    .data
}

fn of_kind(test: fn(&DatumKind) -> bool) -> Vec<DatumId> {
    let found = data().into_iter().enumerate().filter(|(_, datum)| test(&datum.kind));
    found.map(|(index, _)| DatumId(index as u16)).collect()
}

fn one(test: fn(&DatumKind) -> bool) -> impl Strategy<Value = DatumId> + Clone {
    proptest::sample::select(of_kind(test))
}

/// Numbers where things change, and any others.
pub fn number() -> impl Strategy<Value = i64> + Clone {
    prop_oneof![
        4 => -10_i64..100,
        2 => proptest::sample::select(vec![
            0, 1, -1, 2, 63, 64, 127, 128, -128, -129, 255, 4096, i64::MAX, i64::MIN,
            i64::MIN + 1, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 31, 1 << 32, -(1 << 31) - 1,
            0x9e37_79b9_7f4a_7c15_u64 as i64,
        ]),
        1 => any::<i64>(),
    ]
}

fn double() -> impl Strategy<Value = f64> + Clone {
    prop_oneof![
        3 => (-1000_i32..1000).prop_map(|number| f64::from(number) / 8.0),
        1 => proptest::sample::select(vec![
            0.0, -0.0, 1.0, 0.1, 1e308, -1e308, 5e-324, 9.3e18, -9.3e18, 9.2e18, f64::MAX,
        ]),
    ]
}

fn register() -> impl Strategy<Value = Register> + Clone {
    (0_u8..16).prop_map(Register)
}

fn leaf(pure: bool) -> BoxedStrategy<Expr> {
    let quiet = prop_oneof![
        4 => number().prop_map(Expr::Int),
        3 => (0_u8..10).prop_map(Expr::Arg),
        2 => register().prop_map(Expr::Register),
        2 => (0_u16..4).prop_map(|id| Expr::Let(LetId(id))),
        2 => one(|kind| matches!(kind, DatumKind::Local)).prop_map(Expr::Local),
        1 => proptest::sample::select(vec![
            Expr::Result, Expr::Caller, Expr::Thread, Expr::Address, Expr::Frame, Expr::Now,
            Expr::Ticks, Expr::Cpu,
        ]),
    ];
    if pure {
        return quiet.boxed();
    }
    let since = one(|kind| matches!(kind, DatumKind::Mark)).prop_map(Expr::Since);
    prop_oneof![12 => quiet, 1 => since].boxed()
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
const WIDTHS: [Width; 4] = [Width::Byte, Width::Word, Width::Double, Width::Quad];

fn boxed2((op, a, b): (Binary, Expr, Expr)) -> Expr {
    Expr::Binary(op, Box::new(a), Box::new(b))
}

fn float(int: BoxedStrategy<Expr>) -> BoxedStrategy<Expr> {
    let leaf = prop_oneof![
        2 => double().prop_map(Expr::Float),
        2 => int.clone().prop_map(|inner| Expr::Unary(Unary::ToFloat, Box::new(inner))),
        1 => int.prop_map(|inner| Expr::Unary(Unary::FromBits, Box::new(inner))),
        // Lets of doubles have higher numbers until they are put right.
        1 => (100_u16..104).prop_map(|id| Expr::Let(LetId(id))),
    ];
    leaf.prop_recursive(3, 6, 2, |inner| {
        prop_oneof![
            4 => (proptest::sample::select(FLOAT.to_vec()), inner.clone(), inner.clone())
                .prop_map(boxed2),
            1 => inner.prop_map(|inner| Expr::Unary(Unary::Negate, Box::new(inner))),
        ]
    })
    .boxed()
}

/// An integer expression. The call goes to `callee`; loads go to the stack, to `buffer` and to
/// where nothing is.
pub fn integer(callee: u64, buffer: u64) -> BoxedStrategy<Expr> {
    leaf(false)
        .prop_recursive(5, 14, 3, move |inner| {
            let address = prop_oneof![
                4 => (-16_i64..40).prop_map(|words| boxed2((
                    Binary::Add,
                    Expr::Register(Register::RSP),
                    Expr::Int(8 * words),
                ))),
                2 => (0_i64..4096).prop_map(move |at| Expr::Int(buffer as i64 + at)),
                1 => (0_i64..4096).prop_map(Expr::Int),
                1 => inner.clone(),
            ];
            let width = proptest::sample::select(WIDTHS.to_vec());
            let unary =
                proptest::sample::select(vec![Unary::Negate, Unary::Not, Unary::Complement]);
            let float = float(inner.clone());
            prop_oneof![
                16 => (proptest::sample::select(INTEGER.to_vec()), inner.clone(), inner.clone())
                    .prop_map(boxed2),
                3 => (unary, inner.clone()).prop_map(|(op, a)| Expr::Unary(op, Box::new(a))),
                1 => (width, any::<bool>(), address).prop_map(|(width, signed, address)| {
                    let signed = signed && width != Width::Quad;
                    Expr::Load { width, signed, address: Box::new(address) }
                }),
                1 => (proptest::sample::select(vec![Unary::ToInt, Unary::ToBits]), float.clone())
                    .prop_map(|(op, a)| Expr::Unary(op, Box::new(a))),
                1 => (proptest::sample::select(FLOAT_COMPARE.to_vec()), float.clone(), float)
                    .prop_map(boxed2),
                1 => proptest::collection::vec(inner, 6).prop_map(move |arguments| {
                    Expr::Call(Box::new(Call { address: callee, arguments }))
                }),
            ]
        })
        .boxed()
}

pub fn statement(callee: u64, buffer: u64) -> BoxedStrategy<Statement> {
    let int = integer(callee, buffer);
    let ring = one(|kind| matches!(kind, DatumKind::Ring { .. }));
    let timer = one(|kind| matches!(kind, DatumKind::Timer(_)));
    let map = one(|kind| matches!(kind, DatumKind::Map { .. }));
    let histogram = one(|kind| matches!(kind, DatumKind::Histogram(_)));
    let local = one(|kind| matches!(kind, DatumKind::Local));
    let counter = one(|kind| matches!(kind, DatumKind::Counter(_) | DatumKind::Local));
    let mark = one(|kind| matches!(kind, DatumKind::Mark));
    let values = proptest::collection::vec(int.clone(), 8);
    let name = || String::from("v");
    let simple = prop_oneof![
        3 => (counter, int.clone()).prop_map(|(to, value)| Statement::Add { to, value }),
        2 => (local, int.clone()).prop_map(|(local, value)| Statement::Set { local, value }),
        3 => (map, values.clone(), int.clone()).prop_map(|(map, keys, value)| {
            Statement::AddAt { map, keys, value }
        }),
        2 => (histogram, int.clone()).prop_map(|(histogram, value)| {
            Statement::Observe { histogram, value }
        }),
        1 => timer.clone().prop_map(Statement::Start),
        1 => timer.prop_map(Statement::Stop),
        1 => mark.prop_map(Statement::Stamp),
        2 => (ring, values).prop_map(|(ring, values)| Statement::Emit { ring, values }),
        2 => int.clone().prop_map(move |value| {
            Statement::Let { id: LetId(0), name: name(), value }
        }),
        1 => float(int.clone()).prop_map(move |value| {
            Statement::Let { id: LetId(0), name: name(), value }
        }),
        1 => proptest::collection::vec(int.clone(), 6).prop_map(move |arguments| {
            Statement::Call(Call { address: callee, arguments })
        }),
    ];
    simple
        .prop_recursive(3, 8, 3, move |inner| {
            let body = proptest::collection::vec(inner, 0..4);
            (int.clone(), body.clone(), body).prop_map(|(condition, then, otherwise)| {
                Statement::If { condition, then, otherwise }
            })
        })
        .boxed()
}

/// A body as random as it comes; `Mender` makes it one that verifies.
pub fn body(callee: u64, buffer: u64) -> impl Strategy<Value = Vec<Statement>> {
    proptest::collection::vec(statement(callee, buffer), 0..6)
}

pub fn sites() -> impl Strategy<Value = Site> {
    let kind = proptest::sample::select(PointKind::ALL.to_vec());
    let convention = proptest::sample::select(vec![
        Convention::SystemV,
        Convention::SystemV,
        Convention::Go,
        Convention::Unknown,
    ]);
    let flags = prop_oneof![Just(0), Just(FlagSet::ALL.0), any::<u16>()];
    let dead = prop_oneof![Just(0_u16), any::<u16>(), Just(u16::MAX)];
    (kind, convention, dead, flags, any::<bool>(), any::<u32>(), 0_i64..8).prop_map(
        |(kind, convention, dead, flags, red_zone, address, shift)| Site {
            kind,
            convention,
            dead: RegisterSet(dead).without(Register::RSP),
            live_flags: FlagSet(flags & FlagSet::ALL.0),
            red_zone,
            address: u64::from(address),
            stack_shift: if kind == PointKind::Entry { 0 } else { 8 * shift },
        },
    )
}

/// Makes random bodies obey the rules: lets that exist, data that match, what the point allows.
pub struct Mender<'a> {
    pub data: &'a [Datum],
    pub site: Option<&'a Site>,
    lets: Vec<(LetId, bool)>,
    next: u16,
}

impl<'a> Mender<'a> {
    pub fn new(data: &'a [Datum], site: Option<&'a Site>) -> Self {
        Self { data, site, lets: Vec::new(), next: 0 }
    }

    fn framed(&self) -> bool {
        self.site.is_none_or(|site| matches!(site.kind, PointKind::Entry | PointKind::Exit))
    }

    pub fn block(&mut self, body: Vec<Statement>) -> Vec<Statement> {
        let visible = self.lets.len();
        let mended = body.into_iter().filter_map(|statement| self.statement(statement)).collect();
        self.lets.truncate(visible);
        mended
    }

    fn statement(&mut self, statement: Statement) -> Option<Statement> {
        Some(match statement {
            Statement::Add { to, value } => Statement::Add { to, value: self.expr(value) },
            Statement::Set { local, value } => Statement::Set { local, value: self.expr(value) },
            Statement::AddAt { map, mut keys, value } => {
                if let DatumKind::Map { keys: wanted, .. } = self.data[map.0 as usize].kind {
                    keys.truncate(wanted.into());
                }
                let keys = keys.into_iter().map(|key| self.expr(key)).collect();
                Statement::AddAt { map, keys, value: self.expr(value) }
            }
            Statement::Observe { histogram, value } => {
                Statement::Observe { histogram, value: self.expr(value) }
            }
            Statement::Emit { ring, mut values } => {
                if let DatumKind::Ring { fields, .. } = &self.data[ring.0 as usize].kind {
                    values.truncate(fields.len());
                }
                let values = values.into_iter().map(|value| self.expr(value)).collect();
                Statement::Emit { ring, values }
            }
            Statement::Let { value, .. } => {
                let value = self.expr(value);
                let id = LetId(self.next);
                self.next += 1;
                self.lets.push((id, is_float(&value, &self.lets)));
                Statement::Let { id, name: format!("v{}", id.0), value }
            }
            Statement::If { condition, then, otherwise } => Statement::If {
                condition: self.expr(condition),
                then: self.block(then),
                otherwise: self.block(otherwise),
            },
            Statement::Call(call) => Statement::Call(self.call(call)),
            Statement::Start(_) | Statement::Stop(_) | Statement::Stamp(_) if !self.framed() => {
                return None;
            }
            other => other,
        })
    }

    fn call(&mut self, call: Call) -> Call {
        let arguments = call.arguments.into_iter().map(|argument| self.expr(argument)).collect();
        Call { arguments, ..call }
    }

    fn expr(&mut self, expr: Expr) -> Expr {
        let kind = self.site.map(|site| site.kind);
        match expr {
            Expr::Let(id) => {
                let float = id.0 >= 100;
                let found: Vec<LetId> = self
                    .lets
                    .iter()
                    .filter(|(_, other)| *other == float)
                    .map(|(id, _)| *id)
                    .collect();
                match found.get(id.0 as usize % 100 % found.len().max(1)) {
                    Some(id) => Expr::Let(*id),
                    None if float => Expr::Float(2.5),
                    None => Expr::Int(7),
                }
            }
            Expr::Arg(number) => match self.site {
                None => Expr::Arg(number),
                Some(site) => {
                    let there = matches!(site.kind, PointKind::Entry | PointKind::CallBefore);
                    let known = match site.convention {
                        Convention::SystemV => true,
                        Convention::Go => number <= 8,
                        Convention::Unknown => false,
                    };
                    if there && known { Expr::Arg(number) } else { Expr::Int(i64::from(number)) }
                }
            },
            Expr::Result
                if kind
                    .is_none_or(|kind| matches!(kind, PointKind::Exit | PointKind::CallAfter)) =>
            {
                Expr::Result
            }
            Expr::Result => Expr::Register(Register::RAX),
            Expr::Caller | Expr::Frame | Expr::Since(_) if !self.framed() => Expr::Int(-3),
            Expr::Load { width, signed, mut address } => {
                // Without a red zone, what is below the stack pointer is anybody's.
                if let Expr::Binary(_, base, offset) = &mut *address
                    && **base == Expr::Register(Register::RSP)
                    && let Expr::Int(offset) = &mut **offset
                    && self.site.is_some_and(|site| !site.red_zone)
                {
                    *offset = offset.wrapping_abs();
                }
                Expr::Load { width, signed, address: Box::new(self.expr(*address)) }
            }
            Expr::Unary(op, inner) => Expr::Unary(op, Box::new(self.expr(*inner))),
            Expr::Binary(op, a, b) => {
                Expr::Binary(op, Box::new(self.expr(*a)), Box::new(self.expr(*b)))
            }
            Expr::Call(call) => Expr::Call(Box::new(self.call(*call))),
            other => other,
        }
    }
}

fn is_float(expr: &Expr, lets: &[(LetId, bool)]) -> bool {
    match expr {
        Expr::Float(_) | Expr::Unary(Unary::ToFloat | Unary::FromBits, _) => true,
        Expr::Let(id) => lets.iter().any(|(other, float)| other == id && *float),
        Expr::Unary(Unary::Negate, inner) => is_float(inner, lets),
        Expr::Binary(op, a, _) => FLOAT.contains(op) && is_float(a, lets),
        _ => false,
    }
}
