//! One fast pass over a text section: where direct branches are and where they go.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, OpKind};

use crate::Function;

/// What kind of transfer a branch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchKind {
    /// Always taken.
    Jump,
    /// Taken if flags say so; also the abort path of a transaction.
    Conditional,
    /// A call.
    Call,
    /// `loop`, `loope`, `loopne`, `jrcxz`, `jecxz`: these reach 127 bytes and no further.
    Loop,
}

/// How far a branch could reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// One byte of distance.
    Rel8,
    /// Four bytes of distance.
    Rel32,
}

/// A direct branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Its first byte.
    pub source: u64,
    /// Where it goes.
    pub target: u64,
    /// How long it is.
    pub length: u8,
    /// What it does.
    pub kind: BranchKind,
    /// How far it could reach.
    pub width: Width,
}

/// What a pass over a text section found.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// Every direct branch, by its source.
    pub branches: Vec<Branch>,
    /// The addresses of indirect jumps, sorted.
    pub indirect_jumps: Vec<u64>,
    /// Bytes that are no instruction, sorted. The pass went on behind them.
    pub undecodable: Vec<Range<u64>>,
    address: u64,
    /// Where the branches into each stretch of `1 << STRETCH` bytes begin in `order`.
    stretches: Vec<u32>,
    /// Branches by the stretch that they go to; those that leave the section come last, by target.
    order: Vec<u32>,
}

const STRETCH: u32 = 6;

impl Sweep {
    /// The branches that go to an address in `targets`, in no particular order.
    pub fn branches_into(&self, targets: Range<u64>) -> impl Iterator<Item = &Branch> {
        let count = self.stretches.len().saturating_sub(1);
        let stretch = |address: u64| {
            usize::try_from(address.saturating_sub(self.address) >> STRETCH)
                .map_or(count, |index| index.min(count))
        };
        let (inside, outside) = match self.stretches.last() {
            Some(&end) => self.order.split_at(end as usize),
            None => self.order.split_at(0),
        };
        let near = if targets.is_empty() || count == 0 {
            &[][..]
        } else {
            let first = self.stretches[stretch(targets.start)] as usize;
            let last = self.stretches[(stretch(targets.end - 1) + 1).min(count)] as usize;
            &inside[first..last]
        };
        let from = outside.partition_point(|&index| self.target(index) < targets.start);
        let to = outside.partition_point(|&index| self.target(index) < targets.end).max(from);
        near.iter()
            .chain(&outside[from..to])
            .map(|&index| &self.branches[index as usize])
            .filter(move |branch| targets.contains(&branch.target))
    }

    /// The branches whose first byte is in `sources`.
    pub fn branches_from(&self, sources: Range<u64>) -> &[Branch] {
        let first = self.branches.partition_point(|branch| branch.source < sources.start);
        let last = self.branches.partition_point(|branch| branch.source < sources.end);
        &self.branches[first..last.max(first)]
    }

    /// Where other code branches to inside of a function besides its entry, sorted. Assembly shares code like that; a
    /// graph knows of it only through [`Function::extra_entries`].
    pub fn entries_into(&self, function: &Function) -> Vec<u64> {
        let mut entries: Vec<u64> = function
            .ranges
            .iter()
            .flat_map(|range| self.branches_into(range.clone()))
            .filter(|branch| !function.contains(branch.source))
            .map(|branch| branch.target)
            .filter(|&target| target != function.entry())
            .collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }

    fn target(&self, index: u32) -> u64 {
        self.branches[index as usize].target
    }

    /// Counting sort by stretch: a comparison sort would cost as much as decoding.
    fn index(&mut self, length: usize) {
        let count = (length >> STRETCH) + 1;
        let stretch = |branch: &Branch| {
            let offset = branch.target.wrapping_sub(self.address);
            if offset < length as u64 { (offset >> STRETCH) as usize } else { count }
        };
        let mut starts = vec![0_u32; count + 2];
        for branch in &self.branches {
            starts[stretch(branch) + 1] += 1;
        }
        for index in 1..starts.len() {
            starts[index] += starts[index - 1];
        }
        let mut order = vec![0_u32; self.branches.len()];
        let mut next = starts.clone();
        for (index, branch) in self.branches.iter().enumerate() {
            let place = &mut next[stretch(branch)];
            order[*place as usize] = index as u32;
            *place += 1;
        }
        let branches = &self.branches;
        order[starts[count] as usize..]
            .sort_unstable_by_key(|&index| branches[index as usize].target);
        starts.truncate(count + 1);
        self.stretches = starts;
        self.order = order;
    }
}

/// Decodes `bytes`, which lie at `address`, from end to end. The pass starts anew at each of `starts`, which must be
/// sorted, so data between functions cannot lead it astray for long. Bytes that are no instruction are stepped over.
pub fn sweep(bytes: &[u8], address: u64, starts: &[u64]) -> Sweep {
    let mut found =
        Sweep { branches: Vec::with_capacity(bytes.len() / 16), address, ..Sweep::default() };
    let end = address + bytes.len() as u64;
    let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let first = starts.partition_point(|&start| start <= address);
    let stops = starts[first..].iter().copied().take_while(|&start| start < end).chain([end]);
    let mut at = address;
    for stop in stops {
        // An instruction that runs across the start of a function was none.
        at = if at > stop { resume(&mut decoder, address, stop) } else { at };
        while at < stop {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                note_undecodable(&mut found.undecodable, at);
                at = resume(&mut decoder, address, at + 1);
                continue;
            }
            note(&mut found, &instruction);
            at = instruction.next_ip();
        }
        if at > stop {
            at = resume(&mut decoder, address, stop);
        }
    }
    found.index(bytes.len());
    found
}

fn resume(decoder: &mut Decoder<'_>, address: u64, at: u64) -> u64 {
    // The position is inside the bytes or at their end: `at` never passes the last stop.
    let _ = decoder.try_set_position((at - address) as usize);
    decoder.set_ip(at);
    at
}

fn note_undecodable(ranges: &mut Vec<Range<u64>>, at: u64) {
    match ranges.last_mut() {
        Some(range) if range.end == at => range.end += 1,
        _ => ranges.push(at..at + 1),
    }
}

fn note(found: &mut Sweep, instruction: &Instruction) {
    let kind = match instruction.flow_control() {
        FlowControl::Next => return,
        FlowControl::IndirectBranch => {
            found.indirect_jumps.push(instruction.ip());
            return;
        }
        FlowControl::UnconditionalBranch => BranchKind::Jump,
        FlowControl::ConditionalBranch if is_loop(instruction) => BranchKind::Loop,
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => BranchKind::Conditional,
        FlowControl::Call => BranchKind::Call,
        _ => return,
    };
    if instruction.op_count() == 0 || instruction.op0_kind() != OpKind::NearBranch64 {
        return;
    }
    let short = instruction.is_jmp_short()
        || instruction.is_jcc_short()
        || matches!(kind, BranchKind::Loop);
    found.branches.push(Branch {
        source: instruction.ip(),
        target: instruction.near_branch64(),
        length: instruction.len() as u8,
        kind,
        width: if short { Width::Rel8 } else { Width::Rel32 },
    });
}

/// Whether a conditional branch has only a short form.
pub(crate) fn is_loop(instruction: &Instruction) -> bool {
    instruction.is_loop() || instruction.is_loopcc() || instruction.is_jcx_short()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_branches_and_answers_by_target() {
        // 1000: call 1010; 1005: je 1000; 1007: loop 1005; 1009: jmp rax; 100b: (bad); 100c: jmp 9000
        let bytes =
            [0xe8, 0x0b, 0, 0, 0, 0x74, 0xf9, 0xe2, 0xfc, 0xff, 0xe0, 0x06, 0xe9, 0xef, 0x7f, 0, 0];
        let found = sweep(&bytes, 0x1000, &[0x1000]);
        let kinds: Vec<_> = found.branches.iter().map(|b| (b.source, b.target, b.kind)).collect();
        assert_eq!(
            kinds,
            [
                (0x1000, 0x1010, BranchKind::Call),
                (0x1005, 0x1000, BranchKind::Conditional),
                (0x1007, 0x1005, BranchKind::Loop),
                (0x100c, 0x9000, BranchKind::Jump),
            ]
        );
        assert_eq!(found.indirect_jumps, [0x1009]);
        assert_eq!(found.undecodable.first(), Some(&(0x100b..0x100c)));
        let sources = |range| {
            let mut sources: Vec<_> =
                found.branches_into(range).map(|branch| branch.source).collect();
            sources.sort_unstable();
            sources
        };
        assert_eq!(sources(0x1000..0x1001), [0x1005]);
        assert_eq!(sources(0x1001..0x1011), [0x1000, 0x1007]);
        assert_eq!(sources(0..u64::MAX), [0x1000, 0x1005, 0x1007, 0x100c]);
        assert_eq!(sources(0x8fff..0x9001), [0x100c]);
        assert!(sources(0x2000..0x9000).is_empty());
        assert_eq!(found.branches_from(0x1001..0x1008).len(), 2);
    }

    #[test]
    fn finds_where_others_enter() {
        // 0: jmp 5; 2: jmp 6; 4: nop; 5: nop; 6: je 4; 8: ret
        let bytes = [0xeb, 3, 0xeb, 2, 0x90, 0x90, 0x74, 0xfc, 0xc3];
        let found = sweep(&bytes, 0, &[]);
        let convention = crate::Convention::SystemV;
        assert_eq!(found.entries_into(&Function::new(4..9, convention)), [5, 6]);
        assert_eq!(found.entries_into(&Function::new(5..9, convention)), [6]);
        let mut parted = Function::new(4..9, convention);
        parted.ranges.push(2..4);
        assert_eq!(found.entries_into(&parted), [5]);
    }

    #[test]
    fn starts_anew_at_functions() {
        // A stray first byte of `mov eax, imm32` would swallow the branch at the start of the next function.
        let bytes = [0x90, 0xb8, 0xeb, 0xfe, 0xc3, 0x90];
        assert!(sweep(&bytes, 0, &[]).branches.is_empty());
        assert_eq!(sweep(&bytes, 0, &[0, 2]).branches.len(), 1);
        assert!(sweep(&[], 0, &[]).branches_into(0..8).next().is_none());
    }
}
