//! The frames of CPython's interpreter, copied while the threads stand still.
//!
//! Where things are in its structures differs from version to version: whoever asks knows, and says. What is read is
//! memory of the target: nothing in it is believed to be there, to be short, or to have an end.

use crate::TargetAddr;
use crate::process::memory;
use crate::process::proc::Tid;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const MOST_INTERPRETERS: usize = 256;
const MOST_THREADS: usize = 1 << 16;
const MOST_FRAMES: usize = 4096;
const LONGEST_TEXT: u64 = 4096;
const LONGEST_TABLE: u64 = 1 << 20;
/// The largest of the structures that are read as a whole.
const STRUCTURE: usize = 256;
/// The bits of a pointer to code that are none: recent versions keep a tag there.
const TAG: u64 = 3;
/// Who owns a frame that only marks where C code has called the interpreter.
const OWNED_BY_C: u8 = 3;

/// Where things are in the interpreter's memory: an address, then offsets.
#[derive(Clone, Copy, Debug, Default)]
pub struct PythonLayout {
    /// Where its state is.
    pub runtime: u64,
    /// In the runtime: the first interpreter.
    pub interpreters: u64,
    /// In an interpreter: the next.
    pub next_interpreter: u64,
    /// In an interpreter: the first thread.
    pub threads: u64,
    /// In a thread: the next.
    pub next_thread: u64,
    /// In a thread: its id.
    pub tid: u64,
    /// In a thread: its innermost frame, or what points to it.
    pub frame: u64,
    /// Behind that pointer, if there is one: the frame.
    pub frame_behind: Option<u64>,
    /// In a frame: the code object.
    pub code: u64,
    /// In a frame: the caller.
    pub previous: u64,
    /// In a frame: the instruction.
    pub instruction: u64,
    /// In a frame: its owner, or whether C code has called it.
    pub owner: u64,
    /// Whether C code's calls have frames of their own, by their owner; otherwise the called frame has a flag.
    pub has_entry_frames: bool,
    /// In a code object: the file.
    pub file: u64,
    /// In a code object: its name with those of its classes.
    pub name: u64,
    /// In a code object: its first line.
    pub first_line: u64,
    /// In a code object: the table of lines.
    pub line_table: u64,
    /// In a code object: its first instruction.
    pub first_instruction: u64,
    /// How long a string object of ASCII characters is.
    pub ascii: u64,
    /// How long another string object is.
    pub compact: u64,
}

/// A frame of the interpreter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Its code object.
    pub code: u64,
    /// How far the instruction is behind the first.
    pub offset: i64,
    /// Whether C code has called it: the next is that of another call of the interpreter.
    pub is_entry: bool,
}

/// A code object: a function, or the body of a module or a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PythonCode {
    /// Its name, with those of its classes.
    pub name: String,
    /// The file.
    pub file: String,
    /// The line that it begins at.
    pub first_line: i32,
    /// As the interpreter has it.
    pub line_table: Vec<u8>,
}

/// The frames of all threads of the interpreter, by the ids that it knows them by, the innermost first; and their code.
#[derive(Clone, Debug, Default)]
pub struct PythonStacks {
    /// The threads, and whether there may be more frames.
    pub threads: Vec<(u64, Vec<PythonFrame>, bool)>,
    /// The code objects.
    pub codes: BTreeMap<u64, Arc<PythonCode>>,
}

/// Code objects that were read before, by their addresses: one whose words are the same is the same.
#[derive(Debug, Default)]
pub struct KnownCodes(BTreeMap<u64, ([u64; 4], Arc<PythonCode>)>);

/// Reads those of some threads, by their ids, or of all. The threads stand still.
pub fn python_stacks(
    pid: Tid,
    layout: &PythonLayout,
    some: Option<&BTreeSet<u64>>,
    known: &mut KnownCodes,
) -> PythonStacks {
    let reader = Reader { pid, layout };
    let mut found = PythonStacks::default();
    let interpreters = reader.list(
        layout.runtime.wrapping_add(layout.interpreters),
        layout.next_interpreter,
        MOST_INTERPRETERS,
    );
    for interpreter in interpreters {
        let threads = interpreter.wrapping_add(layout.threads);
        for thread in reader.list(threads, layout.next_thread, MOST_THREADS) {
            let Some(tid) = reader.word(thread.wrapping_add(layout.tid)) else { continue };
            if some.is_some_and(|some| !some.contains(&tid)) {
                continue;
            }
            let (frames, is_cut) = reader.frames(thread);
            found.threads.push((tid, frames, is_cut));
        }
    }
    let frames = found.threads.iter().flat_map(|(_, frames, _)| frames);
    for frame in frames {
        if !found.codes.contains_key(&frame.code)
            && let Some(code) = reader.code(frame.code, known)
        {
            found.codes.insert(frame.code, code);
        }
    }
    found
}

struct Reader<'a> {
    pid: Tid,
    layout: &'a PythonLayout,
}

impl Reader<'_> {
    fn word(&self, at: u64) -> Option<u64> {
        memory::word(self.pid, TargetAddr(at))
    }

    fn bytes(&self, at: u64, length: u64) -> Option<Vec<u8>> {
        memory::read(self.pid, TargetAddr(at), usize::try_from(length).ok()?).ok()
    }

    /// The elements of a linked list.
    fn list(&self, head: u64, next: u64, most: usize) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = self.word(head);
        while let Some(one) = at.filter(|&one| one != 0 && found.len() < most) {
            found.push(one);
            at = self.word(one.wrapping_add(next));
        }
        found
    }

    /// The frames of a thread, and whether the last that was read is not the outermost.
    fn frames(&self, thread: u64) -> (Vec<PythonFrame>, bool) {
        let layout = self.layout;
        let mut at = self.word(thread.wrapping_add(layout.frame));
        if let (Some(behind), Some(pointer)) = (layout.frame_behind, at) {
            at = self.word(pointer.wrapping_add(behind));
        }
        let mut found: Vec<PythonFrame> = Vec::new();
        // What marks a call by C is no frame of the program, but takes its turn.
        for _ in 0..2 * MOST_FRAMES {
            let Some(frame) = at.filter(|&frame| frame != 0) else { break };
            if found.len() == MOST_FRAMES {
                break;
            }
            let Some(bytes) = self.bytes(frame, STRUCTURE as u64) else { break };
            let word = |offset: u64| {
                let start = usize::try_from(offset).ok()?;
                let word = bytes.get(start..start.checked_add(8)?)?;
                word.first_chunk().copied().map(u64::from_le_bytes)
            };
            let owner = usize::try_from(layout.owner).ok().and_then(|at| bytes.get(at)).copied();
            let (Some(code), Some(previous), Some(instruction), Some(owner)) =
                (word(layout.code), word(layout.previous), word(layout.instruction), owner)
            else {
                break;
            };
            at = Some(previous);
            if layout.has_entry_frames && owner >= OWNED_BY_C {
                if let Some(last) = found.last_mut() {
                    last.is_entry = true;
                }
                continue;
            }
            let code = code & !TAG;
            let first = code.wrapping_add(layout.first_instruction);
            found.push(PythonFrame {
                code,
                offset: instruction.wrapping_sub(first) as i64,
                is_entry: !layout.has_entry_frames && owner != 0,
            });
        }
        (found, at != Some(0))
    }

    fn code(&self, at: u64, known: &mut KnownCodes) -> Option<Arc<PythonCode>> {
        let layout = self.layout;
        let bytes = self.bytes(at, STRUCTURE as u64)?;
        let word = |offset: u64| {
            let start = usize::try_from(offset).ok()?;
            let word = bytes.get(start..start.checked_add(8)?)?;
            word.first_chunk().copied().map(u64::from_le_bytes)
        };
        let first_line = word(layout.first_line)? as i32;
        let [name, file, table] =
            [word(layout.name)?, word(layout.file)?, word(layout.line_table)?];
        let words = [name, file, table, first_line as u64];
        if let Some((_, code)) = known.0.get(&at).filter(|(before, _)| *before == words) {
            return Some(code.clone());
        }
        let code = Arc::new(PythonCode {
            name: self.text(name)?,
            file: self.text(file)?,
            first_line,
            line_table: self.table(table).unwrap_or_default(),
        });
        known.0.insert(at, (words, code.clone()));
        Some(code)
    }

    /// A bytes object.
    fn table(&self, at: u64) -> Option<Vec<u8>> {
        /// Its length, and its contents.
        const PLACES: [u64; 2] = [16, 32];
        let length = self.word(at.checked_add(PLACES[0])?)?;
        self.bytes(at.checked_add(PLACES[1])?, length.min(LONGEST_TABLE))
    }

    /// A string object.
    fn text(&self, at: u64) -> Option<String> {
        /// Its length, and bits that say how its characters are kept.
        const PLACES: [u64; 2] = [16, 32];
        let length = self.word(at.checked_add(PLACES[0])?)?.min(LONGEST_TEXT);
        let state = self.word(at.checked_add(PLACES[1])?)? as u32;
        let (size, is_ascii) = kept(state)?;
        let start = if is_ascii { self.layout.ascii } else { self.layout.compact };
        let bytes = self.bytes(at.checked_add(start)?, length * size)?;
        let characters = bytes.chunks_exact(size as usize).map(|one| {
            let mut wide = [0; 4];
            wide.iter_mut().zip(one).for_each(|(to, from)| *to = *from);
            char::from_u32(u32::from_le_bytes(wide)).unwrap_or(char::REPLACEMENT_CHARACTER)
        });
        Some(characters.collect())
    }
}

/// How long a character of a string object is, and whether all of them are ASCII; nothing if it is no such object.
fn kept(state: u32) -> Option<(u64, bool)> {
    /// How many bits are in front, which say whether it is interned: until 3.13, and since.
    const INTERNED: [u32; 2] = [2, 16];
    INTERNED.into_iter().find_map(|shift| {
        let (size, is_compact) = (state >> shift & 7, state >> (shift + 3) & 1);
        let is_ascii = state >> (shift + 4) & 1 == 1;
        (matches!(size, 1 | 2 | 4) && is_compact == 1).then_some((u64::from(size), is_ascii))
    })
}
