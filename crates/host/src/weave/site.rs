//! Snippets at their places: what they find there, and their code.

use super::arena::Arena;
use super::clock::clock;
use super::points::Point;
use super::terrain::FunctionTerrain;
use super::values::Values;
use super::window::Spot;
use super::woven::{Probe, Strand};
use crate::arch::cpu::kept_around_calls;
use crate::{Result, TargetAddr};
use std::collections::HashMap;
use weft_code::{Convention, Live, Liveness, Program, live_at_entry};
use weft_snippet::{Compiled, Env, PointKind, Site, ThreadId, compile, runtime};

/// How many instructions from a function's entry on are looked at for registers that are free there.
const LOOK_AHEAD: usize = 24;

/// The arena, the values, whether `fs:0` holds the thread's `fs` base, where its id is, and where unwind rules are.
pub type EnvironmentKey = (usize, usize, bool, Option<ThreadId>, Option<TargetAddr>);

/// The environment of snippets in one arena that measure into certain values; made when first used.
pub fn environment(
    known: &mut HashMap<EnvironmentKey, Env>,
    key: EnvironmentKey,
    arena: &mut Arena,
    values: &Values,
    bmi2: bool,
) -> Result<Env> {
    if let Some(env) = known.get(&key) {
        return Ok(*env);
    }
    let base = arena.allocate(8)?;
    arena.write(base, &values.base.0.to_le_bytes());
    let (xsave_mask, xsave_size) = kept_around_calls();
    let mut env = Env {
        base: base.0,
        salt: arena.salt().0,
        region: values.region,
        routines: weft_snippet::Routines::default(),
        thread_pointer: key.2,
        thread_id: key.3,
        unwind: key.4.map(|at| at.0),
        engine: None,
        bmi2,
        clock: clock(),
        xsave_mask,
        xsave_size,
    };
    let room = runtime(&env, base.0).code.len();
    let at = arena.allocate(room)?;
    let runtime = runtime(&env, at.0);
    arena.write(at, &runtime.code);
    env.routines = runtime.routines;
    known.insert(key, env);
    Ok(env)
}

/// Compiles a probe's snippet for one of its points.
pub(super) fn compile_strand(
    probe: &Probe,
    strand: &Strand,
    site: &Site,
    env: &Env,
) -> Result<Compiled, String> {
    let body = probe.weave.body(site.kind).unwrap_or_default();
    compile(&probe.weave.data, body, site, env, &probe.places_of(strand.point))
        .map_err(|refusal| refusal.to_string())
}

/// What a snippet finds at a point.
pub fn site(
    point: Point,
    spot: Spot,
    terrain: &FunctionTerrain<'_>,
    liveness: Option<&Liveness<'_>>,
) -> Site {
    let convention = terrain.whole.convention;
    let live = match (spot, liveness) {
        (Spot::Entry(at), _) => {
            live_at_entry((terrain.text.bytes(at), at), at, convention, LOOK_AHEAD)
        }
        (Spot::After(at), Some(liveness)) => liveness.after(at),
        (_, Some(liveness)) => liveness.before(spot.instruction()),
        (_, None) => Live::ALL,
    };
    // Where a function begins or ends, nothing of it is below the stack pointer.
    let at_its_edge = matches!(point.kind, PointKind::Entry | PointKind::Exit);
    Site {
        kind: point.kind,
        convention,
        dead: !live.registers,
        live_flags: live.flags,
        red_zone: !at_its_edge && convention != Convention::Go,
        address: point.address,
        stack_shift: 0,
        access: point.access(terrain.text),
    }
}
