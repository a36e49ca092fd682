//! Where the engine keeps what it knows of its threads and of the clone, for a host that looks at it from outside, while
//! all threads stand still. Nothing is written, and no thread has to do anything for it.
//!
//! The engine writes an [`Outline`] when it starts, and never again. All are addresses and offsets in bytes.

/// Where everything is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Outline {
    /// The engine's lock, of four bytes: while it is not zero, a thread may be changing what is said of the clone.
    pub lock: u64,
    /// The engine's own code and data, and where that ends.
    pub image: [u64; 2],
    /// The way back to the clone, its last instruction, and its end.
    pub resume: [u64; 3],
    /// What looks for the target of an indirect branch, which `rcx` is, and the last instruction of that.
    pub missing: [u64; 2],
    /// What makes the program's system calls, and the instruction that makes them.
    pub call: [u64; 2],
    /// Lists: of arenas, of blocks, and of those that were flushed last.
    pub arenas: u64,
    /// See above.
    pub blocks: u64,
    /// See above.
    pub retired: u64,
    /// A list of clones that were mapped from files.
    pub stored: u64,
    /// Where a list has the address of its elements, and their number.
    pub list: [u64; 2],
    /// Where the parts of each are.
    pub arena: ArenaOutline,
    /// See above.
    pub half: HalfOutline,
    /// See above.
    pub piece: PieceOutline,
    /// See above.
    pub block: BlockOutline,
    /// See above.
    pub record: RecordOutline,
    /// See above.
    pub file: StoredOutline,
}

/// A clone that was mapped from a file.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredOutline {
    /// The size of an element of the list.
    pub size: u64,
    /// The address of its [header](crate::stored::StoredHeader).
    pub header: u64,
    /// How much of its code is not for the clone, but for ways out of that.
    pub head: u64,
}

/// A piece of memory for the clone.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaOutline {
    /// The size of an element of the list.
    pub size: u64,
    /// The address of the memory.
    pub start: u64,
    /// What is in use, and what was flushed last: see [`HalfOutline`].
    pub half: u64,
    /// See above.
    pub retired: u64,
    /// How long the memory is.
    pub length: u64,
    /// How much of it is not for the clone, but for ways out of that.
    pub head: u64,
}

/// One half of it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HalfOutline {
    /// Where it begins.
    pub start: u64,
    /// Where it ends.
    pub end: u64,
    /// Where the cold part begins.
    pub cold: u64,
    /// A list of the pieces of the cold part, and one of the numbers of blocks, of four bytes.
    pub pieces: u64,
    /// See above.
    pub blocks: u64,
}

/// A piece of the cold part.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct PieceOutline {
    /// The size of an element of the list.
    pub size: u64,
    /// How far before the end of the half it begins, in four bytes.
    pub start: u64,
    /// Its kind, in one byte.
    pub kind: u64,
}

/// A block.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockOutline {
    /// The size of an element of the list.
    pub size: u64,
    /// Its addresses in the program and in the clone.
    pub start: u64,
    /// See above.
    pub code: u64,
    /// The address of its records, and right behind it their length in bytes.
    pub records: u64,
}

/// What the engine keeps of a thread, with its own address first, and its stacks behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RecordOutline {
    /// The end of the engine's stack: from there on, another is for the kernel's frames.
    pub stack: u64,
    /// The program's general registers while the thread is in the engine, its instruction pointer, and where it can
    /// continue natively with them.
    pub general: u64,
    /// See above.
    pub pc: u64,
    /// See above.
    pub native_pc: u64,
    /// All bits are set while the thread is in the engine.
    pub epoch: u64,
    /// What [`Aside`](crate::pieces::Aside) has, in that order.
    pub aside: [u64; 6],
}

/// How many words an outline has.
pub const OUTLINE_WORDS: usize = size_of::<Outline>() / 8;

impl Outline {
    /// An outline from its words.
    pub fn from_words(words: [u64; OUTLINE_WORDS]) -> Self {
        // SAFETY: it is made of words, as many, and any of them is one.
        unsafe { core::mem::transmute(words) }
    }
}
