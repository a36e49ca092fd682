//! Random code, block by block. Says of each block what it left behind, so that two ways of running it can be compared.
//!
//! ```text
//! random_blocks forms > FORMS           the encodings that this processor knows, found by trying
//! random_blocks run FORMS SEED COUNT    a line for each block: a digest of all state after it
//! random_blocks show FORMS SEED BLOCK   one block, and that state
//! ```
//!
//! Each block is run twice, from two states: the second time, whoever translates code has done so already.

mod generate;
#[path = "../../tests/machine/mod.rs"]
mod machine;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};

use generate::*;
use machine::State;
use machine::instructions::{self, Random, aim, samples, start_state};
use weft_code::iced_x86::{Decoder, Formatter, GasFormatter, Instruction};

/// How far apart blocks begin. Not a part of a page, so that some go beyond theirs.
const STRIDE: u64 = 2000;
const LONGEST: usize = 1900;
/// How many are written before they are run.
const BATCH: u64 = 64;
const BATCH_SIZE: u64 = (BATCH * STRIDE).next_multiple_of(PAGE);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match words[..] {
        ["forms"] => try_forms(),
        ["run", forms, seed, count] => run(&read_forms(forms), number(seed), number(count)),
        ["show", forms, seed, block] => show(&read_forms(forms), number(seed), number(block)),
        _ => {
            eprintln!("random_blocks forms | run FORMS SEED COUNT | show FORMS SEED BLOCK");
            std::process::exit(2);
        }
    }
}

/// Tries every form of instruction, with ever more cautious operands, until it has run to its end.
fn try_forms() {
    const LAYOUT: instructions::Layout = instructions::HIGH;
    machine::prepare();
    let data = machine::map_data(LAYOUT.data, instructions::DATA);
    let code = machine::map_code(LAYOUT.code, instructions::PAGE);
    let mut random = Random(0x1234_5678_9abc_def1);
    let contents = instructions::contents(LAYOUT, &mut random);
    let mut output = BufWriter::new(std::io::stdout());
    for (instruction, sample) in samples(LAYOUT.code, &mut random) {
        let ran = (0..6).any(|caution| {
            let mut bytes = sample;
            aim(&instruction, &mut bytes, LAYOUT, &mut random);
            code.fill(0xcc);
            code[..instruction.len()].copy_from_slice(&bytes[..instruction.len()]);
            data.copy_from_slice(&contents);
            let mut start = start_state(LAYOUT, &mut random, caution);
            start.rip = LAYOUT.code;
            machine::run(&start).signal == libc::SIGTRAP
        });
        for byte in sample {
            write!(output, "{byte:02x}").expect("to be written");
        }
        writeln!(output, " {}", u8::from(ran)).expect("to be written");
    }
}

fn read_forms(path: &str) -> Forms {
    let mut forms = Forms { running: Vec::new(), trapping: Vec::new(), codes: Default::default() };
    for line in std::fs::read_to_string(path).expect("the forms").lines() {
        let (text, ran) = line.split_once(' ').expect("bytes, and whether they ran");
        let byte = |index: usize| u8::from_str_radix(&text[2 * index..][..2], 16).expect("a byte");
        let bytes: [u8; 15] = std::array::from_fn(byte);
        if ran == "1" {
            forms.codes.insert(Decoder::with_ip(64, &bytes, 0, 0).decode().code());
            forms.running.push(bytes);
        } else {
            forms.trapping.push(bytes);
        }
    }
    forms
}

/// What the blocks of a batch may do to their own memory, as whoever translates them sees it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Written, and then made executable.
    Fixed,
    /// Writable and executable.
    Writable,
    /// Mapped twice, to be written elsewhere.
    Shared,
}

fn kind_of(batch: u64) -> Kind {
    match batch % 8 {
        6 => Kind::Writable,
        7 => Kind::Shared,
        _ => Kind::Fixed,
    }
}

fn address_of(block: u64) -> u64 {
    let batch = block / BATCH % (CODE_SIZE / BATCH_SIZE);
    CODE + batch * BATCH_SIZE + block % BATCH * STRIDE
}

/// A number that has nothing to do with its neighbours'.
fn spread(seed: u64, number: u64) -> u64 {
    let mut value = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (value ^ value >> 31) | 1
}

struct World {
    data: &'static mut [u8],
    /// A second view of code that is shared.
    other: &'static mut [u8],
    other_file: i32,
}

/// Maps memory; whatever was there is gone.
fn map(address: u64, size: u64, protection: i32, file: Option<i32>) -> &'static mut [u8] {
    let sharing = if file.is_some() {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE
    };
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED };
    // SAFETY: the addresses are this program's own, see `reserve`.
    unsafe {
        let place = libc::mmap(
            address as *mut _,
            size as usize,
            protection,
            sharing | fixed,
            file.unwrap_or(-1),
            0,
        );
        assert_ne!(place, libc::MAP_FAILED, "cannot map {address:#x}");
        std::slice::from_raw_parts_mut(place.cast(), size as usize)
    }
}

/// Makes sure that nobody else has an address.
fn reserve(address: u64, size: u64) {
    // SAFETY: nothing is replaced.
    let place = unsafe {
        libc::mmap(
            address as *mut _,
            size as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
    assert_eq!(place as u64, address, "something is at {address:#x}");
}

fn file(size: u64) -> i32 {
    // SAFETY: a new file without a name.
    unsafe {
        let file = libc::memfd_create(c"blocks".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, size as i64), 0);
        file
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const READ_EXECUTE: i32 = libc::PROT_READ | libc::PROT_EXEC;

impl World {
    fn new() -> Self {
        machine::prepare();
        reserve(CODE, CODE_SIZE);
        let memory = file(MAPPED);
        for place in PLACES {
            reserve(place - PAGE, MAPPED + 2 * PAGE);
            map(place, MAPPED, READ_WRITE, Some(memory));
            // SAFETY: its own memory.
            unsafe {
                let end = (place + WRITABLE) as *mut _;
                libc::mprotect(end, (MAPPED - WRITABLE) as usize, libc::PROT_READ);
                libc::syscall(libc::SYS_arch_prctl, 0x1001 /* ARCH_SET_GS */, GS_BASE);
            }
        }
        // SAFETY: what has just been mapped.
        let data = unsafe { std::slice::from_raw_parts_mut(NEAR as *mut u8, WRITABLE as usize) };
        let other_file = file(BATCH_SIZE);
        Self { data, other: map(0, BATCH_SIZE, READ_WRITE, Some(other_file)), other_file }
    }

    /// Writes blocks to where they are run.
    fn write(&mut self, forms: &Forms, seed: u64, blocks: std::ops::Range<u64>) -> Vec<Block> {
        let kind = kind_of(blocks.start / BATCH);
        let start = address_of(blocks.start) & !(PAGE - 1);
        let end = address_of(blocks.end - 1) + STRIDE;
        let size = (end - start).next_multiple_of(PAGE);
        let memory = match kind {
            Kind::Fixed => map(start, size, READ_WRITE, None),
            Kind::Writable => map(start, size, READ_WRITE | libc::PROT_EXEC, None),
            Kind::Shared => &mut self.other[..size as usize],
        };
        memory.fill(0xcc);
        let made = blocks.map(|number| {
            let mut random = Random(spread(seed, number));
            let address = address_of(number) + random.below(64);
            let mut generator =
                Generator::new(forms, random.next() | 1, address, kind == Kind::Fixed);
            generator.block(LONGEST);
            let bytes = generator.bytes;
            let place = (address - start) as usize;
            memory[place..place + bytes.len()].copy_from_slice(&bytes);
            Block { address, bytes, seed: random.next() | 1 }
        });
        let made = made.collect();
        match kind {
            // SAFETY: what has just been written.
            Kind::Fixed => unsafe {
                assert_eq!(libc::mprotect(start as *mut _, size as usize, READ_EXECUTE), 0);
            },
            Kind::Writable => {}
            Kind::Shared => {
                map(start, size, READ_EXECUTE, Some(self.other_file));
            }
        }
        made
    }

    /// Runs a block from a state of its own.
    fn run(&mut self, block: &Block, round: u64) -> State {
        let mut random = Random(spread(block.seed, round));
        self.fill(&mut random);
        let mut start = state(&mut random);
        start.rip = block.address;
        machine::run(&start)
    }

    /// Fills the memory with all kinds of numbers.
    fn fill(&mut self, random: &mut Random) {
        let seed = random.next();
        let kind = random.below(3);
        for (index, word) in self.data.chunks_exact_mut(8).enumerate() {
            let value = (seed ^ index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let value = match kind {
                0 => value ^ value >> 32,
                1 => value >> 58,
                _ => value & 0x803f_ffff_803f_ffff | 0x3f80_0000_3f80_0000,
            };
            word.copy_from_slice(&value.to_le_bytes());
        }
        let indexes = &mut self.data[INDEXES as usize..];
        for (index, place) in indexes[..64].chunks_exact_mut(4).enumerate() {
            place.copy_from_slice(&(seed as u32 >> (index % 4 * 8) & 0xff).to_le_bytes());
        }
        for (index, place) in indexes[64..128].chunks_exact_mut(8).enumerate() {
            place.copy_from_slice(&(seed >> (index * 8) & 0xff).to_le_bytes());
        }
    }

    /// All that a block has left, in one number.
    fn digest(&self, end: &State) -> u64 {
        let mut digest = Digest(0x243f_6a88_85a3_08d3);
        digest.words(&end.registers);
        let fault = end.fault;
        digest.words(&[end.flags, end.rip, end.signal as u64, fault.code as u64]);
        digest.words(&[fault.address, fault.exception, fault.error, fault.unreached]);
        for range in compared_vectors() {
            digest.bytes(&end.vectors[range]);
        }
        digest.bytes(&self.data[..STACK as usize]);
        digest.bytes(self.stack(end));
        digest.0
    }

    /// What is on the stack: what is below the stack pointer, or was before that was set, is nobody's.
    fn stack(&self, end: &State) -> &[u8] {
        let offset = end.registers[4].wrapping_sub(NEAR);
        if !(STACK..WRITABLE).contains(&offset) {
            return &[];
        }
        &self.data[offset as usize..offset.next_multiple_of(STACK_PART) as usize]
    }
}

/// All vector state but for what x87 remembers of its last instruction: opcode, address and operand.
fn compared_vectors() -> [std::ops::Range<usize>; 2] {
    [0..6, 24..4096]
}

struct Block {
    address: u64,
    bytes: Vec<u8>,
    /// Of the states that it starts from.
    seed: u64,
}

struct Digest(u64);

impl Digest {
    fn words(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        }
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.words(&[u64::from_le_bytes(*word)]);
        }
        for byte in rest {
            self.words(&[u64::from(*byte)]);
        }
    }
}

/// A state to start from: registers of all sorts, and a stack.
fn state(random: &mut Random) -> State {
    let mut state = State::new();
    for register in &mut state.registers {
        *register = match random.below(4) {
            0 => random.below(200),
            1 => random.next(),
            _ => NEAR + PAGE + 64 * random.below(16),
        };
    }
    state.registers[1] = random.below(40);
    state.registers[4] = stack_in(FIRST_PART, random);
    state.flags = 0x202 | random.next() & FLAGS;
    let kind = random.below(3);
    state.fill_vectors(|| match kind {
        0 => random.next() & 63,
        1 => random.next(),
        _ => random.next() & 0x803f_ffff_803f_ffff | 0x3f80_0000_3f80_0000,
    });
    // Rounding, precision, and at times what traps; where x87's stack begins.
    let traps = if random.below(8) == 0 { random.next() as u16 & 0x3f } else { 0 };
    let control = 0x37f & !traps ^ (random.next() as u16 & 0xc00);
    state.vectors[0..2].copy_from_slice(&control.to_le_bytes());
    state.vectors[2..4].copy_from_slice(&(random.next() as u16 & 0x3800).to_le_bytes());
    state.vectors[4] = if random.below(2) == 0 { 0xff } else { random.next() as u8 };
    let traps = if random.below(8) == 0 { random.next() as u32 & 0x1f80 } else { 0 };
    let control = 0x1f80 & !traps | random.next() as u32 & 0xe040;
    state.vectors[24..28].copy_from_slice(&control.to_le_bytes());
    state
}

fn run(forms: &Forms, seed: u64, count: u64) {
    let mut world = World::new();
    let mut output = BufWriter::with_capacity(1 << 16, std::io::stdout());
    let mut ends: BTreeMap<i32, u64> = BTreeMap::new();
    let mut names = BTreeSet::new();
    let mut codes = BTreeSet::new();
    for first in (0..count).step_by(BATCH as usize) {
        let blocks = world.write(forms, seed, first..(first + BATCH).min(count));
        for block in &blocks {
            for instruction in decoded(block) {
                names.insert(instruction.mnemonic() as u32);
                codes.insert(instruction.code() as u32);
            }
        }
        let mut digests = vec![Some(0_u64); blocks.len()];
        for round in 0..2 {
            for (block, digest) in blocks.iter().zip(&mut digests) {
                let end = world.run(block, round);
                *ends.entry(end.signal).or_default() += 1;
                // What never ends is stopped anywhere.
                let is_over = end.signal != libc::SIGVTALRM;
                let one = world.digest(&end);
                *digest = digest.filter(|_| is_over).map(|all| all.rotate_left(1) ^ one);
            }
        }
        for digest in digests {
            match digest {
                Some(digest) => writeln!(output, "{digest:016x}"),
                None => writeln!(output, "endless"),
            }
            .expect("to be written");
        }
        // Should it end badly, it is known where.
        output.flush().expect("to be written");
        let start = address_of(first) & !(PAGE - 1);
        map(start, BATCH_SIZE, libc::PROT_NONE, None);
    }
    let name = |signal: &i32| match *signal {
        libc::SIGTRAP => "to the end",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGILL => "SIGILL",
        libc::SIGFPE => "SIGFPE",
        libc::SIGBUS => "SIGBUS",
        _ => "endless",
    };
    let ends: Vec<String> =
        ends.iter().map(|(signal, count)| format!("{} {count}", name(signal))).collect();
    eprintln!(
        "{count} blocks, {} mnemonics, {} encodings; {}",
        names.len(),
        codes.len(),
        ends.join(", ")
    );
}

fn decoded(block: &Block) -> Vec<Instruction> {
    Decoder::with_ip(64, &block.bytes, block.address, 0).iter().collect()
}

fn show(forms: &Forms, seed: u64, number: u64) {
    let mut world = World::new();
    let first = number / BATCH * BATCH;
    let blocks = world.write(forms, seed, first..number + 1);
    let block = &blocks[(number - first) as usize];
    let mut formatter = GasFormatter::new();
    for instruction in decoded(block) {
        let mut text = String::new();
        formatter.format(&instruction, &mut text);
        let at = (instruction.ip() - block.address) as usize;
        let bytes: String =
            block.bytes[at..][..instruction.len()].iter().map(|b| format!("{b:02x}")).collect();
        println!("{:x} {bytes:30} {text}", instruction.ip());
    }
    for round in 0..2 {
        let end = world.run(block, round);
        println!("round {round}: signal {} at {:#x}, {:x?}", end.signal, end.rip, end.fault);
        println!("flags {:x} registers {:x?}", end.flags, end.registers);
        for (index, words) in end.vectors.chunks_exact(64).enumerate() {
            if words.iter().any(|byte| *byte != 0) {
                println!("vectors {:4x} {}", index * 64, hexadecimal(words));
            }
        }
        for (index, words) in world.data[..STACK as usize].chunks_exact(64).enumerate() {
            println!("data {:4x} {}", index * 64, hexadecimal(words));
        }
        println!("stack {}", hexadecimal(world.stack(&end)));
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
