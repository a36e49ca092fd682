"""The typed face of the compiled core. Hand-written; see ``weft`` for the API that users call."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypedDict, final

from weft.model.flow import EdgeKind
from weft.model.points import PointKind, PointSelection

__version__: str

def is_holding() -> bool:
    """Whether a target has been taken, or is being taken, and was not given back yet."""

# --- A target under control --------------------------------------------------------------------

@final
class Target:
    """One process with weft's agent in it."""

    @staticmethod
    def attach(pid: int) -> Target:
        """Attach to a running process, which runs on."""
    @staticmethod
    def launch(
        command: list[str],
        environment: list[tuple[str, str]] | None,
        directory: str | None,
        streams: tuple[int | None, int | None, int | None],
    ) -> Target:
        """Start a program, stopped before its first instruction."""
    def move_to_clone(
        self, cache_size: int | None, sees_changes: bool, follows: bool, records: str
    ) -> Cloned:
        """Take everything out, and have the program run from a clone, if it is not stopped."""
    @property
    def pid(self) -> int:
        """The process."""
    def is_here(self) -> bool:
        """Whether it belongs to this process, and not to one that has forked it."""
    def check_here(self) -> None:
        """Raise an error unless it belongs to this process."""
    def ping(self) -> list[tuple[int, str | None]]:
        """Ask every thread; with each, why it was not asked, if it was not."""
    def syscall(self, number: int, args: list[int]) -> int:
        """Make a system call in a thread; returns what the kernel did, negative for an error."""
    def cpu(self) -> tuple[list[str], int]:
        """The processor's features, and the size of a thread's vector state."""
    def registers(self, tid: int) -> dict[str, Any]:
        """The general registers by name, and ``zmm``, ``opmask`` and ``xsave``."""
    def stop(self) -> None:
        """Stop every thread until resumed."""
    def run_to_entry(self) -> bool:
        """Run a program that was just started through its loader; whether it got through."""
    def resume(self) -> None:
        """Let a stopped target run."""
    def is_stopped(self) -> bool:
        """Whether the target is stopped until resumed."""
    def wait(self, timeout: float | None) -> int | None:
        """The exit code of a program that was started, when it has ended."""
    def last_words(self, file: str) -> str | None:
        """What ``/proc/PID/FILE`` said when a program had ended that was started and waited for.

        That is known of ``io``, ``limits``, ``stat`` and ``status``; nothing before the end.
        """
    def detach(self) -> None:
        """Take everything out that weft brought."""
    def pauses(self, first: int = 0) -> list[tuple[float, int, float]]:
        """The times that threads stood still: seconds, how many threads, and when it began."""
    def read(self, address: int, size: int) -> bytes:
        """Read memory."""
    def read_many(self, pieces: list[tuple[int, int]]) -> list[bytes | None]:
        """Read many pieces, each an address and a size."""
    def write(self, address: int, data: bytes) -> None:
        """Write memory that the target could write to."""
    def points(
        self, functions: list[int], selection_name: PointSelection
    ) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
        """The points of functions: the index of the function, the address, and where it leads.

        Last, functions that may have more: the index, and the address where that is not known.
        """
    def insert(
        self,
        snippet: str,
        kinds: list[PointKind],
        addresses: list[int],
        targets: list[int],
        prepend: bool,
    ) -> int:
        """Weave a snippet at points, and return the number of the probe."""
    def reserve_probes(self, count: int) -> list[int]:
        """Numbers for probes that are to come: see :meth:`insert_many`."""
    def see_reloaded(self) -> list[tuple[int, int]]:
        """Where libraries begin and end that were loaded again since probes were woven into them.

        The probes are there no longer. A clone still has them, unless there is something else now
        where the library was: then it forgets them.
        """

    def insert_many(
        self,
        items: list[tuple[int, str, list[PointKind], list[int], list[int], bool]],
        enabled: bool = True,
    ) -> None:
        """Weave many snippets in one stop, or none if one cannot be woven.

        Those that are not enabled change no code until they are.

        Each is a number from :meth:`reserve_probes` and what :meth:`insert` takes. A snippet may
        use data of other probes, also of those before it in the list: see ``of N`` in the
        reference of the snippet language.
        """
    def discard_probe(self, probe: int) -> None:
        """Forget a removed probe, and let others have its room.

        What others use of its data stays until they are discarded too.
        """
    def set_probes_enabled(self, probes: list[int], enabled: bool) -> None:
        """Put probes into the code or take them out, in one stop.

        Calls that are running when a probe is taken out are not measured.
        """
    def enable_probes_for(self, probes: list[int], seconds: float) -> float:
        """Put disabled probes into the code for so long, a second at most.

        Returns for how many seconds the target's threads ran on processors meanwhile.
        """
    def remove_probes(self, probes: list[int]) -> None:
        """Take probes out for good, in one stop."""
    def refusals(self) -> int:
        """Return how often a point was refused so far."""
    def probe_refused(self, probe: int) -> list[tuple[tuple[PointKind, int, int], str]]:
        """The points where a probe is not (kind, address, target), and why."""
    def probe_tactics(self, probe: int) -> dict[str, int]:
        """How many points were woven in which way."""
    def probe_calls_program(self, probe: int) -> bool:
        """Whether it calls functions of the program, which is not possible in a clone."""
    def probe_asm(self, probe: int) -> str:
        """The code that is in the target for a probe: changes, and the trampolines they lead to."""
    def probe_cost(self, probe: int) -> float:
        """The nanoseconds that a hit takes, as predicted: the mean over the points where it is."""
    @staticmethod
    def snippet_cost(snippet: str) -> dict[PointKind, float]:
        """The same for a snippet at a usual point of each kind that it can be at."""
    def probe_data(self, probe: int) -> list[tuple[str, str]]:
        """The name and the kind of everything that a probe measures into."""
    def probe_counters(
        self, probe: int, name: str, process: int | None = None, thread: int | None = None
    ) -> list[int]:
        """A counter of each point; one value if they share it. Of process 0: of all processes."""
    def probe_timer(
        self, probe: int, name: str, process: int | None = None, thread: int | None = None
    ) -> tuple[int, int]:
        """The nanoseconds of a timer, and how often it was stopped."""
    def probe_histogram(
        self, probe: int, name: str, process: int | None = None, thread: int | None = None
    ) -> tuple[list[tuple[int, int, int]], int]:
        """The buckets that are not empty (lowest, highest, how many), and the sum of all values."""
    def probe_map(
        self, probe: int, name: str, process: int | None = None, thread: int | None = None
    ) -> tuple[list[tuple[int | tuple[int, int], int]], int]:
        """The sums of a map by key, and how many additions found no room."""
    def probe_text_columns(self, probe: int, name: str) -> list[bool]:
        """Which keys of a map, or fields of a ring, are texts; none of anything else."""
    def probe_texts(self) -> dict[int, bytes]:
        """The texts that probes have read, by the numbers that stand for them."""
    def probe_stack_columns(self, probe: int, name: str) -> list[bool]:
        """Which keys of a map, or fields of a ring, are stacks; none of anything else."""
    def probe_stacks(self) -> dict[int, tuple[list[int], bool]]:
        """The stacks that probes have taken, by the numbers that stand for them.

        Of each its addresses, the innermost first, and whether there are more that were not found.
        An address with bit 63 is what a signal handler returns to.
        """
    def probe_stack_code(self) -> list[tuple[int, int, int, str, str]]:
        """All code of modules that was there since stacks are taken.

        Of each piece its first address and that after the last, the bias, the file (its device and
        its inode) and the path of the module.
        """
    def probe_processes(self) -> list[int]:
        """The processes that have measured something, by the id that each has for itself."""
    def probe_threads(self) -> list[tuple[int, int]]:
        """The threads that have measured something: of each its process, and its own id."""
    def is_probe_crowded(self, probe: int) -> bool:
        """Whether more threads have measured at a time than there is room for."""
    def is_current(self) -> bool:
        """Whether the target still runs the program that weft is in."""
    def survivors(self, patience: float) -> list[int]:
        """The children that measure on although the target has ended; none while it runs.

        Those that are about to end are given so many seconds for it.
        """
    def leave_children(self) -> None:
        """Take the probes out of the children that the target has forked."""
    def probe_records(self, probe: int, name: str) -> list[tuple[int, ...]]:
        """The records of a ring since the last time."""
    def probe_lost(self, probe: int, name: str) -> int:
        """How much a ring or a map has lost for want of room.

        Of a timer or a mark: how many calls did not return, so that their time is lost.
        """

@final
class CloneFolder:
    """A folder of clones that are kept in files."""

    @staticmethod
    def open(path: Path, limit: int, shared: Path | None, is_for_all: bool) -> CloneFolder:
        """Open a folder that only this user can write to; make it if there is none."""
    @property
    def path(self) -> Path:
        """Where it is."""
    def entries(self) -> list[tuple[Path, int, float, int, int, bool, Path]]:
        """What is kept, that first which was not used for the longest time.

        Of each its path, size, when it was used, its blocks, its bytes of code, whether it is
        whole, and the file that it is the clone of.
        """
    def clear(self) -> tuple[int, int]:
        """Delete all files; how many there were, and how much they took."""
    def prepare(self, path: Path) -> int:
        """Make the clone of a program or library; how many blocks that has."""

@final
class Cloned:
    """One program that runs from a clone of its code."""

    @staticmethod
    def launch(
        command: list[str],
        environment: list[tuple[str, str]] | None,
        directory: str | None,
        streams: tuple[int | None, int | None, int | None],
        cache_size: int | None,
        sees_changes: bool,
        follows: bool,
        records: str,
        folder: CloneFolder | None,
    ) -> Cloned:
        """Start a program, which runs."""
    @staticmethod
    def attach(pid: int, cache_size: int | None, follows: bool, records: str) -> Cloned:
        """Take over a running process, which runs on."""
    def target(self) -> Target:
        """The same program, to be measured in its clone."""
    def is_here(self) -> bool:
        """Whether it belongs to this process, and not to one that has forked it."""
    def check_here(self) -> None:
        """Raise an error unless it belongs to this process."""
    def keep(self) -> str | None:
        """Keep what was translated for the next time; return why something could not be kept."""
    def release(self) -> None:
        """Give all its processes back to the program's own code."""
    @property
    def pid(self) -> int:
        """The process."""
    def wait(self, timeout: float | None) -> int | None:
        """Wait for its end; its exit code, or nothing when the time is over."""
    def last_words(self, file: str) -> str | None:
        """What ``/proc/PID/FILE`` said when a program had ended that was started and waited for.

        That is known of ``io``, ``limits``, ``stat`` and ``status``; nothing before the end.
        """
    def flow(
        self,
    ) -> tuple[list[tuple[str, str | None, int, int, int]], FlowRows, int, list[tuple[str, int]]]:
        """What was executed, as far as that is recorded.

        Modules: path, build-id, bias, start and size. Their blocks and edges. How many counters
        were executed. What is missing, and how often: see weft.model.losses.
        """
    def stats(self) -> list[tuple[str, int]]:
        """What the engine has counted, by name."""
    def last_losses(self) -> list[tuple[str, int]]:
        """As losses, with processes that still run although the first one has ended."""
    def losses(self) -> list[tuple[str, int]]:
        """What is missing from what is known of it, and how often: see weft.model.losses."""
    def reports(self) -> list[Path]:
        """The files in which the engine has said what went wrong in it."""
    def cycles(self) -> int:
        """The processor's counter of cycles, now."""
    def trace_to(self, descriptor: int, path: Path, notes: list[tuple[str, str]]) -> Tracer:
        """Write what it executes to a file from now on."""
    def leave(self) -> None:
        """Answer its processes no more."""

class DebugOwner(Protocol):
    """Who has a program debugged. All but the first call of ``started`` are made by another thread.

    What is returned and can be called is called while that thread holds the program, and stands for
    what it returns then: only there, something can be woven into the program.
    """

    def started(self, target: Cloned) -> Callable[[], None] | None:
        """Hear of the program that was started or taken over, or started once more."""
    def loaded(self) -> Callable[[], None] | None:
        """Hear that the debugger asks which libraries there are."""
    def leaves(self) -> Callable[[], None] | None:
        """Hear that the program is about to go on without a debugger."""
    def monitor(self, words: str) -> tuple[str, bool] | Callable[[], tuple[str, bool]]:
        """Say what to show for ``monitor WORDS``, and whether to let the program go."""

@final
class Debugger:
    """A program that runs from a clone of its code and is held for a debugger.

    A thread of weft's own holds it; only one call is answered at a time. When the object goes, a
    program that weft has started ends, and one that was running goes on.
    """

    @staticmethod
    def launch(
        command: list[str],
        environment: list[tuple[str, str]] | None,
        directory: str | None,
        is_apart: bool,
        cache_size: int | None,
        records: str,
        owner: DebugOwner,
    ) -> Debugger:
        """Start a program, which stands before its first instruction.

        One that is apart has the terminal to itself while it runs, if weft has one to give.
        """
    @staticmethod
    def attach(
        pid: int,
        cache_size: int | None,
        records: str,
        owner: DebugOwner,
    ) -> Debugger:
        """Take over a running process, which stands still."""
    @staticmethod
    def join(cloned: Cloned, owner: DebugOwner) -> Debugger:
        """Stop a program that runs from a clone already, and goes on to when the debugger goes."""
    def call(self, act: Callable[[], object]) -> object:
        """Call something on the thread that holds the program, which can weave into it there."""
    @property
    def pid(self) -> int:
        """The process that was started, or taken over."""
    def serve(
        self, socket: int
    ) -> tuple[Literal["exited", "killed", "ended", "detached", "hung up"], int]:
        """Serve a debugger that is connected by a socket, until that is over.

        Says how: the program has exited, with this code; was killed, by this signal; was ended by
        the debugger; was let go by it; or the connection is gone, and the program stands still.
        """
    def detach(self) -> None:
        """Let the program go, if it is there."""
    def kill(self) -> None:
        """End the program, if it is there."""

@final
class Sampler:
    """Many values of one target, to be read again and again; reading stops nothing."""

    def __new__(cls, target: Target, data: list[tuple[int, str]]) -> Sampler:
        """Prepare to read data, each a probe's number and a name."""
    def read(self) -> list[int]:
        """All values, over all threads of all processes.

        A counter gives one number, summed over all points; all else gives two: the nanoseconds and
        the count of a timer, the count and the sum of a histogram, the sum and the losses of a map,
        the number of records and the losses of a ring. The last values of removed probes stay;
        those of discarded ones are an error.
        """

def snippet_points(snippet: str) -> list[PointKind]:
    """The kinds of points that a snippet has sections for; none when it has one body for all."""

def disassemble(code: bytes, address: int) -> list[tuple[int, int, str]]:
    """The instructions of a piece of code: of each its address, its length, and its text."""

# --- What was executed ----------------------------------------------------------------------------

_BlockRow: TypeAlias = tuple[int, int, int, int]
"""offset, size, instructions, count."""
_EdgeRow: TypeAlias = tuple[int, int, int, int, EdgeKind, int]
"""The module and the offset that it leaves, those that it leads to, kind, count."""
_ProfiledRow: TypeAlias = tuple[int, int, int, int, int, bytes, Sequence[tuple[int, str, int]]]
"""function, offset, size, instructions, count, code, and from which offsets on it is written in
which file and line, no file and 0 where that is not known."""

@final
class FlowRows:
    """What was executed: the blocks of modules, and the ways between them."""

    @staticmethod
    def of(blocks: Sequence[Sequence[_BlockRow]], edges: Sequence[_EdgeRow]) -> FlowRows: ...
    def only(self, modules: Sequence[int]) -> FlowRows:
        """The same of some modules, which are numbered anew, and the edges between these."""
    def block_count(self, module: int) -> int: ...
    def blocks(self, module: int, start: int, end: int) -> list[_BlockRow]: ...
    def edge_count(self) -> int: ...
    def edges(self, start: int, end: int) -> list[_EdgeRow]: ...
    def extents(self, module: int) -> tuple[list[int], list[int]]:
        """Where the blocks of a module begin, and where they end."""
    def ways_to(self, module: int, places: set[int]) -> list[tuple[int, int]]:
        """The ways within a module to some places that are no calls: places and sources."""
    def function_counts(self, module: int, functions: Sequence[tuple[int, int]]) -> list[int]:
        """How often functions were entered, given where they begin and their sizes.

        At least 1 for one of which something was executed.
        """
    def profile(self, modules: Sequence[tuple[ModuleSymbols | None, Sequence[int]]]) -> ProfileRows:
        """The same with what the files of modules have of their blocks.

        Of each module, its file if there is one, and the functions of all blocks by their numbers.
        """

@final
class ProfileRows:
    """The blocks and edges of a profile. Functions are numbers."""

    @staticmethod
    def of(blocks: Sequence[tuple[int, _ProfiledRow]], edges: Sequence[_EdgeRow]) -> ProfileRows:
        """Of each block its module as well."""
    @property
    def files(self) -> list[str]:
        """The source files that lines are in."""
    def block_count(self) -> int: ...
    def blocks(self, start: int, end: int) -> list[_ProfiledRow]: ...
    def edge_count(self) -> int: ...
    def edges(self, start: int, end: int) -> list[_EdgeRow]: ...
    def costs(self, functions: int) -> list[int]:
        """The instructions that were executed in each of so many functions."""
    def entries(self, offsets: Sequence[int]) -> list[int]:
        """How often functions' first instructions were executed, given where they begin."""
    def line_costs(self) -> list[tuple[int, str, int, int]]:
        """The instructions of each function by file and line: function, file, line, how many."""
    def block_at(self, module: int, offset: int) -> int | None:
        """The place of the block that has an instruction."""
    def ends(self) -> list[tuple[int | None, int | None]]:
        """Of each edge the places of the blocks that it leaves and leads to."""
    def ways(self, offsets: Sequence[int]) -> list[tuple[int, int, bool, bool, int]]:
        """The edges from each function to each, put together, given where functions begin.

        Source, target, whether that is its first instruction, whether they are calls, how often.
        """
    def leaving(self, module: int, start: int, end: int) -> list[int]:
        """The places of the edges that leave an instruction in a range."""
    def hottest(self, most: int) -> list[int]:
        """The places of so many blocks, those first that cost most."""
    def json(self) -> tuple[bytes, bytes]:
        """Blocks and edges as objects of JSON with commas between them.

        A line without a known file is in the one behind the last of ``files``.
        """

# --- What can be learnt of a process without touching it ---------------------------------------

class _Mapping(TypedDict):
    start: int
    end: int
    permissions: str
    offset: int
    inode: int
    path: str

class _Module(TypedDict):
    path: str
    file: str
    is_program: bool
    open_path: str | None
    start: int
    end: int
    bias: int
    build_id: str | None

def maps(pid: int) -> list[_Mapping]:
    """The memory map."""

def threads(pid: int) -> list[tuple[int, str, str]]:
    """The threads: id, name and state."""

def pidfd_open(pid: int) -> int:
    """A descriptor of a process, as by :func:`os.pidfd_open`, which not every Python has."""

def socket_timeouts(pid: int, descriptor: int) -> tuple[float, float] | None:
    """After how many seconds a socket of a process gives up to receive, and to send; 0 for never.

    Nothing if it cannot be told.
    """

def modules(pid: int) -> list[_Module]:
    """The program, its libraries and the vDSO."""

def program(pid: int) -> str | None:
    """The path of the program that a process runs, as the process would name it."""

def module_image(pid: int, start: int) -> bytes | None:
    """The bytes in memory of the module that starts there, if there is one."""

def read_words(pid: int, addresses: Sequence[int]) -> list[int | None]:
    """The 64-bit words at addresses of a process; nothing where it has no memory."""

# --- What can stand in the way of attaching ----------------------------------------------------

class Check(TypedDict):
    """One thing that :func:`doctor` looked at."""

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    fix: str
    """The command that fixes it; empty when nothing needs fixing."""

class Candidate(TypedDict):
    """A process that :func:`processes` saw."""

    pid: int
    user: str
    comm: str
    cmdline: str
    threads: int
    kernel: bool
    """Whether it is a thread of the kernel."""
    attachable: bool
    reason: str
    """Why it cannot be attached to; empty when it can."""
    advice: str
    """What to try then."""
    wefts: str
    """What other wefts have in it, in words; empty if nothing."""

def preflight(pid: int) -> None:
    """Raise the error that attaching to ``pid`` would end in, without disturbing the process.

    What a seccomp filter forbids is known only once a thread has been stopped.
    """

def doctor(pid: int | None = None) -> list[Check]:
    """Look at everything that can stand in the way, on this machine and of this process."""

def processes() -> list[Candidate]:
    """List every process but weft itself, and whether weft could attach to it."""

_CallRow: TypeAlias = tuple[int, Literal["next", "return", "signal", "probe"], bool]
_StackRow: TypeAlias = tuple[int, list[_CallRow], str | None, tuple[int, list[int]] | None]

class PythonLayout(TypedDict):
    """Where things are in the memory of an interpreter of Python: an address, then offsets."""

    runtime: int
    interpreters: int
    next_interpreter: int
    threads: int
    next_thread: int
    tid: int
    frame: int
    frame_behind: int | None
    code: int
    previous: int
    instruction: int
    owner: int
    has_entry_frames: bool
    file: int
    name: int
    first_line: int
    line_table: int
    first_instruction: int
    ascii: int
    compact: int

PythonCode: TypeAlias = tuple[str, str, int, bytes]
"""name, file, first line, table of lines."""

PythonRows: TypeAlias = tuple[
    list[tuple[int, list[tuple[int, int, bool]], bool]], dict[int, PythonCode]
]
"""Threads with their frames (code, offset, whether C code has called it) and whether there may be
more, and the code of the frames."""

def stacks(
    pid: int, python: PythonLayout | None = None
) -> tuple[list[_StackRow], list[float], PythonRows | None, int]:
    """The stacks of all threads of a process, and for how many seconds it stood still, each time.

    With those of the interpreter of Python in it, if it is said where they are. Of each thread:
    its id, the addresses of its frames, what each is and whether it is a guess, why there may be
    more of them, and the system call that it is in with its arguments. Last, how many system calls
    may have been cut short because their threads were stopped.
    """

_SampleRow: TypeAlias = tuple[int, bool, bool, int, tuple[int, list[int]] | None, int, int]

class Started:
    """A program that was started, with nothing put into it."""

    def __new__(cls, command: list[str]) -> Started:
        """Start a program, which stands where it begins, with its libraries loaded."""
    @property
    def pid(self) -> int:
        """The process."""
    def release(self) -> None:
        """Let it begin."""
    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, when it has ended; nothing before."""

class StackSampler:
    """Looks at the threads of a process, again and again, at little cost."""

    def __new__(cls, pid: int, python: PythonLayout | None = None) -> StackSampler: ...
    def look(
        self, rest: float = 0.0
    ) -> tuple[float, list[_SampleRow], list[tuple[int, int, int]], float, int, bool]:
        """When it was, samples, the threads that have ended, and for how long threads stood still.

        Then how many system calls may have been cut short because their threads were stopped, and
        whether the process has become another program since: there are no samples in that case.

        It is made after ``rest`` seconds, on the moment if weft is privileged to ask for that.

        A sample is of a thread that runs, or that sleeps elsewhere than before: its id, whether it
        sleeps, whether it waits for its turn, the number of its stack, the system call that it is
        in with its arguments, and for how many nanoseconds it has run, and has waited for a
        processor. Threads that are not among them sleep where they did. Of one that has ended there
        are its id and its times.
        """

    def expect(self, python: PythonLayout | None) -> None:
        """Say where the interpreter of Python is in the program that the process has become."""

    def times(self) -> list[tuple[int, int, int]]:
        """For how many nanoseconds threads had run, and had waited, at the last look."""

    def spins(self, address: int) -> bool:
        """Whether the code there is a loop that only waits for another thread to change memory."""

    def stack(
        self, number: int
    ) -> (
        tuple[
            list[_CallRow],
            str | None,
            list[tuple[int, int, bool]],
            bool,
            dict[int, PythonCode],
        ]
        | None
    ):
        """A stack of samples: its frames, why there may be more, and the same of Python's frames.

        With the code of the latter.
        """

class StateUnwinder:
    """Unwinds states of a process that stands still, for comparison with stacks taken inside."""

    def __new__(cls, pid: int) -> StateUnwinder: ...
    def stack(self, pc: int, sp: int, bp: int) -> tuple[list[_CallRow], str | None]:
        """The addresses of the frames and what each is, and why there may be more of them."""

def soname(path: str) -> str:
    """The name that the linker gave to a shared library; empty if there is none."""

# --- symbols: the functions of a module -----------------------------------------------------------

_FunctionKind: TypeAlias = Literal["function", "ifunc", "plt"]

_FunctionRow: TypeAlias = tuple[str, str | None, int, int, _FunctionKind, str, str, str, list[str]]
"""name, demangled, offset, size, kind, binding, visibility, origin, aliases."""

_FrameRow: TypeAlias = tuple[str | None, str | None, int | None, int | None, bool]
"""function, file, line, column, inlined."""

_LineColumns: TypeAlias = tuple[list[str], bytes, bytes, bytes, bytes, bytes, bytes]
"""files; offsets (u64), sizes, files, lines, columns (u32), whether a statement begins (u8)."""

_InstructionColumns: TypeAlias = tuple[bytes, bytes, bytes, bytes]
"""offsets (u64), sizes (u8), transfers (u8), targets (u64)."""

class ModuleSymbols:
    """The functions of one module, sorted by offset and numbered from 0.

    An offset is an address as the file states it: adding the load bias gives the address in a
    process. Calls work on many functions at once and let other Python threads run meanwhile.
    """

    @staticmethod
    def open(
        path: str | os.PathLike[str],
        *,
        open_path: str | os.PathLike[str] | None = None,
        root: str | os.PathLike[str] | None = None,
        use_cache: bool = True,
    ) -> ModuleSymbols:
        """Reads a file, or what the cache knows about it.

        ``path`` is what the program that has loaded it calls it; ``open_path`` is what to open from
        here, and ``root`` where debug files are looked for, when the program lives in another mount
        namespace (``/proc/PID/root``). Raises :class:`weft.errors.BadFile`.
        """

    @staticmethod
    def from_image(
        path: str | os.PathLike[str],
        data: bytes,
        *,
        bias: int | None = None,
        root: str | os.PathLike[str] | None = None,
        use_cache: bool = True,
    ) -> ModuleSymbols:
        """Reads bytes that have been read before.

        A file's, or with ``bias`` a module's segments as the loader has placed them in memory,
        beginning with the lowest.
        """

    @property
    def path(self) -> str: ...
    @property
    def build_id(self) -> str | None:
        """In hexadecimal digits."""

    @property
    def problems(self) -> list[str]:
        """What could not be read, in words; what could be read is there all the same."""

    @property
    def from_cache(self) -> bool: ...
    def __len__(self) -> int: ...
    def select(self, names: str = "*") -> list[int]:
        """The functions one of whose names (the linker's, demangled, an alias) matches."""

    def find(self, name: str) -> list[int]:
        """The functions of exactly this name; a demangled name may lack its parameters."""

    def variables(self, name: str) -> list[tuple[int, int]]:
        """The variables of exactly this name, also a demangled one: offset and size.

        Those that each thread has for itself are not among them.
        """

    def variable_at(self, offset: int) -> tuple[str, int] | None:
        """The variable that contains an offset: its name, and the offset at which it starts."""
    def other_results(self, offsets: Sequence[int]) -> list[str | None]:
        """What functions give to their callers that is not in ``rax`` when they return, in words.

        Nothing where it is there, or where no debug information tells.
        """

    def slots(self, names: Sequence[str]) -> list[tuple[int, int | None, str, str]]:
        """The words that the loader fills by asking a resolver, or with symbols of these names.

        Of each its offset, the offset of the resolver, and the name and version of the symbol.
        """

    def candidates(self, resolver: int) -> tuple[list[int], list[int], bool]:
        """What a resolver, given by its index, can choose, as far as its code tells.

        The offsets of functions whose address it takes, those of slots that it reads, and whether
        there may be others.
        """

    def users_of(self, text: str) -> list[int]:
        """Where code takes the address of a string: it is read from the file, byte by byte."""

    def containing(self, offsets: Sequence[int]) -> list[int | None]:
        """The functions that contain offsets; debug information is not read."""

    def endless_before(self, offsets: Sequence[int]) -> list[int | None]:
        """The functions that begin last before offsets or there, where their size is not known."""

    def local_numbers(self, indexes: Sequence[int]) -> list[int]:
        """Which functions are, from 1, of those of their names that only their own file sees.

        0 for one that others see.
        """

    def chosen_at_start(self) -> list[str]:
        """The names that stand for a function which is chosen at start-up."""

    def at(self, offset: int) -> tuple[int | None, list[_FrameRow]]:
        """The function that contains an offset, and the source lines there, innermost first."""

    def rows(self, indexes: Sequence[int]) -> list[_FunctionRow]:
        """What is known about functions."""

    def sources(self, indexes: Sequence[int]) -> list[tuple[str, int] | None]:
        """The source file and line (0 when not known) of functions, from the debug information."""

    def source_files(self) -> list[str]:
        """All source files that functions are written in."""

    def in_source(self, file: int) -> list[int]:
        """The functions of one source file, by its place in :meth:`source_files`."""

    def line_table(self) -> _LineColumns:
        """The lines of all code, from the debug information, in the order of their offsets.

        Columns for ``memoryview.cast``: the code of row i is ``sizes[i]`` bytes at ``offsets[i]``;
        a size of 0 is a line of which no instruction was left, before which control is there.
        ``lines[i]`` is 0 for code that belongs to none.
        """

    def instructions(self, pieces: Sequence[tuple[int, int]]) -> _InstructionColumns:
        """The instructions of pieces of code, each an offset and a size, from the file.

        Columns for ``memoryview.cast``. A transfer is 0 for what goes on with the next instruction,
        1 for a conditional branch, 2 a jump, 3 a call, 4 an indirect jump, 5 an indirect call, 6 a
        return; targets are those of 1, 2 and 3. Pieces that are not in the file are left out.
        """

    def jump_tables(self, functions: Sequence[tuple[int, int]]) -> list[tuple[int, list[int]]]:
        """The indirect jumps of functions, each an offset and a size, and where their tables lead.

        Jumps whose table is not found, or that have none, are left out.
        """

    def code(self, pieces: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of pieces of code, each an offset and a size, as the file has them.

        Empty where they are not all in a segment with code.
        """

    def disassemble(self, pieces: Sequence[tuple[int, int]]) -> list[list[tuple[int, str]]]:
        """Instructions for people: of each piece, the offsets and the texts of its instructions."""

    def json(self, indexes: Sequence[int], *, lines: bool = False) -> bytes:
        """Functions as JSON objects separated by commas; ``lines`` fills in their ``source``."""

# --- end of symbols -------------------------------------------------------------------------------

# --- Traces ------------------------------------------------------------------------------------

TraceColumn: TypeAlias = tuple[str, Literal["u8", "u32", "u64", "i64"], bytes, bytes | None]
"""A column: its name, the type of its values, the values, and a bit for each that is known (nothing
if all are)."""

@final
class Trace:
    """A trace that was written to a file."""

    @staticmethod
    def open(path: Path) -> Trace:
        """Read all but what was executed."""
    @property
    def has_values(self) -> bool:
        """Whether what was read and written is part of it."""
    @property
    def is_cut(self) -> bool:
        """Whether its end is missing."""
    @property
    def notes(self) -> list[tuple[str, str]]:
        """What was noted: keys and values."""
    @property
    def modules(self) -> list[tuple[int, int, int, int, int, str]]:
        """The files that were mapped: program, time, start, end, offset, path."""
    def totals(self) -> list[tuple[int, int, int, str, int, int, int]]:
        """Of each thread: id, process, program, name, blocks and events, accesses, bytes."""
    def blocks(self) -> list[tuple[int, int, int, int, int]]:
        """The blocks: number, address, bytes, instructions, program."""
    def code(self, number: int) -> bytes | None:
        """The instructions of a block."""
    def table(self, view: str, threads: list[int]) -> TraceTable:
        """A table, of these threads or of all, from its beginning."""

@final
class Tracer:
    """A file that a trace is being written to."""

    def finish(self) -> list[tuple[str, int]]:
        """Take what is left, and end the file. What is missing from it: see weft.model.losses."""

@final
class TraceTable:
    """A table of a trace, as it is gone through."""

    def next(self, rows: int) -> tuple[int, list[TraceColumn]]:
        """About so many rows more: how many there are, and their columns."""

@final
class Cache:
    """A cache of ``sets`` times ``ways`` lines that forgets what was used longest ago."""

    def __init__(self, sets: int, ways: int, line: int) -> None: ...
    def touch(self, addresses: bytes, sizes: bytes) -> bytes:
        """Touch memory, 8 bytes for each address and 4 for each size.

        Returns how many lines were not there, 4 bytes each.
        """
