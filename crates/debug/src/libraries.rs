//! The libraries of a program, as its dynamic loader lists them.

use crate::debuggee::Debuggee;
use std::fmt::Write;
use weft_host::proc;

const PT_DYNAMIC: u32 = 2;
const PT_PHDR: u32 = 6;
const DT_DEBUG: u64 = 21;
/// More than this nobody has: a list that is longer goes in circles.
const MOST: usize = 20_000;

/// GDB's `library-list-svr4` of a program.
pub fn list(debuggee: &dyn Debuggee) -> String {
    let mut items = String::new();
    let mut main = None;
    let mut left = MOST;
    let mut debug = loader_list(debuggee).unwrap_or(0);
    while debug != 0 && left > 0 {
        let Some([version, first]) = words(debuggee, debug) else { break };
        // The one namespace that the program begins in starts with the program itself.
        let mut map = first;
        if main.is_none() && map != 0 {
            main = Some(map);
            map = words::<4>(debuggee, map).map_or(0, |fields| fields[3]);
        }
        while map != 0 && left > 0 {
            left -= 1;
            let Some([bias, name, dynamic, next]) = words(debuggee, map) else { break };
            let name = text(debuggee, name);
            if !name.is_empty() {
                let _ = write!(
                    items,
                    "<library name=\"{}\" lm=\"{map:#x}\" l_addr=\"{bias:#x}\" \
                     l_ld=\"{dynamic:#x}\" lmid=\"{debug:#x}\"/>",
                    escape(&name)
                );
            }
            map = next;
        }
        left = left.saturating_sub(1);
        // Other namespaces, from version 2 on: behind the map, a function, a state and a base.
        let has_more = version as u32 >= 2;
        debug = words::<1>(debuggee, debug + 40).filter(|_| has_more).map_or(0, |next| next[0]);
    }
    let main = main.map_or(String::new(), |main| format!(" main-lm=\"{main:#x}\""));
    format!("<library-list-svr4 version=\"1.0\"{main}>{items}</library-list-svr4>")
}

/// Where the loader's `r_debug` is: the program's dynamic section says it, once the loader has been there.
fn loader_list(debuggee: &dyn Debuggee) -> Option<u64> {
    let auxiliary = |key| proc::auxiliary_value(debuggee.pid(), key);
    let headers = auxiliary(libc::AT_PHDR)?;
    let count = auxiliary(libc::AT_PHNUM)?.min(1000);
    let size = auxiliary(libc::AT_PHENT)?;
    let header = |index: u64| {
        // type and flags, offset, address
        let [first, _, address] = words(debuggee, headers.checked_add(index * size)?)?;
        Some((first as u32, address))
    };
    let of_type = |wanted| {
        let mut all = (0..count).filter_map(header);
        all.find_map(|(type_, address)| (type_ == wanted).then_some(address))
    };
    let bias = of_type(PT_PHDR).map_or(0, |address| headers.wrapping_sub(address));
    let mut entry = bias.wrapping_add(of_type(PT_DYNAMIC)?);
    for _ in 0..1000 {
        let [key, value] = words(debuggee, entry)?;
        match key {
            0 => break,
            DT_DEBUG => return Some(value),
            _ => entry = entry.checked_add(16)?,
        }
    }
    None
}

/// Some words of a program's memory.
pub fn words<const N: usize>(debuggee: &dyn Debuggee, at: u64) -> Option<[u64; N]> {
    let mut bytes = vec![0; 8 * N];
    if debuggee.read(at, &mut bytes) < bytes.len() {
        return None;
    }
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    Some(words)
}

/// A text that ends with a zero.
fn text(debuggee: &dyn Debuggee, at: u64) -> Vec<u8> {
    let mut bytes = vec![0; libc::PATH_MAX as usize];
    let length = debuggee.read(at, &mut bytes);
    bytes.truncate(length);
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(length);
    bytes.truncate(end);
    bytes
}

/// A text as XML has it.
pub fn escape(text: &[u8]) -> String {
    let mut escaped = String::new();
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            control if control.is_control() => escaped.push('?'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_escaped() {
        assert_eq!(super::escape(b"a<b>&\"c'\x01"), "a&lt;b&gt;&amp;&quot;c&apos;?");
    }
}
