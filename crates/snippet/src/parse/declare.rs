//! What a text declares, and what is declared by what is done to it.

use super::parser::Parser;
use super::words::{KINDS, STACKS, TEXTS, is_reserved};
use crate::facts;
use crate::ir::{Buckets, Datum, DatumId, DatumKind, Expr, Scope, TimerClock, Type};
use crate::lex::{Diagnostic, Token, error};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// How many keys a map has that was not declared.
const IMPLIED_CAPACITY: u32 = 1024;

impl Parser {
    pub(super) fn new_name(&mut self) -> Result<String, Diagnostic> {
        let place = self.place();
        let name = self.word("a name")?;
        if name.contains('.') {
            return error(place, format!("`{name}` is not a name"), "use letters, digits and `_`");
        }
        if is_reserved(&name) {
            return error(place, format!("`{name}` is a word of the language"), "use another name");
        }
        let known = self.weave.data.iter().any(|datum| datum.name == name)
            || self.lets.iter().any(|(other, ..)| *other == name);
        if known {
            return error(place, format!("`{name}` is there already"), "use another name");
        }
        Ok(name)
    }

    pub(super) fn declaration(&mut self, word: &str) -> Result<bool, Diagnostic> {
        if !KINDS.contains(&word) {
            return Ok(false);
        }
        let kept = [("texts", TEXTS, DatumKind::Texts), ("stacks", STACKS, DatumKind::Stacks)];
        let kept = kept.into_iter().find(|(kept, ..)| *kept == word);
        let next = self.tokens.get(self.at + 1).map(|placed| &placed.token);
        if kept.is_some() && !matches!(next, Some(Token::Word(_))) {
            // A map may be called so.
            return Ok(false);
        }
        self.at += 1;
        if let Some((_, name, kind)) = kept {
            // All of a text are in one, which has a name that no other can have.
            let place = self.place();
            self.expect_word(name)?;
            if self.find(name).is_some() {
                let what = format!("`{word} {name}` is there already");
                return error(place, what, "leave one out");
            }
            self.weave.data.push(Datum { name: name.into(), kind, of: None });
            return Ok(true);
        }
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
                let (keys, texts, stacks) = self.keys()?;
                DatumKind::Map { keys, texts, stacks, capacity: self.number("the capacity")? }
            }
            "ring" => {
                self.expect("(")?;
                let (mut texts, mut stacks) = (0_u16, 0_u16);
                let mut fields: Vec<String> = Vec::new();
                loop {
                    let place = self.place();
                    let bit = 1_u16.checked_shl(fields.len() as u32).unwrap_or(0);
                    if self.accept_word("str") {
                        texts |= bit;
                    } else if self.accept_word(STACKS) {
                        stacks |= bit;
                    }
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
                let blocking = self.accept_word("blocking");
                DatumKind::Ring { fields, texts, stacks, capacity, blocking }
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

    /// Declares a name by what is done to it, in a text that declares nothing.
    ///
    /// What is set anywhere is a local; otherwise what is added to is a counter, with a key a map,
    /// and `<<` is for histograms.
    pub(super) fn implied(&mut self, name: &str) -> Option<DatumId> {
        if self.declares || is_reserved(name) || name.contains(['.', '$']) {
            return None;
        }
        if self.lets.iter().any(|(other, ..)| other == name) {
            return None;
        }
        let kind = match self.peek() {
            Token::Sign("[") => {
                DatumKind::Map { keys: 0, texts: 0, stacks: 0, capacity: IMPLIED_CAPACITY }
            }
            Token::Sign("<<") => DatumKind::Histogram(Buckets::Fine),
            Token::Sign("=") => DatumKind::Local,
            Token::Sign("+=" | "-=" | "++" | "--") if self.is_set(name) => DatumKind::Local,
            Token::Sign("+=" | "-=" | "++" | "--") => DatumKind::Counter(Scope::Point),
            _ => return None,
        };
        self.declare(name, kind)
    }

    /// Adds a datum that the text does not declare.
    pub(super) fn declare(&mut self, name: &str, kind: DatumKind) -> Option<DatumId> {
        let place = self.place();
        self.weave.data.push(Datum { name: name.to_string(), kind, of: None });
        self.data_places.push(place);
        self.find(name)
    }

    /// Whether a name is set with `=` anywhere in the text.
    fn is_set(&self, name: &str) -> bool {
        self.tokens.windows(2).any(|pair| {
            matches!(&pair[0].token, Token::Word(word) if word == name)
                && pair[1].token == Token::Sign("=")
        })
    }

    /// Gives a map that was not declared the keys that it is first used with.
    pub(super) fn imply_keys(&mut self, id: DatumId, used: &[Expr]) {
        let mask = |wanted: Type| {
            let is = |expr: &Expr| facts::shallow_type(expr, &|id| self.type_of(id)) == wanted;
            let found = used.iter().take(8).enumerate();
            found.fold(0, |mask, (at, key)| mask | u8::from(is(key)) << at)
        };
        let masks = (mask(Type::Text), mask(Type::Stack));
        if let Some(DatumKind::Map { keys: keys @ 0, texts, stacks, .. }) =
            self.weave.data.get_mut(usize::from(id.0)).map(|datum| &mut datum.kind)
        {
            *keys = u8::try_from(used.len()).unwrap_or(u8::MAX);
            (*texts, *stacks) = masks;
        }
    }

    /// Where texts are kept; declares it if it is not there yet.
    pub(super) fn texts(&mut self) -> DatumId {
        let found = self.find(TEXTS).or_else(|| self.declare(TEXTS, DatumKind::Texts));
        found.unwrap_or(DatumId(u16::MAX))
    }

    /// Where stacks are kept, the same.
    pub(super) fn stacks(&mut self) -> DatumId {
        let found = self.find(STACKS).or_else(|| self.declare(STACKS, DatumKind::Stacks));
        found.unwrap_or(DatumId(u16::MAX))
    }

    /// The keys of a map: how many, or what each is.
    fn keys(&mut self) -> Result<(u8, u8, u8), Diagnostic> {
        self.expect("[")?;
        let (mut keys, mut texts, mut stacks) = (0_u8, 0, 0);
        if matches!(self.peek(), Token::Word(_)) {
            loop {
                let place = self.place();
                match self.word("`int`, `str` or `stack`")?.as_str() {
                    "str" if keys < 8 => texts |= 1 << keys,
                    STACKS if keys < 8 => stacks |= 1 << keys,
                    "str" | STACKS | "int" => {}
                    other => {
                        let what = format!("a key cannot be `{other}`");
                        return error(place, what, "use `int`, `str` or `stack`, for each key");
                    }
                }
                keys = keys.saturating_add(1);
                if !self.accept(",") {
                    break;
                }
            }
        } else {
            keys = self.number("the number of keys")?;
        }
        self.expect("]")?;
        Ok((keys, texts, stacks))
    }
}
