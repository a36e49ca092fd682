//! The unwind rules of a module, compiled from its unwind tables into rows: bytes in, rows out.

use super::tables::tables;
use super::unwind::SIGNAL_RETURN;
use crate::process::modules::Module;
use crate::process::proc::Tid;
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EndianSlice, LittleEndian, Operation,
    Reader, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection, X86_64,
};
use std::collections::HashMap;
use std::ops::Range;
use weft_snippet::unwind::{Bp, Cfa, RULES_COUNT, Rule, USUAL, row};

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// The unwind tables of a module, as its file has them.
#[derive(Clone, Debug, Default)]
pub struct Sections<'a> {
    /// `.eh_frame`, and its address.
    pub eh_frame: Option<(&'a [u8], u64)>,
    /// `.debug_frame`.
    pub debug_frame: Option<&'a [u8]>,
    /// The address of the code, to which tables may refer.
    pub text: u64,
    /// The address of the global offset table, the same.
    pub got: u64,
}

/// Different rules, by their numbers.
#[derive(Clone, Debug)]
pub struct RuleSet {
    words: Vec<u64>,
    numbers: HashMap<u64, u32>,
}

impl Default for RuleSet {
    fn default() -> Self {
        let mut set = Self { words: Vec::new(), numbers: HashMap::new() };
        USUAL.iter().for_each(|rule| {
            set.number(*rule);
        });
        set
    }
}

impl RuleSet {
    /// The number of a rule; that of [`Rule::Other`] if there are too many.
    pub fn number(&mut self, rule: Rule) -> u32 {
        let word = rule.pack();
        if let Some(&number) = self.numbers.get(&word) {
            return number;
        }
        let number = self.words.len() as u32;
        if number == RULES_COUNT {
            return self.numbers[&Rule::Other.pack()];
        }
        self.words.push(word);
        self.numbers.insert(word, number);
        number
    }

    /// Them all, in the order of their numbers.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

/// The rules of a module, for ranges of addresses as its file has them. Ranges do not overlap and are sorted; between
/// them there is no rule.
pub fn rules(sections: &Sections<'_>) -> Vec<(u64, u64, Rule)> {
    let mut found = Vec::new();
    if let Some((bytes, address)) = sections.eh_frame {
        let bases = BaseAddresses::default()
            .set_eh_frame(address)
            .set_text(sections.text)
            .set_got(sections.got);
        let section = EhFrame::new(bytes, LittleEndian);
        collect(&section, &bases, EhFrame::cie_from_offset, &mut found);
    }
    found.sort_by_key(|&(start, ..)| start);
    if let Some(bytes) = sections.debug_frame {
        // Where both have something, they have the same; the first is what exceptions go by.
        let mut more = Vec::new();
        let mut section = DebugFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        collect(&section, &BaseAddresses::default(), DebugFrame::cie_from_offset, &mut more);
        let known = found.len();
        more.retain(|&(start, end, _)| {
            let next = found[..known].partition_point(|&(_, other, _)| other <= start);
            found.get(next).is_none_or(|&(other, ..)| end <= other)
        });
        found.extend(more);
        found.sort_by_key(|&(start, ..)| start);
    }
    // Tables may be wrong: what overlaps is cut where the next begins.
    for index in 1..found.len() {
        let next = found[index].0;
        found[index - 1].1 = found[index - 1].1.min(next);
    }
    found.retain(|&(start, end, _)| start < end);
    found
}

/// The same as rows, of which neighbours differ.
pub fn rows(sections: &Sections<'_>, set: &mut RuleSet) -> Vec<u64> {
    let none = set.number(Rule::None);
    let mut rows: Vec<(u32, u32)> = Vec::new();
    let mut put = |at: u32, rule: u32| match rows.last_mut() {
        Some(last) if last.0 == at => last.1 = rule,
        Some(last) if last.1 == rule => {}
        _ => rows.push((at, rule)),
    };
    for (start, end, rule) in rules(sections) {
        // What is beyond has no rows, and so no rule: its stacks are cut there.
        let (Ok(start), Ok(end)) = (u32::try_from(start), u32::try_from(end)) else { continue };
        put(start, set.number(rule));
        put(end, none);
    }
    rows.dedup_by_key(|(_, rule)| *rule);
    rows.into_iter().map(|(at, rule)| row(at, rule)).collect()
}

/// Adds the rules of all functions of a section. What cannot be read is left out.
fn collect<'a, S>(
    section: &S,
    bases: &BaseAddresses,
    cie: impl Fn(
        &S,
        &BaseAddresses,
        S::Offset,
    ) -> gimli::Result<gimli::CommonInformationEntry<Slice<'a>>>
    + Copy,
    found: &mut Vec<(u64, u64, Rule)>,
) where
    S: UnwindSection<Slice<'a>>,
{
    let mut entries = section.entries(bases);
    let mut context = UnwindContext::new();
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else { continue };
        let Ok(fde) = partial.parse(|section, bases, offset| cie(section, bases, offset)) else {
            continue;
        };
        // The linker leaves entries of functions that it has dropped, at 0.
        if fde.initial_address() == 0 || fde.len() == 0 {
            continue;
        }
        let end = fde.initial_address().saturating_add(fde.len());
        if fde.is_signal_trampoline() {
            // It is known by its code, as where there is no table.
            found.push((fde.initial_address(), end, Rule::Other));
            continue;
        }
        let encoding = fde.cie().encoding();
        let returns = fde.cie().return_address_register();
        let Ok(mut table) = fde.rows(section, bases, &mut context) else { continue };
        let mut at = fde.initial_address();
        while let Ok(Some(row)) = table.next_row() {
            let (from, to) = (row.start_address().max(at), row.end_address().min(end));
            if from < to {
                found.push((from, to, rule(section, row, returns, encoding)));
                at = to;
            }
        }
    }
}

fn rule<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    row: &gimli::UnwindTableRow<usize>,
    returns: Register,
    encoding: gimli::Encoding,
) -> Rule {
    let expression =
        |expression: &UnwindExpression<usize>| operations(expression.get(section).ok()?, encoding);
    match row.register(returns) {
        Some(RegisterRule::Undefined) => return Rule::End,
        Some(RegisterRule::Offset(-8)) => {}
        _ => return Rule::Other,
    }
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => {
            let Ok(offset) = i32::try_from(*offset) else { return Rule::Other };
            match *register {
                X86_64::RSP => Cfa::Sp(offset),
                X86_64::RBP => Cfa::Bp(offset),
                _ => return Rule::Other,
            }
        }
        CfaRule::Expression(found) => match expression(found).as_deref() {
            Some([Simple::Register(X86_64::RBP, offset), Simple::Deref]) => {
                Cfa::StoredAtBp(*offset)
            }
            Some(
                [
                    Simple::Register(X86_64::RSP, 8),
                    Simple::Register(X86_64::RA, 0),
                    Simple::Number(15),
                    Simple::And,
                    Simple::Number(from),
                    Simple::Ge,
                    Simple::Number(3),
                    Simple::Shl,
                    Simple::Plus,
                ],
            ) => Cfa::Plt(*from),
            _ => return Rule::Other,
        },
    };
    let bp = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => Bp::Same,
        Some(RegisterRule::Offset(offset)) => i32::try_from(offset).map_or(Bp::Lost, Bp::AtCfa),
        Some(RegisterRule::Expression(found)) => match expression(&found).as_deref() {
            Some([Simple::Register(X86_64::RBP, offset)]) => Bp::AtBp(*offset),
            _ => Bp::Lost,
        },
        _ => Bp::Lost,
    };
    Rule::Frame(cfa, bp)
}

/// The operations of the few expressions that compilers and linkers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Simple {
    Register(Register, i32),
    Number(i32),
    Deref,
    And,
    Ge,
    Shl,
    Plus,
}

fn operations<R: Reader>(
    expression: gimli::Expression<R>,
    encoding: gimli::Encoding,
) -> Option<Vec<Simple>> {
    let mut operations = expression.operations(encoding);
    let mut found = Vec::new();
    while let Some(operation) = operations.next().ok()? {
        found.push(match operation {
            Operation::RegisterOffset { register, offset, .. } => {
                Simple::Register(register, i32::try_from(offset).ok()?)
            }
            Operation::UnsignedConstant { value } => Simple::Number(i32::try_from(value).ok()?),
            Operation::SignedConstant { value } => Simple::Number(i32::try_from(value).ok()?),
            Operation::Deref { size: 8, space: false, .. } => Simple::Deref,
            Operation::And => Simple::And,
            Operation::Ge => Simple::Ge,
            Operation::Shl => Simple::Shl,
            Operation::Plus => Simple::Plus,
            _ => return None,
        });
    }
    Some(found)
}

/// The rows of a module, and the addresses in it that signal handlers return to, as its file has them.
#[derive(Clone, Debug, Default)]
pub struct ModuleRows {
    /// See [`rows`].
    pub rows: Vec<u64>,
    /// Addresses.
    pub signal_returns: Vec<u64>,
}

/// Reads them; nothing if it has no tables that can be read.
pub fn module_rows(pid: Tid, module: &Module, set: &mut RuleSet) -> Option<ModuleRows> {
    let found = tables(pid, module)?;
    let start = |range: &Option<Range<u64>>| range.as_ref().map_or(0, |range| range.start);
    let sections = Sections {
        eh_frame: found.eh_frame.as_deref().map(|bytes| (bytes, start(&found.eh_frame_svma))),
        debug_frame: found.debug_frame.as_deref(),
        text: start(&found.text_svma),
        got: start(&found.got_svma),
    };
    let text = found.text.as_deref().unwrap_or_default();
    let signal_returns = text
        .windows(SIGNAL_RETURN.len())
        .enumerate()
        .filter(|(_, bytes)| *bytes == SIGNAL_RETURN)
        .map(|(at, _)| sections.text + at as u64)
        .collect();
    Some(ModuleRows { rows: rows(&sections, set), signal_returns })
}
