//! Whole functions, copied as they are and with code at every block, near and far: they must compute the same, and the
//! code must have run as often as the blocks did.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};
use weft_code::{Aim, Callee, Convention, Function, Graph, Liveness, Program, Relocator, graph};

/// The memory of this process, as far as one library goes.
struct Image {
    start: u64,
    size: usize,
    functions: Vec<u64>,
}

impl Program for Image {
    fn bytes(&self, address: u64) -> &[u8] {
        let offset = address.wrapping_sub(self.start);
        if offset >= self.size as u64 {
            return &[];
        }
        // SAFETY: the library is mapped there without gaps, and stays.
        unsafe { std::slice::from_raw_parts(address as *const u8, self.size - offset as usize) }
    }

    fn is_code(&self, address: u64) -> bool {
        !self.bytes(address).is_empty()
    }

    fn callee(&self, address: u64) -> Option<Callee> {
        self.functions.contains(&address).then_some(Callee {
            returns: true,
            convention: Convention::SystemV,
            external: false,
        })
    }
}

fn map(hint: u64, size: usize) -> &'static mut [u8] {
    // SAFETY: new memory that is never taken back.
    unsafe {
        let place = libc::mmap(
            hint as *mut _,
            size,
            libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(place, libc::MAP_FAILED);
        std::slice::from_raw_parts_mut(place.cast(), size)
    }
}

/// `inc qword [counter]` with what is needed around it kept: through a free register if there is one.
fn count(counter: u64, graph: &Graph, liveness: &Liveness<'_>, block: usize) -> Vec<u8> {
    let live = liveness.before(graph.blocks[block].start);
    let free = (!live.registers).iter().next();
    let register = free.map_or(0, |register| register.0);
    let flags = live.flags.intersects(weft_code::FlagSet::ARITHMETIC);
    let mut code = Vec::new();
    let around = free.is_none() || flags;
    if around {
        code.extend([0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    }
    if free.is_none() {
        code.push(0x50 + register);
    }
    if flags {
        code.push(0x9c);
    }
    code.extend([0x48 | register >> 3, 0xb8 | register & 7]);
    code.extend(counter.to_le_bytes());
    // inc qword [register], with a displacement so that every register will do.
    code.extend([0x48 | register >> 3, 0xff, 0x40 | register & 7]);
    if register & 7 == 4 {
        code.push(0x24);
    }
    code.push(0);
    if flags {
        code.push(0x9d);
    }
    if free.is_none() {
        code.push(0x58 + register);
    }
    if around {
        code.extend([0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]); // lea rsp, [rsp + 128]
    }
    code
}

/// Copies a function block by block, each with a counter, to where there is room.
fn copy(image: &Image, graph: &Graph, counters: Option<&[u64]>, room: &mut [u8]) -> u64 {
    let liveness = Liveness::of(graph, Convention::SystemV);
    let to = room.as_ptr() as u64;
    let mut relocator = Relocator::new();
    for (index, block) in graph.blocks.iter().enumerate() {
        if let Some(counters) = counters {
            let code = count(&raw const counters[index] as u64, graph, &liveness, index);
            relocator.insert(move |_| code.clone());
        }
        for instruction in graph.instructions(index) {
            relocator.copy(instruction.ip(), image.bytes(instruction.ip())).unwrap();
        }
        // The next block may not be the one that follows.
        let follows = graph.blocks.get(index + 1).is_some_and(|next| next.start == block.end);
        if !follows {
            relocator.jump(Aim::Address(block.end));
        }
    }
    let copied = relocator.finish(to, &|_, _| None).unwrap();
    room[..copied.bytes.len()].copy_from_slice(&copied.bytes);
    copied.moved(graph.function.entry()).unwrap().before
}

/// The bits of what a function of two numbers returns.
fn call(address: u64, x: i32, y: i32, double: bool) -> u64 {
    // SAFETY: there is such a function, or its copy.
    unsafe {
        if double {
            let function: extern "C" fn(i32, i32) -> f64 = std::mem::transmute(address);
            function(x, y).to_bits()
        } else {
            let function: extern "C" fn(i32, i32) -> i32 = std::mem::transmute(address);
            function(x, y) as u64
        }
    }
}

fn build(compiler: &str, level: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/pure.c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("pure{level}-{compiler}.so"));
    let status = Command::new(compiler)
        .args([level, "-fPIC", "-shared", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    status.is_ok_and(|status| status.success()).then_some(library)
}

fn check(library: &Path) {
    let data = std::fs::read(library).unwrap();
    let file = object::File::parse(&*data).unwrap();
    let path = CString::new(library.to_str().unwrap()).unwrap();
    // SAFETY: the library does nothing when it is loaded.
    let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!handle.is_null());
    let find = |name: &str| {
        let name = CString::new(name).unwrap();
        // SAFETY: the handle is open.
        unsafe { libc::dlsym(handle, name.as_ptr()) as u64 }
    };
    let symbols: Vec<_> = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0)
        .map(|symbol| (symbol.name().unwrap().to_string(), symbol.address(), symbol.size()))
        .collect();
    let base = find("switches") - symbols.iter().find(|each| each.0 == "switches").unwrap().1;
    // Code and the read-only data behind it.
    let end = file
        .symbols()
        .map(|symbol| symbol.address())
        .chain(symbols.iter().map(|each| each.1 + each.2))
        .max()
        .unwrap();
    let image = Image {
        start: base,
        size: end as usize,
        functions: symbols.iter().map(|each| base + each.1).collect(),
    };
    let (near, far) = (map(base + 0x1000_0000, 1 << 16), map(0x1000_0000_0000, 1 << 16));
    let mut checked = 0;
    for (name, address, size) in &symbols {
        if find(name) == 0 || name.starts_with('_') {
            continue;
        }
        let function = Function::new(base + address..base + address + size, Convention::SystemV);
        let graph = graph(&image, &function);
        let counters = vec![0_u64; graph.blocks.len()];
        // Jumps through tables lead back to the original, so that only functions without count every block.
        let closed = graph.tables.is_empty() && graph.unknown.is_empty();
        for room in [&mut *near, &mut *far] {
            for counted in [None, Some(&counters[..])] {
                let entry = copy(&image, &graph, counted, room);
                for round in 0..200 {
                    let (x, y) = (round * 7919 - 500, round * 104_729 + 3);
                    let results =
                        [base + address, entry].map(|at| call(at, x, y, name == "average"));
                    assert_eq!(results[0], results[1], "{name}({x}, {y})");
                }
            }
        }
        // SAFETY: the copies wrote them; nothing else does.
        let counted = |index: usize| unsafe { (&raw const counters[index]).read_volatile() };
        let entry = graph.entries[0];
        let calls_itself =
            graph.calls.iter().any(|each| each.target == Some(graph.function.entry()));
        if closed && !calls_itself && graph.predecessors(entry).next().is_none() {
            assert_eq!(counted(entry), 2 * 200, "{name} was entered");
        }
        checked += 1;
    }
    assert!(checked >= 6, "{checked} functions in {}", library.display());
}

#[test]
fn functions_compute_the_same_elsewhere() {
    for compiler in ["gcc", "clang-14"] {
        for level in ["-O0", "-O2", "-O3", "-Os"] {
            match build(compiler, level) {
                Some(library) => check(&library),
                None => println!("{compiler} {level}: cannot be built, skipped"),
            }
        }
    }
}
