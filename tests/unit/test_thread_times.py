"""How long threads waited, from what the kernel says of them; here it says what a test wants."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from weft.errors import UnsupportedTarget
from weft.metrics.thread_times import Name, ThreadTimes, refuse_uncounted

MS = 1_000_000
TICK = 10 * MS


@dataclass
class Task:
    born: int
    ran: int = 0
    waited: int = 0
    name: str = "x) (y"
    state: str = "S"


@dataclass
class Kernel:
    """A process whose threads do what they are told; times are in milliseconds."""

    tasks: dict[int, Task] = field(default_factory=dict)
    time: int = 1000
    ended: int = 0
    """The processor time of threads that have ended."""
    is_gone: bool = False
    hides: set[int] = field(default_factory=set)
    """Threads that are left out once when they are listed."""
    born: int = 50
    schedstat: str | None = None
    tick: int = TICK

    def threads(self) -> list[int]:
        if self.is_gone:
            raise FileNotFoundError
        found = [tid for tid in self.tasks if tid not in self.hides]
        self.hides.clear()
        return found

    def file(self, name: str) -> str:
        if self.is_gone:
            raise FileNotFoundError
        if name == "stat":
            return f"1 (p) S {'0 ' * 18}{self.born} 0"
        if name == "schedstat":
            if self.schedstat is None:
                raise FileNotFoundError
            return self.schedstat
        _, number, file = name.split("/")
        if int(number) not in self.tasks:
            raise ProcessLookupError
        task = self.tasks[int(number)]
        if file == "schedstat":
            return f"{task.ran * MS} {task.waited * MS} 7\n"
        return f"{number} ({task.name}) {task.state} {'0 ' * 18}{task.born // 10} 0"

    def processor_time(self) -> int:
        if self.is_gone:
            raise OSError
        return (self.ended + sum(task.ran for task in self.tasks.values())) * MS

    def now(self) -> int:
        return self.time * MS

    def own_id(self, tid: int) -> int:
        return tid + 10_000

    def end(self, tid: int) -> None:
        self.ended += self.tasks.pop(tid).ran


def read(times: ThreadTimes) -> dict[int, float]:
    return {own - 10_000: ns / MS for own, ns in times.read().items()}


def missing(times: ThreadTimes) -> list[int | None]:
    return [one.count for one in times.lost(None, "")]


def test_what_was_before_does_not_count() -> None:
    kernel = Kernel({1: Task(500, ran=100, waited=50), 2: Task(600, ran=7)})
    runnable, off = ThreadTimes(kernel, "runnable"), ThreadTimes(kernel, "off_cpu")
    kernel.time += 100
    kernel.tasks[1].ran += 30
    kernel.tasks[1].waited += 20
    assert read(runnable) == {1: 20, 2: 0}
    assert read(off) == {1: 70, 2: 100}
    assert runnable.names() == {10_001: "x) (y", 10_002: "x) (y"}
    assert missing(runnable) == missing(off) == []


def test_a_new_thread_counts_from_its_birth_which_is_told_in_ticks() -> None:
    kernel = Kernel({1: Task(500)})
    runnable, off = ThreadTimes(kernel, "runnable"), ThreadTimes(kernel, "off_cpu")
    kernel.time += 200
    kernel.tasks[2] = Task(1100, ran=30, waited=5)
    # It was not there at 1000, whatever its tick says.
    kernel.tasks[3] = Task(995, ran=0)
    assert read(runnable) == {1: 0, 2: 5, 3: 0}
    assert read(off) == {1: 200, 2: 65, 3: 200}
    assert missing(runnable) == missing(off) == []


@pytest.mark.parametrize("name", ["runnable", "off_cpu"])
def test_what_an_ended_thread_did_is_kept_and_the_rest_is_missing(name: Name) -> None:
    kernel = Kernel({1: Task(500), 2: Task(500)})
    times = ThreadTimes(kernel, name)
    kernel.time += 100
    kernel.tasks[2].waited = 60
    value = {"runnable": 60, "off_cpu": 100}[name]
    assert read(times)[2] == value
    kernel.tasks[2].ran += 40
    kernel.time += 50
    kernel.end(2)
    assert read(times)[2] == value
    assert missing(times) == [1]
    assert missing(times) == [1]
    # It could have run for as long as is not accounted for.
    assert "may have come and gone" in times.lost(None, "")[0].why
    assert not times.lost({10_001}, "", is_one=True)


def test_a_number_that_is_given_to_another_thread() -> None:
    kernel = Kernel({1: Task(500), 2: Task(500, waited=70)})
    times = ThreadTimes(kernel, "runnable")
    kernel.tasks[2].waited += 10
    assert read(times) == {1: 0, 2: 10}
    kernel.time += 100
    kernel.tasks[2] = Task(1050, waited=3)
    assert read(times) == {1: 0, 2: 13}
    assert missing(times) == [1]


def test_threads_that_nobody_saw_have_used_the_processor() -> None:
    kernel = Kernel({1: Task(500, ran=5)})
    times = ThreadTimes(kernel, "runnable")
    kernel.time += 100
    read(times)
    assert missing(times) == []
    kernel.ended += 12
    read(times)
    (found,) = times.lost(None, "")
    assert found.count is None
    assert "12.0 ms" in found.why
    assert "shorter --interval" in found.advice
    # Others may later have been counted too early; it stays.
    kernel.tasks[1].ran += 100
    read(times)
    assert missing(times) == [None]


def test_a_thread_that_the_kernel_forgot_to_list_has_not_ended() -> None:
    kernel = Kernel({1: Task(500), 2: Task(500)})
    times = ThreadTimes(kernel, "runnable")
    kernel.tasks[2].waited = 9
    kernel.tasks[3] = Task(1000, ran=3, waited=1)
    kernel.hides = {2, 3}
    assert read(times) == {1: 0, 2: 9, 3: 1}
    assert missing(times) == []


def test_the_remains_of_the_first_thread() -> None:
    kernel = Kernel({1: Task(500), 2: Task(500)})
    times = {name: ThreadTimes(kernel, name) for name in ("runnable", "off_cpu")}
    kernel.time += 100
    for one in times.values():
        read(one)
    kernel.tasks[1].state = "Z"
    kernel.tasks[1].waited = 4
    for _ in range(3):
        kernel.time += 100
        assert read(times["runnable"]) == {1: 4, 2: 0}
        read(times["off_cpu"])
    assert missing(times["runnable"]) == []
    assert read(times["off_cpu"]) == {1: 100, 2: 400}
    assert missing(times["off_cpu"]) == [1]
    later = ThreadTimes(kernel, "off_cpu")
    kernel.time += 100
    assert read(later) == {2: 100}
    assert missing(later) == []


def test_what_runs_is_told_late_and_the_value_does_not_fall() -> None:
    kernel = Kernel({1: Task(500)})
    times = ThreadTimes(kernel, "off_cpu")
    kernel.time += 4
    assert read(times) == {1: 4}
    kernel.time += 1
    kernel.tasks[1].ran += 5
    assert read(times) == {1: 4}


@pytest.mark.parametrize("is_reused", [False, True])
def test_the_end_of_the_process_and_another_with_its_number(is_reused: bool) -> None:
    kernel = Kernel({1: Task(500)})
    times = ThreadTimes(kernel, "off_cpu")
    kernel.time += 100
    assert read(times) == {1: 100}
    kernel.time += 100
    if is_reused:
        kernel.born += 1
        kernel.tasks = {1: Task(1100), 2: Task(1100)}
    else:
        kernel.is_gone = True
    assert read(times) == {1: 100}
    (found,) = times.lost(None, "")
    assert (found.what, found.count) == ("time", None)
    assert "had ended" in found.why


def test_a_kernel_that_does_not_count_is_refused() -> None:
    tasks = {1: Task(500, ran=5)}
    with pytest.raises(UnsupportedTarget, match="does not count runnable") as caught:
        refuse_uncounted(Kernel(tasks), "runnable")
    assert "no /proc/PID/schedstat" in caught.value.why
    assert "CONFIG_SCHED_INFO" in caught.value.advice
    with pytest.raises(UnsupportedTarget, match="does not count off_cpu") as caught:
        refuse_uncounted(Kernel(tasks, schedstat="0 0 0\n"), "off_cpu")
    assert "only zeros" in caught.value.why
    assert "kernel.task_delayacct=1" in caught.value.advice
    refuse_uncounted(Kernel(tasks, schedstat="5000000 0 1\n"), "off_cpu")
    refuse_uncounted(Kernel({1: Task(500)}, schedstat="0 0 0\n"), "off_cpu")
    # What has ended is told as such, elsewhere.
    refuse_uncounted(Kernel(tasks, is_gone=True), "off_cpu")
