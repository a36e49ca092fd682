//! The words of the language.

use crate::lex::{Placed, Token};
use crate::print::{BINARY, LOADS, Spelling, UNARY_FUNCTIONS, WORDS};

/// The words that declare something.
pub(super) const KINDS: [&str; 9] =
    ["counter", "timer", "histogram", "map", "ring", "local", "mark", "texts", "stacks"];

/// The name of where texts are kept, which is that of the function which reads them.
pub(super) const TEXTS: &str = "str";

/// The name of where stacks are kept, which is that of the function which takes them.
pub(super) const STACKS: &str = "stack";

/// Whether a text declares what it measures into.
pub(super) fn declares(tokens: &[Placed]) -> bool {
    tokens.windows(2).any(|pair| {
        matches!(&pair[0].token, Token::Word(word) if KINDS.contains(&word.as_str()))
            && matches!(pair[1].token, Token::Word(_))
    })
}

/// Whether a word cannot be a name.
pub(super) fn is_reserved(name: &str) -> bool {
    const OTHERS: [&str; 24] = [
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
        TEXTS,
        STACKS,
    ];
    OTHERS.contains(&name)
        || WORDS.iter().any(|(_, old, _)| *old == name)
        || LOADS.iter().any(|load| load.0 == name)
        || UNARY_FUNCTIONS.iter().any(|(_, word)| *word == name)
        || BINARY.iter().any(|(_, s)| matches!(s, Spelling::Function(word) if *word == name))
}
