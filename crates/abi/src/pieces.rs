//! What the clone is made of, and how the program's registers follow from where a thread is in it.
//!
//! The engine goes by this for its own threads, and the host for threads that it looks at from outside.

/// The registers of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// In the order in which instructions number them.
    pub general: [u64; 16],
    /// The instruction pointer.
    pub pc: u64,
    /// A return address that the clone has in place of the program's: where, and what it should be.
    pub stacked: Option<(u64, u64)>,
}

/// The program's values of registers that the clone may be using.
#[derive(Clone, Copy, Debug, Default)]
pub struct Aside {
    /// `rax`.
    pub rax: u64,
    /// `rcx`.
    pub rcx: u64,
    /// A register that is used for an address that is out of reach.
    pub far: u64,
    /// A second register, where an instruction needs two.
    pub second_far: u64,
    /// Two registers that a restartable sequence uses.
    pub kept: [u64; 2],
    /// Which they are: four bits each; 0 if there are none.
    pub kept_names: u32,
}

impl Aside {
    /// Gives the registers back that a restartable sequence has been using.
    pub fn give_kept(&self, general: &mut [u64; 16]) {
        if self.kept_names != 0 {
            general[self.kept_names as usize & 15] = self.kept[0];
            general[self.kept_names as usize >> 4 & 15] = self.kept[1];
        }
    }
}

/// `mov gs:[rcx], rcx`: how long it and its like are.
pub const SAVE: u8 = 9;
/// How long the way into a block is for indirect branches.
pub const ENTRY: usize = 40;
/// How long the first instruction of it is, which has the block's address.
const NEGATED: u8 = 10;
/// How long it is to put a return address in its place.
pub const RETURN_ADDRESS: usize = 11;
/// How long the first instruction of that is, which has the address.
const ADDRESS: u64 = 7;
/// How long it is to jump to where a table leads.
pub const THROUGH_TABLE: usize = 18;
/// How long it is to leave the clone.
pub const LEAVE: usize = 21;

const RAX: usize = 0;
const RCX: usize = 1;
const RSP: usize = 4;

/// What became of an instruction. The numbers leave four bits for the length of one of the program's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The same bytes, or the same but for a distance: Tdb's *identity*.
    Copied = 0x00,
    /// Reaches far memory through a register: *insert*, identity and *move*.
    Far = 0x10,
    /// A direct branch, with padding before it.
    Branch = 0x20,
    /// `loop`, `jrcxz` and their like.
    Loop = 0x30,
    /// A direct call.
    Call = 0x40,
    /// An indirect call.
    CallIndirect = 0x50,
    /// An indirect jump.
    Jump = 0x60,
    /// A return.
    Return = 0x70,
    /// A system call.
    SystemCall = 0x80,
    /// Reaches memory by the program's own `gs`, through two registers: *insert*, identity and *move*.
    Segment = 0x90,
    /// The same for an indirect jump and an indirect call, which use both registers anyway.
    JumpSegment = 0xa0,
    /// See above.
    CallSegment = 0xb0,
    /// Cannot be translated: the program goes on natively.
    Refused = 0xc0,
    /// Not of the program's: what indirect branches come in by. *Insert*.
    Entry = 0xf0,
    /// Not of the program's: goes on elsewhere. *Insert*.
    Onward = 0xf1,
    /// Not of the program's: the beginning of a restartable sequence. *Insert*.
    Arm = 0xf2,
    /// Not of the program's: a snippet, or a part of one. *Insert*.
    Snippet = 0xf3,
    /// Not of the program's: the way that a branch takes, where that is counted right behind the branch. *Insert*.
    Way = 0xf4,
}

impl Kind {
    const ALL: [Self; 18] = [
        Self::Copied,
        Self::Far,
        Self::Branch,
        Self::Loop,
        Self::Call,
        Self::CallIndirect,
        Self::Jump,
        Self::Return,
        Self::SystemCall,
        Self::Segment,
        Self::JumpSegment,
        Self::CallSegment,
        Self::Refused,
        Self::Entry,
        Self::Onward,
        Self::Arm,
        Self::Snippet,
        Self::Way,
    ];

    /// Decodes a record: what became of an instruction, and how long it is.
    pub fn of_record(record: u8) -> (Self, u8) {
        const PROGRAM: usize = 13;
        match record {
            0xf0.. => (Self::ALL[(PROGRAM + (record & 15) as usize).min(Self::ALL.len() - 1)], 0),
            _ => (Self::ALL[((record >> 4) as usize).min(PROGRAM - 1)], record & 15),
        }
    }
}

/// A piece of code in the cold part of the clone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cold {
    /// Leaves the clone for an address, until it is linked to its block: see [`stub`].
    Stub,
    /// Puts the return address of a direct call in its place.
    CallThunk,
    /// The same for an indirect call.
    CallIndirectThunk,
    /// The entry for indirect branches to a block that has none of its own.
    Entry,
    /// Leaves the clone from a restartable sequence, where the kernel has sent the thread.
    Abort,
    /// What the kernel reads of one.
    Data,
    /// The rarely executed part of a snippet, or a routine of snippets.
    Snippet,
    /// What [`Stub`](Self::Stub) is where the clone itself cannot be changed: it leads where a slot says, which is to its
    /// own way out as long as nothing is linked: see [`slot_stub`].
    SlotStub,
}

/// The address that a word of the clone says: it says how far that is from its own place, which is the same wherever
/// the clone is.
pub fn said_at(place: u64, word: u64) -> u64 {
    place.wrapping_add(word)
}

/// The word that says an address: see [`said_at`].
pub fn saying(place: u64, address: u64) -> u64 {
    address.wrapping_sub(place)
}

/// The address that [`RETURN_ADDRESS`] bytes of the clone put in its place.
fn return_address(at: u64, read: impl Fn(u64, usize) -> Option<u64>) -> Option<u64> {
    const LEA: u64 = 0x8d;
    let distance = read(at.wrapping_add(3), 4)? as u32 as i32;
    let place = at.wrapping_add(ADDRESS).wrapping_add_signed(distance.into());
    // Where it is out of reach, it is read from a word behind.
    if read(at.wrapping_add(1), 1)? == LEA { Some(place) } else { read(place, 8) }
}

/// The address of the block that [`ENTRY`] bytes of the clone are the way into.
fn entered(at: u64, read: impl Fn(u64, usize) -> Option<u64>) -> Option<u64> {
    const LEA: u64 = 0x8d;
    if read(at.wrapping_add(1), 1)? == LEA {
        let distance = read(at.wrapping_add(3), 4)? as u32 as i32;
        return Some(at.wrapping_add(7).wrapping_add_signed(distance.into()));
    }
    Some(!read(at.wrapping_add(2), 8)?)
}

/// Where the parts of a stub are.
pub mod stub {
    /// Where it leads in the program, from here: see [`said_at`](super::said_at).
    pub const TARGET: u64 = 24;
    /// The branch that leads to it.
    pub const SITE: u64 = 32;
    /// What it is marked with.
    pub const FAR: u64 = 40;
    /// How long it is.
    pub const SIZE: usize = 48;
}

/// Where the parts of a stub with a slot are.
pub mod slot_stub {
    /// How far away the slot is, from [`EXIT`].
    pub const SLOT: u64 = 2;
    /// Its way out of the clone.
    pub const EXIT: u64 = 6;
    /// Where it leads in the program, from here.
    pub const TARGET: u64 = EXIT + super::LEAVE as u64;
    /// How long it is.
    pub const SIZE: usize = TARGET as usize + 8;
}

/// Where the parts of a direct call's thunk are.
pub mod thunk {
    use super::{RETURN_ADDRESS, SAVE};
    /// What puts the return address in its place.
    pub const ADDRESS: u64 = SAVE as u64;
    /// From where `rax` is not the program's, and until where.
    pub const TAKEN: u64 = ADDRESS + super::ADDRESS;
    /// See above.
    pub const GIVEN: u64 = ADDRESS + RETURN_ADDRESS as u64;
    /// Where the call goes, from here: behind a jump that may have been moved.
    pub const TARGET: u64 = GIVEN + SAVE as u64 + 8 + 5;
    /// How long it is.
    pub const SIZE: usize = TARGET as usize + 8;
}

/// In the place of an address where a function begins: the same, but reached from within the function, so
/// that it is not entered.
const INNER: u64 = 1 << 62;

/// The start of a function as it is reached from within.
pub fn inner(start: u64) -> u64 {
    start | INNER
}

/// Whether it stands for a start that is reached from within. No program has code at such an address.
pub fn is_inner(key: u64) -> bool {
    key >> 62 == 1
}

/// The address itself, where it may be one that is reached from within.
pub fn real(key: u64) -> u64 {
    if is_inner(key) { key & !INNER } else { key }
}

/// Where a thread is in a block.
#[derive(Clone, Copy, Debug)]
pub struct InBlock {
    /// The original address.
    pub original: u64,
    /// What is done there.
    pub kind: Kind,
    /// What is done right before it.
    pub before: Option<Kind>,
    /// How far into it.
    pub offset: u8,
    /// How long the original is.
    pub length: u8,
    /// How long the copy is.
    pub copied: u8,
}

impl InBlock {
    /// Finds a place in the block of these records, which begins in the program at `start` and in the clone at `code`.
    #[inline]
    pub fn locate(records: &[u8], start: u64, code: u64, pc: u64) -> Self {
        let (mut original, mut copy, mut before) = (start, code, None);
        for record in records.chunks_exact(2) {
            let (kind, length) = Kind::of_record(record[0]);
            let next = copy.wrapping_add(u64::from(record[1]));
            if pc < next {
                let offset = pc.wrapping_sub(copy) as u8;
                return Self { original, kind, before, offset, length, copied: record[1] };
            }
            original = original.wrapping_add(u64::from(length));
            copy = next;
            before = Some(kind);
        }
        Self { original, kind: Kind::Copied, before, offset: 0, length: 0, copied: 0 }
    }

    /// What a thread has that is there becomes what the program would have. `read` reads that many bytes of code as a
    /// number; `None` if it cannot.
    pub fn restore(
        &self,
        aside: &Aside,
        state: &mut State,
        read: impl Fn(u64, usize) -> Option<u64>,
    ) -> Option<()> {
        let place = state.pc;
        let Self { original, kind, offset, length, copied, .. } = *self;
        let from_end = copied.wrapping_sub(offset);
        let behind = original.wrapping_add(u64::from(length));
        state.pc = original;
        // The register that an instruction at an offset in the piece puts aside.
        let named = |at: u8| {
            let first = place.wrapping_sub(u64::from(offset)).wrapping_add(u64::from(at));
            Some(read(first.wrapping_add(3), 1)? as usize >> 3 & 7)
        };
        match kind {
            Kind::Copied | Kind::Branch | Kind::Onward | Kind::Call => {}
            // The beginning: from anywhere else threads are led out first.
            Kind::Snippet | Kind::Way => {}
            Kind::Loop => {
                // Padding, then nine bytes and a prefix: `loop taken`, `jmp next`, `taken: jmp target`.
                if from_end == 7 {
                    state.pc = behind;
                } else if from_end == 5 {
                    let distance = read(behind.wrapping_sub(1), 1)? as u8 as i8;
                    state.pc = behind.wrapping_add(distance as i64 as u64);
                }
            }
            Kind::Far => {
                if offset >= SAVE {
                    // The first instruction of the piece names the register.
                    state.general[named(0)?] = aside.far;
                    if from_end == SAVE {
                        state.pc = behind;
                    }
                }
            }
            Kind::Segment => {
                // The first two instructions of the piece name the registers.
                if offset >= SAVE && from_end >= 2 * SAVE {
                    state.general[named(0)?] = aside.far;
                }
                if offset >= 2 * SAVE {
                    state.general[named(SAVE)?] = aside.second_far;
                }
                if from_end <= 2 * SAVE {
                    state.pc = behind;
                }
            }
            Kind::Arm => {
                if offset >= SAVE {
                    state.general[RAX] = aside.kept[0];
                }
                if offset >= 2 * SAVE {
                    state.general[RCX] = aside.kept[1];
                }
            }
            Kind::Return => {
                if offset > SAVE {
                    if offset >= 33 {
                        state.stacked = Some((state.general[RSP], state.general[RCX]));
                    }
                    state.general[RCX] = aside.rcx;
                }
                if offset > 13 + SAVE {
                    state.general[RAX] = aside.rax;
                }
            }
            Kind::Jump => spilled(aside, state, offset, copied.wrapping_sub(THROUGH_TABLE as u8)),
            Kind::CallIndirect => spilled(aside, state, offset, copied.wrapping_sub(5)),
            Kind::JumpSegment => {
                spilled_for_segment(aside, state, offset, copied.wrapping_sub(THROUGH_TABLE as u8));
            }
            Kind::CallSegment => {
                spilled_for_segment(aside, state, offset, copied.wrapping_sub(5));
            }
            Kind::SystemCall | Kind::Refused => {
                if offset > SAVE {
                    state.general[RCX] = aside.rcx;
                }
            }
            Kind::Entry => entry(aside, state, offset, original),
        }
        Some(())
    }
}

/// In a piece that saves `rcx`, loads it with a target, and saves `rax` right before `end`.
fn spilled(aside: &Aside, state: &mut State, offset: u8, end: u8) {
    if offset > SAVE {
        state.general[RCX] = aside.rcx;
    }
    if offset > end {
        state.general[RAX] = aside.rax;
    }
}

/// The same where `rax` is used, too, and given back before it is saved.
fn spilled_for_segment(aside: &Aside, state: &mut State, offset: u8, end: u8) {
    spilled(aside, state, offset, end);
    // Behind the load of it, up to where it is given back.
    let given_back = end.wrapping_sub(2 * SAVE);
    if (given_back.wrapping_sub(4)..=given_back).contains(&offset) {
        state.general[RAX] = aside.rax;
    }
}

/// On the way into a block by an indirect branch.
fn entry(aside: &Aside, state: &mut State, offset: u8, address: u64) {
    /// Where the address is taken from the branch's, and where the registers begin to be given back.
    const TAKEN: u8 = NEGATED + 1;
    const GIVEN: u8 = NEGATED + 12;
    state.pc = match offset {
        0..TAKEN => state.general[RCX],
        TAKEN..GIVEN => state.general[RCX].wrapping_add(address),
        _ => address,
    };
    if offset <= GIVEN {
        state.general[RAX] = aside.rax;
    }
    if (offset as usize) < ENTRY {
        state.general[RCX] = aside.rcx;
    }
}

impl Cold {
    /// The kind of a number.
    pub fn of_number(number: u8) -> Option<Self> {
        const ALL: [Cold; 8] = [
            Cold::Stub,
            Cold::CallThunk,
            Cold::CallIndirectThunk,
            Cold::Entry,
            Cold::Abort,
            Cold::Data,
            Cold::Snippet,
            Cold::SlotStub,
        ];
        ALL.get(usize::from(number)).copied()
    }

    /// What a thread has that is in such a piece, which begins at `start`, becomes what the program would have. `read` is as
    /// for [`InBlock::restore`].
    pub fn restore(
        self,
        aside: &Aside,
        state: &mut State,
        start: u64,
        read: impl Fn(u64, usize) -> Option<u64>,
    ) -> Option<()> {
        let distance = state.pc.wrapping_sub(start);
        let offset = distance as u8;
        let said = |at: u64| {
            let place = start.wrapping_add(at);
            Some(said_at(place, read(place, 8)?))
        };
        match self {
            Self::Stub => {
                if offset > SAVE {
                    state.general[RCX] = aside.rcx;
                }
                state.pc = real(said(stub::TARGET)?);
            }
            Self::CallThunk => {
                let address = return_address(start.wrapping_add(thunk::ADDRESS), &read)?;
                state.stacked = Some((state.general[RSP], address));
                if (thunk::TAKEN..=thunk::GIVEN).contains(&distance) {
                    state.general[RAX] = aside.far;
                }
                state.pc = said(thunk::TARGET)?;
            }
            Self::CallIndirectThunk => {
                state.stacked = Some((state.general[RSP], return_address(start, &read)?));
                state.pc = state.general[RCX];
                state.general[RCX] = aside.rcx;
                state.general[RAX] = aside.rax;
            }
            Self::Abort => {
                if offset > SAVE {
                    state.general[RCX] = aside.rcx;
                }
                aside.give_kept(&mut state.general);
                state.pc = said(LEAVE as u64)?;
            }
            // No thread is there.
            Self::Data => {}
            Self::Entry => {
                entry(aside, state, offset, entered(start, &read)?);
            }
            Self::Snippet => {}
            Self::SlotStub => {
                if distance > slot_stub::EXIT + u64::from(SAVE) {
                    state.general[RCX] = aside.rcx;
                }
                state.pc = said(slot_stub::TARGET)?;
            }
        }
        Some(())
    }
}
