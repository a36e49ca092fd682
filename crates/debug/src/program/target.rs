//! The program as `gdbstub` wants to see it.

use super::{BAD_ADDRESS, BAD_VALUE, Kind, Monitored, NO_SUCH_THING, Program, TRIPLE};
use crate::debuggee::{Debuggee, Motion, Resumption, WatchKind, Watchpoint};
use crate::{libraries, signals};
use gdbstub::arch::{Arch, RegId};
use gdbstub::common::{Endianness, Pid, Signal};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{
    MultiThreadBase, MultiThreadRangeStepping, MultiThreadRangeSteppingOps, MultiThreadResume,
    MultiThreadResumeOps, MultiThreadSchedulerLocking, MultiThreadSchedulerLockingOps,
    MultiThreadSingleStep, MultiThreadSingleStepOps,
};
use gdbstub::target::ext::base::single_register_access::{
    SingleRegisterAccess, SingleRegisterAccessOps,
};
use gdbstub::target::ext::breakpoints::{self, Breakpoints, BreakpointsOps};
use gdbstub::target::ext::catch_syscalls::{CatchSyscalls, CatchSyscallsOps, SyscallNumbers};
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::extended_mode::ExtendedModeOps;
use gdbstub::target::ext::host_info::{HostInfo, HostInfoOps, HostInfoResponse};
use gdbstub::target::ext::monitor_cmd::{ConsoleOutput, MonitorCmd, MonitorCmdOps};
use gdbstub::target::ext::target_description_xml_override::{
    TargetDescriptionXmlOverride, TargetDescriptionXmlOverrideOps,
};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::ext::{auxv, libraries as loaded};
use gdbstub::target::{Target, TargetError, TargetResult};
use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use weft_host::proc::Tid;
use weft_host::{Error, Result};

fn id_of(tid: gdbstub::common::Tid) -> Tid {
    tid.get().try_into().unwrap_or(0)
}

pub(crate) fn number_of(tid: Tid) -> Option<NonZeroUsize> {
    usize::try_from(tid).ok().and_then(NonZeroUsize::new)
}

/// Fails for what would be behind the end of all memory.
fn in_memory(address: u64, bytes: &[u8]) -> std::result::Result<(), TargetError<Error>> {
    let end = address.checked_add(bytes.len() as u64);
    end.map(drop).ok_or(TargetError::Errno(BAD_ADDRESS))
}

/// Copies a part of something that is read piece by piece, and says how much.
fn copy_part(all: &[u8], offset: u64, length: usize, room: &mut [u8]) -> usize {
    let start = usize::try_from(offset).map_or(all.len(), |offset| offset.min(all.len()));
    // Escaped, bytes may take twice the room.
    let count = length.min(room.len() / 2).min(all.len() - start);
    room[..count].copy_from_slice(&all[start..start + count]);
    count
}

/// What the processor is, for `gdbstub`.
#[derive(Debug)]
pub enum X86 {}

/// The registers as they are in a packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(Vec<u8>);

/// GDB's number of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number(pub usize);

impl Arch for X86 {
    type Usize = u64;
    type Registers = Values;
    type BreakpointKind = usize;
    type RegId = Number;
}

impl gdbstub::arch::Registers for Values {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        // GDB's seventeenth is rip; those before it have eight bytes each.
        let bytes = self.0.get(16 * 8..17 * 8).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        for &byte in &self.0 {
            write_byte(Some(byte));
        }
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> std::result::Result<(), ()> {
        self.0 = bytes.to_vec();
        Ok(())
    }
}

impl RegId for Number {
    fn from_raw_id(id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        Some((Self(id), None))
    }

    fn to_raw_id(&self) -> Option<usize> {
        Some(self.0)
    }
}

impl Target for Program<'_> {
    type Arch = X86;
    type Error = Error;

    fn base_ops(&mut self) -> BaseOps<'_, X86, Error> {
        BaseOps::MultiThread(self)
    }

    // Sockets of the same machine carry what there is.
    fn use_rle(&self) -> bool {
        false
    }

    // It would say that the children are threads of the process.
    fn use_fork_stop_reason(&self) -> bool {
        false
    }

    fn use_vfork_stop_reason(&self) -> bool {
        false
    }

    fn use_vforkdone_stop_reason(&self) -> bool {
        false
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_monitor_cmd(&mut self) -> Option<MonitorCmdOps<'_, Self>> {
        Some(self)
    }

    fn support_extended_mode(&mut self) -> Option<ExtendedModeOps<'_, Self>> {
        Some(self)
    }

    fn support_target_description_xml_override(
        &mut self,
    ) -> Option<TargetDescriptionXmlOverrideOps<'_, Self>> {
        Some(self)
    }

    fn support_catch_syscalls(&mut self) -> Option<CatchSyscallsOps<'_, Self>> {
        Some(self)
    }

    fn support_host_io(&mut self) -> Option<gdbstub::target::ext::host_io::HostIoOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        Some(self)
    }

    fn support_auxv(&mut self) -> Option<auxv::AuxvOps<'_, Self>> {
        Some(self)
    }

    fn support_libraries_svr4(&mut self) -> Option<loaded::LibrariesSvr4Ops<'_, Self>> {
        Some(self)
    }

    fn support_host_info(&mut self) -> Option<HostInfoOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Program<'_> {
    fn read_registers(
        &mut self,
        values: &mut Values,
        tid: gdbstub::common::Tid,
    ) -> TargetResult<(), Self> {
        let (layout, registers) = self.laid_out(id_of(tid))?;
        values.0 = layout.all(registers);
        Ok(())
    }

    fn write_registers(
        &mut self,
        values: &Values,
        tid: gdbstub::common::Tid,
    ) -> TargetResult<(), Self> {
        let (layout, registers) = self.laid_out(id_of(tid))?;
        if !layout.set_all(registers, &values.0) {
            return Err(TargetError::Errno(BAD_VALUE));
        }
        self.write_back(id_of(tid))
    }

    fn support_single_register_access(
        &mut self,
    ) -> Option<SingleRegisterAccessOps<'_, gdbstub::common::Tid, Self>> {
        Some(self)
    }

    fn read_addrs(
        &mut self,
        address: u64,
        bytes: &mut [u8],
        _tid: gdbstub::common::Tid,
    ) -> TargetResult<usize, Self> {
        in_memory(address, bytes)?;
        let debuggee = self.debuggee().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        match debuggee.read(address, bytes) {
            0 if !bytes.is_empty() => Err(TargetError::Errno(BAD_ADDRESS)),
            count => Ok(count),
        }
    }

    fn write_addrs(
        &mut self,
        address: u64,
        bytes: &[u8],
        _tid: gdbstub::common::Tid,
    ) -> TargetResult<(), Self> {
        in_memory(address, bytes)?;
        let debuggee = self.debuggee().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        debuggee.write(address, bytes).map_err(|_| TargetError::Errno(BAD_ADDRESS))
    }

    fn list_active_threads(
        &mut self,
        is_active: &mut dyn FnMut(gdbstub::common::Tid),
    ) -> Result<()> {
        if let Some(debuggee) = self.debuggee() {
            debuggee.threads().into_iter().filter_map(number_of).for_each(is_active);
        }
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl SingleRegisterAccess<gdbstub::common::Tid> for Program<'_> {
    fn read_register(
        &mut self,
        tid: gdbstub::common::Tid,
        number: Number,
        bytes: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let (layout, registers) = self.laid_out(id_of(tid))?;
        let value = layout.one(number.0, registers).ok_or(TargetError::Errno(BAD_VALUE))?;
        let room = bytes.get_mut(..value.len()).ok_or(TargetError::Errno(BAD_VALUE))?;
        room.copy_from_slice(&value);
        Ok(value.len())
    }

    fn write_register(
        &mut self,
        tid: gdbstub::common::Tid,
        number: Number,
        value: &[u8],
    ) -> TargetResult<(), Self> {
        let (layout, registers) = self.laid_out(id_of(tid))?;
        if !layout.set_one(number.0, registers, value) {
            return Err(TargetError::Errno(BAD_VALUE));
        }
        self.write_back(id_of(tid))
    }
}

impl MultiThreadResume for Program<'_> {
    fn resume(&mut self) -> Result<()> {
        self.tell_wishes();
        self.registers.clear();
        let motions = std::mem::take(&mut self.motions);
        let is_locked = self.is_locked;
        self.tell_owner(true);
        let Some(debuggee) = self.debuggee() else { return Err(nobody()) };
        let threads = debuggee.threads().into_iter().filter_map(|tid| match motions.get(&tid) {
            Some(&(motion, signal)) => Some(Resumption { tid, motion, signal }),
            None if is_locked => None,
            None => Some(Resumption { tid, motion: Motion::Continue, signal: None }),
        });
        let threads: Vec<_> = threads.collect();
        if threads.is_empty() {
            return Err(nobody());
        }
        debuggee.resume(&threads)
    }

    fn clear_resume_actions(&mut self) -> Result<()> {
        self.motions.clear();
        self.is_locked = false;
        Ok(())
    }

    fn set_resume_action_continue(
        &mut self,
        tid: gdbstub::common::Tid,
        signal: Option<Signal>,
    ) -> Result<()> {
        let signal = signal.and_then(|signal| signals::from_gdb(signal.0));
        self.motions.entry(id_of(tid)).or_insert((Motion::Continue, signal));
        Ok(())
    }

    fn support_single_step(&mut self) -> Option<MultiThreadSingleStepOps<'_, Self>> {
        Some(self)
    }

    fn support_range_step(&mut self) -> Option<MultiThreadRangeSteppingOps<'_, Self>> {
        Some(self)
    }

    fn support_scheduler_locking(&mut self) -> Option<MultiThreadSchedulerLockingOps<'_, Self>> {
        Some(self)
    }
}

/// There is no program, or no such thread of it.
fn nobody() -> Error {
    Error::new(weft_host::ErrorKind::TargetGone, "there is nothing that could go on")
}

impl MultiThreadSingleStep for Program<'_> {
    fn set_resume_action_step(
        &mut self,
        tid: gdbstub::common::Tid,
        signal: Option<Signal>,
    ) -> Result<()> {
        let signal = signal.and_then(|signal| signals::from_gdb(signal.0));
        self.motions.entry(id_of(tid)).or_insert((Motion::Step, signal));
        Ok(())
    }
}

impl MultiThreadRangeStepping for Program<'_> {
    fn set_resume_action_range_step(
        &mut self,
        tid: gdbstub::common::Tid,
        start: u64,
        end: u64,
    ) -> Result<()> {
        let motion = if start < end { Motion::StepWithin(start, end) } else { Motion::Step };
        self.motions.entry(id_of(tid)).or_insert((motion, None));
        Ok(())
    }
}

impl MultiThreadSchedulerLocking for Program<'_> {
    fn set_resume_action_scheduler_lock(&mut self) -> Result<()> {
        self.is_locked = true;
        Ok(())
    }
}

impl ThreadExtraInfo for Program<'_> {
    fn thread_extra_info(&self, tid: gdbstub::common::Tid, room: &mut [u8]) -> Result<usize> {
        let name = self.debuggee.as_ref().map(|it| it.thread_name(id_of(tid))).unwrap_or_default();
        Ok(copy_part(name.as_bytes(), 0, name.len(), room))
    }
}

impl Breakpoints for Program<'_> {
    fn support_sw_breakpoint(&mut self) -> Option<breakpoints::SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_breakpoint(&mut self) -> Option<breakpoints::HwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<breakpoints::HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl breakpoints::SwBreakpoint for Program<'_> {
    fn add_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        // GDB asks here whether there is code at all.
        self.read_addrs(address, &mut [0], NonZeroUsize::MIN)?;
        Ok(self.add_breakpoint(Kind::Software, address))
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        self.remove_breakpoint(Kind::Software, address);
        // As natively, GDB hears of one that has gone with its memory.
        Ok(self.is_readable(address, 1))
    }
}

impl breakpoints::HwBreakpoint for Program<'_> {
    fn add_hw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.add_breakpoint(Kind::Hardware, address))
    }

    fn remove_hw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        self.remove_breakpoint(Kind::Hardware, address);
        Ok(true)
    }
}

fn watchpoint(address: u64, length: u64, kind: breakpoints::WatchKind) -> Watchpoint {
    let kind = match kind {
        breakpoints::WatchKind::Write => WatchKind::Write,
        breakpoints::WatchKind::Read => WatchKind::Read,
        breakpoints::WatchKind::ReadWrite => WatchKind::Access,
    };
    Watchpoint { address, length, kind }
}

impl breakpoints::HwWatchpoint for Program<'_> {
    fn add_hw_watchpoint(
        &mut self,
        address: u64,
        length: u64,
        kind: breakpoints::WatchKind,
    ) -> TargetResult<bool, Self> {
        // Stores are looked at by an instruction of BMI2: without it, GDB goes by single steps.
        let can_look = is_x86_feature_detected!("bmi2");
        if !can_look || !self.is_readable(address, length) {
            return Ok(false);
        }
        self.watchpoints.push(watchpoint(address, length, kind));
        self.is_changed = true;
        Ok(true)
    }

    fn remove_hw_watchpoint(
        &mut self,
        address: u64,
        length: u64,
        kind: breakpoints::WatchKind,
    ) -> TargetResult<bool, Self> {
        let gone = watchpoint(address, length, kind);
        let index = self.watchpoints.iter().position(|there| *there == gone);
        if let Some(index) = index {
            self.watchpoints.remove(index);
        }
        self.is_changed = true;
        Ok(true)
    }
}

impl CatchSyscalls for Program<'_> {
    fn enable_catch_syscalls(
        &mut self,
        filter: Option<SyscallNumbers<'_, u64>>,
    ) -> TargetResult<(), Self> {
        let debuggee = self.debuggee().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        debuggee.catch_system_calls(filter.map(Iterator::collect), true);
        Ok(())
    }

    fn disable_catch_syscalls(&mut self) -> TargetResult<(), Self> {
        let debuggee = self.debuggee().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        debuggee.catch_system_calls(None, false);
        Ok(())
    }
}

impl MonitorCmd for Program<'_> {
    fn handle_monitor_cmd(&mut self, words: &[u8], mut out: ConsoleOutput<'_>) -> Result<()> {
        let Self { owner, debuggee, .. } = self;
        let program = debuggee.as_deref_mut().map(|debuggee| debuggee as &mut dyn Debuggee);
        let Monitored { mut text, detaches } =
            owner.monitor(&String::from_utf8_lossy(words), program);
        if detaches && let Err(error) = self.detach() {
            text = format!("{error}\n");
        }
        out.write_raw(text.as_bytes());
        Ok(())
    }
}

impl TargetDescriptionXmlOverride for Program<'_> {
    fn target_description_xml(
        &self,
        annex: &[u8],
        offset: u64,
        length: usize,
        room: &mut [u8],
    ) -> TargetResult<usize, Self> {
        match &self.layout {
            Some(layout) if annex == b"target.xml" => {
                Ok(copy_part(layout.description().as_bytes(), offset, length, room))
            }
            _ => Err(TargetError::Errno(NO_SUCH_THING)),
        }
    }
}

impl ExecFile for Program<'_> {
    fn get_exec_file(
        &self,
        _pid: Option<Pid>,
        offset: u64,
        length: usize,
        room: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let pid = self.pid().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        let path = fs::read_link(format!("/proc/{pid}/exe"))?;
        Ok(copy_part(path.as_os_str().as_bytes(), offset, length, room))
    }
}

impl auxv::Auxv for Program<'_> {
    fn get_auxv(&self, offset: u64, length: usize, room: &mut [u8]) -> TargetResult<usize, Self> {
        let pid = self.pid().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        Ok(copy_part(&fs::read(format!("/proc/{pid}/auxv"))?, offset, length, room))
    }
}

impl loaded::LibrariesSvr4 for Program<'_> {
    fn get_libraries_svr4(
        &self,
        offset: u64,
        length: usize,
        room: &mut [u8],
    ) -> TargetResult<usize, Self> {
        let debuggee = self.debuggee.as_ref().ok_or(TargetError::Errno(NO_SUCH_THING))?;
        if offset == 0 {
            self.libraries.replace(libraries::list(&**debuggee));
        }
        Ok(copy_part(self.libraries.borrow().as_bytes(), offset, length, room))
    }
}

impl HostInfo for Program<'_> {
    fn host_info(&self, write: &mut dyn FnMut(&HostInfoResponse<'_>)) -> Result<()> {
        write(&HostInfoResponse::Triple(TRIPLE));
        write(&HostInfoResponse::Endianness(Endianness::Little));
        write(&HostInfoResponse::PointerSize(8));
        Ok(())
    }
}
