//! The names that programmers wrote, from the names that the linker sees.

use std::fmt::{self, Write};

/// Longer names than this stay as they are: a name of some hundred bytes can stand for gigabytes.
const LONGEST_RESULT: usize = 1 << 15;

/// The Itanium demangler explores what a name may mean; a long one could take it minutes.
const LONGEST_INPUT: usize = 1 << 13;

/// What follows the name of an entry in a procedure linkage table.
const PLT_SUFFIX: &str = "@plt";

/// The C++ or Rust name, or nothing when the linker's name is the only one.
pub fn demangle(name: &str) -> Option<String> {
    if !name.starts_with("_Z") && !name.starts_with("_R") || name.len() > LONGEST_INPUT {
        return None;
    }
    let (bare, suffix) = match name.strip_suffix(PLT_SUFFIX) {
        Some(bare) => (bare, PLT_SUFFIX),
        None => (name, ""),
    };
    let mut out = Bounded(String::new());
    if is_rust(bare) {
        // The alternate form leaves the hash at the end out.
        write!(out, "{:#}", rustc_demangle::try_demangle(bare).ok()?).ok()?;
    } else {
        let symbol = cpp_demangle::Symbol::new(bare).ok()?;
        symbol.structured_demangle(&mut out, &cpp_demangle::DemangleOptions::new()).ok()?;
    }
    out.0.push_str(suffix);
    Some(out.0)
}

/// Older Rust names look like C++ names, but end in a hash.
fn is_rust(name: &str) -> bool {
    const HASH_LEN: usize = "17h0123456789abcdefE".len();
    if name.starts_with("_R") {
        return true;
    }
    let name = name.split_once(".llvm.").map_or(name, |(name, _)| name);
    let Some(hash) = name.len().checked_sub(HASH_LEN).and_then(|start| name.get(start..)) else {
        return false;
    };
    hash.strip_prefix("17h")
        .and_then(|hash| hash.strip_suffix('E'))
        .is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// A string that refuses to grow beyond [`LONGEST_RESULT`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST_RESULT {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_each_language() {
        for (mangled, expected) in [
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            (
                "_ZN4core3ptr8non_null16NonNull$LT$T$GT$6as_ref17h0123456789abcdefE",
                "core::ptr::non_null::NonNull<T>::as_ref",
            ),
            ("_RNvCskwGfYPst2Cb_3foo16example_function", "foo::example_function"),
            ("_RINvNtC3std3mem8align_ofjdE", "std::mem::align_of::<usize, f64>"),
            ("_Znwm@plt", "operator new(unsigned long)@plt"),
        ] {
            assert_eq!(demangle(mangled).as_deref(), Some(expected), "{mangled}");
        }
    }

    #[test]
    fn names_that_are_not_mangled() {
        for name in ["main", "_Z", "_R", "_start", "", "_Zzz", "_ZN"] {
            assert_eq!(demangle(name), None, "{name}");
        }
    }

    #[test]
    fn a_name_that_stands_for_gigabytes_stays_as_it_is() {
        // Each substitution doubles what the one before stands for.
        let mut bomb = String::from("_Z1f1pIiiE");
        for level in 0..30 {
            let previous = if level == 0 {
                "0".into()
            } else {
                format!("{}", char::from_digit(level, 36).unwrap().to_ascii_uppercase())
            };
            bomb.push_str(&format!("1pIS{previous}_S{previous}_E"));
        }
        assert!(demangle(&bomb).is_none_or(|name| name.len() <= LONGEST_RESULT));
    }
}
