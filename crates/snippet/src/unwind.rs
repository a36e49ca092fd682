//! Unwind rules, and the memory in which the target finds them.
//!
//! The host compiles the unwind tables of modules into rows, each with the rule from one address to that of the next
//! row, and puts them into memory that the target can only read. The routine that takes stacks ([`crate::walk`]) finds
//! there, from the start on:
//!
//! | where               |                                                                                       |
//! |---------------------|---------------------------------------------------------------------------------------|
//! | [`HEAD`]            | where the current list is, and in the upper half its number (`u64`)                     |
//! | [`RULES`]           | the different rules, as [packed](Rule::pack): rows and caches have their indexes        |
//! | [`FREE`]            | lists and rows, one after the other; what was written once stays                        |
//!
//! A list begins with the number of its regions and that of its signal returns (`u32` each). Regions follow, which are
//! memory that can be executed, by their addresses, see [`Region`]; then the addresses that signal handlers return to.
//! A list is never changed: a new one is written elsewhere, and then the word at [`HEAD`].

/// Where the word is that says where the list is.
pub const HEAD: u32 = 0;
/// Where the rules are.
pub const RULES: u32 = 4096;
/// How many different rules there can be.
pub const RULES_COUNT: u32 = 1 << 16;
/// Where lists and rows begin.
pub const FREE: u32 = RULES + 8 * RULES_COUNT;

/// Of a list: where its regions begin.
pub const LIST_REGIONS: u32 = 8;
/// How long a region is in a list.
pub const REGION_SIZE: u32 = 32;

/// Memory that can be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// What to subtract from an address to get what rows are sorted by, which has 32 bits.
    pub bias: u64,
    /// Where its rows are.
    pub rows: u32,
    /// How many there are; none if nothing is known of its code.
    pub count: u32,
}

impl Region {
    /// As it is in a list.
    pub fn words(&self) -> [u64; 4] {
        [self.start, self.end, self.bias, u64::from(self.rows) | u64::from(self.count) << 32]
    }
}

/// A row: the rule with this index holds from an address on.
pub fn row(from: u32, rule: u32) -> u64 {
    u64::from(from) | u64::from(rule) << 32
}

/// Where the frame of a function ends, which is right above its return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cfa {
    /// That far above the stack pointer.
    Sp(i32),
    /// That far above the frame pointer.
    Bp(i32),
    /// What is stored that far above the frame pointer: where a function has aligned its stack.
    StoredAtBp(i32),
    /// In a procedure linkage table: 8 above the stack pointer, and 8 more from a certain byte of an entry on.
    Plt(i32),
}

/// Where the frame pointer is that the caller has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bp {
    /// It is still the same.
    Same,
    /// Stored, that far above the end of the frame: the distance is negative.
    AtCfa(i32),
    /// Stored, that far above the frame pointer.
    AtBp(i32),
    /// Nowhere that a rule can say.
    Lost,
}

/// How to get from a function to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The code belongs to nothing that is known.
    Outside,
    /// There is no rule: it may have frame pointers.
    None,
    /// A signal handler has returned there: what it has interrupted is on the stack.
    Signal,
    /// Nobody has called it.
    End,
    /// The rule is none of those that can be said here.
    Other,
    /// By the end of its frame.
    Frame(Cfa, Bp),
}

/// The rules that are always there, by their indexes.
pub const USUAL: [Rule; 5] = [Rule::Outside, Rule::None, Rule::Signal, Rule::End, Rule::Other];

/// Of a packed rule: its kind, in the lowest bits.
pub const KIND_BITS: u8 = 4;
/// [`Rule::None`].
pub const KIND_NONE: i32 = 0;
/// [`Cfa::Sp`].
pub const KIND_SP: i32 = 1;
/// [`Cfa::Bp`].
pub const KIND_BP: i32 = 2;
/// [`Cfa::StoredAtBp`].
pub const KIND_STORED: i32 = 3;
/// [`Cfa::Plt`].
pub const KIND_PLT: i32 = 4;
/// [`Rule::End`].
pub const KIND_END: i32 = 5;
/// [`Rule::Other`].
pub const KIND_OTHER: i32 = 6;
/// [`Rule::Outside`].
pub const KIND_OUTSIDE: i32 = 7;
/// [`Rule::Signal`].
pub const KIND_SIGNAL: i32 = 8;
/// Of a packed rule: what becomes of the frame pointer, two bits.
pub const BP_SHIFT: u8 = KIND_BITS;
/// [`Bp::Same`].
pub const BP_SAME: i32 = 0;
/// [`Bp::AtCfa`].
pub const BP_AT_CFA: i32 = 1;
/// [`Bp::AtBp`].
pub const BP_AT_BP: i32 = 2;
/// [`Bp::Lost`].
pub const BP_LOST: i32 = 3;
/// Of a packed rule: the distance of the frame's end, 32 bits with a sign.
pub const CFA_SHIFT: u8 = 8;
/// Of a packed rule: the distance of the stored frame pointer, 24 bits with a sign.
pub const BP_DISTANCE_SHIFT: u8 = 40;

impl Rule {
    /// As a word; [`Rule::Other`] if a distance is too large or odd for it.
    pub fn pack(self) -> u64 {
        let simple = |kind: i32| kind as u64;
        let (cfa, bp) = match self {
            Self::None => return simple(KIND_NONE),
            Self::End => return simple(KIND_END),
            Self::Other => return simple(KIND_OTHER),
            Self::Outside => return simple(KIND_OUTSIDE),
            Self::Signal => return simple(KIND_SIGNAL),
            Self::Frame(cfa, bp) => (cfa, bp),
        };
        let (kind, distance) = match cfa {
            Cfa::Sp(distance) => (KIND_SP, distance),
            Cfa::Bp(distance) => (KIND_BP, distance),
            Cfa::StoredAtBp(distance) => (KIND_STORED, distance),
            Cfa::Plt(from) => (KIND_PLT, from),
        };
        let (bp, stored) = match bp {
            Bp::Same => (BP_SAME, 0),
            Bp::AtCfa(distance) => (BP_AT_CFA, distance),
            Bp::AtBp(distance) => (BP_AT_BP, distance),
            Bp::Lost => (BP_LOST, 0),
        };
        let is_odd = kind != KIND_PLT && distance % 8 != 0 || stored % 8 != 0;
        if is_odd || !(-(1 << 23)..1 << 23).contains(&stored) {
            return simple(KIND_OTHER);
        }
        simple(kind | bp << BP_SHIFT)
            | u64::from(distance as u32) << CFA_SHIFT
            | (i64::from(stored) as u64) << BP_DISTANCE_SHIFT
    }

    /// What a word stands for.
    pub fn unpack(word: u64) -> Self {
        let distance = (word >> CFA_SHIFT) as u32 as i32;
        let stored = (word as i64 >> BP_DISTANCE_SHIFT) as i32;
        let cfa = match (word & ((1 << KIND_BITS) - 1)) as i32 {
            KIND_NONE => return Self::None,
            KIND_END => return Self::End,
            KIND_OUTSIDE => return Self::Outside,
            KIND_SIGNAL => return Self::Signal,
            KIND_SP => Cfa::Sp(distance),
            KIND_BP => Cfa::Bp(distance),
            KIND_STORED => Cfa::StoredAtBp(distance),
            KIND_PLT => Cfa::Plt(distance),
            _ => return Self::Other,
        };
        let bp = match (word >> BP_SHIFT & 3) as i32 {
            BP_SAME => Bp::Same,
            BP_AT_CFA => Bp::AtCfa(stored),
            BP_AT_BP => Bp::AtBp(stored),
            _ => Bp::Lost,
        };
        Self::Frame(cfa, bp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_words() {
        let distances = [0, 8, 16, -16, 4096, -4096, i32::MAX - 7, i32::MIN];
        let cfas = [Cfa::Sp, Cfa::Bp, Cfa::StoredAtBp];
        for (cfa, distance) in cfas.iter().flat_map(|cfa| distances.map(|d| (cfa(d), d))) {
            let stored = (distance >> 8) & !7;
            for bp in [Bp::Same, Bp::Lost, Bp::AtCfa(stored), Bp::AtBp(stored)] {
                let rule = Rule::Frame(cfa, bp);
                assert_eq!(Rule::unpack(rule.pack()), rule);
            }
        }
        for rule in USUAL.into_iter().chain([Rule::Frame(Cfa::Plt(11), Bp::Same)]) {
            assert_eq!(Rule::unpack(rule.pack()), rule);
        }
        for odd in [Rule::Frame(Cfa::Sp(4), Bp::Same), Rule::Frame(Cfa::Sp(8), Bp::AtCfa(1 << 24))]
        {
            assert_eq!(Rule::unpack(odd.pack()), Rule::Other);
        }
    }
}
