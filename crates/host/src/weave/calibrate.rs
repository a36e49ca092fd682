//! What the operations of snippets cost on this machine, measured in weft's own process.

use crate::arch::cpu::Features;
use memmap2::{Mmap, MmapMut};
use std::sync::OnceLock;
use std::time::Instant;
use weft_code::{Convention, FlagSet, Register, RegisterSet};
use weft_snippet::layout::{Allocator, Place, RING_HEAD, RING_TAIL, Region, salt};
use weft_snippet::{
    Clock, Costs, Datum, DatumKind, Env, Operation, PointKind, Routines, Site, Source, Weave,
    compile, runtime,
};

/// How long one round of one operation should take, in nanoseconds. The machine has other things to do,
/// so the best of them counts: there are rounds until so many have brought nothing better, or to the end.
const ROUND: f64 = 30_000.0;
const IN_VAIN: usize = 6;
const ROUNDS: usize = 60;
/// What is better.
const BETTER: f64 = 0.97;
/// The most turns of a round: a ring that nobody reads must not become full.
const TURNS: u64 = 1000;
/// How far a measured value may be from the usual one. Beyond that something has gone wrong with it.
const SANE: f64 = 4.0;

/// Where in the code memory the routines and the loops are; the words that they read are before them.
const SALT: usize = 8;
const ROUTINES: usize = 64;
const LOOPS: usize = 0x2000;
const CODE: usize = 0x10000;

/// `push rbx; mov rbx, rdi`: loops count in a register that snippets keep.
const HEAD: [u8; 4] = [0x53, 0x48, 0x89, 0xfb];
/// `dec rbx; jnz` without its distance, and `pop rbx; ret`.
const TURN: [u8; 5] = [0x48, 0xff, 0xcb, 0x0f, 0x85];
const TAIL: [u8; 2] = [0x5b, 0xc3];

/// A jump over the rest of a cache line, and what is jumped over: as on the way to a trampoline.
const AWAY: [u8; 64] = {
    let mut code = [0xcc; 64];
    (code[0], code[1]) = (0xeb, 62);
    code
};

/// The usual costs of finding a slab by the word at `fs:0`, and of the jump to a trampoline and back.
const QUICK_SLAB: f64 = 1.1;
const THERE_AND_BACK: f64 = 1.2;

/// What hits cost here, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Prices {
    /// The operations of snippets.
    pub operations: Costs,
    /// The jump to a trampoline and the jump back.
    pub there_and_back: f64,
}

/// What hits cost where threads know themselves by the word at `fs:0`, or do not. Measured once, in a
/// few milliseconds; where code cannot be run for it, as on other machines.
pub fn prices(thread_pointer: bool) -> Prices {
    static MEASURED: OnceLock<[Prices; 2]> = OnceLock::new();
    let usual = Prices { operations: Costs::default(), there_and_back: THERE_AND_BACK };
    let measured = MEASURED.get_or_init(|| measure().unwrap_or([usual; 2]));
    measured[usize::from(thread_pointer)]
}

/// The nearest to a measured value that can be believed.
fn sane(measured: f64, usual: f64) -> f64 {
    measured.clamp(usual / SANE, usual * SANE)
}

fn measure() -> Option<[Prices; 2]> {
    let usual = Costs::default();
    let free = site();
    let mut bench = Bench::new()?;
    let empty = bench.add("", &free, true, 1.0)?;
    let away = bench.put(&[AWAY, AWAY].concat(), &[], None, THERE_AND_BACK)?;
    let counter = "counter x\nx += 1";
    let base = bench.add(counter, &free, true, 1.0)?;
    // Where programs may not read the base themselves, there is no second way.
    let only_by_pointer = !Features::read().fsgsbase;
    let slow_base = bench.add(counter, &free, only_by_pointer, 4.0)?;
    let saves = bench.add(counter, &Site { dead: RegisterSet::NONE, ..free }, true, 1.0)?;
    let flags = bench.add(counter, &Site { live_flags: FlagSet::ALL, ..free }, true, 1.0)?;
    // A counter takes two registers.
    let mut probes = vec![(Operation::Save, saves, 2.0), (Operation::Flags, flags, 1.0)];
    for operation in Operation::ALL {
        if let Some((text, times)) = operation.probe() {
            let times = f64::from(times);
            let turns = bench.add(&text, &free, true, times * usual.get(operation))?;
            probes.push((operation, turns, times));
        }
    }
    let nanoseconds = bench.finish()?.run();
    let [empty, away, base, slow_base] = [empty, away, base, slow_base].map(|i| nanoseconds[i]);
    let there_and_back = sane(away - empty, THERE_AND_BACK);
    let mut operations = usual;
    for (operation, turns, times) in probes {
        let each = (nanoseconds[turns] - base) / times;
        operations.set(operation, sane(each, usual.get(operation)));
    }
    let slab = |turn: f64| turn - empty - operations.get(Operation::Count);
    let (mut slow, mut quick) = (operations, operations);
    slow.set(Operation::Slab, sane(slab(slow_base), usual.get(Operation::Slab)));
    quick.set(Operation::Slab, sane(slab(base), QUICK_SLAB));
    Some([slow, quick].map(|operations| Prices { operations, there_and_back }))
}

/// A loop: where it is in the code, the ring that it fills, and about how long a turn takes.
#[derive(Clone, Copy)]
struct Turns {
    at: usize,
    ring: Option<Place>,
    usual: f64,
}

/// Memory in which loops are put together.
struct Bench {
    code: MmapMut,
    used: usize,
    slabs: MmapMut,
    env: Env,
    loops: Vec<Turns>,
}

impl Bench {
    fn new() -> Option<Self> {
        let region = Region { count_log2: 3, stride_log2: 16, state_end: 4096, key_shift: 12 };
        let mut slabs = MmapMut::map_anon(region.size()).ok()?;
        region.initialise(&mut slabs);
        let mut code = MmapMut::map_anon(CODE).ok()?;
        let at = code.as_ptr() as u64;
        code[..8].copy_from_slice(&(slabs.as_ptr() as u64).to_le_bytes());
        code[SALT..SALT + 8].copy_from_slice(&salt(std::process::id()).to_le_bytes());
        let mut env = Env {
            base: at,
            salt: at + SALT as u64,
            region,
            routines: Routines::default(),
            thread_pointer: true,
            thread_id: None,
            unwind: None,
            engine: None,
            bmi2: std::arch::is_x86_feature_detected!("bmi2"),
            clock: Clock { source: Source::Processor, multiplier: 1 << 31, shift: 32, offset: 0 },
            xsave_mask: 0,
            xsave_size: 0,
        };
        let runtime = runtime(&env, at + ROUTINES as u64);
        code.get_mut(ROUTINES..LOOPS)?
            .get_mut(..runtime.code.len())?
            .copy_from_slice(&runtime.code);
        env.routines = runtime.routines;
        Some(Self { code, used: LOOPS, slabs, env, loops: Vec::new() })
    }

    /// A loop around a snippet, by its number.
    fn add(&mut self, text: &str, site: &Site, thread_pointer: bool, usual: f64) -> Option<usize> {
        let weave = Weave::parse(text).ok()?;
        let places = places(&self.env.region, &weave.data)?;
        let is_ring = |datum: &Datum| matches!(datum.kind, DatumKind::Ring { .. });
        let ring = weave.data.iter().position(is_ring).map(|index| places[index]);
        let env = Env { thread_pointer, ..self.env };
        let body = weave.body(PointKind::Entry).unwrap_or_default();
        let compiled = compile(&weave.data, body, site, &env, &places).ok()?;
        let main_at = self.code.as_ptr() as u64 + (self.used + HEAD.len()) as u64;
        let rare_at = main_at + (compiled.main_len() + TURN.len() + 4 + TAIL.len()) as u64;
        let (main, rare) = compiled.place(main_at, rare_at);
        self.put(&main, &rare, ring, usual)
    }

    /// A loop around code, and other code behind it.
    fn put(&mut self, main: &[u8], rare: &[u8], ring: Option<Place>, usual: f64) -> Option<usize> {
        let at = self.used;
        let back = -((main.len() + TURN.len() + 4) as i32);
        let all = [&HEAD[..], main, &TURN, &back.to_le_bytes(), &TAIL, rare].concat();
        self.code.get_mut(at..at + all.len())?.copy_from_slice(&all);
        self.used = (at + all.len()).next_multiple_of(64);
        self.loops.push(Turns { at, ring, usual });
        Some(self.loops.len() - 1)
    }

    fn finish(self) -> Option<Runner> {
        // Never writable and executable at once.
        let code = self.code.make_exec().ok()?;
        Some(Runner { code, slabs: self.slabs, region: self.env.region, loops: self.loops })
    }
}

/// Runs loops.
struct Runner {
    code: Mmap,
    slabs: MmapMut,
    region: Region,
    loops: Vec<Turns>,
}

impl Runner {
    /// Nanoseconds of a turn of each loop. Rounds of all loops alternate, so that nothing else that
    /// the machine does for a while falls on one of them.
    fn run(mut self) -> Vec<f64> {
        let mut best = vec![f64::INFINITY; self.loops.len()];
        let mut in_vain = 0;
        for _ in 0..ROUNDS {
            in_vain += 1;
            for (index, best) in best.iter_mut().enumerate() {
                let Turns { at, ring, usual } = self.loops[index];
                if let Some(ring) = ring {
                    self.empty(ring);
                }
                let times = ((ROUND / usual) as u64).clamp(16, TURNS);
                // SAFETY: there is a whole function at this place, which keeps what the C ABI says and
                // writes to the slabs and its own stack alone. The memory lives as long as `self`.
                let run: extern "C" fn(u64, u64, u64) =
                    unsafe { std::mem::transmute(self.code.as_ptr().add(at)) };
                let began = Instant::now();
                run(times, 12345, 678);
                let turn = began.elapsed().as_nanos() as f64 / times as f64;
                if turn < *best * BETTER {
                    in_vain = 0;
                }
                *best = best.min(turn);
            }
            if in_vain == IN_VAIN {
                break;
            }
        }
        best
    }

    /// Takes everything out of a ring, as its reader would.
    fn empty(&mut self, ring: Place) {
        for slab in self.slabs.chunks_exact_mut(self.region.stride()) {
            let ring = &mut slab[ring.sums as usize..];
            let (head, tail) = (RING_HEAD as usize, RING_TAIL as usize);
            ring.copy_within(head..head + 8, tail);
        }
    }
}

fn places(region: &Region, data: &[Datum]) -> Option<Vec<Place>> {
    let mut allocator = Allocator::new(region);
    data.iter().map(|datum| allocator.place(datum)).collect()
}

/// Where nothing has to be saved.
fn site() -> Site {
    Site {
        kind: PointKind::Entry,
        convention: Convention::SystemV,
        dead: RegisterSet::of(&[
            Register::RAX,
            Register::RCX,
            Register::RDX,
            Register::R8,
            Register::R9,
            Register::R10,
            Register::R11,
        ]),
        live_flags: FlagSet::NONE,
        red_zone: false,
        address: 0,
        stack_shift: 0,
        access: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn measuring_takes_milliseconds_and_gives_something_sane() {
        let mut least = Duration::MAX;
        for _ in 0..5 {
            let began = Instant::now();
            let [slow, quick] = measure().unwrap();
            least = least.min(began.elapsed());
            assert!((0.3..=4.8).contains(&slow.there_and_back), "{slow:?}");
            for operation in Operation::ALL.into_iter().filter(|&o| o != Operation::Slab) {
                let usual = Costs::default().get(operation);
                let measured = slow.operations.get(operation);
                assert!((usual / SANE..=usual * SANE).contains(&measured), "{operation:?}");
                assert_eq!(measured, quick.operations.get(operation));
            }
            let [slow, quick] = [slow, quick].map(|prices| prices.operations);
            assert!(quick.get(Operation::Slab) < slow.get(Operation::Slab) * 1.5);
            assert!(slow.get(Operation::Cpu) > slow.get(Operation::Ticks));
            assert!(slow.get(Operation::Ticks) > slow.get(Operation::Count));
        }
        assert!(least < Duration::from_millis(20), "{least:?}");
    }
}
