//! Functions as JSON text. Python needs a second for what this does in a hundredth.

use std::fmt::Write;

use crate::sources::Sources;
use crate::table::Function;

/// Appends one function as a JSON object.
pub(crate) fn push_function(out: &mut String, function: Function<'_>, sources: Option<&Sources>) {
    out.push_str("{\"name\": ");
    push_text(out, function.name());
    // Writing to a string cannot fail.
    let _ = write!(out, ", \"offset\": {}, \"size\": {}", function.offset(), function.size());
    out.push_str(", \"source\": ");
    match sources.and_then(|sources| sources.of(function.index())) {
        Some((file, line)) => {
            let place = if line == 0 { file.to_owned() } else { format!("{file}:{line}") };
            push_text(out, &place);
        }
        None => out.push_str("null"),
    }
    for (key, value) in [
        (", \"kind\": \"", function.kind().name()),
        ("\", \"binding\": \"", function.binding().name()),
        ("\", \"visibility\": \"", function.visibility().name()),
        ("\", \"origin\": \"", function.origin().name()),
    ] {
        out.push_str(key);
        out.push_str(value);
    }
    out.push('"');
    if let Some(demangled) = function.demangled() {
        out.push_str(", \"demangled\": ");
        push_text(out, demangled);
    }
    let mut aliases = function.aliases().peekable();
    if aliases.peek().is_some() {
        out.push_str(", \"aliases\": [");
        for (index, alias) in aliases.enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            push_text(out, alias);
        }
        out.push(']');
    }
    out.push('}');
}

fn push_text(out: &mut String, text: &str) {
    out.push('"');
    // Without an early end, the compiler makes this look at many bytes at a time; and hardly any
    // name has something to escape.
    let special = text.bytes().fold(false, |found, byte| found | needs_escape(byte));
    if !special {
        out.push_str(text);
        out.push('"');
        return;
    }
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate() {
        if !needs_escape(byte) {
            continue;
        }
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            _ => {
                let _ = write!(out, "\\u{byte:04x}");
            }
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

fn needs_escape(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut out = String::new();
        push_text(&mut out, "operator\"\" _x\\\n\u{1}é");
        assert_eq!(out, r#""operator\"\" _x\\\u000a\u0001é""#);
    }
}
