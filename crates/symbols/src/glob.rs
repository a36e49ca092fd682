//! Shell patterns on names: `*`, `?`, `[abc]`, `[a-z]`, `[!abc]`.

/// A pattern that a whole name must match.
#[derive(Clone, Debug)]
pub struct Glob {
    pattern: Vec<char>,
    /// Most patterns have no special character, and many names are compared with each.
    literal: Option<String>,
}

impl Glob {
    /// Any text is a pattern: a `[` without its `]` stands for itself.
    pub fn new(pattern: &str) -> Self {
        let special = pattern.contains(['*', '?', '[']);
        Self { pattern: pattern.chars().collect(), literal: (!special).then(|| pattern.to_owned()) }
    }

    /// Whether everything matches.
    pub fn matches_all(&self) -> bool {
        self.pattern == ['*']
    }

    /// Whether the whole name matches. Takes at most (length of the name) x (length of the
    /// pattern) steps.
    pub fn matches(&self, name: &str) -> bool {
        if let Some(literal) = &self.literal {
            return name == literal;
        }
        let mut rest = name.chars();
        let mut at = 0;
        // Where to go on when what follows the last `*` does not match: let it swallow one more.
        let mut retry: Option<(usize, std::str::Chars<'_>)> = None;
        loop {
            if self.pattern.get(at) == Some(&'*') {
                at += 1;
                retry = Some((at, rest.clone()));
                continue;
            }
            let mut ahead = rest.clone();
            let Some(char) = ahead.next() else { return at == self.pattern.len() };
            if let Some(next) = self.step(at, char) {
                at = next;
                rest = ahead;
                continue;
            }
            let Some((after_star, swallowed)) = &mut retry else { return false };
            swallowed.next();
            at = *after_star;
            rest = swallowed.clone();
        }
    }

    /// Where the pattern goes on after it has matched one character; `None` when it does not.
    fn step(&self, at: usize, char: char) -> Option<usize> {
        match *self.pattern.get(at)? {
            '?' => Some(at + 1),
            '[' => match self.class(at + 1) {
                Some((members, negated, next)) => {
                    (in_class(members, char) != negated).then_some(next)
                }
                None => (char == '[').then_some(at + 1),
            },
            literal => (literal == char).then_some(at + 1),
        }
    }

    /// The members of the class that begins at an index, whether it is negated, and what follows.
    fn class(&self, start: usize) -> Option<(&[char], bool, usize)> {
        let negated = self.pattern.get(start) == Some(&'!');
        let start = start + usize::from(negated);
        // A `]` that comes first is a member.
        let end = (start + 1..self.pattern.len()).find(|&index| self.pattern[index] == ']')?;
        Some((&self.pattern[start..end], negated, end + 1))
    }
}

fn in_class(mut members: &[char], char: char) -> bool {
    loop {
        match members {
            [low, '-', high, rest @ ..] => {
                if (*low..=*high).contains(&char) {
                    return true;
                }
                members = rest;
            }
            [member, rest @ ..] => {
                if *member == char {
                    return true;
                }
                members = rest;
            }
            [] => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("malloc", "malloc", true),
            ("malloc", "mallocx", false),
            ("mem*", "memcpy", true),
            ("*cpy", "memcpy", true),
            ("m*c*y", "memcpy", true),
            ("m*x", "memcpy", false),
            ("*", "", true),
            ("?", "", false),
            ("str?cpy", "strncpy", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("operator[", "operator[", true),
            ("*::push_back(*", "std::vector<int>::push_back(int const&)", true),
            ("*é?", "caféx", true),
        ] {
            assert_eq!(Glob::new(pattern).matches(name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn many_stars_do_not_take_forever() {
        let pattern = Glob::new(&"a*".repeat(30));
        assert!(!pattern.matches(&("a".repeat(29) + &"b".repeat(5000))));
    }
}
