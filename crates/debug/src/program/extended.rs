//! Starting a program once more, with what GDB has set for it: `run`, `set environment`, `set cwd`.

use super::{NO_SUCH_THING, Program, number_of};
use gdbstub::common::Pid;
use gdbstub::target::ext::extended_mode::{
    Args, AttachKind, ConfigureEnv, ConfigureEnvOps, ConfigureWorkingDir, ConfigureWorkingDirOps,
    CurrentActivePid, CurrentActivePidOps, ExtendedMode, ShouldTerminate,
};
use gdbstub::target::{TargetError, TargetResult};
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStringExt;
use weft_host::Result;

impl ExtendedMode for Program<'_> {
    fn run(&mut self, file: Option<&[u8]>, words: Args<'_, '_>) -> TargetResult<Pid, Self> {
        self.start.file = file.map(owned);
        self.start.words = words.map(owned).collect();
        self.kill();
        self.lose();
        self.is_changed = true;
        let debuggee =
            self.owner.start_again(&self.start).map_err(|_| TargetError::Errno(NO_SUCH_THING))?;
        let pid = debuggee.pid();
        self.debuggee = Some(debuggee);
        self.was_attached = false;
        self.thread = pid;
        self.lay_out();
        number_of(pid).ok_or(TargetError::Errno(NO_SUCH_THING))
    }

    fn attach(&mut self, _pid: Pid) -> TargetResult<(), Self> {
        Err(TargetError::Errno(NO_SUCH_THING))
    }

    fn query_if_attached(&mut self, _pid: Pid) -> TargetResult<AttachKind, Self> {
        Ok(if self.was_attached { AttachKind::Attach } else { AttachKind::Run })
    }

    fn kill(&mut self, _pid: Option<Pid>) -> TargetResult<ShouldTerminate, Self> {
        Program::kill(self);
        self.lose();
        Ok(if self.is_extended { ShouldTerminate::No } else { ShouldTerminate::Yes })
    }

    fn restart(&mut self) -> Result<()> {
        Ok(())
    }

    fn on_start(&mut self) -> Result<()> {
        self.is_extended = true;
        Ok(())
    }

    fn support_configure_env(&mut self) -> Option<ConfigureEnvOps<'_, Self>> {
        Some(self)
    }

    fn support_configure_working_dir(&mut self) -> Option<ConfigureWorkingDirOps<'_, Self>> {
        Some(self)
    }

    fn support_current_active_pid(&mut self) -> Option<CurrentActivePidOps<'_, Self>> {
        Some(self)
    }
}

impl CurrentActivePid for Program<'_> {
    fn current_active_pid(&mut self) -> Result<Pid> {
        Ok(self.pid().and_then(number_of).unwrap_or(NonZeroUsize::MIN))
    }
}

impl ConfigureEnv for Program<'_> {
    fn set_env(&mut self, name: &[u8], value: Option<&[u8]>) -> TargetResult<(), Self> {
        self.start.variables.insert(owned(name), Some(owned(value.unwrap_or_default())));
        Ok(())
    }

    fn remove_env(&mut self, name: &[u8]) -> TargetResult<(), Self> {
        self.start.variables.insert(owned(name), None);
        Ok(())
    }

    fn reset_env(&mut self) -> TargetResult<(), Self> {
        self.start.variables.clear();
        Ok(())
    }
}

impl ConfigureWorkingDir for Program<'_> {
    fn cfg_working_dir(&mut self, directory: Option<&[u8]>) -> TargetResult<(), Self> {
        self.start.directory = directory.map(|path| owned(path).into());
        Ok(())
    }
}

fn owned(text: &[u8]) -> OsString {
    OsString::from_vec(text.to_vec())
}
