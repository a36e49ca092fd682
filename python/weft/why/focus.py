"""Where: the function, lock, descriptor, peer or thread that most of some time belongs to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from weft.model.stacks import StackFrame
from weft.program.futexes import is_c_library
from weft.program.system_calls import UNKNOWN
from weft.why.hypotheses import Hypothesis
from weft.why.spots import Spot

__all__ = ["Part", "narrow", "own_frame"]

Part = tuple[str, float]
"""A text, and its share."""

_ENOUGH = 0.35
"""From what share on one function stands for all."""
_SOME = 0.15
"""From what share on functions of the program stand for those of its runtime."""
_CALLERS = 3
"""How many callers of a function are named."""
_MOST = 0.6
"""From what share on a function that calls others stands for them."""
_LIBRARIES = re.compile(
    r"(lib(c|m|pthread|stdc\+\+|gcc_s|dl|rt)[-.]|ld-|\[vdso\])|libc\.musl|ld-musl"
    r"|lib(jvm|java|nio|net|jimage)\.so|libpython"
)
_RUNTIME = re.compile(
    r"(std|core|alloc|__gnu_cxx|__cxxabiv1|backtrace_rt|<(std|core|alloc|T as )\S*)::"
    r"|<alloc|<core|<std|(runtime|sync|internal/\w+|syscall)\."
    r"|_*start|main_arena|__libc_start\w*|start_thread|clone3?|__clone3?|pthread_\w+|thread_start"
    r"|_?Py[A-Z_]\w*|_Py\w+|cfunction_\w+|method_\w+|builtin_\w+|object_\w+|slot_\w+|type_call"
    r"|run_mod|run_eval_code_obj|pymain_\w+"
    r"|Interpreter|\w+( Runtime1)? stub|monitorenter\w*|monitorexit\w*|StubRoutines.*|RuntimeStub.*"
    r"|_\w+_Java|C[12] Runtime .*|[iv]table stub|[ic]2[ic].*adapter.*|Builtins_\w+|Builtin:\w+"
)
"""Functions of runtimes and standard libraries: it is who calls them that matters."""


def narrow(hypothesis: Hypothesis, claimed: Sequence[Spot]) -> list[Part]:
    """Return what the time of a hypothesis belongs to, with shares, the largest first."""
    return _WAYS[hypothesis.focus](hypothesis, claimed)


def _shares(named: Iterable[tuple[str, float]]) -> list[Part]:
    found: Counter[str] = Counter()
    for name, seconds in named:
        found[name] += seconds  # type: ignore[assignment]  # counts of time
    total = sum(found.values()) or 1.0
    return [(name, value / total) for name, value in found.most_common()]


def _name(frame: StackFrame) -> str:
    return frame.function or f"{frame.address:#x}"


def _key(frame: StackFrame) -> str:
    """A function, whichever of its lines it is in."""
    name = _name(frame)
    return f"{name} ({frame.module})" if frame.module and frame.language != "python" else name


def _is_program(frame: StackFrame) -> bool:
    if frame.function is None:
        return False
    if frame.language == "python":
        return True
    module = frame.module or ""
    if _LIBRARIES.match(module) or is_c_library(frame.module):
        return False
    return _RUNTIME.match(frame.function) is None


def _is_python_program(frame: StackFrame) -> bool:
    """Whether it is a function of the program, not one that comes with Python."""
    if frame.language != "python":
        return False
    file = "" if frame.location is None else frame.location.file
    return not re.match(r"<frozen|.*/lib/python3[.\d]*/(?!(site|dist)-packages)", file)


def own_frame(frames: Sequence[StackFrame], hides: Callable[[str], bool]) -> StackFrame | None:
    """Return the innermost function of the program itself, or else the innermost with a name."""
    shown = [frame for frame in frames if not hides(frame.function or "")]
    for wanted in (
        _is_python_program,
        lambda frame: frame.language == "python",
        _is_program,
        lambda frame: frame.function is not None,
        lambda _: True,
    ):
        found = next((frame for frame in shown if wanted(frame)), None)
        if found is not None:
            return found
    return None


def _has_own(spot: Spot, hides: Callable[[str], bool]) -> bool:
    frame = own_frame(spot.frames, hides)
    return frame is not None and _is_program(frame)


def _own(spot: Spot, hides: Callable[[str], bool]) -> str:
    frame = own_frame(spot.frames, hides)
    if frame is None:
        return f"thread '{spot.thread}'" if spot.thread else f"thread {spot.tid}"
    return _key(frame)


def _functions(hypothesis: Hypothesis, claimed: Sequence[Spot]) -> list[Part]:
    """By function: the innermost of the program's own, or one that calls most of them."""
    hides = hypothesis.hides if hypothesis.focus == "caller" else lambda _: False
    # Threads of a runtime, as collectors of garbage, work for what the program's own do.
    own = [one for one in claimed if _has_own(one, hides)]
    if sum(one.seconds for one in own) > _SOME * sum(one.seconds for one in claimed):
        claimed = own
    parts = _shares((_own(one, hides), one.seconds) for one in claimed)
    if parts and parts[0][1] < _ENOUGH and (above := _above(claimed)) is not None:
        return [above, *parts]
    if parts:
        name, share = parts[0]
        parts[0] = f"{name}{_callers(name, claimed, hides)}", share
    return parts


def _callers(name: str, claimed: Sequence[Spot], hides: Callable[[str], bool]) -> str:
    """Who calls a function, as far as it is the same in most of its time."""
    chains: Counter[tuple[str, ...]] = Counter()
    for one in claimed:
        if _own(one, hides) != name:
            continue
        own = own_frame(one.frames, hides)
        place = one.frames.index(own) if own is not None else len(one.frames)
        outer = [_name(frame) for frame in one.frames[place + 1 :] if _is_program(frame)]
        chains[tuple(dict.fromkeys(text for text in outer if text != name))] += one.seconds  # type: ignore[assignment]
    whole = sum(chains.values()) or 1.0
    found: list[str] = []
    for length in range(1, _CALLERS + 1):
        nearest: Counter[tuple[str, ...]] = Counter()
        for chain, seconds in chains.items():
            if len(chain) >= length:
                nearest[chain[:length]] += seconds
        best = nearest.most_common(1)
        if not best or best[0][1] < _MOST * whole:
            break
        found = list(best[0][0])
    found = [one for one in found if one != "main"]
    return f", called by {' from '.join(found)}" if found else ""


def _above(claimed: Sequence[Spot]) -> Part | None:
    """The innermost function in whose calls most of the time is spent."""
    whole = sum(one.seconds for one in claimed) or 1.0
    seconds: Counter[str] = Counter()
    depth: dict[str, int] = {}
    for one in claimed:
        seen = set()
        outermost_first = [frame for frame in reversed(one.frames) if _is_program(frame)]
        for place, frame in enumerate(outermost_first):
            name = _key(frame)
            if name not in seen:
                seen.add(name)
                seconds[name] += one.seconds  # type: ignore[assignment]
                depth[name] = max(depth.get(name, 0), place)
    enough = [name for name, value in seconds.items() if value >= _MOST * whole and name != "main"]
    if not enough:
        return None
    best = max(enough, key=lambda name: (depth[name], -seconds[name]))
    return f"{best} and what it calls", seconds[best] / whole


def _calls(_: Hypothesis, claimed: Sequence[Spot]) -> list[Part]:
    def place(one: Spot) -> str:
        # Which call it is of those that a function makes for all others, its caller tells.
        is_known = one.call != UNKNOWN
        return f"{one.call} from {_own(one, lambda name: not is_known and _makes_calls(name))}"

    return _shares((place(one), one.seconds) for one in claimed)


def _makes_calls(name: str) -> bool:
    """Whether a function is one like Go's ``syscall.Syscall6`` and the C library's ``syscall``."""
    return "syscall" in re.split(r"[.:/]", name)[-1].lower()


def _locks(hypothesis: Hypothesis, claimed: Sequence[Spot]) -> list[Part]:
    parts = _shares((_lock(hypothesis, one), one.seconds) for one in claimed)
    if not parts:
        return parts
    first = parts[0][0]
    holders: Counter[str] = Counter()
    for one in claimed:
        if _lock(hypothesis, one) == first:
            holders.update(dict(one.holders))
    if holders:
        holder, count = holders.most_common(1)[0]
        often = "" if count == holders.total() else f" in {count / holders.total():.0%} of looks"
        parts[0] = (f"{first}, held by {holder}{often}", parts[0][1])
    return parts


def _lock(hypothesis: Hypothesis, one: Spot) -> str:
    where = _own(one, hypothesis.hides)
    if one.wait is None or one.wait.kind not in ("lock", "read-write lock", "file lock"):
        # Known by the functions that it is in: those around the last of them ask for it.
        places = [place for place, name in enumerate(one.names) if hypothesis.hides(name)]
        if not places:
            return f"a lock, in {where}"
        inner, outer = one.names[places[0]], one.frames[places[-1] + 1 :]
        asks = own_frame(outer, lambda _: False)
        return f"a lock, by {inner}{f' in {_key(asks)}' if asks is not None else ''}"
    text = re.split(r"(,? held by |; )", one.wait.text)[0]
    return f"{text}, in {where}"


def _descriptors(_: Hypothesis, claimed: Sequence[Spot]) -> list[Part]:
    def name(one: Spot) -> str:
        where = _own(one, lambda _: False)
        if one.wait is None:
            return f"{one.call or 'the kernel'}, in {where}"
        if one.wait.descriptors:
            texts = ", ".join(found.text for found in one.wait.descriptors[:2])
            return f"{texts}, by {one.call} in {where}"
        return f"{one.wait.text}, in {where}"

    return _shares((name(one), one.seconds) for one in claimed)


def _peers(_: Hypothesis, claimed: Sequence[Spot]) -> list[Part]:
    def name(one: Spot) -> str:
        if one.peer is not None:
            return f"an answer of {one.peer}"
        where = _own(one, lambda _: False)
        if one.wait is None:
            return f"another process, in {where}"
        holders = ", ".join(holder for holder, _ in one.holders[:2])
        if one.wait.kind == "child":
            return f"a child process to end, in {where}"
        if one.wait.descriptors:
            found = one.wait.descriptors[0]
            other = found.peer or found.text
            return f"{other}{f' ({holders})' if holders else ''}, in {where}"
        return f"{one.wait.text}, in {where}"

    return _shares((name(one), one.seconds) for one in claimed)


def _threads(_: Hypothesis, claimed: Sequence[Spot]) -> list[Part]:
    names = {one.tid: one.thread for one in claimed}
    shared = Counter(names.values())
    return _shares(
        (
            f"{shared[one.thread]} threads '{one.thread}'"
            if shared[one.thread] > 1
            else f"thread {one.tid} '{one.thread}'",
            one.seconds,
        )
        for one in claimed
    )


_WAYS: dict[str, Callable[[Hypothesis, Sequence[Spot]], list[Part]]] = {
    "function": _functions,
    "caller": _functions,
    "call": _calls,
    "lock": _locks,
    "descriptor": _descriptors,
    "peer": _peers,
    "thread": _threads,
}
