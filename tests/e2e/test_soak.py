"""The short forms of the soak tests; `make soak` runs the long ones."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.harness import need
from tests.e2e.test_probes import needs_weaver
from tests.soak import attach, kill, metrics, probes, several
from tests.soak import random as random_use

pytestmark = pytest.mark.alone


@pytest.mark.watchdog(300)
def test_many_attaches_leave_a_busy_program_as_it_was(build: Callable[[str], Path]) -> None:
    times = attach.soak(build("invariants"), 50, attach.THREADS, attach.CHURNERS)
    assert len(times.load) == len(times.ping) == len(times.leave) == 50


@pytest.mark.watchdog(300)
@pytest.mark.parametrize(("threads", "churners"), [(64, 8), (4, 0), (0, 0)])
def test_a_killed_weft_does_no_harm(threads: int, churners: int) -> None:
    assert "unharmed" in kill.run(15, threads, churners)


@needs_weaver
@pytest.mark.watchdog(600)
@pytest.mark.parametrize("name", probes.SERVICES)
def test_probes_that_come_and_go_disturb_no_client(name: str, public_folder: Path) -> None:
    need(*probes.NEEDED.get(name, []))
    rates = probes.soak(name, public_folder, 3, probes.restlessness(random.Random(1)))
    assert rates.acts["insert"] > 0


@needs_weaver
@pytest.mark.watchdog(300)
def test_metrics_that_come_and_go_fit_together(build: Callable[[str], Path]) -> None:
    somebody = metrics.soak_counts(build("counts"), metrics.SHORT / 2, random.Random(1))
    assert somebody.acts["request"] > 0


@needs_weaver
@pytest.mark.watchdog(300)
def test_metrics_that_come_and_go_disturb_no_client(tmp_path: Path) -> None:
    need(*probes.NEEDED["redis"])
    somebody = metrics.soak_redis(tmp_path, metrics.SHORT / 2, random.Random(1))
    assert somebody.acts["request"] > 0


@needs_weaver
@pytest.mark.watchdog(300)
def test_several_wefts_do_no_harm(build: Callable[[str], Path]) -> None:
    assert "0 wrong" in several.soak(build("counts"), several.SHORT, random.Random(1))


@needs_weaver
@pytest.mark.watchdog(900)
def test_random_use_does_no_harm() -> None:
    tally = random_use.soak(1, acts=12)
    assert not tally.bad, tally.bad
    assert sum(counts["right"] for counts in tally.counts.values()) > 0, tally.table()
