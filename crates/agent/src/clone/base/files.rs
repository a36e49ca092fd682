//! Names of files, as the kernel knows them.

use crate::clone::base::system;
use core::fmt::{self, Write};

/// The name of a descriptor's file, as far as there is room for it.
pub fn name_of(descriptor: u64, room: &mut [u8]) -> Option<&[u8]> {
    let mut link = Text::default();
    let _ = write!(link, "/proc/self/fd/{descriptor}\0");
    // SAFETY: the path ends with a zero; the kernel writes to the room, and no more than it holds.
    let length = unsafe {
        let (path, to) = (link.bytes.as_ptr() as usize, room.as_mut_ptr() as usize);
        system::call3(system::READLINK, path, to, room.len())
    };
    usize::try_from(length).ok().filter(|&length| length > 0).map(|length| &room[..length])
}

/// A short text.
#[derive(Default)]
pub struct Text {
    bytes: [u8; 32],
    length: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.length..self.length + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.length += text.len();
        Ok(())
    }
}

impl Text {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}
