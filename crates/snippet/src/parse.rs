//! From text to a weave.

use crate::facts;
use crate::ir::{
    Binary, Buckets, Call, Datum, DatumId, DatumKind, Expr, LetId, PointKind, Scope, Section,
    Statement, TimerClock, Unary, Weave,
};
use crate::lex::{Diagnostic, Placed, Token, describe, error, lex};
use crate::print::{BINARY, LOADS, Spelling, UNARY_FUNCTIONS, WORDS};
use crate::verify::{self, At, Problem};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use weft_code::Register;

impl Weave {
    /// Reads a weave, and verifies it.
    pub fn parse(text: &str) -> Result<Self, Diagnostic> {
        let tokens = lex(text)?;
        let mut parser = Parser {
            tokens,
            at: 0,
            weave: Self::default(),
            lets: Vec::new(),
            next_let: 0,
            depth: 0,
            data_places: Vec::new(),
            statement_places: Vec::new(),
        };
        parser.weave()?;
        let weave = &parser.weave;
        verify::verify(weave).map_err(|problem| {
            let (line, column) = parser.blame(&problem);
            Diagnostic { line, column, what: problem.what, hint: problem.hint }
        })?;
        Ok(parser.weave)
    }
}

/// How deep expressions and blocks may nest: the parser is recursive.
const MAX_DEPTH: usize = 64;

struct Parser {
    tokens: Vec<Placed>,
    at: usize,
    weave: Weave,
    lets: Vec<(String, LetId)>,
    next_let: u16,
    depth: usize,
    /// Where each datum is declared.
    data_places: Vec<(u32, u32)>,
    /// Where the statements of each section begin, those inside others too, in order.
    statement_places: Vec<Vec<(u32, u32)>>,
}

impl Parser {
    /// Where a problem that was found later is.
    fn blame(&self, problem: &Problem) -> (u32, u32) {
        let found = match problem.at {
            At::Datum(index) => self.data_places.get(index),
            At::Statement { section, index } => {
                self.statement_places.get(section).and_then(|places| places.get(index))
            }
            At::Section(section) => {
                self.statement_places.get(section).and_then(|places| places.first())
            }
            At::Weave => None,
        };
        found.copied().unwrap_or((0, 0))
    }

    fn peek(&self) -> &Token {
        &self.tokens[self.at].token
    }

    fn place(&self) -> (u32, u32) {
        (self.tokens[self.at].line, self.tokens[self.at].column)
    }

    fn take(&mut self) -> Token {
        let token = self.tokens[self.at].token.clone();
        if token != Token::Over {
            self.at += 1;
        }
        token
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(other) if *other == sign);
        if found {
            self.at += 1;
        }
        found
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(other) if other == word);
        if found {
            self.at += 1;
        }
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Diagnostic> {
        if self.accept(sign) {
            return Ok(());
        }
        let found = describe(self.peek());
        error(self.place(), format!("`{sign}` is missing"), format!("before {found}"))
    }

    fn skip_ends(&mut self) {
        while *self.peek() == Token::End {
            self.at += 1;
        }
    }

    fn word(&mut self, what: &str) -> Result<String, Diagnostic> {
        let place = self.place();
        match self.take() {
            Token::Word(word) => Ok(word),
            other => {
                error(place, format!("{what} is missing"), format!("before {}", describe(&other)))
            }
        }
    }

    fn new_name(&mut self) -> Result<String, Diagnostic> {
        let place = self.place();
        let name = self.word("a name")?;
        if name.contains('.') {
            return error(place, format!("`{name}` is not a name"), "use letters, digits and `_`");
        }
        if is_reserved(&name) {
            return error(place, format!("`{name}` is a word of the language"), "use another name");
        }
        let known = self.weave.data.iter().any(|datum| datum.name == name)
            || self.lets.iter().any(|(other, _)| *other == name);
        if known {
            return error(place, format!("`{name}` is there already"), "use another name");
        }
        Ok(name)
    }

    fn number<T: TryFrom<i128>>(&mut self, what: &str) -> Result<T, Diagnostic> {
        let place = self.place();
        let minus = self.accept("-");
        let number = match self.take() {
            Token::Int(number) if minus => -i128::from(number),
            Token::Int(number) => i128::from(number),
            other => {
                let hint = format!("before {}", describe(&other));
                return error(place, format!("{what} is missing"), hint);
            }
        };
        match T::try_from(number) {
            Ok(number) => Ok(number),
            Err(_) => error(place, format!("{number} is out of range"), "use a smaller number"),
        }
    }

    fn weave(&mut self) -> Result<(), Diagnostic> {
        let (mut loose, mut loose_places) = (Vec::new(), Vec::new());
        loop {
            self.skip_ends();
            let place = self.place();
            let Token::Word(word) = self.peek().clone() else {
                if *self.peek() == Token::Over {
                    break;
                }
                let what = format!("{} cannot begin a statement", describe(self.peek()));
                return error(place, what, "begin with a name, or `at`");
            };
            if word == "at" {
                self.at += 1;
                let place = self.place();
                let name = self.word("a kind of point")?;
                let Some(kind) = PointKind::ALL.into_iter().find(|kind| kind.name() == name) else {
                    let names: Vec<&str> = PointKind::ALL.map(PointKind::name).into();
                    let hint = format!("use {}", names.join(", "));
                    return error(place, format!("`{name}` is not a kind of point"), hint);
                };
                self.next_let = 0;
                self.statement_places.push(Vec::new());
                let body = self.braces()?;
                self.weave.sections.push(Section { at: Some(kind), body });
                self.next_let = self.loose_lets(&loose);
            } else if !self.declaration(&word)? {
                let before = self.statement_places.len();
                self.statement_places.push(Vec::new());
                let statement = self.statement()?;
                loose.push(statement);
                loose_places.extend(self.statement_places.drain(before..).flatten());
            } else {
                self.data_places.push(place);
            }
            self.end()?;
        }
        if !loose.is_empty() {
            self.statement_places.push(loose_places);
            self.weave.sections.push(Section { at: None, body: loose });
        }
        Ok(())
    }

    /// How many lets are in the statements outside `at`, whose body goes on after it.
    fn loose_lets(&self, loose: &[Statement]) -> u16 {
        let mut count = 0;
        for statement in loose {
            facts::walk(statement, &mut |inner| {
                count += u16::from(matches!(inner, Statement::Let { .. }));
            });
        }
        count
    }

    fn end(&mut self) -> Result<(), Diagnostic> {
        match self.peek() {
            Token::End | Token::Over | Token::Sign("}") => Ok(()),
            other => {
                let what = format!("{} is too much", describe(other));
                error(self.place(), what, "begin a new line, or use `;`")
            }
        }
    }

    fn declaration(&mut self, word: &str) -> Result<bool, Diagnostic> {
        const KINDS: [&str; 7] = ["counter", "timer", "histogram", "map", "ring", "local", "mark"];
        if !KINDS.contains(&word) {
            return Ok(false);
        }
        self.at += 1;
        let name = self.new_name()?;
        let place = self.place();
        let kind = match word {
            "counter" => DatumKind::Counter(self.scope()?),
            "timer" => match self.word("`wall` or `cpu`")?.as_str() {
                "wall" => DatumKind::Timer(TimerClock::Wall),
                "cpu" => DatumKind::Timer(TimerClock::Cpu),
                other => {
                    let what = format!("`{other}` is not a clock");
                    return error(place, what, "use `wall` or `cpu`");
                }
            },
            "histogram" => match self.word("`log2`, `fine` or `linear`")?.as_str() {
                "log2" => DatumKind::Histogram(Buckets::Log2),
                "fine" => DatumKind::Histogram(Buckets::Fine),
                "linear" => DatumKind::Histogram(Buckets::Linear {
                    low: self.number("the lowest value")?,
                    step: self.number("the step")?,
                    count: self.number("the number of steps")?,
                }),
                other => {
                    let what = format!("a histogram cannot be `{other}`");
                    return error(place, what, "use `log2`, `fine`, or `linear LOW STEP COUNT`");
                }
            },
            "map" => {
                self.expect("[")?;
                let keys = self.number("the number of keys")?;
                self.expect("]")?;
                DatumKind::Map { keys, capacity: self.number("the capacity")? }
            }
            "ring" => {
                self.expect("(")?;
                let mut fields: Vec<String> = Vec::new();
                loop {
                    let place = self.place();
                    let field = self.word("a field")?;
                    if fields.contains(&field) {
                        return error(place, format!("`{field}` is twice"), "name fields apart");
                    }
                    fields.push(field);
                    if !self.accept(",") {
                        break;
                    }
                }
                self.expect(")")?;
                let capacity = self.number("the capacity")?;
                DatumKind::Ring { fields, capacity, blocking: self.accept_word("blocking") }
            }
            "local" => DatumKind::Local,
            _ => DatumKind::Mark,
        };
        let of = if self.accept_word("of") { Some(self.number("a probe's number")?) } else { None };
        self.weave.data.push(Datum { name, kind, of });
        Ok(true)
    }

    fn scope(&mut self) -> Result<Scope, Diagnostic> {
        if self.accept_word("shared") {
            return Ok(Scope::Shared);
        }
        if self.accept_word("per") && !self.accept_word("point") {
            return error(self.place(), "`point` is missing", "write `per point`");
        }
        Ok(Scope::Point)
    }

    fn braces(&mut self) -> Result<Vec<Statement>, Diagnostic> {
        self.expect("{")?;
        self.deeper()?;
        let visible = self.lets.len();
        let mut body = Vec::new();
        loop {
            self.skip_ends();
            if self.accept("}") {
                break;
            }
            let statement = self.statement()?;
            body.push(statement);
            self.end()?;
        }
        self.lets.truncate(visible);
        self.depth -= 1;
        Ok(body)
    }

    fn deeper(&mut self) -> Result<(), Diagnostic> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return error(self.place(), "nested too deep", "use `let` for parts of it");
        }
        Ok(())
    }

    fn statement(&mut self) -> Result<Statement, Diagnostic> {
        let place = self.place();
        if let Some(places) = self.statement_places.last_mut() {
            places.push(place);
        }
        let word = self.word("a statement")?;
        match word.as_str() {
            "start" => Ok(Statement::Start(self.datum("timer")?)),
            "stop" => Ok(Statement::Stop(self.datum("timer")?)),
            "stamp" => Ok(Statement::Stamp(self.datum("mark")?)),
            "leave" => {
                let datum = self.datum("timer or mark")?;
                self.expect("(")?;
                let low = self.expr(0)?;
                self.expect(",")?;
                let high = self.expr(0)?;
                self.expect(")")?;
                Ok(Statement::Leave { datum, low, high })
            }
            "emit" => {
                let ring = self.datum("ring")?;
                self.expect("(")?;
                Ok(Statement::Emit { ring, values: self.list(")")? })
            }
            "call" => Ok(Statement::Call(self.call()?)),
            "if" => self.conditional(),
            "arg" => {
                self.expect("(")?;
                let number = self.number("the number of an argument")?;
                self.expect(")")?;
                self.expect("=")?;
                Ok(Statement::SetArg { number, value: self.expr(0)? })
            }
            "result" => {
                self.expect("=")?;
                Ok(Statement::SetResult(self.expr(0)?))
            }
            "return" => Ok(Statement::Return(self.expr(0)?)),
            "let" => {
                let name = self.new_name()?;
                self.expect("=")?;
                let value = self.expr(0)?;
                let id = LetId(self.next_let);
                self.next_let += 1;
                self.lets.push((name.clone(), id));
                Ok(Statement::Let { id, name, value })
            }
            _ => self.assignment(place, &word),
        }
    }

    fn conditional(&mut self) -> Result<Statement, Diagnostic> {
        let condition = self.expr(0)?;
        let then = self.braces()?;
        let before = self.at;
        self.skip_ends();
        let mut otherwise = Vec::new();
        if self.accept_word("else") {
            if self.accept_word("if") {
                self.deeper()?;
                let place = self.place();
                if let Some(places) = self.statement_places.last_mut() {
                    places.push(place);
                }
                otherwise.push(self.conditional()?);
                self.depth -= 1;
            } else {
                otherwise = self.braces()?;
            }
        } else {
            self.at = before;
        }
        Ok(Statement::If { condition, then, otherwise })
    }

    fn assignment(&mut self, place: (u32, u32), name: &str) -> Result<Statement, Diagnostic> {
        let Some(id) = self.find(name) else {
            if self.lets.iter().any(|(other, _)| other == name) {
                let what = format!("`{name}` cannot change");
                return error(place, what, format!("declare `local {name}` instead of `let`"));
            }
            let (what, hint) = match self.peek() {
                Token::Sign("+=" | "-=") => {
                    ("counter", format!("declare it first: `counter {name}`"))
                }
                Token::Sign("<<") => {
                    ("histogram", format!("declare it first: `histogram {name} log2`"))
                }
                Token::Sign("[") => ("map", format!("declare it first: `map {name}[1] 1024`")),
                _ => {
                    ("statement", "statements are `x += 1`, `start t`, `if e { }` and so on".into())
                }
            };
            return error(place, format!("there is no {what} `{name}`"), hint);
        };
        if self.accept("[") {
            let keys = self.list("]")?;
            self.expect("+=")?;
            return Ok(Statement::AddAt { map: id, keys, value: self.expr(0)? });
        }
        if self.accept("+=") {
            return Ok(Statement::Add { to: id, value: self.expr(0)? });
        }
        if self.accept("-=") {
            return Ok(Statement::Add { to: id, value: negated(self.expr(0)?) });
        }
        if self.accept("<<") {
            return Ok(Statement::Observe { histogram: id, value: self.expr(0)? });
        }
        if self.accept("=") {
            return Ok(Statement::Set { local: id, value: self.expr(0)? });
        }
        error(self.place(), format!("nothing is done with `{name}`"), "use `+=`, `=` or `<<`")
    }

    fn find(&self, name: &str) -> Option<DatumId> {
        let index = self.weave.data.iter().position(|datum| datum.name == name)?;
        u16::try_from(index).ok().map(DatumId)
    }

    /// The name of a datum of one kind.
    fn datum(&mut self, kind: &str) -> Result<DatumId, Diagnostic> {
        let place = self.place();
        let name = self.word(&format!("the name of a {kind}"))?;
        let Some(id) = self.find(&name) else {
            let hint = match kind {
                "timer" => format!("declare it first: `timer {name} wall`"),
                "ring" => format!("declare it first: `ring {name}(field) 1024`"),
                _ => format!("declare it first: `{kind} {name}`"),
            };
            return error(place, format!("there is no {kind} `{name}`"), hint);
        };
        let is = self.weave.data[usize::from(id.0)].kind.name();
        if !kind.split(" or ").any(|one| one == is) {
            let what = format!("`{name}` is a {is}");
            return error(place, what, format!("only a {kind} can be used so"));
        }
        Ok(id)
    }

    fn list(&mut self, close: &str) -> Result<Vec<Expr>, Diagnostic> {
        let mut values = Vec::new();
        if self.accept(close) {
            return Ok(values);
        }
        loop {
            let value = self.expr(0)?;
            values.push(value);
            if !self.accept(",") {
                self.expect(close)?;
                return Ok(values);
            }
        }
    }

    fn call(&mut self) -> Result<Call, Diagnostic> {
        let address = self.number("the address of a function")?;
        self.expect("(")?;
        Ok(Call { address, arguments: self.list(")")? })
    }

    /// An expression of operators that bind tighter than `level`.
    fn expr(&mut self, level: u8) -> Result<Expr, Diagnostic> {
        self.deeper()?;
        let mut left = self.unary()?;
        while let Token::Sign(sign) = *self.peek() {
            let found = BINARY.iter().find_map(|(op, spelling)| match spelling {
                Spelling::Infix(other, tight) if *other == sign => Some((*op, *tight)),
                _ => None,
            });
            let Some((op, tight)) = found.filter(|(_, tight)| *tight > level) else { break };
            self.at += 1;
            let right = self.expr(tight)?;
            left = Expr::Binary(op, Box::new(left), Box::new(right));
        }
        self.depth -= 1;
        Ok(left)
    }

    fn unary(&mut self) -> Result<Expr, Diagnostic> {
        let place = self.place();
        if self.accept("-") {
            // The lowest number has no positive one.
            return match *self.peek() {
                Token::Int(number) if number <= 1 << 63 => {
                    self.at += 1;
                    Ok(Expr::Int((number as i64).wrapping_neg()))
                }
                Token::Float(number) => {
                    self.at += 1;
                    Ok(Expr::Float(-number))
                }
                _ => self.operand(Unary::Negate),
            };
        }
        if self.accept("!") {
            return self.operand(Unary::Not);
        }
        if self.accept("~") {
            return self.operand(Unary::Complement);
        }
        if self.accept("(") {
            let inner = self.expr(0)?;
            self.expect(")")?;
            return Ok(inner);
        }
        match self.take() {
            // 0xffff... is a number with a sign too.
            Token::Int(number) => Ok(Expr::Int(number as i64)),
            Token::Float(number) => Ok(Expr::Float(number)),
            Token::Word(word) => self.named(place, &word),
            other => error(place, "a value is missing", format!("before {}", describe(&other))),
        }
    }

    fn operand(&mut self, op: Unary) -> Result<Expr, Diagnostic> {
        self.deeper()?;
        let inner = self.unary()?;
        self.depth -= 1;
        Ok(Expr::Unary(op, Box::new(inner)))
    }

    fn named(&mut self, place: (u32, u32), word: &str) -> Result<Expr, Diagnostic> {
        if let Some((_, expr)) = WORDS.iter().find(|(name, _)| *name == word) {
            return Ok(expr.clone());
        }
        if let Some((_, id)) = self.lets.iter().find(|(name, _)| name == word) {
            return Ok(Expr::Let(*id));
        }
        if let Some(id) = self.find(word) {
            let kind = self.weave.data[usize::from(id.0)].kind.name();
            if kind == "local" {
                return Ok(Expr::Local(id));
            }
            return error(
                place,
                format!("a {kind} cannot be read here"),
                "only locals and lets can",
            );
        }
        if word == "call" {
            return Ok(Expr::Call(Box::new(self.call()?)));
        }
        if !self.accept("(") {
            let hint = format!("declare it: `local {word}`, or `let {word} = ...`");
            return error(place, format!("there is no value `{word}`"), hint);
        }
        let expr = self.function(place, word)?;
        self.expect(")")?;
        Ok(expr)
    }

    fn function(&mut self, place: (u32, u32), word: &str) -> Result<Expr, Diagnostic> {
        if word == "arg" {
            return Ok(Expr::Arg(self.number("the number of an argument")?));
        }
        if word == "reg" {
            let place = self.place();
            let name = self.word("a register")?;
            let found = (0..16).map(Register).find(|register| register.name() == name);
            return match found {
                Some(register) => Ok(Expr::Register(register)),
                None => error(place, format!("`{name}` is not a register"), "use rax to r15"),
            };
        }
        if word == "since" {
            return Ok(Expr::Since(self.datum("mark")?));
        }
        if let Some(&(_, width, signed)) = LOADS.iter().find(|load| load.0 == word) {
            return Ok(Expr::Load { width, signed, address: Box::new(self.expr(0)?) });
        }
        if let Some((op, _)) = UNARY_FUNCTIONS.iter().find(|(_, name)| *name == word) {
            return Ok(Expr::Unary(*op, Box::new(self.expr(0)?)));
        }
        let found = BINARY.iter().find_map(|(op, spelling)| match spelling {
            Spelling::Function(name) if *name == word => Some(*op),
            _ => None,
        });
        let Some(op): Option<Binary> = found else {
            let hint = "there are arg, reg, since, load8 to load64, min, max and more";
            return error(place, format!("there is no function `{word}`"), hint);
        };
        let a = self.expr(0)?;
        self.expect(",")?;
        let b = self.expr(0)?;
        Ok(Expr::Binary(op, Box::new(a), Box::new(b)))
    }
}

fn negated(expr: Expr) -> Expr {
    match expr {
        Expr::Int(number) => Expr::Int(number.wrapping_neg()),
        other => Expr::Unary(Unary::Negate, Box::new(other)),
    }
}

fn is_reserved(name: &str) -> bool {
    const OTHERS: [&str; 22] = [
        "at",
        "if",
        "else",
        "let",
        "start",
        "stop",
        "stamp",
        "leave",
        "emit",
        "call",
        "return",
        "arg",
        "reg",
        "since",
        "counter",
        "timer",
        "histogram",
        "map",
        "ring",
        "local",
        "mark",
        "shared",
    ];
    OTHERS.contains(&name)
        || WORDS.iter().any(|(word, _)| *word == name)
        || LOADS.iter().any(|load| load.0 == name)
        || UNARY_FUNCTIONS.iter().any(|(_, word)| *word == name)
        || BINARY.iter().any(|(_, s)| matches!(s, Spelling::Function(word) if *word == name))
}
