//! What is recorded of a block: the runs of instructions in it that are entered only at their front, and the
//! exits of them. See [`crate::clone::tools::recorder`].

use crate::clone::cache::blocks::Start;
use crate::clone::cache::emit;
use crate::clone::cache::links::{ONE_SHOT, stub_for};
use crate::clone::cache::marks::Choice;
use crate::clone::cache::pieces::Kind;
use crate::clone::thread::record::at_counter;
use crate::clone::tools::recorder::{Recorder, Run, are_flags_free, are_flags_free_at};
use crate::clone::translate::operands::is_loop;
use crate::clone::translate::translator::{Extent, Source, Translator};
use iced_x86::{FlowControl, Instruction};
use weft_abi::recording::{ending, entry};
use weft_abi::weaving;

impl Translator<'_> {
    /// Begins a run at an instruction, if none has begun.
    pub fn begin_run(&mut self, source: &Source<'_>, address: u64) {
        let own = match &mut self.recorder {
            Some(recorder) if self.run.is_none() => recorder.own_counter(address),
            _ => return,
        };
        self.run = Some(Run { start: address, own, ..Run::default() });
        // Branches from elsewhere enter here, unless the block has to be checked first.
        let may_enter = self.extent != Extent::Checked;
        if may_enter && !self.is_start() && self.known.find(address).is_none() {
            self.block.starts.push(Start::new(address, self.out.here()));
        }
        if own != 0 {
            let rest = &source.bytes[(address - source.address) as usize..];
            if self.is_tracing() {
                self.begin_trace(rest, own);
            } else {
                self.count_here(own, are_flags_free(rest, address));
            }
        }
    }

    /// Ends the run with an instruction, if it does end with that.
    pub fn end_run_with(&mut self, source: &Source<'_>, instruction: &Instruction) {
        use FlowControl::{Exception, Interrupt, Next, XbeginXabortXend};
        if matches!(instruction.flow_control(), Next | Interrupt | Exception | XbeginXabortXend) {
            if self.is_trace_over(instruction.next_ip()) {
                self.end_run(source, instruction.next_ip());
            }
            return;
        }
        let Some(run) = &mut self.run else { return };
        if run.ending == ending::FALL {
            run.ending = ending::OTHER;
        }
        let next = instruction.next_ip();
        if run.ending == ending::BRANCH {
            let run = *run;
            let fall = match run.fall {
                entry::CHOSEN => {
                    let choice = Choice { counter: run.taken, is_fall: true };
                    self.pass_once(next, choice.mark());
                    entry::CHOSEN
                }
                _ if self.is_marking() => {
                    let counter = self.counter();
                    self.pass_once(next, counter.into());
                    counter
                }
                _ => 0,
            };
            self.run = Some(Run { fall, ..run });
        }
        self.log_run(source, next);
    }

    /// Ends the run, which continues in another block at an address.
    pub fn end_run(&mut self, source: &Source<'_>, end: u64) {
        if self.is_marking()
            && let Some(run) = self.run
        {
            let fall = self.counter();
            self.mark = fall.into();
            self.run = Some(Run { fall, ..run });
        }
        if self.run.is_some() {
            self.trace_before(&source.bytes[(end - source.address) as usize..], end);
        }
        self.log_run(source, end);
    }

    fn log_run(&mut self, source: &Source<'_>, end: u64) {
        let Some(mut run) = self.run.take() else { return };
        if !self.has_ways() {
            run = Run { ending: ending::OTHER, taken: 0, fall: 0, ..run };
        }
        self.traced = None;
        let bytes = (run.start - source.address) as usize..(end - source.address) as usize;
        if let Some(recorder) = &self.recorder {
            recorder.log_run(&run, self.block.code, &source.bytes[bytes]);
        }
    }

    fn counter(&self) -> u32 {
        self.recorder.as_ref().map_or(0, |recorder| recorder.counter())
    }

    /// Writes the increment of a counter.
    fn count_here(&mut self, counter: u32, are_flags_free: bool) {
        let before = self.out.here();
        emit::count(&mut self.out, at_counter(counter), are_flags_free);
        self.record(Kind::Snippet, 0, before);
    }

    /// A branch that may be taken or not: it is marked, or counted. One that leads forward is counted at the
    /// exit that is not taken first: most often that is the rarer one.
    pub fn branch_out(&mut self, instruction: &Instruction) {
        let target = instruction.near_branch_target();
        let counter = match self.is_counting() || self.is_marking() {
            true => self.counter(),
            false => 0,
        };
        let can_choose = self.is_counting()
            && counter != 0
            && target > instruction.ip()
            && !is_loop(instruction.code())
            && !self.is_woven(weaving::TAKEN);
        if self.is_marking() {
            self.mark = counter.into();
        } else if can_choose {
            self.mark = Choice { counter, is_fall: false }.mark();
        }
        if let Some(run) = &mut self.run {
            run.ending = ending::BRANCH;
            run.target = target;
            run.taken = counter;
            run.fall = if can_choose { entry::CHOSEN } else { 0 };
        }
    }

    /// A jump or a call: it is taken as often as its run is executed. It is counted if it does not lead forward, so
    /// that no count depends on itself. Returns where its own code begins then.
    pub fn count_exit(&mut self, instruction: &Instruction, ending: u8) -> Option<u64> {
        let target = instruction.near_branch_target();
        let run = self.run?;
        let counter = match self.is_marking() || self.is_counting() && target <= run.start {
            true => self.counter(),
            false => 0,
        };
        self.run = Some(Run { ending, target, taken: counter, ..run });
        if self.is_marking() {
            self.mark = counter.into();
            return None;
        }
        if counter == 0 {
            return None;
        }
        self.count_here(counter, are_flags_free_at(target));
        Some(self.out.here())
    }

    /// Keeps the mark of a call for blocks that will come to it.
    pub fn mark_call(&mut self) {
        if self.is_marking()
            && let (Some(run), Some(recorder)) = (self.run, &mut self.recorder)
        {
            recorder.marked_calls.insert(self.address, run.taken);
        }
    }

    /// Whether a branch is counted in its place: one that leads back is mostly taken.
    pub fn counts_back(&self, instruction: &Instruction) -> bool {
        self.is_counting()
            && self.run.is_some()
            && !self.is_woven(weaving::TAKEN)
            && instruction.near_branch_target() <= instruction.ip()
    }

    /// Writes a branch that is counted in its place: the inverted branch jumps over the counter.
    pub fn count_taken(&mut self, condition: u8, instruction: &Instruction, before: u64) {
        let target = instruction.near_branch_target();
        let counter = self.run.map_or(0, |run| run.taken);
        self.out.bytes(&[0x70 | condition ^ 1, 0]);
        self.record(Kind::Branch, instruction.len(), before);
        let taken = self.out.here();
        emit::count(&mut self.out, at_counter(counter), are_flags_free_at(target));
        let target = self.target_from_here(target);
        self.branch(&[0xe9], target);
        self.record(Kind::Way, 0, taken);
        let over = (self.out.here() - taken) as u8;
        // SAFETY: the distance of the branch that was just written.
        unsafe { *self.arena.writable(taken - 1) = over };
    }

    /// Counts returns of a called function, between the entry and what follows. Returns the counter.
    pub fn count_return(&mut self, address: u64) -> u32 {
        let is_counted = |it: &&&mut Recorder| it.is_for_counts() && self.has_ways();
        let Some(recorder) = self.recorder.as_ref().filter(is_counted) else { return 0 };
        let counter = recorder.entries_counter(address);
        self.count_here(counter, are_flags_free_at(address));
        counter
    }

    /// Writes an exit behind a branch, for the first time that the branch is not taken: the agent overwrites it
    /// with nothing, or with a counter.
    fn pass_once(&mut self, next: u64, mark: u64) {
        let before = self.out.here();
        // All of it is written at once: see `remove_jump`.
        self.out.align(emit::NOTHING.len() as u64);
        self.out.byte(0xe9);
        let stub = stub_for(self.arena, next, self.out.here() | ONE_SHOT);
        self.mark_stub(stub, mark);
        self.out.distance(stub);
        self.record(Kind::Onward, 0, before);
    }
}
