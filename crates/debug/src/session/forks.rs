//! Processes that the program forks. The debugger stays with the parent, unless it follows a child; the process that
//! it leaves goes on by itself, from its clone.

use super::in_call::{drop_asking, resend_unreported};
use super::kernel::{let_go, options};
use super::points::Points;
use super::state::Session;
use super::thread::{Place, Thread, no_thread};
use crate::debuggee::{Debuggee, Motion, Resumption, Stop};
use std::sync::atomic::Ordering::{Relaxed, Release};
use weft_host::proc::{self, Tid};
use weft_host::{Registers, Result, ptrace};

impl Session {
    /// A thread has made another process. Returns what is reported to the debugger.
    pub(super) fn forked(&mut self, tid: Tid, is_vfork: bool) -> Result<Option<Stop>> {
        let failed = |e: std::io::Error| ptrace::failed("look at", tid, &e);
        let child = ptrace::event_message(tid).map_err(failed)? as Tid;
        if !self.stands_in_fork(tid)? {
            self.forks.part_from(child);
            return Ok(None);
        }
        self.forks.hold(child, is_vfork);
        Ok(Some(Stop::Fork { tid, child, is_vfork }))
    }

    /// A child has given its parent's memory back.
    pub(super) fn vfork_done(&mut self, tid: Tid) -> Result<Option<Stop>> {
        Ok(self.stands_in_fork(tid)?.then_some(Stop::VforkDone(tid)))
    }

    /// Stops a thread where the kernel makes a process for it, or resumes it if forks are not reported.
    /// Returns whether it stands still.
    fn stands_in_fork(&mut self, tid: Tid) -> Result<bool> {
        let failed = |e: std::io::Error| ptrace::failed("look at", tid, &e);
        let registers = ptrace::registers(tid).map_err(failed)?;
        let Some(thread) = self.threads.get_mut(&tid).filter(|_| self.forks.are_reported) else {
            let_go(tid, 0);
            return Ok(false);
        };
        thread.stop_in_fork(registers);
        Ok(true)
    }

    /// The children that stand still and were reported to the debugger.
    pub(super) fn known_children(&self) -> Vec<Tid> {
        let is_news = |child: Tid| {
            let is_it = |stop: &Stop| matches!(stop, Stop::Fork { child: it, .. } if *it == child);
            self.pending.iter().any(is_it)
        };
        self.forks.held.keys().copied().filter(|&child| !is_news(child)).collect()
    }

    /// Lets children go that the debugger has said nothing of.
    pub(super) fn let_children_go(&mut self, children: Vec<Tid>) {
        children.into_iter().for_each(|child| self.forks.let_go(child));
    }

    /// Reports no more children, nor those that were not reported yet.
    pub(super) fn forget_forks(&mut self) {
        self.forks.are_reported = false;
        self.pending.retain(|stop| !matches!(stop, Stop::Fork { .. } | Stop::VforkDone(_)));
        self.let_children_go(self.forks.held.keys().copied().collect());
    }

    /// Lets a child go, or ends it.
    pub(super) fn part_from_child(&mut self, child: Tid, ends: bool) {
        if ends && self.forks.held.contains_key(&child) {
            // SAFETY: plain numbers.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        self.forks.let_go(child);
    }

    /// Goes on with a child in the place of its parent, which goes on by itself.
    pub(super) fn go_with(&mut self, child: Tid) -> Result<()> {
        match self.forks.held.get(&child) {
            Some(false) => {}
            // One that has borrowed its parent's memory has no engine of its own.
            _ => return Err(no_thread(child)),
        }
        let failed = |e: std::io::Error| ptrace::failed("follow", child, &e);
        let registers = ptrace::registers(child).map_err(failed)?;
        ptrace::set_options(child, options(self.child.is_some())).map_err(failed)?;
        self.forks.held.remove(&child);
        self.forget_forks();
        self.forks.are_reported = true;
        // Both see the same; whose number it is, is debugged.
        let debug = self.hold.debug();
        debug.pid.store(proc::own_pid(child)? as u32, Relaxed);
        debug.count.store(0, Relaxed);
        debug.watch_count.store(0, Relaxed);
        debug.version.fetch_add(1, Release);
        for tid in self.threads() {
            self.part_from_thread(&Resumption { tid, motion: Motion::Continue, signal: None })?;
        }
        self.threads.clear();
        self.pending.clear();
        self.points = Points::default();
        self.hold.go_with(child);
        let mut thread = Thread::new();
        thread.stop_in_fork(registers);
        self.threads.insert(child, thread);
        self.first.store(child, Relaxed);
        Ok(())
    }

    /// Detaches from a thread.
    pub(super) fn part_from_thread(&mut self, resumption: &Resumption) -> Result<()> {
        let tid = resumption.tid;
        if let Some(thread) = self.threads.get_mut(&tid) {
            resend_unreported(self.hold.pid(), tid, thread);
        }
        if let Some(signal) = self.set_out(resumption)? {
            // A failure means that it was killed.
            let _ = ptrace::detach(tid, drop_asking(tid, signal));
        }
        Ok(())
    }
}

impl Thread {
    /// It stands where the kernel makes a process for it, or has just made it.
    fn stop_in_fork(&mut self, registers: Registers) {
        self.stop_in_call(registers, None);
        self.is_forking = true;
    }

    /// Whether the kernel is in the middle of making a process for it: what it has in registers then is the kernel's.
    pub fn is_in_fork(&self) -> bool {
        self.is_forking && matches!(self.place, Place::InCall(_))
    }
}
