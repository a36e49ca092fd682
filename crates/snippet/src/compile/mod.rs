//! From statements to machine code for one site.
//!
//! Code is generated once to learn which registers it uses, and again if some of these must be
//! saved. The first pass is all there is where enough registers are dead.

mod access;
mod data;
mod expr;
mod float;
mod generator;
mod plan;
mod refusal;
mod value;

pub use generator::Part;
pub use refusal::Refusal;

use crate::asm::Asm;
use crate::compile::generator::{Generator, Needs};
use crate::compile::plan::Plan;
use crate::ir::{Datum, PointKind, Statement};
use crate::layout::Place;
use crate::site::{Env, Site};
use crate::verify;
use alloc::vec::Vec;

/// Machine code that can be placed anywhere.
#[derive(Debug)]
pub struct Compiled {
    asm: Asm,
    frame: u32,
}

/// What a routine of the runtime takes of the stack at most, with what is pushed for it.
const ROUTINE_STACK: u32 = 320;

impl Compiled {
    /// How long the main path is. Its end falls through.
    pub fn main_len(&self) -> usize {
        self.asm.lengths().0
    }

    /// How long the rest is, which the main path jumps to and which jumps back.
    pub fn cold_len(&self) -> usize {
        self.asm.lengths().1
    }

    /// How far below the program's stack pointer it may write, red zone included: stacks that grow
    /// by themselves (Go) must have that much left. What a `call` takes comes on top.
    pub fn stack_use(&self) -> u32 {
        let red_zone = 128;
        self.frame.max(red_zone) + ROUTINE_STACK
    }

    /// The bytes of both, for these addresses. Everything that they refer to must be within 2 GiB.
    pub fn place(&self, main_at: u64, cold_at: u64) -> (Vec<u8>, Vec<u8>) {
        self.asm.place(main_at, cold_at)
    }
}

/// Compiles a body for a site. `places` has one place for each datum.
pub fn compile(
    data: &[Datum],
    body: &[Statement],
    site: &Site,
    env: &Env,
    places: &[Place],
) -> Result<Compiled, Refusal> {
    compile_all(&[Part { data, body, places }], site, env)
}

/// Compiles bodies for a site, one after the other: what they need is saved and looked up once.
pub fn compile_all(parts: &[Part<'_>], site: &Site, env: &Env) -> Result<Compiled, Refusal> {
    for part in parts {
        part.data.iter().try_for_each(verify::check_datum)?;
        verify::permit(part.data, part.body, Some((site.kind, site.convention)))?;
    }
    if !env.region.is_valid() || env.clock.shift > 63 {
        return Err(Refusal::Env);
    }
    if i32::try_from(site.stack_shift).is_err() || site.stack_shift.abs() > 1 << 30 {
        return Err(Refusal::StackShift);
    }
    if site.kind.is_of_kernel() {
        return Err(Refusal::Kernel);
    }
    if matches!(site.kind, PointKind::Load | PointKind::Store) && site.access.is_none() {
        return Err(Refusal::Access);
    }
    let fits = |(datum, place): (&Datum, &Place)| env.region.holds(datum, *place);
    for Part { data, places, .. } in parts {
        if places.len() < data.len() || !data.iter().zip(*places).all(fits) {
            return Err(Refusal::Places);
        }
    }
    let needs = parts.iter().map(|part| Needs::of(part.data, part.body, site, env));
    let needs = needs.fold(Needs::default(), Needs::and);
    let mut plan = Plan::default();
    loop {
        let mut generator = Generator::new(site, env, &needs, &plan);
        generator.run(parts);
        let next = generator.next_plan(&needs);
        if next == plan {
            let frame = generator.depth() as u32;
            return Ok(Compiled { asm: generator.asm, frame });
        }
        plan = next;
    }
}
