//! What is done, and where.

use super::words::{STACKS, TEXTS, declares, is_reserved};
use crate::facts;
use crate::ir::{
    Binary, Call, DatumId, DatumKind, Expr, LetId, PointKind, Section, Statement, TimerClock, Type,
    Unary, Weave,
};
use crate::layout::STACKS_DEPTH;
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
            declares: declares(&tokens),
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

pub(super) struct Parser {
    pub(super) tokens: Vec<Placed>,
    /// Whether the text declares anything; if not, names are declared by what is done to them.
    pub(super) declares: bool,
    pub(super) at: usize,
    pub(super) weave: Weave,
    pub(super) lets: Vec<(String, LetId, Type)>,
    next_let: u16,
    depth: usize,
    /// Where each datum is declared.
    pub(super) data_places: Vec<(u32, u32)>,
    /// Where the statements of each section begin, those inside others too, in order.
    statement_places: Vec<Vec<(u32, u32)>>,
}

/// How many frames a stack has at most.
const DEEPEST: u8 = STACKS_DEPTH as u8;

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

    pub(super) fn peek(&self) -> &Token {
        &self.tokens[self.at].token
    }

    pub(super) fn place(&self) -> (u32, u32) {
        (self.tokens[self.at].line, self.tokens[self.at].column)
    }

    pub(super) fn take(&mut self) -> Token {
        let token = self.tokens[self.at].token.clone();
        if token != Token::Over {
            self.at += 1;
        }
        token
    }

    pub(super) fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Token::Sign(other) if *other == sign);
        if found {
            self.at += 1;
        }
        found
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Token::Word(other) if other == word);
        if found {
            self.at += 1;
        }
        found
    }

    pub(super) fn expect(&mut self, sign: &str) -> Result<(), Diagnostic> {
        if self.accept(sign) {
            return Ok(());
        }
        let found = describe(self.peek());
        error(self.place(), format!("`{sign}` is missing"), format!("before {found}"))
    }

    pub(super) fn expect_word(&mut self, word: &str) -> Result<(), Diagnostic> {
        if self.accept_word(word) {
            return Ok(());
        }
        error(self.place(), format!("`{word}` is missing"), "before what is here")
    }

    fn skip_ends(&mut self) {
        while *self.peek() == Token::End {
            self.at += 1;
        }
    }

    pub(super) fn word(&mut self, what: &str) -> Result<String, Diagnostic> {
        let place = self.place();
        match self.take() {
            Token::Word(word) => Ok(word),
            other => {
                error(place, format!("{what} is missing"), format!("before {}", describe(&other)))
            }
        }
    }

    pub(super) fn number<T: TryFrom<i128>>(&mut self, what: &str) -> Result<T, Diagnostic> {
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
            let opens = matches!(self.tokens.get(self.at + 1), Some(next) if next.token == Token::Sign("{"));
            if word == "at" || (opens && PointKind::spelled(&word).is_some()) {
                self.accept_word("at");
                let place = self.place();
                let name = self.word("a kind of point")?;
                let Some(kind) = PointKind::spelled(&name) else {
                    let names: Vec<&str> = PointKind::ALL.map(PointKind::spelling).into();
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
            "start" => Ok(Statement::Start(self.timer()?)),
            "stop" => Ok(Statement::Stop(self.timer()?)),
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
            "arg" | "$arg" => {
                let number = self.argument(&word)?;
                self.expect("=")?;
                Ok(Statement::SetArg { number, value: self.expr(0)? })
            }
            "result" | "$return" => {
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
                let kind = facts::shallow_type(&value, &|id| self.type_of(id));
                self.lets.push((name.clone(), id, kind));
                Ok(Statement::Let { id, name, value })
            }
            _ => self.assignment(place, &word),
        }
    }

    fn conditional(&mut self) -> Result<Statement, Diagnostic> {
        let condition = self.expr(0)?;
        let then = self.branch()?;
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
                otherwise = self.branch()?;
            }
        } else {
            self.at = before;
        }
        Ok(Statement::If { condition, then, otherwise })
    }

    /// What is done under a condition: statements in braces, or a single one.
    fn branch(&mut self) -> Result<Vec<Statement>, Diagnostic> {
        if matches!(self.peek(), Token::Sign("{") | Token::End | Token::Over) {
            return self.braces();
        }
        self.deeper()?;
        let statement = self.statement()?;
        self.depth -= 1;
        Ok(alloc::vec![statement])
    }

    fn assignment(&mut self, place: (u32, u32), name: &str) -> Result<Statement, Diagnostic> {
        let Some(id) = self.find(name).or_else(|| self.implied(name)) else {
            if self.lets.iter().any(|(other, ..)| other == name) {
                let what = format!("`{name}` cannot change");
                return error(place, what, format!("declare `local {name}` instead of `let`"));
            }
            let (what, hint) = match self.peek() {
                Token::Sign("+=" | "-=" | "++" | "--") => {
                    ("counter", format!("declare it first: `counter {name}`"))
                }
                Token::Sign("<<") => {
                    ("histogram", format!("declare it first: `histogram {name} log2`"))
                }
                Token::Sign("[") => ("map", format!("declare it first: `map {name}[1] 1024`")),
                _ => {
                    ("statement", "statements are `x++`, `start t`, `if (e) { }` and so on".into())
                }
            };
            return error(place, format!("there is no {what} `{name}`"), hint);
        };
        if self.accept("[") {
            let keys = self.list("]")?;
            self.imply_keys(id, &keys);
            let Some(value) = self.added()? else {
                return error(self.place(), "`+=` is missing", "maps are added to: `m[key] += 1`");
            };
            return Ok(Statement::AddAt { map: id, keys, value });
        }
        if let Some(value) = self.added()? {
            return Ok(Statement::Add { to: id, value });
        }
        if self.accept("<<") {
            return Ok(Statement::Observe { histogram: id, value: self.expr(0)? });
        }
        if self.accept("=") {
            return Ok(Statement::Set { local: id, value: self.expr(0)? });
        }
        error(self.place(), format!("nothing is done with `{name}`"), "use `+=`, `=` or `<<`")
    }

    /// What is added by what follows: `++`, `--`, `+= e`, `-= e`.
    fn added(&mut self) -> Result<Option<Expr>, Diagnostic> {
        if self.accept("++") {
            return Ok(Some(Expr::Int(1)));
        }
        if self.accept("--") {
            return Ok(Some(Expr::Int(-1)));
        }
        if self.accept("+=") {
            return Ok(Some(self.expr(0)?));
        }
        if self.accept("-=") { Ok(Some(negated(self.expr(0)?))) } else { Ok(None) }
    }

    /// A timer that is started or stopped; it may say its clock.
    fn timer(&mut self) -> Result<DatumId, Diagnostic> {
        let place = self.place();
        let Token::Word(name) = self.peek().clone() else { return self.datum("timer") };
        let says_cpu = matches!(
            self.tokens.get(self.at + 1).map(|next| &next.token),
            Some(Token::Word(word)) if word == "cpu"
        );
        let said = if says_cpu { TimerClock::Cpu } else { TimerClock::Wall };
        if !self.declares && self.find(&name).is_none() && !is_reserved(&name) {
            self.declare(&name, DatumKind::Timer(said));
        }
        let id = self.datum("timer")?;
        if says_cpu {
            self.at += 1;
            if self.weave.data[usize::from(id.0)].kind != DatumKind::Timer(TimerClock::Cpu) {
                let hint = format!("leave out `cpu`, or declare `timer {name} cpu`");
                return error(place, format!("`{name}` is a wall timer"), hint);
            }
        }
        Ok(id)
    }

    /// The number in `$arg[0]`, or in `arg(0)` as it was written before.
    fn argument(&mut self, word: &str) -> Result<u8, Diagnostic> {
        let (open, close) = if word.starts_with('$') { ("[", "]") } else { ("(", ")") };
        self.expect(open)?;
        let number = self.number("the number of an argument")?;
        self.expect(close)?;
        Ok(number)
    }

    pub(super) fn type_of(&self, id: LetId) -> Type {
        self.lets.iter().find(|(_, other, _)| *other == id).map_or(Type::Int, |found| found.2)
    }

    pub(super) fn find(&self, name: &str) -> Option<DatumId> {
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
        if let Some((_, _, expr)) = WORDS.iter().find(|(name, old, _)| [name, old].contains(&&word))
        {
            return Ok(expr.clone());
        }
        match word {
            "arg" | "$arg" => return Ok(Expr::Arg(self.argument(word)?)),
            "$reg" => {
                self.expect("[")?;
                let register = self.register()?;
                self.expect("]")?;
                return Ok(register);
            }
            _ if word.starts_with('$') => {
                let names: Vec<&str> = WORDS.iter().map(|(name, _, _)| *name).collect();
                let hint = format!("there are $arg[0], $reg[rax], {}", names.join(", "));
                return error(place, format!("there is no `{word}`"), hint);
            }
            _ => {}
        }
        if let Some((_, id, _)) = self.lets.iter().find(|(name, ..)| name == word) {
            return Ok(Expr::Let(*id));
        }
        if let Some(id) = self.find(word).filter(|_| word != TEXTS && word != STACKS) {
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

    fn register(&mut self) -> Result<Expr, Diagnostic> {
        let place = self.place();
        let name = self.word("a register")?;
        let found = (0..16).map(Register).find(|register| register.name() == name);
        match found {
            Some(register) => Ok(Expr::Register(register)),
            None => error(place, format!("`{name}` is not a register"), "use rax to r15"),
        }
    }

    /// The depth of `stack`, if it has one.
    fn stack(&mut self) -> Result<Expr, Diagnostic> {
        let stacks = self.stacks();
        if *self.peek() == Token::Sign(")") {
            return Ok(Expr::Stack { stacks, depth: None });
        }
        let place = self.place();
        let depth: i64 = self.number("a number of frames")?;
        match u8::try_from(depth) {
            Ok(depth @ 1..=DEEPEST) => Ok(Expr::Stack { stacks, depth: Some(depth) }),
            _ => {
                let hint = format!("use 1 to {DEEPEST}, or `stack()` for as many as there are");
                error(place, format!("a stack cannot have {depth} frames"), hint)
            }
        }
    }

    fn function(&mut self, place: (u32, u32), word: &str) -> Result<Expr, Diagnostic> {
        if word == "reg" {
            return self.register();
        }
        if word == "since" {
            return Ok(Expr::Since(self.datum("mark")?));
        }
        if word == TEXTS {
            let texts = self.texts();
            let address = Box::new(self.expr(0)?);
            let length = if self.accept(",") { Some(Box::new(self.expr(0)?)) } else { None };
            return Ok(Expr::Text { texts, address, length });
        }
        if word == STACKS {
            return self.stack();
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
            let hint = "there are str, stack, since, load8 to load64, min, max and more";
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
