//! Files, as `gdbstub` asks for them.

use super::Program;
use gdbstub::target::ext::host_io::{
    FsKind, HostIo, HostIoClose, HostIoCloseOps, HostIoErrno, HostIoError, HostIoFstat,
    HostIoFstatOps, HostIoOpen, HostIoOpenFlags, HostIoOpenMode, HostIoOpenOps, HostIoPread,
    HostIoPreadOps, HostIoReadlink, HostIoReadlinkOps, HostIoResult, HostIoSetfs, HostIoSetfsOps,
    HostIoStat,
};
use std::io;
use std::os::unix::fs::MetadataExt;
use weft_host::Error;

impl HostIo for Program<'_> {
    fn support_open(&mut self) -> Option<HostIoOpenOps<'_, Self>> {
        Some(self)
    }

    fn support_close(&mut self) -> Option<HostIoCloseOps<'_, Self>> {
        Some(self)
    }

    fn support_pread(&mut self) -> Option<HostIoPreadOps<'_, Self>> {
        Some(self)
    }

    fn support_fstat(&mut self) -> Option<HostIoFstatOps<'_, Self>> {
        Some(self)
    }

    fn support_readlink(&mut self) -> Option<HostIoReadlinkOps<'_, Self>> {
        Some(self)
    }

    fn support_setfs(&mut self) -> Option<HostIoSetfsOps<'_, Self>> {
        Some(self)
    }
}

fn failed(error: &io::Error) -> HostIoError<Error> {
    HostIoError::Errno(match error.raw_os_error() {
        Some(libc::ENOENT) => HostIoErrno::ENOENT,
        Some(libc::EACCES) => HostIoErrno::EACCES,
        Some(libc::EPERM) => HostIoErrno::EPERM,
        Some(libc::EBADF) => HostIoErrno::EBADF,
        Some(libc::EMFILE) => HostIoErrno::EMFILE,
        Some(libc::ENOTDIR) => HostIoErrno::ENOTDIR,
        Some(libc::EINVAL) => HostIoErrno::EINVAL,
        Some(libc::EIO) => HostIoErrno::EIO,
        _ => HostIoErrno::EUNKNOWN,
    })
}

impl HostIoOpen for Program<'_> {
    fn open(
        &mut self,
        name: &[u8],
        flags: HostIoOpenFlags,
        _mode: HostIoOpenMode,
    ) -> HostIoResult<u32, Self> {
        if flags != HostIoOpenFlags::O_RDONLY {
            return Err(HostIoError::Errno(HostIoErrno::EROFS));
        }
        let pid = self.pid();
        let (files, debuggee) = self.files_and_debuggee();
        let hidden = || debuggee.map(|debuggee| debuggee.hidden()).unwrap_or_default();
        files.open(name, pid, hidden).map_err(|error| failed(&error))
    }
}

impl HostIoClose for Program<'_> {
    fn close(&mut self, number: u32) -> HostIoResult<(), Self> {
        self.files.close(number).map_err(|error| failed(&error))
    }
}

impl HostIoPread for Program<'_> {
    fn pread(
        &mut self,
        number: u32,
        count: usize,
        offset: u64,
        room: &mut [u8],
    ) -> HostIoResult<usize, Self> {
        // Escaped, bytes may take twice the room.
        let count = count.min(room.len() / 2);
        self.files.read(number, offset, &mut room[..count]).map_err(|error| failed(&error))
    }
}

impl HostIoFstat for Program<'_> {
    fn fstat(&mut self, number: u32) -> HostIoResult<HostIoStat, Self> {
        let facts = self.files.facts(number).map_err(|error| failed(&error))?;
        Ok(HostIoStat {
            st_dev: facts.dev() as u32,
            st_ino: facts.ino() as u32,
            st_mode: HostIoOpenMode::from_bits_truncate(facts.mode()),
            st_nlink: facts.nlink() as u32,
            st_uid: facts.uid(),
            st_gid: facts.gid(),
            st_rdev: facts.rdev() as u32,
            st_size: facts.size(),
            st_blksize: facts.blksize(),
            st_blocks: facts.blocks(),
            st_atime: facts.atime() as u32,
            st_mtime: facts.mtime() as u32,
            st_ctime: facts.ctime() as u32,
        })
    }
}

impl HostIoReadlink for Program<'_> {
    fn readlink(&mut self, name: &[u8], room: &mut [u8]) -> HostIoResult<usize, Self> {
        let target = self.files.link(name).map_err(|error| failed(&error))?;
        let room =
            room.get_mut(..target.len()).ok_or(HostIoError::Errno(HostIoErrno::ENAMETOOLONG))?;
        room.copy_from_slice(&target);
        Ok(target.len())
    }
}

impl HostIoSetfs for Program<'_> {
    fn setfs(&mut self, view: FsKind) -> HostIoResult<(), Self> {
        self.files.look_as(match view {
            FsKind::Stub => None,
            FsKind::Pid(pid) => pid.get().try_into().ok(),
        });
        Ok(())
    }
}
