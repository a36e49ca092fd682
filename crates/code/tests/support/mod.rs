//! A program as its file describes it, loaded where it wants to be.
#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap, HashSet};

use object::elf;
use object::read::elf::{ElfFile64, SectionHeader};
use object::{
    Object, ObjectSection, ObjectSegment, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionKind, SymbolKind,
};
use weft_code::{Callee, Convention, Function, Program};

struct Segment {
    address: u64,
    bytes: Vec<u8>,
    code: bool,
}

pub struct File {
    segments: Vec<Segment>,
    pub functions: BTreeMap<u64, (String, u64)>,
    callees: HashMap<u64, Callee>,
    slots: HashMap<u64, Callee>,
    parts: HashMap<u64, Vec<std::ops::Range<u64>>>,
    pads: HashMap<u64, Vec<u64>>,
    pub convention: Convention,
}

const NO_RETURN: &[&str] = &[
    "abort",
    "exit",
    "_exit",
    "__stack_chk_fail",
    "__assert_fail",
    "__cxa_throw",
    "__cxa_rethrow",
    "_Unwind_Resume",
    "__cxa_bad_cast",
    "__cxa_throw_bad_array_new_length",
    "longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "_ZSt9terminatev",
    "__chk_fail",
    "__fortify_fail",
    "error_exit",
    "pthread_exit",
    "__cxa_call_unexpected",
    "__clang_call_terminate",
    "__libc_fatal",
    "__libc_assert_fail",
    "__malloc_assert",
    "__assert",
    "__assert_perror_fail",
    "_Exit",
    "quick_exit",
];

fn never_returns(name: &str) -> bool {
    let name = name.split('@').next().unwrap_or(name);
    NO_RETURN.contains(&name) || name.starts_with("_ZSt") && name.contains("__throw_")
}

/// The file with the symbols that were taken out of another, where distributions put it.
fn debug_file(file: &ElfFile64<'_, object::Endianness>) -> Option<Vec<u8>> {
    let name: String = file.build_id().ok()??.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, rest) = name.split_at_checked(2)?;
    std::fs::read(format!("/usr/lib/debug/.build-id/{folder}/{rest}.debug")).ok()
}

impl File {
    pub fn open(path: &str) -> Option<Self> {
        let data = std::fs::read(path).ok()?;
        let file = ElfFile64::<object::Endianness>::parse(&*data).ok()?;
        let mut segments: Vec<Segment> = file
            .segments()
            .map(|segment| {
                let mut bytes = segment.data().unwrap_or_default().to_vec();
                let flags = segment.permissions();
                let code = flags.executable();
                if !code {
                    bytes.resize(segment.size() as usize, 0);
                }
                Segment { address: segment.address(), bytes, code }
            })
            .collect();
        segments.sort_by_key(|segment| segment.address);
        let is_go = file.section_by_name(".gopclntab").is_some();
        let convention = if is_go { Convention::Go } else { Convention::SystemV };
        let mut this = Self {
            segments,
            functions: BTreeMap::new(),
            callees: HashMap::new(),
            slots: HashMap::new(),
            parts: HashMap::new(),
            pads: HashMap::new(),
            convention,
        };
        let known =
            |name: &str, external| Callee { returns: !never_returns(name), convention, external };
        if let Some(relocations) = file.dynamic_relocations() {
            for (place, relocation) in relocations {
                let RelocationFlags::Elf { r_type } = relocation.flags() else { continue };
                match (r_type, relocation.target()) {
                    (elf::R_X86_64_RELATIVE, _) => this.patch(place, relocation.addend() as u64),
                    (_, RelocationTarget::Symbol(index)) => {
                        let Some(symbol) = file.dynamic_symbol_table().and_then(|table| {
                            object::ObjectSymbolTable::symbol_by_index(&table, index).ok()
                        }) else {
                            continue;
                        };
                        if r_type == elf::R_X86_64_64 && symbol.address() != 0 {
                            this.patch(place, symbol.address());
                        }
                        this.slots.insert(place, known(symbol.name().unwrap_or(""), true));
                    }
                    _ => {}
                }
            }
        }
        let debug = debug_file(&file);
        let debug = debug.as_deref().and_then(|data| ElfFile64::parse(data).ok());
        let mut cold = Vec::new();
        let more =
            debug.iter().flat_map(|debug: &ElfFile64<'_, object::Endianness>| debug.symbols());
        for symbol in file.symbols().chain(more).chain(file.dynamic_symbols()) {
            if symbol.kind() != SymbolKind::Text || symbol.address() == 0 || symbol.size() == 0 {
                continue;
            }
            let name = symbol.name().unwrap_or("").to_string();
            if name.contains(".cold") {
                cold.push((name, symbol.address(), symbol.size()));
                continue;
            }
            this.callees.entry(symbol.address()).or_insert(known(&name, false));
            this.functions.entry(symbol.address()).or_insert_with(|| (name, symbol.size()));
        }
        this.add_cold(cold);
        this.add_stubs(&file);
        let odd = this.add_frames(&file);
        this.join_parts(&odd);
        Some(this)
    }

    /// The address that the code has which begins at an offset into a file.
    pub fn code_at(path: &str, offset: u64) -> Option<u64> {
        const PAGE: u64 = 4096;
        let data = std::fs::read(path).ok()?;
        let file = ElfFile64::<object::Endianness>::parse(&*data).ok()?;
        let code = file.segments().find(|segment| {
            let (start, size) = segment.file_range();
            segment.permissions().executable()
                && offset >= start / PAGE * PAGE
                && offset < start + size
        })?;
        let start = code.file_range().0 / PAGE * PAGE;
        Some(code.address() / PAGE * PAGE + (offset - start))
    }

    /// Cold parts belong to the function whose name they extend; of several, to the one that jumps there.
    fn add_cold(&mut self, cold: Vec<(String, u64, u64)>) {
        let mut by_name: HashMap<&str, Vec<u64>> = HashMap::new();
        for (&address, (name, _)) in &self.functions {
            by_name.entry(name).or_default().push(address);
        }
        let mut parts: HashMap<u64, Vec<std::ops::Range<u64>>> = HashMap::new();
        for (name, address, size) in &cold {
            let stem = &name[..name.find(".cold").unwrap_or(name.len())];
            let owners = by_name.get(stem).cloned().unwrap_or_default();
            let owner = match &owners[..] {
                [one] => Some(*one),
                many => many.iter().copied().find(|&owner| {
                    let bytes = self.bytes(owner);
                    let bytes = &bytes[..bytes.len().min(self.functions[&owner].1 as usize)];
                    weft_code::sweep(bytes, owner, &[])
                        .branches
                        .iter()
                        .any(|branch| (*address..address + *size).contains(&branch.target))
                }),
            };
            if let Some(owner) = owner {
                parts.entry(owner).or_default().push(*address..address + size);
            }
        }
        self.parts = parts;
    }

    /// Linkage stubs, by the slot that they jump through.
    fn add_stubs(&mut self, file: &ElfFile64<'_, object::Endianness>) {
        for name in [".plt", ".plt.sec", ".plt.got"] {
            let Some(section) = file.section_by_name(name) else { continue };
            let Ok(data) = section.data() else { continue };
            // Not all linkers say how long a stub is.
            let size = match section.elf_section_header().sh_entsize(file.endian()) {
                size @ (8 | 16) => size,
                _ => 16,
            };
            for (index, stub) in data.chunks(size as usize).enumerate() {
                let address = section.address() + index as u64 * size;
                let mut decoder = weft_code::iced_x86::Decoder::with_ip(64, stub, address, 0);
                for instruction in decoder.iter() {
                    if instruction.is_jmp_near_indirect() && instruction.is_ip_rel_memory_operand()
                    {
                        let slot = instruction.ip_rel_memory_address();
                        let callee = self.slots.get(&slot).copied().unwrap_or(Callee {
                            returns: true,
                            convention: self.convention,
                            external: true,
                        });
                        self.callees.insert(address, callee);
                        let stub = || (format!("stub_{address:x}"), stub.len() as u64);
                        self.functions.entry(address).or_insert_with(stub);
                        break;
                    }
                }
            }
        }
    }

    /// Functions without symbols and landing pads, from the unwind tables. Returns what begins unlike a function.
    fn add_frames(&mut self, file: &ElfFile64<'_, object::Endianness>) -> HashSet<u64> {
        use gimli::{
            BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, Pointer, UnwindContext,
            UnwindSection, X86_64,
        };
        let mut odd = HashSet::new();
        let Some(section) = file.section_by_name(".eh_frame") else { return odd };
        let Ok(data) = section.uncompressed_data() else { return odd };
        let mut context = UnwindContext::new();
        let eh_frame = EhFrame::new(&data, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(section.address());
        let mut entries = eh_frame.entries(&bases);
        let mut frames = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let start = fde.initial_address();
            if !file.sections().any(|section| {
                section.kind() == SectionKind::Text
                    && !section.name().is_ok_and(|name| name.starts_with(".plt"))
                    && (section.address()..section.address() + section.size()).contains(&start)
            }) {
                continue;
            }
            let lsda = match fde.lsda() {
                Some(Pointer::Direct(address)) => Some(address),
                _ => None,
            };
            frames.push((start, fde.len(), lsda));
            let row = fde.unwind_info_for_address(&eh_frame, &bases, &mut context, start);
            let usual = CfaRule::RegisterAndOffset { register: X86_64::RSP, offset: 8 };
            if row.is_ok_and(|row| *row.cfa() != usual) {
                odd.insert(start);
            }
        }
        let parts: Vec<u64> = self.parts.values().flatten().map(|part| part.start).collect();
        for &(start, size, _) in &frames {
            let known = self.functions.range(..=start).next_back();
            let inside = known.is_some_and(|(&from, (_, size))| start < from + size);
            if !inside && !parts.contains(&start) {
                let callee = Callee { returns: true, convention: self.convention, external: false };
                self.functions.insert(start, (format!("sub_{start:x}"), size));
                self.callees.entry(start).or_insert(callee);
            }
        }
        for (start, _, lsda) in frames {
            if let Some(lsda) = lsda {
                let pads = read_pads(self.bytes(lsda), start).unwrap_or_default();
                self.pads.insert(start, pads);
            }
        }
        odd
    }

    /// Without symbols a part that was placed elsewhere looks like a function, but for the jumps from its middle to that
    /// of the one that it belongs to, or back. A part is never called; where it begins the stack is often not as at an
    /// entry, and linkers put parts first.
    fn join_parts(&mut self, odd: &HashSet<u64>) {
        let starts: Vec<u64> = self.functions.keys().copied().collect();
        let owner = |address: u64| {
            let index = starts.partition_point(|&start| start <= address).checked_sub(1)?;
            let start = starts[index];
            (address < start + self.functions[&start].1).then_some(start)
        };
        let mut called: HashSet<u64> = HashSet::new();
        let mut pairs: Vec<(u64, u64)> = Vec::new();
        for (address, bytes) in self.text() {
            for branch in weft_code::sweep(bytes, address, &starts).branches {
                if branch.kind == weft_code::BranchKind::Call {
                    called.insert(branch.target);
                } else if let (Some(one), Some(other)) =
                    (owner(branch.source), owner(branch.target))
                    && one != other
                    && (branch.target != other || odd.contains(&other))
                {
                    pairs.push((one, other));
                }
            }
        }
        let may_be_part =
            |each: u64| self.functions[&each].0.starts_with("sub_") && !called.contains(&each);
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (one, other) in pairs {
            let (low, high) = (one.min(other), one.max(other));
            for (part, whole) in [(low, high), (high, low)] {
                if may_be_part(part)
                    && (odd.contains(&part) || part < whole && !odd.contains(&whole))
                {
                    joined.push((part, whole));
                    break;
                }
            }
        }
        joined.sort_unstable();
        joined.dedup();
        // Functions with equal parts may share them.
        let parts: HashSet<u64> = joined.iter().map(|(part, _)| *part).collect();
        for (part, whole) in joined.into_iter().filter(|(_, whole)| !parts.contains(whole)) {
            let size = self.functions[&part].1;
            self.callees.remove(&part);
            self.parts.entry(whole).or_default().push(part..part + size);
        }
        self.functions.retain(|address, _| self.callees.contains_key(address));
    }

    fn patch(&mut self, place: u64, value: u64) {
        for segment in &mut self.segments {
            let offset = place.wrapping_sub(segment.address) as usize;
            if let Some(slot) = segment.bytes.get_mut(offset..offset.wrapping_add(8)) {
                slot.copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    pub fn function(&self, address: u64) -> Function {
        let size = self.functions[&address].1;
        let mut function = Function::new(address..address + size, self.convention);
        function.ranges.extend(self.parts.get(&address).cloned().unwrap_or_default());
        if self.convention == Convention::Go {
            function.extra_entries = self.go_entries(address, size);
        }
        function
    }

    /// From now on the unwinder enters nothing.
    pub fn forget_landing_pads(&mut self) {
        self.pads.clear();
    }

    /// From now on no call comes back.
    pub fn forget_returns(&mut self) {
        for callee in self.callees.values_mut().chain(self.slots.values_mut()) {
            callee.returns = false;
        }
    }

    /// Where Go's runtime enters a function besides its start: at the call of what runs deferred functions, once one of
    /// them has recovered; and behind the first byte of what the bottom of each stack returns to.
    fn go_entries(&self, address: u64, size: u64) -> Vec<u64> {
        if self.functions[&address].0.starts_with("runtime.goexit") {
            return vec![address + 1];
        }
        let bytes = &self.bytes(address)[..size as usize];
        let calls = weft_code::sweep(bytes, address, &[]).branches.into_iter().filter(|branch| {
            let target = self.functions.get(&branch.target);
            target.is_some_and(|(name, _)| name == "runtime.deferreturn")
        });
        calls.map(|call| call.source).collect()
    }

    pub fn text(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.segments
            .iter()
            .filter(|segment| segment.code)
            .map(|segment| (segment.address, &*segment.bytes))
    }
}

impl Program for File {
    fn bytes(&self, address: u64) -> &[u8] {
        let index = self.segments.partition_point(|segment| segment.address <= address);
        let Some(segment) = index.checked_sub(1).map(|index| &self.segments[index]) else {
            return &[];
        };
        segment.bytes.get((address - segment.address) as usize..).unwrap_or_default()
    }

    fn is_code(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| {
            segment.code
                && (segment.address..segment.address + segment.bytes.len() as u64)
                    .contains(&address)
        })
    }

    fn callee(&self, address: u64) -> Option<Callee> {
        self.callees.get(&address).copied()
    }

    fn callee_through(&self, slot: u64) -> Option<Callee> {
        self.slots.get(&slot).copied()
    }

    fn landing_pads(&self, function: &Function) -> Vec<u64> {
        function
            .ranges
            .iter()
            .filter_map(|range| self.pads.get(&range.start))
            .flatten()
            .copied()
            .collect()
    }
}

/// The landing pads of a language-specific data area.
fn read_pads(data: &[u8], function: u64) -> Option<Vec<u64>> {
    let mut at = 0;
    let byte = |at: &mut usize| {
        *at += 1;
        data.get(*at - 1).copied()
    };
    let uleb = |at: &mut usize| {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = data.get(*at).copied()?;
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return Some(value);
            }
        }
    };
    if byte(&mut at)? != 0xff {
        return None;
    }
    if byte(&mut at)? != 0xff {
        uleb(&mut at)?;
    }
    let encoding = byte(&mut at)?;
    let value = |at: &mut usize| match encoding & 0xf {
        1 => uleb(at),
        3 => {
            *at += 4;
            Some(u64::from(u32::from_le_bytes(data.get(*at - 4..*at)?.try_into().ok()?)))
        }
        _ => None,
    };
    let length = uleb(&mut at)? as usize;
    let end = at + length;
    let mut pads = Vec::new();
    while at < end {
        value(&mut at)?;
        value(&mut at)?;
        let pad = value(&mut at)?;
        uleb(&mut at)?;
        if pad != 0 {
            pads.push(function + pad);
        }
    }
    pads.sort_unstable();
    pads.dedup();
    Some(pads)
}
