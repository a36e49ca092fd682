//! From text to tokens, each with its place.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// What is wrong with a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Counted from 1; 0 if it is the weave as a whole.
    pub line: u32,
    /// Counted from 1, in characters; 0 if it is the weave as a whole.
    pub column: u32,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}, column {}: ", self.line, self.column)?;
        }
        write!(f, "{}", self.what)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, " ({})", self.hint) }
    }
}

impl core::error::Error for Diagnostic {}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Word(String),
    Int(u64),
    Float(f64),
    Sign(&'static str),
    /// A newline or a semicolon.
    End,
    /// The end of the text.
    Over,
}

pub(crate) struct Placed {
    pub token: Token,
    pub line: u32,
    pub column: u32,
}

/// Longer ones first.
const SIGNS: [&str; 31] = [
    "+=", "-=", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "{", "}", "(", ")", "[", "]", ",",
    "=", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">", ":",
];

const STEPS: [&str; 2] = ["++", "--"];

pub(crate) fn error<T>(
    (line, column): (u32, u32),
    what: impl Into<String>,
    hint: impl Into<String>,
) -> Result<T, Diagnostic> {
    Err(Diagnostic { line, column, what: what.into(), hint: hint.into() })
}

/// The text with its comments as blanks: places in it stay what they are.
fn without_comments(text: &str) -> Result<String, Diagnostic> {
    let mut out = String::with_capacity(text.len());
    let (mut line, mut column) = (1, 0);
    let mut rest = text.chars().peekable();
    // Where a comment of several lines began, and whether one goes to the end of the line.
    let (mut began, mut to_the_end) = (None, false);
    while let Some(one) = rest.next() {
        column += 1;
        if one == '\n' {
            (line, column, to_the_end) = (line + 1, 0, false);
            out.push(one);
            continue;
        }
        let next = rest.peek().copied();
        if began.is_some() {
            out.push(' ');
            if one == '*' && next == Some('/') {
                rest.next();
                column += 1;
                out.push(' ');
                began = None;
            }
            continue;
        }
        if one == '/' && next == Some('*') {
            began = Some((line, column));
            rest.next();
            column += 1;
            out.push_str("  ");
            continue;
        }
        to_the_end |= one == '#' || (one == '/' && next == Some('/'));
        out.push(if to_the_end { ' ' } else { one });
    }
    match began {
        Some(place) => error(place, "this comment never ends", "end it with `*/`"),
        None => Ok(out),
    }
}

/// Whether nothing of a statement follows: then two signs are a step, not twice an operator.
fn ends_statement(rest: &str) -> bool {
    let rest = rest.trim_start();
    rest.is_empty() || rest.starts_with([';', '}']) || rest.starts_with("else")
}

pub(crate) fn lex(text: &str) -> Result<Vec<Placed>, Diagnostic> {
    let text = &without_comments(text)?;
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut open = 0_usize;
    for (index, full) in text.split('\n').enumerate() {
        line = index as u32 + 1;
        let mut rest = full;
        loop {
            rest = rest.trim_start();
            let column = full[..full.len() - rest.len()].chars().count() as u32 + 1;
            let Some(first) = rest.chars().next() else { break };
            let (token, length) = if first == ';' {
                (Token::End, 1)
            } else if first.is_ascii_digit() {
                number(rest, (line, column))?
            } else if first.is_ascii_alphabetic() || matches!(first, '_' | '$') {
                // Some words have two parts, with a dot between them.
                let length = rest[1..]
                    .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '.'))
                    .map_or(rest.len(), |length| 1 + length);
                (Token::Word(rest[..length].to_string()), length)
            } else if let Some(step) = STEPS.iter().find(|step| rest.starts_with(**step))
                && ends_statement(&rest[step.len()..])
            {
                (Token::Sign(step), step.len())
            } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                match *sign {
                    "(" | "[" => open += 1,
                    ")" | "]" => open = open.saturating_sub(1),
                    _ => {}
                }
                (Token::Sign(sign), sign.len())
            } else {
                let what = format!("`{first}` means nothing here");
                return error((line, column), what, "remove it");
            };
            tokens.push(Placed { token, line, column });
            rest = &rest[length..];
        }
        // Inside parentheses a line may go on.
        if open == 0 {
            let column = full.chars().count() as u32 + 1;
            tokens.push(Placed { token: Token::End, line, column });
        }
    }
    tokens.push(Placed { token: Token::Over, line, column: 1 });
    Ok(tokens)
}

fn number(rest: &str, place: (u32, u32)) -> Result<(Token, usize), Diagnostic> {
    let bytes = rest.as_bytes();
    let mut length = 0;
    let mut float = false;
    if let Some(digits) = rest.strip_prefix("0x") {
        length = 2 + digits.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(digits.len());
    } else {
        while let Some(&byte) = bytes.get(length) {
            let after_exponent = length > 0 && matches!(bytes[length - 1], b'e' | b'E');
            match byte {
                b'.' | b'e' | b'E' => float = true,
                b'+' | b'-' if float && after_exponent => {}
                _ if byte.is_ascii_alphanumeric() || byte == b'_' => {}
                _ => break,
            }
            length += 1;
        }
    }
    let text = &rest[..length];
    let token = if let Some(digits) = text.strip_prefix("0x") {
        u64::from_str_radix(digits, 16).ok().map(Token::Int)
    } else if float {
        text.parse().ok().filter(|value: &f64| value.is_finite()).map(Token::Float)
    } else {
        text.parse().ok().map(Token::Int)
    };
    match token {
        Some(token) => Ok((token, length)),
        None => error(place, format!("`{text}` is not a number"), "write 12, 0xc or 1.5"),
    }
}

pub(crate) fn describe(token: &Token) -> String {
    match token {
        Token::Word(word) => format!("`{word}`"),
        Token::Int(number) => format!("`{number}`"),
        Token::Float(number) => format!("`{number:?}`"),
        Token::Sign(sign) => format!("`{sign}`"),
        Token::End => "the end of the line".to_string(),
        Token::Over => "the end".to_string(),
    }
}
