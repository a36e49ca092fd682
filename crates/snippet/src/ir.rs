//! What a snippet is: data, and statements over them. Loops cannot be said.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use weft_code::Register;

/// Data and what is done with them at points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weave {
    /// What is measured into.
    pub data: Vec<Datum>,
    /// What is done, by kind of point.
    pub sections: Vec<Section>,
}

impl Weave {
    /// The datum with this number, if there is one.
    pub fn datum(&self, id: DatumId) -> Option<&Datum> {
        self.data.get(id.0 as usize)
    }

    /// The body for points of one kind: that of the section for the kind, or of the one for all.
    pub fn body(&self, kind: PointKind) -> Option<&[Statement]> {
        let exact = self.sections.iter().find(|section| section.at == Some(kind));
        let any = || self.sections.iter().find(|section| section.at.is_none());
        exact.or_else(any).map(|section| section.body.as_slice())
    }
}

/// The number of a datum in its weave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatumId(pub u16);

/// Something that is measured into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datum {
    /// What the user calls it.
    pub name: String,
    /// What it is.
    pub kind: DatumKind,
    /// The probe whose datum of this name it is; `None` if it is its own.
    pub of: Option<u64>,
}

impl Datum {
    /// Whether every point has one of its own.
    pub fn is_per_point(&self) -> bool {
        matches!(self.kind, DatumKind::Counter(Scope::Point))
    }
}

/// What a datum is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatumKind {
    /// A sum.
    Counter(Scope),
    /// Time between the outermost start and its stop.
    Timer(TimerClock),
    /// A distribution.
    Histogram(Buckets),
    /// Sums by key.
    Map {
        /// How many words make a key: 1 or 2.
        keys: u8,
        /// Which of them are texts: bit 0 for the first.
        texts: u8,
        /// Which of them are stacks.
        stacks: u8,
        /// For how many keys it is made; a power of two.
        capacity: u32,
    },
    /// Records.
    Ring {
        /// The names of a record's fields.
        fields: Vec<String>,
        /// Which of them are texts: bit 0 for the first.
        texts: u16,
        /// Which of them are stacks.
        stacks: u16,
        /// How many records; a power of two.
        capacity: u32,
        /// Whether a full ring makes the program wait (for a bounded time).
        blocking: bool,
    },
    /// A variable of each thread.
    Local,
    /// Time stamps of each thread, by frame.
    Mark,
    /// The texts that `str` has read, by the numbers that stand for them.
    Texts,
    /// The stacks that `stack` has taken, by the numbers that stand for them.
    Stacks,
}

impl DatumKind {
    /// The word for it in text.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Counter(_) => "counter",
            Self::Timer(_) => "timer",
            Self::Histogram(_) => "histogram",
            Self::Map { .. } => "map",
            Self::Ring { .. } => "ring",
            Self::Local => "local",
            Self::Mark => "mark",
            Self::Texts => "texts",
            Self::Stacks => "stacks",
        }
    }
}

/// Whether points share a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Each point has its own.
    #[default]
    Point,
    /// All points add to one.
    Shared,
}

/// What a timer measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimerClock {
    /// Time that passes, in ticks of the time stamp counter.
    Wall,
    /// Time that the thread runs, in nanoseconds.
    Cpu,
}

/// How a histogram divides its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buckets {
    /// By the number of bits, as if unsigned.
    Log2,
    /// Sixteen buckets between each power of two and the next: a sixteenth of the value wide. Below 32
    /// each value has its own. Values are unsigned.
    Fine,
    /// In equal steps, with one bucket below and one above.
    Linear {
        /// Where the first step begins.
        low: i64,
        /// How wide a step is.
        step: u32,
        /// How many steps.
        count: u32,
    },
}

/// Statements for one kind of point, or for all.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// The kind; `None` serves every kind.
    pub at: Option<PointKind>,
    /// What is done there.
    pub body: Vec<Statement>,
}

/// The kind of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PointKind {
    /// A function's first instruction.
    Entry,
    /// A way out of a function.
    Exit,
    /// Before a call.
    CallBefore,
    /// After a call.
    CallAfter,
    /// The start of a basic block.
    Block,
    /// A branch taken.
    Edge,
    /// An instruction.
    Insn,
    /// A read of memory, before it.
    Load,
    /// A write to memory, before it.
    Store,
    /// A system call, before it is made.
    SystemCall,
    /// A system call that comes back.
    SystemReturn,
}

impl PointKind {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Entry,
        Self::Exit,
        Self::CallBefore,
        Self::CallAfter,
        Self::Block,
        Self::Edge,
        Self::Insn,
        Self::Load,
        Self::Store,
        Self::SystemCall,
        Self::SystemReturn,
    ];

    /// The word for it in text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entry => "entry",
            Self::Exit => "exit",
            Self::CallBefore => "call",
            Self::CallAfter => "after",
            Self::Block => "block",
            Self::Edge => "edge",
            Self::Insn => "insn",
            Self::Load => "load",
            Self::Store => "store",
            Self::SystemCall => "syscall",
            Self::SystemReturn => "sysreturn",
        }
    }

    /// What snippets call it: as the metric language does, a function is left at `return`.
    pub const fn spelling(self) -> &'static str {
        match self {
            Self::Exit => "return",
            other => other.name(),
        }
    }

    /// The kind that a word of a snippet stands for; several are read for some.
    pub fn spelled(word: &str) -> Option<Self> {
        let is_called = |kind: &Self| {
            [kind.name(), kind.spelling()].contains(&word)
                || word.strip_suffix('s') == Some(kind.name())
        };
        Self::ALL.into_iter().find(is_called)
    }

    /// Whether it is about the kernel, and not a place in the code.
    pub const fn is_of_kernel(self) -> bool {
        matches!(self, Self::SystemCall | Self::SystemReturn)
    }
}

/// Something that is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `x += e`: to a counter or a local.
    Add {
        /// The counter or local.
        to: DatumId,
        /// What is added.
        value: Expr,
    },
    /// `m[k] += e`.
    AddAt {
        /// The map.
        map: DatumId,
        /// One or two keys.
        keys: Vec<Expr>,
        /// What is added.
        value: Expr,
    },
    /// `h << e`.
    Observe {
        /// The histogram.
        histogram: DatumId,
        /// What is observed.
        value: Expr,
    },
    /// `start t`.
    Start(DatumId),
    /// `stop t`.
    Stop(DatumId),
    /// `leave t(low, high)`, of a timer or a mark: calls whose frames are from `low` to `high` are over, and will not
    /// return.
    Leave {
        /// The timer or mark.
        datum: DatumId,
        /// The lowest frame.
        low: Expr,
        /// The highest.
        high: Expr,
    },
    /// `emit r(e, ...)`.
    Emit {
        /// The ring.
        ring: DatumId,
        /// One value for each field.
        values: Vec<Expr>,
    },
    /// `let v = e`: seen until the end of its block.
    Let {
        /// Which one, counted through the body.
        id: LetId,
        /// What the user calls it.
        name: String,
        /// What it is.
        value: Expr,
    },
    /// `local = e`.
    Set {
        /// The local.
        local: DatumId,
        /// Its new value.
        value: Expr,
    },
    /// `if e { } else { }`.
    If {
        /// Anything but 0 is true.
        condition: Expr,
        /// Done if true.
        then: Vec<Statement>,
        /// Done if false.
        otherwise: Vec<Statement>,
    },
    /// `stamp m`.
    Stamp(DatumId),
    /// `call ADDRESS(e, ...)`.
    Call(Call),
    /// `arg(n) = e`: the function that is entered, or the kernel, finds another argument.
    SetArg {
        /// Which one, counted from 0.
        number: u8,
        /// What it finds.
        value: Expr,
    },
    /// `result = e`: the caller, or the program, finds another result.
    SetResult(Expr),
    /// `return e`: the function, or the system call, is over before it has begun, and this is its result.
    Return(Expr),
}

/// The number of a `let` in its body, counted from the start in the order of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LetId(pub u16);

/// A call into the program, by the System V ABI.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Where to.
    pub address: u64,
    /// Up to six integers.
    pub arguments: Vec<Expr>,
}

/// A value: a 64-bit integer, or a double.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A number.
    Int(i64),
    /// A double.
    Float(f64),
    /// A `let`.
    Let(LetId),
    /// A local.
    Local(DatumId),
    /// An argument, counted from 0.
    Arg(u8),
    /// What a function returned.
    Result,
    /// A register.
    Register(Register),
    /// The return address.
    Caller,
    /// The thread's id.
    Thread,
    /// The point's address.
    Address,
    /// The address of the return address: the same from entry to exit.
    Frame,
    /// Where memory is read or written.
    AccessAddress,
    /// How many bytes of it.
    AccessSize,
    /// Which system call.
    CallNumber,
    /// Nanoseconds, by the time stamp counter.
    Now,
    /// The time stamp counter.
    Ticks,
    /// Nanoseconds that the thread has run.
    Cpu,
    /// Nanoseconds since this frame's stamp, which is taken away; -1 if there is none.
    Since(DatumId),
    /// A read of memory that cannot fault; 0 where nothing can be read.
    Load {
        /// How much.
        width: Width,
        /// Whether the highest bit is a sign.
        signed: bool,
        /// Where.
        address: Box<Expr>,
    },
    /// The text at an address, up to a zero byte: a number that stands for it (see [`crate::layout::text_id`]), 0
    /// where nothing can be read.
    Text {
        /// Where it is kept.
        texts: DatumId,
        /// Where it is.
        address: Box<Expr>,
        /// The most bytes to read, if fewer than are kept.
        length: Option<Box<Expr>>,
    },
    /// The calls that the thread is in: a number that stands for them (see [`crate::layout::stack_id`]).
    Stack {
        /// Where it is kept.
        stacks: DatumId,
        /// The most frames to keep, if that was said.
        depth: Option<u8>,
    },
    /// An operation on one value.
    Unary(Unary, Box<Expr>),
    /// An operation on two values.
    Binary(Binary, Box<Expr>, Box<Expr>),
    /// A call into the program.
    Call(Box<Call>),
}

/// How much a load reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 8 bits.
    Byte,
    /// 16 bits.
    Word,
    /// 32 bits.
    Double,
    /// 64 bits.
    Quad,
}

impl Width {
    /// The number of bytes.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Word => 2,
            Self::Double => 4,
            Self::Quad => 8,
        }
    }
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A 64-bit integer, wrapping, signed where it matters.
    Int,
    /// A double.
    Float,
    /// A number that stands for a text: a key, a field, or compared with another.
    Text,
    /// A number that stands for a stack: a key or a field.
    Stack,
}

/// What `bits` gives for what is not a number: which of the many it is depends on the processor.
pub const NAN: u64 = 0x7ff8_0000_0000_0000;

/// An operation on one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    /// `-x`, of integers and doubles.
    Negate,
    /// `!x`: 1 if x is 0, else 0.
    Not,
    /// `~x`.
    Complement,
    /// `float(x)`.
    ToFloat,
    /// `int(x)`, towards 0; the lowest integer if out of range or not a number.
    ToInt,
    /// `bits(x)`: a double's bits; [`NAN`] for all that are not a number.
    ToBits,
    /// `frombits(x)`: the double with these bits.
    FromBits,
}

/// An operation on two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`, towards 0; integers: 0 if b is 0.
    Div,
    /// `a % b`, with the sign of a; 0 if b is 0.
    Rem,
    /// `udiv(a, b)`.
    UDiv,
    /// `urem(a, b)`.
    URem,
    /// `a & b`.
    And,
    /// `a | b`.
    Or,
    /// `a ^ b`.
    Xor,
    /// `a << b`, b modulo 64.
    Shl,
    /// `a >> b`, keeping the sign, b modulo 64.
    Sar,
    /// `shr(a, b)`, b modulo 64.
    Shr,
    /// `a == b`.
    Eq,
    /// `a != b`.
    Ne,
    /// `a < b`.
    Lt,
    /// `a <= b`.
    Le,
    /// `a > b`.
    Gt,
    /// `a >= b`.
    Ge,
    /// `ult(a, b)`.
    ULt,
    /// `ule(a, b)`.
    ULe,
    /// `ugt(a, b)`.
    UGt,
    /// `uge(a, b)`.
    UGe,
    /// `min(a, b)`, signed.
    Min,
    /// `max(a, b)`, signed.
    Max,
    /// `a && b`: 0 or 1; b is not evaluated if a is 0.
    AndAlso,
    /// `a || b`: 0 or 1; b is not evaluated if a is not 0.
    OrElse,
}

impl Binary {
    /// Whether it compares.
    pub const fn compares(self) -> bool {
        matches!(
            self,
            Self::Eq
                | Self::Ne
                | Self::Lt
                | Self::Le
                | Self::Gt
                | Self::Ge
                | Self::ULt
                | Self::ULe
                | Self::UGt
                | Self::UGe
        )
    }

    /// What it gives for two integers.
    pub fn of(self, a: i64, b: i64) -> i64 {
        let (ua, ub) = (a as u64, b as u64);
        match self {
            Self::Add => a.wrapping_add(b),
            Self::Sub => a.wrapping_sub(b),
            Self::Mul => a.wrapping_mul(b),
            Self::Div if b == 0 => 0,
            Self::Div => a.wrapping_div(b),
            Self::Rem if b == 0 => 0,
            Self::Rem => a.wrapping_rem(b),
            Self::UDiv => ua.checked_div(ub).unwrap_or(0) as i64,
            Self::URem => ua.checked_rem(ub).unwrap_or(0) as i64,
            Self::And => a & b,
            Self::Or => a | b,
            Self::Xor => a ^ b,
            Self::Shl => a.wrapping_shl(b as u32),
            Self::Sar => a.wrapping_shr(b as u32),
            Self::Shr => ua.wrapping_shr(b as u32) as i64,
            Self::Eq => i64::from(a == b),
            Self::Ne => i64::from(a != b),
            Self::Lt => i64::from(a < b),
            Self::Le => i64::from(a <= b),
            Self::Gt => i64::from(a > b),
            Self::Ge => i64::from(a >= b),
            Self::ULt => i64::from(ua < ub),
            Self::ULe => i64::from(ua <= ub),
            Self::UGt => i64::from(ua > ub),
            Self::UGe => i64::from(ua >= ub),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
            Self::AndAlso => i64::from(a != 0 && b != 0),
            Self::OrElse => i64::from(a != 0 || b != 0),
        }
    }
}
