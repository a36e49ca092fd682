//! Files that a debugger reads through the server: what `/proc` says of the program, and its libraries.
//!
//! Nothing can be written or removed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weft_host::proc::{self, Tid};
use weft_symbols::inside;

/// How many a debugger may have open.
const MOST: usize = 256;

#[derive(Debug)]
enum Opened {
    /// One of the kernel's, as it was when it was opened.
    Text(Vec<u8>),
    File(File),
}

/// The files that a debugger has open.
#[derive(Debug, Default)]
pub struct Files {
    open: HashMap<u32, Opened>,
    next: u32,
    /// The process through whose eyes files are looked for.
    viewer: Option<Tid>,
}

impl Files {
    /// Looks for files as a process sees them, or as weft does.
    pub fn look_as(&mut self, pid: Option<Tid>) {
        let is_elsewhere = |pid: &Tid| {
            let own = std::process::id() as Tid;
            proc::namespace(*pid, "mnt") != proc::namespace(own, "mnt")
        };
        self.viewer = pid.filter(is_elsewhere);
    }

    /// The root directory that a path is followed in, if it is not weft's own.
    fn root(&self, path: &Path) -> Option<PathBuf> {
        self.viewer.filter(|_| path.is_absolute()).map(inside::root_of)
    }

    /// Opens a file for reading. `hidden` says where the mappings of a process begin that are not to be shown.
    pub fn open(
        &mut self,
        name: &[u8],
        pid: Option<Tid>,
        hidden: impl Fn() -> Vec<u64>,
    ) -> io::Result<u32> {
        if self.open.len() >= MOST {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let path = Path::new(OsStr::from_bytes(name));
        let root = self.root(path);
        let file = match &root {
            Some(root) => inside::open_file(root, path)?,
            None => open(path)?,
        };
        // In another root directory, processes may have other numbers.
        let is_its_own = root.is_some() && path.starts_with("/proc")
            || pid.is_some_and(|pid| path.starts_with(format!("/proc/{pid}")));
        let is_map = path.file_name().is_some_and(|name| name == "maps" || name == "smaps");
        let opened = if is_its_own && is_map {
            let mut text = Vec::new();
            (&file).read_to_end(&mut text)?;
            Opened::Text(without(&text, &hidden()))
        } else {
            Opened::File(file)
        };
        self.next += 1;
        self.open.insert(self.next, opened);
        Ok(self.next)
    }

    /// Reads of an open file, and says how much; less than what there is room for if it ends.
    pub fn read(&self, number: u32, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        match self.get(number)? {
            Opened::Text(text) => {
                let start = (offset as usize).min(text.len());
                let count = bytes.len().min(text.len() - start);
                bytes[..count].copy_from_slice(&text[start..start + count]);
                Ok(count)
            }
            Opened::File(file) => file.read_at(bytes, offset),
        }
    }

    /// What the kernel says of an open file: none for what is not as it is there.
    pub fn facts(&self, number: u32) -> io::Result<fs::Metadata> {
        match self.get(number)? {
            Opened::Text(_) => fs::metadata("/proc/self/maps"),
            Opened::File(file) => file.metadata(),
        }
    }

    /// Closes a file.
    pub fn close(&mut self, number: u32) -> io::Result<()> {
        self.get(number)?;
        self.open.remove(&number);
        Ok(())
    }

    /// Where a link leads to.
    pub fn link(&self, name: &[u8]) -> io::Result<Vec<u8>> {
        let path = Path::new(OsStr::from_bytes(name));
        match self.root(path) {
            Some(root) => inside::read_link(&root, path),
            None => Ok(fs::read_link(path)?.as_os_str().as_bytes().to_vec()),
        }
    }

    fn get(&self, number: u32) -> io::Result<&Opened> {
        self.open.get(&number).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}

fn open(path: &Path) -> io::Result<File> {
    // A pipe without a writer would hold up everything.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::from_raw_os_error(libc::EACCES)),
    }
}

/// A memory map without some mappings, and without what is said of them.
fn without(text: &[u8], hidden: &[u64]) -> Vec<u8> {
    let mut left = Vec::with_capacity(text.len());
    let mut hides = false;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        if let Some(start) = start_of(line) {
            hides = hidden.contains(&start);
        }
        if !hides {
            left.extend_from_slice(line);
        }
    }
    left
}

/// Where the mapping begins that a line describes; `None` for the lines of details behind it.
fn start_of(line: &[u8]) -> Option<u64> {
    let range = line.split(|&byte| byte == b' ').next()?;
    let (start, end) = std::str::from_utf8(range).ok()?.split_once('-')?;
    u64::from_str_radix(end, 16).ok()?;
    u64::from_str_radix(start, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_not_in_the_map() {
        let smaps = b"1000-2000 r-xp 00000000 fe:00 42 /bin/ls\nSize: 4 kB\n\
            3000-4000 rw-p 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd-wr\n\
            7fff-8fff rw-p 00000000 00:00 0 [stack]\n";
        let left = without(smaps, &[0x3000]);
        let text = String::from_utf8(left).unwrap();
        assert_eq!(
            text,
            "1000-2000 r-xp 00000000 fe:00 42 /bin/ls\nSize: 4 kB\n\
             7fff-8fff rw-p 00000000 00:00 0 [stack]\n"
        );
    }

    #[test]
    fn files_are_read_and_closed() {
        let mut files = Files::default();
        let me = std::process::id() as Tid;
        let name = format!("/proc/{me}/maps");
        let all = || proc::maps(me).unwrap().iter().map(|mapping| mapping.start.0).collect();
        let number = files.open(name.as_bytes(), Some(me), all).unwrap();
        assert_eq!(files.read(number, 0, &mut [0; 10]).unwrap(), 0, "all of it is hidden");
        assert!(files.facts(number).is_ok());
        files.close(number).unwrap();
        assert!(files.close(number).is_err());
        assert!(files.read(number, 0, &mut [0; 10]).is_err());

        let number = files.open(b"/proc/self/cmdline", None, Vec::new).unwrap();
        assert!(files.read(number, 0, &mut [0; 10]).unwrap() > 0);
        assert_eq!(files.read(number, 1 << 30, &mut [0; 10]).unwrap(), 0);
        assert!(files.open(b"/", None, Vec::new).is_err());
        assert!(files.open(b"/dev/null", None, Vec::new).is_err());
        assert!(files.open(b"/no/such", None, Vec::new).is_err());
    }
}
