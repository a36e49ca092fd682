//! Files of a process that has another root directory: in a container, or behind a `chroot`.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The root directory of a process, from here.
pub fn root_of(pid: i32) -> PathBuf {
    format!("/proc/{pid}/root").into()
}

/// Opens a regular file for reading as a process whose root directory is `root` would. Neither symbolic links nor `..`
/// lead out of it: whoever owns what is in there must not choose which of weft's own files is read.
pub fn open_file(root: &Path, path: &Path) -> io::Result<File> {
    // Without O_NONBLOCK, a pipe that has the name of the file would stop weft.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open(root, path, flags)?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Where a symbolic link leads to, as it says.
pub fn read_link(root: &Path, path: &Path) -> io::Result<Vec<u8>> {
    let link = open(root, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
    Ok(rustix::fs::readlinkat(&link, c"", Vec::new())?.into_bytes())
}

fn open(root: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let root_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(CWD, root, root_flags, Mode::empty())?;
    match rustix::fs::openat2(&directory, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
        // Sandboxes forbid openat2; in weft's own root directory the plain call does the same.
        Err(Errno::NOSYS | Errno::PERM) if is_here(root) => {
            Ok(rustix::fs::openat(CWD, path, flags, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// Whether a root directory is weft's own.
fn is_here(root: &Path) -> bool {
    let identity = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    identity(root).is_some_and(|found| Some(found) == identity(Path::new("/")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_leads_out_of_a_root() {
        let folder = std::env::temp_dir().join(format!("weft-inside-{}", std::process::id()));
        let root = folder.join("root");
        fs::create_dir_all(root.join("below")).unwrap();
        let secret = folder.join("secret");
        fs::write(&secret, b"outside").unwrap();
        fs::write(root.join("file"), b"inside").unwrap();
        symlink("/file", root.join("below/absolute")).unwrap();
        symlink("../../../../file", root.join("below/upwards")).unwrap();
        symlink(&secret, root.join("out")).unwrap();
        symlink("../secret", root.join("up")).unwrap();
        let text = |path: &str| open_file(&root, Path::new(path)).and_then(io::read_to_string);
        for path in ["/file", "/below/absolute", "/below/upwards", "/../../file"] {
            assert_eq!(text(path).unwrap(), "inside", "{path}");
        }
        for path in ["/out", "/up", "/../secret", "/below", "/no"] {
            assert!(text(path).is_err(), "{path}");
        }
        let link = read_link(&root, Path::new("/out")).unwrap();
        assert_eq!(link, secret.as_os_str().as_encoded_bytes());
        fs::remove_dir_all(&folder).unwrap();
    }
}
