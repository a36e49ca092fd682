//! What a weave must obey before it is compiled: names, types, cost, and what a point allows.

use crate::facts;
use crate::ir::{
    Binary, Buckets, Datum, DatumId, DatumKind, Expr, LetId, PointKind, Statement, Type, Unary,
    Weave,
};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use weft_code::Convention;

/// How many operations a body may have: a snippet must not become a program.
pub const MAX_OPERATIONS: usize = 1024;
/// How deep expressions and blocks may nest.
const MAX_DEPTH: usize = 64;
/// How large one datum may be.
const MAX_CAPACITY: u32 = 1 << 20;
/// How many fields a record may have.
const MAX_FIELDS: usize = 16;

/// Where in a weave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum At {
    /// The weave as a whole.
    #[default]
    Weave,
    /// A datum, by number.
    Datum(usize),
    /// A section, by number.
    Section(usize),
    /// A statement of a section, counted in the order of the text, those inside others too.
    Statement {
        /// Of which section.
        section: usize,
        /// Which one.
        index: usize,
    },
}

/// Something that a weave may not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub at: At,
    /// What is wrong.
    pub what: String,
    /// What to do instead.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.hint)
    }
}

impl core::error::Error for Problem {}

fn problem<T>(what: impl Into<String>, hint: impl Into<String>) -> Result<T, Problem> {
    Err(Problem { at: At::Weave, what: what.into(), hint: hint.into() })
}

/// Checks a whole weave; sections without a kind are checked for their kind when compiled.
pub fn verify(weave: &Weave) -> Result<(), Problem> {
    if weave.data.len() > usize::from(u16::MAX) {
        return problem("too many data", "split the weave");
    }
    for (index, datum) in weave.data.iter().enumerate() {
        check_datum(datum).map_err(|problem| Problem { at: At::Datum(index), ..problem })?;
    }
    for (index, section) in weave.sections.iter().enumerate() {
        if weave.sections[..index].iter().any(|other| other.at == section.at) {
            let found = problem("two sections for the same kind of point", "make them one");
            return found.map_err(|problem| Problem { at: At::Section(index), ..problem });
        }
        // The kind is checked here, the calling convention only where it is known.
        let site = section.at.map(|kind| (kind, Convention::SystemV));
        permit(&weave.data, &section.body, site).map_err(|problem| match problem.at {
            At::Statement { index: statement, .. } => {
                let at = At::Statement { section: index, index: statement };
                Problem { at, ..problem }
            }
            _ => problem,
        })?;
    }
    Ok(())
}

pub(crate) fn check_datum(datum: &Datum) -> Result<(), Problem> {
    let name = &datum.name;
    if datum.of.is_some() && datum.is_per_point() {
        let hint = "declare it `shared`, in both probes";
        return problem(format!("`{name}` is a counter of each point, of one probe only"), hint);
    }
    match &datum.kind {
        DatumKind::Histogram(Buckets::Linear { step, count, .. })
            if *step == 0 || *count == 0 || *count > 1 << 16 =>
        {
            return problem(
                format!("`{name}` cannot have {count} steps of {step}"),
                "use a step of at least 1 and 1 to 65536 steps",
            );
        }
        DatumKind::Map { keys, capacity, .. } => {
            if !(1..=2).contains(keys) {
                return problem(format!("`{name}` has {keys} keys"), "use one or two");
            }
            check_capacity(name, *capacity)?;
        }
        DatumKind::Ring { fields, capacity, .. } => {
            if fields.is_empty() || fields.len() > MAX_FIELDS {
                return problem(format!("`{name}` has {} fields", fields.len()), "use 1 to 16");
            }
            check_capacity(name, *capacity)?;
        }
        _ => {}
    }
    Ok(())
}

fn check_capacity(name: &str, capacity: u32) -> Result<(), Problem> {
    if !capacity.is_power_of_two() || capacity > MAX_CAPACITY {
        let what = format!("`{name}` cannot hold {capacity}");
        return problem(what, "use a power of two up to 1048576");
    }
    Ok(())
}

/// Checks a body, and that a point allows it if the point is known.
pub fn permit(
    data: &[Datum],
    body: &[Statement],
    site: Option<(PointKind, Convention)>,
) -> Result<(), Problem> {
    let mut checker =
        Checker { data, site, lets: Vec::new(), next: 0, operations: 0, statements: 0 };
    checker.block(body, 0)
}

struct Checker<'a> {
    data: &'a [Datum],
    site: Option<(PointKind, Convention)>,
    lets: Vec<(LetId, Type)>,
    next: u16,
    operations: usize,
    statements: usize,
}

/// What can be done with a stack.
const STACK_HINT: &str = "`stack()` can be a key of a map, or a field of a record";

impl Checker<'_> {
    fn block(&mut self, body: &[Statement], depth: usize) -> Result<(), Problem> {
        let visible = self.lets.len();
        for statement in body {
            let index = self.statements;
            self.statements += 1;
            self.statement(statement, depth).map_err(|problem| match problem.at {
                At::Weave => Problem { at: At::Statement { section: 0, index }, ..problem },
                _ => problem,
            })?;
        }
        self.lets.truncate(visible);
        Ok(())
    }

    fn count(&mut self, depth: usize) -> Result<(), Problem> {
        self.operations += 1;
        if self.operations > MAX_OPERATIONS {
            return problem("too many operations", format!("use at most {MAX_OPERATIONS}"));
        }
        if depth > MAX_DEPTH {
            return problem("nested too deep", format!("use at most {MAX_DEPTH} levels"));
        }
        Ok(())
    }

    fn datum(&self, id: DatumId) -> Result<&Datum, Problem> {
        match self.data.get(usize::from(id.0)) {
            Some(datum) => Ok(datum),
            None => problem(format!("there is no datum {}", id.0), "declare it"),
        }
    }

    fn expect(&self, id: DatumId, what: &str, test: fn(&DatumKind) -> bool) -> Result<(), Problem> {
        let datum = self.datum(id)?;
        if test(&datum.kind) {
            return Ok(());
        }
        let (name, is) = (&datum.name, datum.kind.name());
        problem(format!("`{name}` is a {is}"), format!("only a {what} can be used so"))
    }

    fn integer(&mut self, expr: &Expr, depth: usize) -> Result<(), Problem> {
        match self.expr(expr, depth)? {
            Type::Int => Ok(()),
            Type::Float => {
                problem("a double where an integer is needed", "convert it with `int(...)`")
            }
            Type::Text => {
                let hint = "`str(...)` can be a key of a map, a field of a record, or compared";
                problem("a text where an integer is needed", hint)
            }
            Type::Stack => problem("a stack where an integer is needed", STACK_HINT),
        }
    }

    fn float(&mut self, expr: &Expr, depth: usize) -> Result<(), Problem> {
        if self.expr(expr, depth)? == Type::Float {
            return Ok(());
        }
        problem("an integer where a double is needed", "convert it with `float(...)`")
    }

    /// Keys, or the fields of a record: some are texts, as was declared.
    fn words(
        &mut self,
        values: &[Expr],
        (texts, stacks): (u16, u16),
        depth: usize,
    ) -> Result<(), Problem> {
        for (index, value) in values.iter().enumerate() {
            if stacks >> index & 1 != 0 {
                if self.expr(value, depth)? != Type::Stack {
                    let hint = "use `stack()`, or declare it `int`";
                    return problem(format!("value {} is not a stack", index + 1), hint);
                }
            } else if texts >> index & 1 == 0 {
                self.integer_of(value, index, depth)?;
            } else if self.expr(value, depth)? != Type::Text {
                let hint = "use `str(...)`, or declare it `int`";
                return problem(format!("value {} is not a text", index + 1), hint);
            }
        }
        Ok(())
    }

    /// An integer; if it is a text, the hint is how to declare that.
    fn integer_of(&mut self, expr: &Expr, index: usize, depth: usize) -> Result<(), Problem> {
        let (what, hint) = match facts::shallow_type(expr, &|id| self.let_type(id)) {
            Type::Text => ("text", "declare it so: `map m[str] 1024`, `ring r(str name) 1024`"),
            Type::Stack => {
                ("stack", "declare it so: `map m[stack] 1024`, `ring r(stack calls) 1024`")
            }
            _ => return self.integer(expr, depth),
        };
        let what = format!("value {} is a {what}, and was declared a number", index + 1);
        problem(what, hint)
    }

    fn let_type(&self, id: LetId) -> Type {
        self.lets.iter().find(|(other, _)| *other == id).map_or(Type::Int, |found| found.1)
    }

    fn statement(&mut self, statement: &Statement, depth: usize) -> Result<(), Problem> {
        self.count(depth)?;
        let depth = depth + 1;
        match statement {
            Statement::Add { to, value } => {
                self.expect(*to, "counter or a local", |kind| {
                    matches!(kind, DatumKind::Counter(_) | DatumKind::Local)
                })?;
                self.integer(value, depth)
            }
            Statement::Set { local, value } => {
                self.expect(*local, "local", |kind| matches!(kind, DatumKind::Local))?;
                self.integer(value, depth)
            }
            Statement::AddAt { map, keys, value } => {
                self.expect(*map, "map", |kind| matches!(kind, DatumKind::Map { .. }))?;
                let DatumKind::Map { keys: wanted, texts, stacks, .. } = self.datum(*map)?.kind
                else {
                    return Ok(());
                };
                if usize::from(wanted) != keys.len() {
                    return problem(format!("{} keys", keys.len()), format!("give {wanted}"));
                }
                self.words(keys, (texts.into(), stacks.into()), depth)?;
                self.integer(value, depth)
            }
            Statement::Observe { histogram, value } => {
                self.expect(*histogram, "histogram", |kind| {
                    matches!(kind, DatumKind::Histogram(_))
                })?;
                self.integer(value, depth)
            }
            Statement::Start(timer) | Statement::Stop(timer) => {
                self.expect(*timer, "timer", |kind| matches!(kind, DatumKind::Timer(_)))?;
                self.needs_frame("a timer")
            }
            Statement::Stamp(mark) => {
                self.expect(*mark, "mark", |kind| matches!(kind, DatumKind::Mark))?;
                self.needs_frame("a mark")
            }
            Statement::Leave { datum, low, high } => {
                self.expect(*datum, "timer or mark", |kind| {
                    matches!(kind, DatumKind::Timer(_) | DatumKind::Mark)
                })?;
                self.integer(low, depth)?;
                self.integer(high, depth)
            }
            Statement::Emit { ring, values } => {
                self.expect(*ring, "ring", |kind| matches!(kind, DatumKind::Ring { .. }))?;
                let DatumKind::Ring { fields, texts, stacks, .. } = &self.datum(*ring)?.kind else {
                    return Ok(());
                };
                let columns = (*texts, *stacks);
                if fields.len() != values.len() {
                    let hint = format!("give one for each of the {} fields", fields.len());
                    return problem(format!("{} values", values.len()), hint);
                }
                self.words(values, columns, depth)
            }
            Statement::Let { id, value, .. } => {
                let kind = self.expr(value, depth)?;
                if id.0 != self.next {
                    return problem("lets are out of order", "number them as they come");
                }
                self.next += 1;
                self.lets.push((*id, kind));
                Ok(())
            }
            Statement::If { condition, then, otherwise } => {
                self.integer(condition, depth)?;
                self.block(then, depth)?;
                self.block(otherwise, depth)
            }
            Statement::Call(call) => self.call(&call.arguments, depth),
            Statement::SetArg { number, value } => {
                self.at("argument to change", &[PointKind::Entry, PointKind::SystemCall])?;
                self.argument(*number)?;
                self.integer(value, depth)
            }
            Statement::SetResult(value) => {
                self.at("result to change", &[PointKind::Exit, PointKind::SystemReturn])?;
                self.knows_convention("results")?;
                self.integer(value, depth)
            }
            Statement::Return(value) => {
                self.at("way to return", &[PointKind::Entry, PointKind::SystemCall])?;
                self.knows_convention("results")?;
                self.integer(value, depth)
            }
        }
    }

    /// What depends on where functions expect it.
    fn knows_convention(&self, what: &str) -> Result<(), Problem> {
        if self.site.is_some_and(|(kind, by)| by == Convention::Unknown && !kind.is_of_kernel()) {
            return problem(format!("how {what} are passed here is unknown"), "use `reg(...)`");
        }
        Ok(())
    }

    /// Whether there is such an argument.
    fn argument(&self, number: u8) -> Result<(), Problem> {
        self.knows_convention("arguments")?;
        let last = match self.site {
            Some((kind, _)) if kind.is_of_kernel() => 5,
            Some((_, Convention::Go)) => 8,
            _ => 31,
        };
        if number > last {
            return problem(format!("argument {number} is out of reach"), "use `load64`");
        }
        Ok(())
    }

    fn call(&mut self, arguments: &[Expr], depth: usize) -> Result<(), Problem> {
        if arguments.len() > 6 {
            return problem(format!("{} arguments", arguments.len()), "pass at most 6");
        }
        if self.site.is_some_and(|site| site.1 == Convention::Go) {
            let hint = "call from points in C, C++ or Rust";
            return problem("a goroutine's stack has no room for a call", hint);
        }
        arguments.iter().try_for_each(|argument| self.integer(argument, depth))
    }

    fn at(&self, what: &str, kinds: &[PointKind]) -> Result<(), Problem> {
        let Some((kind, _)) = self.site else { return Ok(()) };
        if kinds.contains(&kind) {
            return Ok(());
        }
        let names: Vec<&str> = kinds.iter().map(|kind| kind.spelling()).collect();
        let hint = format!("use it at {}", names.join(" or "));
        problem(format!("there is no {what} at {}", kind.spelling()), hint)
    }

    fn needs_frame(&self, what: &str) -> Result<(), Problem> {
        const THERE: [PointKind; 4] =
            [PointKind::Entry, PointKind::Exit, PointKind::SystemCall, PointKind::SystemReturn];
        self.at(&format!("frame for {what}"), &THERE)
    }

    fn expr(&mut self, expr: &Expr, depth: usize) -> Result<Type, Problem> {
        self.count(depth)?;
        let depth = depth + 1;
        match expr {
            Expr::Int(_)
            | Expr::Register(_)
            | Expr::Thread
            | Expr::Address
            | Expr::Now
            | Expr::Ticks
            | Expr::Cpu => Ok(Type::Int),
            Expr::Float(_) => Ok(Type::Float),
            Expr::Let(id) => match self.lets.iter().find(|(other, _)| other == id) {
                Some((_, kind)) => Ok(*kind),
                None => problem(format!("there is no let {}", id.0), "bind it in this block"),
            },
            Expr::Local(local) => {
                self.expect(*local, "local", |kind| matches!(kind, DatumKind::Local))?;
                Ok(Type::Int)
            }
            Expr::Arg(number) => {
                const THERE: [PointKind; 4] = [
                    PointKind::Entry,
                    PointKind::CallBefore,
                    PointKind::SystemCall,
                    PointKind::SystemReturn,
                ];
                self.at("argument", &THERE)?;
                self.argument(*number)?;
                Ok(Type::Int)
            }
            Expr::Result => {
                const THERE: [PointKind; 3] =
                    [PointKind::Exit, PointKind::CallAfter, PointKind::SystemReturn];
                self.at("result", &THERE)?;
                Ok(Type::Int)
            }
            Expr::Caller => {
                self.at("return address", &[PointKind::Entry, PointKind::Exit])?;
                Ok(Type::Int)
            }
            Expr::Frame => {
                self.needs_frame("`frame`")?;
                Ok(Type::Int)
            }
            Expr::AccessAddress | Expr::AccessSize => {
                self.at("access to memory", &[PointKind::Load, PointKind::Store])?;
                Ok(Type::Int)
            }
            Expr::CallNumber => {
                self.at("system call", &[PointKind::SystemCall, PointKind::SystemReturn])?;
                Ok(Type::Int)
            }
            Expr::Since(mark) => {
                self.expect(*mark, "mark", |kind| matches!(kind, DatumKind::Mark))?;
                self.needs_frame("a mark")?;
                Ok(Type::Int)
            }
            Expr::Load { address, .. } => {
                self.integer(address, depth)?;
                Ok(Type::Int)
            }
            Expr::Text { texts, address, length } => {
                self.expect(*texts, "table of texts", |kind| matches!(kind, DatumKind::Texts))?;
                self.integer(address, depth)?;
                length.iter().try_for_each(|length| self.integer(length, depth))?;
                Ok(Type::Text)
            }
            Expr::Stack { stacks, .. } => {
                self.expect(*stacks, "table of stacks", |kind| matches!(kind, DatumKind::Stacks))?;
                if self.site.is_some_and(|(kind, _)| kind.is_of_kernel()) {
                    let hint = "take it where the program makes the call: at its functions";
                    return problem("a stack cannot be taken at a system call yet", hint);
                }
                Ok(Type::Stack)
            }
            Expr::Unary(op, inner) => self.unary(*op, inner, depth),
            Expr::Binary(op, a, b) => self.binary(*op, a, b, depth),
            Expr::Call(call) => {
                self.call(&call.arguments, depth)?;
                Ok(Type::Int)
            }
        }
    }

    fn unary(&mut self, op: Unary, inner: &Expr, depth: usize) -> Result<Type, Problem> {
        match op {
            Unary::Negate => match self.expr(inner, depth)? {
                Type::Text => problem("a text has no sign", "use `str(...)` as a key or a field"),
                Type::Stack => problem("a stack has no sign", STACK_HINT),
                number => Ok(number),
            },
            Unary::Not | Unary::Complement => {
                self.integer(inner, depth)?;
                Ok(Type::Int)
            }
            Unary::ToFloat | Unary::FromBits => {
                self.integer(inner, depth)?;
                Ok(Type::Float)
            }
            Unary::ToInt | Unary::ToBits => {
                self.float(inner, depth)?;
                Ok(Type::Int)
            }
        }
    }

    fn binary(&mut self, op: Binary, a: &Expr, b: &Expr, depth: usize) -> Result<Type, Problem> {
        match self.expr(a, depth)? {
            Type::Int => {
                self.integer(b, depth)?;
                return Ok(Type::Int);
            }
            Type::Text => {
                let is_text = self.expr(b, depth)? == Type::Text;
                if is_text && matches!(op, Binary::Eq | Binary::Ne) {
                    return Ok(Type::Int);
                }
                let hint = "two texts can be compared with `==` and `!=`";
                return problem("texts cannot be combined so", hint);
            }
            Type::Stack => return problem("a stack cannot be computed with", STACK_HINT),
            Type::Float => self.float(b, depth)?,
        }
        match op {
            Binary::Add | Binary::Sub | Binary::Mul | Binary::Div => Ok(Type::Float),
            Binary::Eq | Binary::Ne | Binary::Lt | Binary::Le | Binary::Gt | Binary::Ge => {
                Ok(Type::Int)
            }
            _ => problem("doubles cannot be combined so", "convert them with `int(...)`"),
        }
    }
}
