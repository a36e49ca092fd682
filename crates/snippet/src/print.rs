//! The canonical text of a weave: what it prints, the parser reads back as the same.

use crate::ir::{
    Binary, Buckets, Call, DatumId, DatumKind, Expr, LetId, Scope, Section, Statement, TimerClock,
    Unary, Weave, Width,
};
use alloc::vec::Vec;
use core::fmt::{self, Display, Formatter};

/// How a binary operation is written.
pub(crate) enum Spelling {
    /// Between its operands; higher binds tighter.
    Infix(&'static str, u8),
    /// As a function.
    Function(&'static str),
}

/// How tight unary operators bind: tighter than all binary ones.
const UNARY: u8 = 11;

pub(crate) const BINARY: [(Binary, Spelling); 27] = {
    use Spelling::{Function, Infix};
    [
        (Binary::OrElse, Infix("||", 1)),
        (Binary::AndAlso, Infix("&&", 2)),
        (Binary::Or, Infix("|", 3)),
        (Binary::Xor, Infix("^", 4)),
        (Binary::And, Infix("&", 5)),
        (Binary::Eq, Infix("==", 6)),
        (Binary::Ne, Infix("!=", 6)),
        (Binary::Lt, Infix("<", 7)),
        (Binary::Le, Infix("<=", 7)),
        (Binary::Gt, Infix(">", 7)),
        (Binary::Ge, Infix(">=", 7)),
        (Binary::Shl, Infix("<<", 8)),
        (Binary::Sar, Infix(">>", 8)),
        (Binary::Add, Infix("+", 9)),
        (Binary::Sub, Infix("-", 9)),
        (Binary::Mul, Infix("*", 10)),
        (Binary::Div, Infix("/", 10)),
        (Binary::Rem, Infix("%", 10)),
        (Binary::UDiv, Function("udiv")),
        (Binary::URem, Function("urem")),
        (Binary::Shr, Function("shr")),
        (Binary::ULt, Function("ult")),
        (Binary::ULe, Function("ule")),
        (Binary::UGt, Function("ugt")),
        (Binary::UGe, Function("uge")),
        (Binary::Min, Function("min")),
        (Binary::Max, Function("max")),
    ]
};

pub(crate) const UNARY_FUNCTIONS: [(Unary, &str); 4] = [
    (Unary::ToFloat, "float"),
    (Unary::ToInt, "int"),
    (Unary::ToBits, "bits"),
    (Unary::FromBits, "frombits"),
];

pub(crate) const LOADS: [(&str, Width, bool); 7] = [
    ("load8", Width::Byte, false),
    ("load16", Width::Word, false),
    ("load32", Width::Double, false),
    ("load64", Width::Quad, false),
    ("loads8", Width::Byte, true),
    ("loads16", Width::Word, true),
    ("loads32", Width::Double, true),
];

/// What a snippet finds where it runs: its name, and an older one that is read as well.
pub(crate) const WORDS: [(&str, &str, Expr); 11] = [
    ("$return", "result", Expr::Result),
    ("$caller", "caller", Expr::Caller),
    ("$thread", "thread", Expr::Thread),
    ("$address", "address", Expr::Address),
    ("$frame", "frame", Expr::Frame),
    ("$memory", "access.address", Expr::AccessAddress),
    ("$size", "access.size", Expr::AccessSize),
    ("$syscall", "syscall.number", Expr::CallNumber),
    ("$time", "now", Expr::Now),
    ("$ticks", "ticks", Expr::Ticks),
    ("$cpu", "cpu", Expr::Cpu),
];

impl Display for Weave {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for datum in &self.data {
            let name = &datum.name;
            match &datum.kind {
                DatumKind::Counter(Scope::Point) => write!(f, "counter {name}")?,
                DatumKind::Counter(Scope::Shared) => write!(f, "counter {name} shared")?,
                DatumKind::Timer(TimerClock::Wall) => write!(f, "timer {name} wall")?,
                DatumKind::Timer(TimerClock::Cpu) => write!(f, "timer {name} cpu")?,
                DatumKind::Histogram(Buckets::Log2) => write!(f, "histogram {name} log2")?,
                DatumKind::Histogram(Buckets::Fine) => write!(f, "histogram {name} fine")?,
                DatumKind::Histogram(Buckets::Linear { low, step, count }) => {
                    write!(f, "histogram {name} linear {low} {step} {count}")?;
                }
                DatumKind::Map { keys, texts: 0, stacks: 0, capacity } => {
                    write!(f, "map {name}[{keys}] {capacity}")?;
                }
                DatumKind::Map { keys, texts, stacks, capacity } => {
                    let word = |key: u8| match (texts >> key & 1, stacks >> key & 1) {
                        (0, 0) => "int",
                        (0, _) => "stack",
                        _ => "str",
                    };
                    let words: Vec<&str> = (0..*keys).map(word).collect();
                    write!(f, "map {name}[{}] {capacity}", words.join(", "))?;
                }
                DatumKind::Ring { fields, texts, stacks, capacity, blocking } => {
                    write!(f, "ring {name}(")?;
                    for (index, field) in fields.iter().enumerate() {
                        let comma = if index == 0 { "" } else { ", " };
                        let kind = match (texts >> index & 1, stacks >> index & 1) {
                            (0, 0) => "",
                            (0, _) => "stack ",
                            _ => "str ",
                        };
                        write!(f, "{comma}{kind}{field}")?;
                    }
                    write!(f, ") {capacity}{}", if *blocking { " blocking" } else { "" })?;
                }
                DatumKind::Local => write!(f, "local {name}")?,
                DatumKind::Mark => write!(f, "mark {name}")?,
                DatumKind::Texts => write!(f, "texts {name}")?,
                DatumKind::Stacks => write!(f, "stacks {name}")?,
            }
            match datum.of {
                Some(probe) => writeln!(f, " of {probe}")?,
                None => writeln!(f)?,
            }
        }
        for section in &self.sections {
            Printer { weave: self, lets: Vec::new() }.section(section, f)?;
        }
        Ok(())
    }
}

struct Printer<'a> {
    weave: &'a Weave,
    lets: Vec<(LetId, &'a str)>,
}

impl<'a> Printer<'a> {
    fn section(&mut self, section: &'a Section, f: &mut Formatter<'_>) -> fmt::Result {
        let Some(kind) = section.at else { return self.block(&section.body, 0, f) };
        writeln!(f, "at {} {{", kind.spelling())?;
        self.block(&section.body, 1, f)?;
        writeln!(f, "}}")
    }

    fn block(&mut self, body: &'a [Statement], depth: usize, f: &mut Formatter<'_>) -> fmt::Result {
        let visible = self.lets.len();
        for statement in body {
            write!(f, "{:1$}", "", 4 * depth)?;
            self.statement(statement, depth, f)?;
            writeln!(f)?;
        }
        self.lets.truncate(visible);
        Ok(())
    }

    fn name(&self, id: DatumId) -> &'a str {
        self.weave.datum(id).map_or("?", |datum| datum.name.as_str())
    }

    fn statement(
        &mut self,
        statement: &'a Statement,
        depth: usize,
        f: &mut Formatter<'_>,
    ) -> fmt::Result {
        match statement {
            Statement::Add { to, value } => {
                f.write_str(self.name(*to))?;
                self.added(value, f)
            }
            Statement::AddAt { map, keys, value } => {
                write!(f, "{}[", self.name(*map))?;
                self.list(keys, f)?;
                f.write_str("]")?;
                self.added(value, f)
            }
            Statement::Observe { histogram, value } => {
                write!(f, "{} << ", self.name(*histogram))?;
                self.expr(value, 0, f)
            }
            Statement::Start(timer) => write!(f, "start {}", self.name(*timer)),
            Statement::Stop(timer) => write!(f, "stop {}", self.name(*timer)),
            Statement::Stamp(mark) => write!(f, "stamp {}", self.name(*mark)),
            Statement::Leave { datum, low, high } => {
                write!(f, "leave {}(", self.name(*datum))?;
                self.expr(low, 0, f)?;
                f.write_str(", ")?;
                self.expr(high, 0, f)?;
                f.write_str(")")
            }
            Statement::Emit { ring, values } => {
                write!(f, "emit {}(", self.name(*ring))?;
                self.list(values, f)?;
                f.write_str(")")
            }
            Statement::Let { id, name, value } => {
                write!(f, "let {name} = ")?;
                self.expr(value, 0, f)?;
                self.lets.push((*id, name));
                Ok(())
            }
            Statement::Set { local, value } => {
                write!(f, "{} = ", self.name(*local))?;
                self.expr(value, 0, f)
            }
            Statement::If { condition, then, otherwise } => {
                f.write_str("if ")?;
                self.expr(condition, 0, f)?;
                f.write_str(" {\n")?;
                self.block(then, depth + 1, f)?;
                write!(f, "{:1$}}}", "", 4 * depth)?;
                match otherwise.as_slice() {
                    [] => Ok(()),
                    [nested @ Statement::If { .. }] => {
                        f.write_str(" else ")?;
                        self.statement(nested, depth, f)
                    }
                    _ => {
                        f.write_str(" else {\n")?;
                        self.block(otherwise, depth + 1, f)?;
                        write!(f, "{:1$}}}", "", 4 * depth)
                    }
                }
            }
            Statement::Call(call) => self.call(call, f),
            Statement::SetArg { number, value } => {
                write!(f, "$arg[{number}] = ")?;
                self.expr(value, 0, f)
            }
            Statement::SetResult(value) => {
                f.write_str("$return = ")?;
                self.expr(value, 0, f)
            }
            Statement::Return(value) => {
                f.write_str("return ")?;
                self.expr(value, 0, f)
            }
        }
    }

    /// Writes what is added to something.
    fn added(&self, value: &Expr, f: &mut Formatter<'_>) -> fmt::Result {
        match value {
            Expr::Int(1) => f.write_str("++"),
            Expr::Int(-1) => f.write_str("--"),
            _ => {
                f.write_str(" += ")?;
                self.expr(value, 0, f)
            }
        }
    }

    fn call(&self, call: &Call, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "call {:#x}(", call.address)?;
        self.list(&call.arguments, f)?;
        f.write_str(")")
    }

    fn list(&self, values: &[Expr], f: &mut Formatter<'_>) -> fmt::Result {
        for (index, value) in values.iter().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            self.expr(value, 0, f)?;
        }
        Ok(())
    }

    /// Writes an expression, in parentheses if it binds less tight than its place demands.
    fn expr(&self, expr: &Expr, tight: u8, f: &mut Formatter<'_>) -> fmt::Result {
        match expr {
            Expr::Int(number) => write!(f, "{number}"),
            Expr::Float(number) => write!(f, "{number:?}"),
            Expr::Let(id) => {
                let found = self.lets.iter().find(|(other, _)| other == id);
                f.write_str(found.map_or("?", |(_, name)| name))
            }
            Expr::Local(local) => f.write_str(self.name(*local)),
            Expr::Arg(number) => write!(f, "$arg[{number}]"),
            Expr::Register(register) => write!(f, "$reg[{}]", register.name()),
            Expr::Since(mark) => write!(f, "since({})", self.name(*mark)),
            Expr::Load { width, signed, address } => {
                let found = LOADS.iter().find(|load| load.1 == *width && load.2 == *signed);
                write!(f, "{}(", found.map_or("load64", |load| load.0))?;
                self.expr(address, 0, f)?;
                f.write_str(")")
            }
            Expr::Text { address, length, .. } => {
                f.write_str("str(")?;
                self.expr(address, 0, f)?;
                if let Some(length) = length {
                    f.write_str(", ")?;
                    self.expr(length, 0, f)?;
                }
                f.write_str(")")
            }
            Expr::Stack { depth: None, .. } => f.write_str("stack()"),
            Expr::Stack { depth: Some(depth), .. } => write!(f, "stack({depth})"),
            Expr::Unary(op, inner) => {
                let sign = match op {
                    Unary::Negate => "-",
                    Unary::Not => "!",
                    Unary::Complement => "~",
                    _ => {
                        let found = UNARY_FUNCTIONS.iter().find(|(other, _)| other == op);
                        write!(f, "{}(", found.map_or("?", |(_, name)| name))?;
                        self.expr(inner, 0, f)?;
                        return f.write_str(")");
                    }
                };
                f.write_str(sign)?;
                // A minus before a number would be part of it.
                let number = matches!(**inner, Expr::Int(_) | Expr::Float(_));
                if *op == Unary::Negate && number {
                    f.write_str("(")?;
                    self.expr(inner, 0, f)?;
                    return f.write_str(")");
                }
                self.expr(inner, UNARY, f)
            }
            Expr::Binary(op, a, b) => {
                let spelling = BINARY.iter().find(|(other, _)| other == op);
                match spelling.map(|(_, spelling)| spelling) {
                    Some(Spelling::Infix(sign, level)) => {
                        if *level < tight {
                            f.write_str("(")?;
                        }
                        self.expr(a, *level, f)?;
                        write!(f, " {sign} ")?;
                        self.expr(b, level + 1, f)?;
                        if *level < tight { f.write_str(")") } else { Ok(()) }
                    }
                    Some(Spelling::Function(name)) => {
                        write!(f, "{name}(")?;
                        self.expr(a, 0, f)?;
                        f.write_str(", ")?;
                        self.expr(b, 0, f)?;
                        f.write_str(")")
                    }
                    None => Ok(()),
                }
            }
            Expr::Call(call) => self.call(call, f),
            word => {
                let found = WORDS.iter().find(|(_, _, other)| other == word);
                f.write_str(found.map_or("?", |(name, _, _)| name))
            }
        }
    }
}
