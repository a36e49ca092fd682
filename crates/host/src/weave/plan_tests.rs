//! Plans for functions that are written for it.

use super::plan::Plan;
use super::search::NO_PADDING;
use super::window::{Body, JUMP, Jump, Spot, Step, Terrain, overlap};
use iced_x86::code_asm::*;
use iced_x86::{Decoder, DecoderOptions, FlowControl, IcedError, Mnemonic};
use std::collections::BTreeSet;
use std::ops::Range;
use weft_code::{Sweep, sweep};

pub(super) const BASE: u64 = 0x40_0000;

/// A function at `BASE`, with padding behind it, then another function.
pub(super) struct Field {
    bytes: Vec<u8>,
    pub(super) function: Range<u64>,
    sweep: Sweep,
    certain: bool,
    pub(super) fixed: Vec<u64>,
    waited: Vec<u64>,
    preempted: Vec<u64>,
    padding: u64,
}

impl Field {
    pub(super) fn new(
        padding: usize,
        write: impl FnOnce(&mut CodeAssembler) -> Result<(), IcedError>,
    ) -> Self {
        let mut assembler = CodeAssembler::new(64).unwrap();
        write(&mut assembler).unwrap();
        let mut bytes = assembler.assemble(BASE).unwrap();
        let function = BASE..BASE + bytes.len() as u64;
        bytes.extend(vec![0xcc; padding]);
        bytes.extend([0xc3; 16]);
        let sweep = sweep(&bytes, BASE, &[BASE]);
        Self {
            bytes,
            function,
            sweep,
            certain: true,
            fixed: vec![],
            waited: vec![],
            preempted: vec![],
            padding: padding as u64,
        }
    }

    fn plan(&self, spots: &[Spot]) -> Plan {
        Plan::default().extended(self, spots, spots, &[])
    }
}

impl Terrain for Field {
    fn step(&self, at: u64) -> Option<Step> {
        let bytes = self.bytes.get((at - BASE) as usize..)?;
        let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
        let flow = instruction.flow_control();
        (!instruction.is_invalid()).then_some(Step {
            at,
            length: instruction.len() as u64,
            falls_through: !matches!(flow, FlowControl::UnconditionalBranch | FlowControl::Return),
            fills: matches!(instruction.mnemonic(), Mnemonic::Nop),
            returns: matches!(flow, FlowControl::Call | FlowControl::IndirectCall),
            stays: false,
        })
    }

    fn before(&self, at: u64) -> Option<u64> {
        let mut from = BASE;
        while from < at {
            let step = self.step(from)?;
            if step.end() == at {
                return step.falls_through.then_some(from);
            }
            from = step.end();
        }
        None
    }

    fn jumps_into(&self, range: Range<u64>) -> Vec<Jump> {
        self.sweep.branches_into(range).map(Jump::from).collect()
    }

    fn is_fixed(&self, at: u64) -> bool {
        self.fixed.contains(&at)
    }

    fn is_waited_at(&self, at: u64) -> bool {
        self.waited.contains(&at)
    }

    fn is_preempted_at(&self, at: u64) -> bool {
        self.preempted.contains(&at)
    }

    fn is_certain(&self) -> bool {
        self.certain
    }

    fn contains(&self, at: u64) -> bool {
        self.function.contains(&at)
    }

    fn padding(&self, at: u64) -> u64 {
        (self.function.end + self.padding).saturating_sub(at).min(self.padding)
    }

    fn is_foreign(&self, _: Range<u64>) -> bool {
        false
    }

    fn body(&self) -> Result<Body, &'static str> {
        let mut body = Body { reentries: BTreeSet::from([BASE]), ..Body::default() };
        body.reentries.extend(&self.fixed);
        let mut at = BASE;
        while at < self.function.end {
            let step = self.step(at).ok_or("there is no code")?;
            at = step.end();
            if step.returns && at < self.function.end {
                body.reentries.insert(at);
            }
            body.calls.extend(step.returns.then_some(step.at));
            body.steps.push(Step { stays: step.returns, ..step });
        }
        Ok(body)
    }

    fn hole(&self, within: Range<u64>, taken: &[Range<u64>]) -> Option<u64> {
        let end = self.function.end + self.padding;
        let is_free = |at: u64| !taken.iter().any(|t| overlap(t, &(at..at + JUMP)));
        (self.function.end..end.saturating_sub(JUMP - 1))
            .rev()
            .find(|&at| within.contains(&at) && is_free(at))
    }
}

fn tactics(plan: &Plan) -> Vec<(u64, &'static str)> {
    plan.windows.values().map(|w| (w.start - BASE, w.tactic)).collect()
}

#[test]
fn whole_instructions_are_taken() {
    let field = Field::new(0, |a| {
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.sub(rsp, 16)?;
        a.leave()?;
        a.ret()
    });
    let plan = field.plan(&[Spot::Entry(BASE)]);
    assert_eq!(tactics(&plan), [(0, "jump")]);
    assert_eq!(plan.windows[&BASE].end(), BASE + 8);
}

#[test]
fn a_tiny_function_uses_the_padding_behind_it() {
    let tiny = |padding| {
        Field::new(padding, |a| {
            a.xor(eax, eax)?;
            a.ret()
        })
    };
    let plan = tiny(2).plan(&[Spot::Entry(BASE), Spot::Before(BASE + 2)]);
    assert_eq!(tactics(&plan), [(0, "jump")]);
    assert!(plan.refused.is_empty());
    let plan = tiny(1).plan(&[Spot::Entry(BASE)]);
    assert_eq!(plan.refused[0].why, "the function is too short and nothing behind it is free");
}

#[test]
fn a_short_function_hops_into_padding() {
    // A loop to the second instruction, which is fixed: only the first two bytes are free.
    let mut field = Field::new(5, |a| {
        a.xor(eax, eax)?;
        a.inc(eax)?;
        a.ret()
    });
    field.fixed.push(BASE + 2);
    let plan = field.plan(&[Spot::Entry(BASE)]);
    assert_eq!(tactics(&plan), [(0, "hop")]);
    assert_eq!(plan.windows[&BASE].hole, Some(BASE + 5));
    assert_eq!(plan.windows[&BASE].steps.len(), 1);
}

#[test]
fn a_loop_back_to_the_entry_is_no_entry() {
    let field = Field::new(8, |a| {
        let mut start = a.create_label();
        a.set_label(&mut start)?;
        a.add(qword_ptr(rdi), 1)?;
        a.add(rdi, 8)?;
        a.cmp(rdi, rsi)?;
        a.jne(start)?;
        a.ret()
    });
    let plan = field.plan(&[Spot::Entry(BASE)]);
    assert_eq!(tactics(&plan), [(0, "jump")]);
    let [reaim] = plan.reaims[..] else { panic!("{plan:?}") };
    assert_eq!((reaim.jump.target, reaim.jump.is_long), (BASE, false));
    assert!(reaim.hole.is_some());
    // For a probe before the instruction, the loop counts.
    assert!(field.plan(&[Spot::Before(BASE)]).reaims.is_empty());
}

#[test]
fn a_jump_to_where_a_call_returns_is_led_past() {
    let field = Field::new(8, |a| {
        let mut behind = a.create_label();
        a.jmp(behind)?;
        a.call(BASE + 0x1000)?;
        a.set_label(&mut behind)?;
        a.add(rbx, 1000)?;
        a.ret()
    });
    let (jump, behind) = (BASE, BASE + 7);
    let plan = field.plan(&[Spot::Returned(behind)]);
    assert_eq!(tactics(&plan), [(7, "jump")]);
    assert_eq!(plan.reaims[0].jump.source, jump);
    // What is before the instruction is for all that come there, until something is for returns only.
    let before = field.plan(&[Spot::Before(behind)]);
    assert!(before.reaims.is_empty());
    let all = [Spot::Before(behind), Spot::Returned(behind)];
    let both = before.extended(&field, &all[1..], &all, &[]);
    assert_eq!((both.windows, both.reaims), (plan.windows, plan.reaims));
    // As for those who enter a function.
    let jumped = Field::new(8, |a| {
        let mut start = a.create_label();
        a.set_label(&mut start)?;
        a.add(rdi, 1000)?;
        a.jne(start)?;
        a.ret()
    });
    let all = [Spot::Before(BASE), Spot::Entry(BASE)];
    let both = jumped.plan(&all[..1]).extended(&jumped, &all[1..], &all, &[]);
    assert_eq!(both.reaims.len(), 1, "{both:?}");
}

#[test]
fn a_short_jump_without_padding_goes_through_the_window() {
    // As Go's functions: they come back to their start with a larger stack.
    let field = Field::new(0, |a| {
        let mut start = a.create_label();
        let mut more = a.create_label();
        a.set_label(&mut start)?;
        a.cmp(rsp, ptr(r14) + 16)?;
        a.jbe(more)?;
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.pop(rbp)?;
        a.ret()?;
        a.set_label(&mut more)?;
        a.call(rax)?;
        a.jmp(start)
    });
    let plan = field.plan(&[Spot::Entry(BASE)]);
    assert_eq!(plan.windows[&BASE].second, Some(BASE));
    assert_eq!(plan.windows[&BASE].overwritten(), BASE..BASE + 10);
    assert_eq!(plan.reaims[0].hole, Some(BASE + 5));
    assert_eq!(plan.claims().len(), 2);
    // A goroutine could wait at the second jump.
    let preempted = Field { preempted: vec![BASE + 5], ..field };
    assert_eq!(preempted.plan(&[Spot::Entry(BASE)]).refused[0].why, NO_PADDING);
}

#[test]
fn a_second_jump_and_a_hole_share_no_padding() {
    let field = Field::new(9, |a| {
        let mut start = a.create_label();
        a.set_label(&mut start)?;
        a.dec(edi)?;
        a.jne(start)?;
        a.dec(esi)?;
        a.jne(start)?;
        a.ret()
    });
    let plan = field.plan(&[Spot::Entry(BASE)]);
    let claims = plan.claims();
    for (index, claim) in claims.iter().enumerate() {
        assert!(!claims[..index].iter().any(|other| overlap(other, claim)), "{plan:x?}");
    }
}

#[test]
fn a_jump_into_the_window_is_re_aimed_unless_it_moves_along() {
    let field = Field::new(0, |a| {
        let mut top = a.create_label();
        a.xor(eax, eax)?;
        a.set_label(&mut top)?;
        a.inc(rax)?;
        a.lea(rcx, ptr(rax) + 1000)?;
        a.db(&[0x0f, 0x85])?; // jne top, in its long form
        a.dd(&[(-16i32) as u32])?;
        a.ret()
    });
    let plan = field.plan(&[Spot::Entry(BASE)]);
    assert_eq!(plan.reaims.len(), 1, "{plan:?}");
    assert!(plan.reaims[0].jump.is_long && plan.reaims[0].hole.is_none());
    // A window over the jump takes it along.
    let jump = plan.reaims[0].jump.source;
    let both = plan.extended(&field, &[Spot::Taken(jump)], &[Spot::Taken(jump)], &[]);
    assert_eq!(both.windows.len(), 2, "{both:?}");
    assert!(both.reaims.is_empty());
    assert_eq!(both.reduced(&field, &[Spot::Taken(jump)]).windows.len(), 1);
    // And is needed for as long as the jump would otherwise go into the other window.
    assert_eq!(both.reduced(&field, &[Spot::Entry(BASE)]).windows.len(), 2);
}

#[test]
fn no_call_returns_into_a_window() {
    let field = Field::new(0, |a| {
        a.call(rax)?;
        a.nop()?;
        a.nop()?;
        a.nop()?;
        a.ret()
    });
    let plan = field.plan(&[Spot::Entry(BASE)]);
    assert_eq!(plan.refused[0].why, "a call would come back into the middle of it");
}

#[test]
fn a_return_takes_a_gap_in_that_no_jump_leads_to() {
    let field = Field::new(0, |a| {
        a.test(rdi, rdi)?;
        a.pop(rbx)?;
        a.ret()?;
        a.db(&[0x0f, 0x1f, 0x40, 0x00])?;
        a.pop(rbp)?;
        a.ret()
    });
    let ret = BASE + 4;
    let field = Field { certain: false, ..field };
    assert_eq!(tactics(&field.plan(&[Spot::Before(ret)])), [(4, "jump")]);
    // Without a gap, what is behind may be jumped to.
    let field = Field::new(0, |a| {
        a.ret()?;
        a.add(rsp, 8)?;
        a.ret()
    });
    let field = Field { certain: false, ..field };
    assert_ne!(tactics(&field.plan(&[Spot::Before(BASE)])), [(0, "jump")]);
}

#[test]
fn a_return_takes_its_neighbours_in() {
    let field = Field::new(0, |a| {
        a.add(rsp, 8)?;
        a.pop(rbx)?;
        a.pop(rbp)?;
        a.ret()
    });
    let ret = field.function.end - 1;
    let plan = field.plan(&[Spot::Before(ret)]);
    assert_eq!(tactics(&plan), [(0, "neighbours")]);
    let mut uncertain = Field { certain: false, ..field };
    uncertain.certain = false;
    assert_eq!(
        uncertain.plan(&[Spot::Before(ret)]).refused[0].why,
        "the function is too short and nothing behind it is free"
    );
}

#[test]
fn a_return_joins_the_window_before_it() {
    let field = Field::new(0, |a| {
        a.add(qword_ptr(rdi) + 100, 1)?;
        a.ret()
    });
    let ret = field.function.end - 1;
    let plan = field.plan(&[Spot::Entry(BASE), Spot::Before(ret)]);
    assert!(plan.refused.is_empty(), "{plan:?}");
    assert_eq!(plan.windows.len(), 1);
    assert!(plan.window_of(ret).is_some());
}

#[test]
fn windows_do_not_overlap_and_the_rest_is_woven_without_the_refused() {
    let field = Field::new(0, |a| {
        a.mov(eax, 1)?;
        a.nop()?;
        a.mov(ecx, 1)?;
        a.ret()
    });
    let spots = [Spot::Entry(BASE), Spot::Before(BASE + 5), Spot::Before(BASE + 6)];
    let plan = field.plan(&spots);
    assert_eq!(tactics(&plan), [(0, "jump"), (5, "jump")]);
    assert!(plan.refused.is_empty());
    let reserved = BASE + 3..BASE + 7;
    let reserved = std::slice::from_ref(&reserved);
    let plan = Plan::default().extended(&field, &spots, &spots, reserved);
    assert!(plan.refused.len() >= 2, "{plan:?}");
}
