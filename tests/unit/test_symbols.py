"""The functions of modules, held against what binutils and elfutils say."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from tests.toolchain import compile_program, run
from weft._native import ModuleSymbols
from weft.errors import BadFile
from weft.model.program import Frame, Function, Module


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that no other test sees."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return cache / "weft" / "symbols"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A small program with debug information."""
    return compile_program("symbols/inlined.c", tmp_path / "inlined", "-O1", "-g", "-rdynamic")


def by_name(module: Module) -> dict[str, Function]:
    """All functions, by the linker's names and by their aliases."""
    functions = {}
    for function in module.functions():
        for name in (function.name, *function.aliases):
            functions[name] = function
    return functions


def nm_functions(path: Path, *options: str) -> dict[str, int]:
    """The functions that readelf knows: name and address."""
    found = {}
    for line in run("readelf", "-W", *options, path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] in ("FUNC", "IFUNC") and fields[6] != "UND":
            found[fields[7]] = int(fields[1], 16)
    return found


def test_functions_of_the_symbol_table(program: Path) -> None:
    module = Module(str(program))
    functions = by_name(module)
    expected = nm_functions(program, "-s")
    assert len(expected) > 10
    assert {name: functions[name].offset for name in expected} == expected
    assert module.problems == ()
    assert f"Build ID: {module.build_id}" in run("readelf", "-n", program)


def test_what_is_known_about_a_function(program: Path) -> None:
    functions = by_name(Module(str(program)))
    outer = functions["outer"]
    assert outer.name == "outer"
    assert set(outer.aliases) == {"outer_alias", "__outer_weak"}
    assert (outer.kind, outer.binding, outer.visibility) == ("function", "global", "default")
    assert outer.size > 0
    assert (functions["quiet"].binding, functions["quiet"].origin) == ("local", "symtab")
    # What is hidden when the linker is done with it is local to the module.
    assert functions["secret"].binding == "local"
    assert functions["chosen"].kind == "ifunc"
    assert functions["malloc@plt"].kind == "plt"
    assert outer.source is not None
    assert outer.source.file.endswith("inlined.c")
    assert outer.source.line == 16


def test_find_and_select(program: Path) -> None:
    module = Module(str(program))
    assert [function.name for function in module.find("outer_alias")] == ["outer"]
    assert module.find("oute") == []
    assert {function.name for function in module.functions("*@plt")} >= {"malloc@plt", "free@plt"}
    outer = module.find("outer")[0]
    assert module.function_at(outer.offset + outer.size - 1) == outer
    assert module.function_at(0) is None


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_inlined_frames(tmp_path: Path, version: int, compression: str) -> None:
    options = ["-O2", f"-gdwarf-{version}", f"-gz={compression}"]
    program = compile_program("symbols/inlined.c", tmp_path / "inlined", *options)
    module = Module(str(program))
    checked = 0
    for name in ("outer", "quiet", "main"):
        function = module.find(name)[0]
        for offset in range(function.offset, function.offset + function.size):
            frames = module.frames_at(offset)
            assert [_as_addr2line(frame) for frame in frames] == _addr2line(program, offset)
            checked += len(frames) > 1
    assert checked > 0, "nothing was inlined"


def _as_addr2line(frame: Frame) -> tuple[str | None, str]:
    assert frame.location is not None
    return frame.function, f"{Path(frame.location.file).name}:{frame.location.line}"


def _addr2line(program: Path, offset: int) -> list[tuple[str, str]]:
    lines = run("addr2line", "-f", "-i", "-e", program, hex(offset)).splitlines()
    places = [re.sub(r" \(discriminator \d+\)", "", line) for line in lines[1::2]]
    return list(zip(lines[::2], [Path(place).name for place in places], strict=True))


def test_innermost_frame_comes_first(program: Path) -> None:
    module = Module(str(program))
    frames = module.frames_at(module.find("outer")[0].offset)
    assert frames[-1].function == "outer"
    assert not frames[-1].inlined
    assert all(frame.inlined for frame in frames[:-1])


def test_lines_of_a_module_without_debug_information(tmp_path: Path) -> None:
    module = Module(str(compile_program("symbols/inlined.c", tmp_path / "plain")))
    outer = module.find("outer")[0]
    assert outer.source is None
    assert module.frames_at(outer.offset) == []
    assert module.source_files == ()


def test_names_of_cpp(tmp_path: Path) -> None:
    program = compile_program("symbols/names.cc", tmp_path / "names", "-O0")
    functions = [found for found in Module(str(program)).functions() if found.name.startswith("_Z")]
    assert len(functions) > 50
    names = "\n".join(function.name.removesuffix("@plt") for function in functions)
    told = subprocess.run(["c++filt"], input=names, capture_output=True, text=True, check=True)
    differing = [
        (function.name, function.demangled, expected)
        for function, expected in zip(functions, told.stdout.splitlines(), strict=True)
        if _without_spaces((function.demangled or "").removesuffix("@plt"))
        != _without_spaces(expected)
    ]
    # The two demanglers write a few things differently: literals, abbreviations of std.
    assert all(function.demangled for function in functions)
    assert len(differing) <= len(functions) * 0.05, differing
    names_of_zoo = {function.demangled for function in functions}
    assert "zoo::Cage<unsigned long, 4>::operator[](int)" in names_of_zoo
    assert (
        "zoo::Keeper::Keeper(std::__cxx11::basic_string<char, std::char_traits<char>, "
        "std::allocator<char> > const&)" in names_of_zoo
    )


def _without_spaces(name: str) -> str:
    return name.replace(" ", "")


@pytest.mark.parametrize("mangling", ["legacy", "v0"])
def test_names_of_rust(tmp_path: Path, mangling: str) -> None:
    source = tmp_path / "lib.rs"
    source.write_text(
        "pub mod zoo { pub struct Cage<T>(pub T); impl<T: Copy> Cage<T> {"
        "#[inline(never)] pub fn open(&self) -> T { self.0 } } }"
        'fn main() { println!("{}", zoo::Cage(std::env::args().count()).open()); }'
    )
    program = tmp_path / "rust"
    options = ["-Copt-level=0", "--edition=2021"]
    if mangling == "v0":
        options.append("-Csymbol-mangling-version=v0")
    rustc = shutil.which("rustc")
    if rustc is None:
        pytest.skip("no Rust compiler here")
    run(rustc, *options, source, "-o", program)
    names = [function.display_name for function in Module(str(program)).functions("*open*")]
    expected = "<lib::zoo::Cage<usize>>::open" if mangling == "v0" else "lib::zoo::Cage<T>::open"
    assert expected in names


def plt_of_objdump(path: Path) -> dict[int, str]:
    """The entries of procedure linkage tables, by address, as objdump names them."""
    found = {}
    for line in run("objdump", "-d", "--no-show-raw-insn", path).splitlines():
        label = re.fullmatch(r"([0-9a-f]+) <(.+@plt)>:", line)
        if label and not label[2].startswith("*ABS*"):
            found[int(label[1], 16)] = label[2]
    return found


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("-fcf-protection=full", "-Wl,-z,ibtplt"),
        ("-no-pie",),
        ("-Wl,-z,now", "-fno-plt"),
        ("-Wl,-z,lazy", "-fcf-protection=none"),
    ],
    ids=["default", "ibt", "no-pie", "no-plt", "lazy"],
)
def test_plt_entries(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = compile_program("symbols/inlined.c", tmp_path / "program", *options)
    expected = plt_of_objdump(program)
    found = {f.offset: f.name for f in Module(str(program)).functions() if f.kind == "plt"}
    assert expected.items() <= found.items()


@pytest.mark.parametrize("path", ["/bin/bash", "/usr/bin/sqlite3", "/usr/bin/python3"])
def test_plt_entries_of_installed_programs(path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"no {path} here")
    expected = plt_of_objdump(Path(path))
    found = {f.offset: f.name for f in Module(path).functions() if f.kind == "plt"}
    assert expected.items() <= found.items()


def fdes_of_readelf(path: Path) -> set[int]:
    """Where the frame descriptions of a file say that functions begin."""
    dump = run("readelf", "--debug-dump=frames", path)
    return {int(start, 16) for start in re.findall(r"FDE .*pc=([0-9a-f]+)\.\.", dump)}


@pytest.mark.parametrize("path", ["/bin/bash", "/usr/bin/sqlite3"])
def test_stripped_programs(path: str) -> None:
    if not Path(path).exists():
        pytest.skip(f"no {path} here")
    expected = fdes_of_readelf(Path(path))
    functions = {function.offset: function for function in Module(path).functions()}
    assert len(expected & functions.keys()) >= 0.99 * len(expected)
    nameless = [found for found in functions.values() if found.origin == "eh_frame"]
    assert nameless
    assert all(found.name == f"sub_{found.offset:x}" and found.size > 0 for found in nameless)


def test_stripped_program_keeps_its_boundaries(program: Path, tmp_path: Path) -> None:
    before = by_name(Module(str(program)))
    stripped = tmp_path / "stripped"
    run("strip", program, "-o", stripped)
    after = {function.offset: function for function in Module(str(stripped)).functions()}
    quiet = after[before["quiet"].offset]
    assert quiet.name == f"sub_{quiet.offset:x}"
    assert quiet.size == before["quiet"].size
    assert after[before["outer"].offset].origin == "dynsym"


def test_debug_file_by_build_id(program: Path, tmp_path: Path) -> None:
    module = Module(str(program))
    root = tmp_path / "root"
    build_id = module.build_id
    assert build_id is not None
    debug = root / "usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    stripped = root / "program"
    run("strip", program, "-o", stripped)

    def open_stripped() -> Module:
        return Module("/program", open_path=str(stripped), root=str(root))

    assert "quiet" not in by_name(open_stripped())
    run("objcopy", "--only-keep-debug", program, debug)
    found = by_name(open_stripped())
    assert found["quiet"].origin == "debug file"
    assert found["quiet"].source is not None
    assert found["quiet"].source.line == 24
    debug.unlink()
    assert "quiet" not in by_name(open_stripped()), "the cache outlived the debug file"


def test_debug_file_of_another_build_is_not_used(program: Path, tmp_path: Path) -> None:
    build_id = Module(str(program)).build_id
    assert build_id is not None
    debug = tmp_path / "root/usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    debug.parent.mkdir(parents=True)
    compile_program("symbols/inlined.c", debug, "-g", "-O2")
    module = Module(str(program), open_path=str(program), root=str(tmp_path / "root"))
    assert any("build-id is another one" in problem for problem in module.problems)


@pytest.mark.parametrize("place", [".", ".debug", "usr/lib/debug/bin"])
def test_debug_file_by_debuglink(tmp_path: Path, place: str) -> None:
    options = ("-g", "-O1", "-Wl,--build-id=none")
    program = compile_program("symbols/inlined.c", tmp_path / "program", *options)
    root = tmp_path / "root"
    stripped = root / "bin/program"
    directory = root / place if place.startswith("usr") else root / "bin" / place
    directory.mkdir(parents=True)
    stripped.parent.mkdir(exist_ok=True)
    debug = directory / "program.debug"
    run("objcopy", "--only-keep-debug", program, debug)
    run("strip", program, "-o", stripped)
    run("objcopy", f"--add-gnu-debuglink={debug}", stripped)

    def open_stripped() -> Module:
        return Module("/bin/program", open_path=str(stripped), root=str(root))

    assert by_name(open_stripped())["quiet"].origin == "debug file"
    with debug.open("ab") as file:
        file.write(b"changed")
    changed = open_stripped()
    assert "quiet" not in by_name(changed)
    assert any("checksum" in problem for problem in changed.problems)


def test_debug_files_with_a_common_part(tmp_path: Path) -> None:
    """What Debian ships: ``dwz`` has moved what two debug files share into a third one."""
    dwz = shutil.which("dwz")
    if dwz is None:
        pytest.skip("no dwz here")
    root = tmp_path / "root"
    directory = root / "usr/lib/debug/bin"
    directory.mkdir(parents=True)
    programs = []
    for number in (1, 2):
        # Large enough for dwz to find something in common, and with build-ids of their own.
        options = ("-g", "-O1", f"-DNUMBER={number}", f"-Wl,--build-id=0x{number}234567890abcdef")
        program = compile_program("symbols/names.cc", tmp_path / f"names{number}", *options)
        debug = directory / f"names{number}.debug"
        run("objcopy", "--only-keep-debug", program, debug)
        programs.append((program, debug))
    before = Module(str(programs[0][0]))
    run(
        dwz,
        "-m",
        directory / "common.debug",
        "-M",
        "common.debug",
        *(debug for _, debug in programs),
    )
    program, debug = programs[0]
    stripped = root / "bin/names1"
    stripped.parent.mkdir()
    run("strip", program, "-o", stripped)
    run("objcopy", f"--add-gnu-debuglink={debug}", stripped)
    module = Module("/bin/names1", open_path=str(stripped), root=str(root))
    feed = module.find("zoo::Keeper::feed")[0]
    assert feed.origin == "debug file"
    assert feed.source == before.find("zoo::Keeper::feed")[0].source
    assert module.frames_at(feed.offset) == before.frames_at(feed.offset)
    assert feed.source is not None
    assert feed.source.file.endswith("names.cc")


def test_links_cannot_lead_out_of_the_root(program: Path, tmp_path: Path) -> None:
    build_id = Module(str(program)).build_id
    assert build_id is not None
    root = tmp_path / "root"
    outside = tmp_path / "outside.debug"
    run("objcopy", "--only-keep-debug", program, outside)
    link = root / "usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    stripped = tmp_path / "stripped"
    run("strip", program, "-o", stripped)
    module = Module("/program", open_path=str(stripped), root=str(root))
    assert "quiet" not in by_name(module)


def test_mini_debug_info(program: Path, tmp_path: Path) -> None:
    mini = tmp_path / "mini"
    run("objcopy", "-S", "--keep-symbol=quiet", program, mini)
    run("xz", "-k", mini)
    with_mini = tmp_path / "with_mini"
    run("strip", program, "-o", with_mini)
    run("objcopy", f"--add-section=.gnu_debugdata={mini}.xz", with_mini)
    quiet = by_name(Module(str(with_mini)))["quiet"]
    assert quiet.origin == "gnu_debugdata"
    assert quiet.offset == nm_functions(program, "-s")["quiet"]

    broken = tmp_path / "broken"
    Path(f"{mini}.xz").write_bytes(Path(f"{mini}.xz").read_bytes()[:-40])
    run("strip", program, "-o", broken)
    run("objcopy", f"--add-section=.gnu_debugdata={mini}.xz", broken)
    module = Module(str(broken))
    assert "outer" in by_name(module)
    assert any(".gnu_debugdata" in problem for problem in module.problems)


def test_zipped_bomb_is_refused(program: Path, tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.xz"
    with bomb.open("wb") as output:
        zeros = subprocess.Popen(["head", "-c", "300M", "/dev/zero"], stdout=subprocess.PIPE)
        subprocess.run(["xz", "-0"], stdin=zeros.stdout, stdout=output, check=True)
        assert zeros.stdout is not None
        zeros.stdout.close()
        zeros.wait()
    run("objcopy", f"--add-section=.gnu_debugdata={bomb}", program)
    assert any(".gnu_debugdata" in problem for problem in Module(str(program)).problems)


def test_stripped_go_program() -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go here")
    functions = by_name(Module(go))
    assert functions["main.main"].size > 0
    assert functions["runtime.mallocgc"].origin in ("gopclntab", "symtab")


def test_segments_in_memory(program: Path) -> None:
    """What can be had when only the loaded segments are left: a deleted file's."""
    contents = program.read_bytes()
    (table,) = struct.unpack_from("<Q", contents, 32)
    (count,) = struct.unpack_from("<H", contents, 56)
    image = bytearray()
    for index in range(count):
        kind, _, offset, address, _, in_file, in_memory = struct.unpack_from(
            "<IIQQQQQ", contents, table + index * 56
        )
        if kind == 1:
            image.extend(bytes(address + in_memory - len(image)))
            image[address : address + in_file] = contents[offset : offset + in_file]
    expected = by_name(Module(str(program)))
    module = Module("gone", image=bytes(image), image_bias=0x7F0000000000)
    found = by_name(module)
    assert found["outer"].offset == expected["outer"].offset
    nameless = {function.offset for function in found.values() if function.origin == "eh_frame"}
    assert expected["quiet"].offset in nameless
    assert module.build_id == expected["outer"].module.build_id


def test_file_without_section_headers(program: Path, tmp_path: Path) -> None:
    contents = bytearray(program.read_bytes())
    struct.pack_into("<Q", contents, 40, 0)  # e_shoff
    struct.pack_into("<HHH", contents, 58, 0, 0, 0)
    bare = tmp_path / "bare"
    bare.write_bytes(contents)
    assert by_name(Module(str(bare)))["outer"].origin == "dynsym"


def test_second_time_comes_from_the_cache(program: Path, own_cache: Path) -> None:
    first = ModuleSymbols.open(str(program))
    second = ModuleSymbols.open(str(program))
    assert (first.from_cache, second.from_cache) == (False, True)
    everything = first.select()
    assert second.rows(everything) == first.rows(everything)
    assert second.sources(everything) == first.sources(everything)
    assert ModuleSymbols.open(str(program)).sources(everything) == first.sources(everything)
    assert not ModuleSymbols.open(str(program), use_cache=False).from_cache
    assert own_cache.stat().st_mode & 0o777 == 0o700
    assert {entry.stat().st_mode & 0o777 for entry in own_cache.iterdir()} == {0o600}


def test_damaged_cache_is_rebuilt(program: Path, own_cache: Path) -> None:
    before = ModuleSymbols.open(str(program))
    rows = before.rows(before.select())
    (entry,) = own_cache.iterdir()
    contents = entry.read_bytes()
    for damage in (b"", contents[:100], contents[:-1], bytes(len(contents)), os.urandom(1000)):
        entry.write_bytes(damage)
        symbols = ModuleSymbols.open(str(program))
        assert not symbols.from_cache
        assert symbols.rows(symbols.select()) == rows
        assert ModuleSymbols.open(str(program)).from_cache


def test_forged_cache_does_no_harm(program: Path, own_cache: Path) -> None:
    ModuleSymbols.open(str(program))
    (entry,) = own_cache.iterdir()
    contents = bytearray(entry.read_bytes())
    # All ends of names beyond the end of the file, and a checksum that agrees.
    for at in range(48, len(contents) - 4, 4):
        struct.pack_into("<I", contents, at, 0xFFFFFFF0)
    struct.pack_into("<I", contents, 12, zlib.crc32(contents[16:]))
    entry.write_bytes(contents)
    symbols = ModuleSymbols.open(str(program))
    assert symbols.from_cache
    assert len(symbols.rows(symbols.select())) == len(symbols)


def test_file_without_build_id_is_cached_by_its_identity(tmp_path: Path) -> None:
    program = compile_program("symbols/inlined.c", tmp_path / "p", "-Wl,--build-id=none")
    assert not ModuleSymbols.open(str(program)).from_cache
    assert ModuleSymbols.open(str(program)).from_cache
    program.touch()
    assert not ModuleSymbols.open(str(program)).from_cache


def test_changed_file_is_noticed_when_lines_are_asked_for(program: Path) -> None:
    symbols = ModuleSymbols.open(str(program))
    compile_program("symbols/inlined.c", program, "-O0", "-g")
    with pytest.raises(BadFile, match="has changed"):
        symbols.source_files()


@pytest.mark.parametrize(
    ("contents", "why"),
    [
        (b"", "shorter"),
        (b"#!/bin/sh\nexit 0\n" * 10, "does not begin"),
        (b"\x7fELF\x01\x01\x01" + bytes(100), "64-bit"),
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x01\x00" + bytes(100), "neither"),
    ],
)
def test_what_is_no_module(tmp_path: Path, contents: bytes, why: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(contents)
    with pytest.raises(BadFile, match=why):
        ModuleSymbols.open(str(path))


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "missing"):
        with pytest.raises(BadFile, match="cannot be opened"):
            ModuleSymbols.open(str(path))


def test_truncated_files_give_what_is_left(program: Path) -> None:
    contents = program.read_bytes()
    for length in range(64, len(contents), 997):
        symbols = ModuleSymbols.from_image("cut", contents[:length], use_cache=False)
        assert symbols.problems
        symbols.source_files()


def objects_of_readelf(path: Path, name: str) -> list[tuple[int, int]]:
    found = set()
    for line in run("readelf", "-sW", path).splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[3] == "OBJECT" and fields[7] == name:
            found.add((int(fields[1], 16), int(fields[2], 0)))
    return sorted(found)


def test_variables(tmp_path: Path) -> None:
    program = compile_program("symbols/variables.cc", tmp_path / "variables", "-rdynamic")
    module = Module(str(program))
    for name, linker_name, size in [
        ("exported", "exported", 4),
        ("own", "_ZL3own", 24),
        ("_ZL3own", "_ZL3own", 24),
        ("place::within", "_ZN5place6withinE", 8),
    ]:
        ((offset, found_size),) = module.variables(name)
        assert [(offset, found_size)] == objects_of_readelf(program, linker_name)
        assert found_size == size
    for absent in ("each_thread", "both", "within", "", "no_such"):
        assert module.variables(absent) == []


def test_variables_of_a_stripped_program(tmp_path: Path) -> None:
    program = compile_program("symbols/variables.cc", tmp_path / "program", "-g", "-rdynamic")
    own = objects_of_readelf(program, "_ZL3own")
    exported = objects_of_readelf(program, "exported")
    debug = tmp_path / "program.debug"
    run("objcopy", "--only-keep-debug", program, debug)
    run("strip", program)
    stripped = Module(str(program), use_cache=False)
    assert stripped.variables("exported") == exported
    assert stripped.variables("own") == []
    run("objcopy", f"--add-gnu-debuglink={debug}", program)
    assert Module(str(program), use_cache=False).variables("own") == own


def test_variables_of_a_file_that_has_changed(tmp_path: Path) -> None:
    program = compile_program("symbols/variables.cc", tmp_path / "program")
    module = Module(str(program))
    assert module.variables("exported")
    run("strip", program)
    with pytest.raises(BadFile, match="has changed"):
        module.variables("exported")
