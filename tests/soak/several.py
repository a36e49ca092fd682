"""Several wefts on one program, at random: none harms it, and none counts wrongly without knowing.

    python -m tests.soak.several [--acts N] [--long]

Two to four measuring processes attach, insert, disable, enable, remove, detach, fork and are
killed, two of them at the same moment now and then, by probes and from clones. Between the acts the
program works, at rest or while they go on, and counts its own calls. Each probe has to have counted
what the program did while it was there, and whoever was refused something has to have been told.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import weft
from tests.e2e.builder import Builder
from tests.e2e.harness import code
from tests.lockstep import Lockstep, lockstep
from tests.others import ERROR, Other
from tests.soak import how_many

SHORT, LONG = 60, 3000
SEED = 20261117
FUNCTIONS = ("normal", "tiny", "switching", "five_bytes", "four_bytes", "floats", "even", "odd")
REFUSALS = ("AlreadyTraced",)
"""What a weft may be told that asks for what another one has."""

GIVING_UP = ("kill", "detach", "remove")


def _path(function: str) -> str:
    return f"/Code/counts/{function}"


@dataclass
class Measured:
    """A probe, and what it has to have counted."""

    expected: int = 0
    is_enabled: bool = True
    is_exact: bool = True
    """Whether the program rested whenever it came, went, or was switched."""


@dataclass
class Actor:
    """A measuring process, and what it has to be doing."""

    weft: Other = field(default_factory=Other)
    way: str = ""
    """How it is attached: ``attach``, ``take_over``, or not at all."""
    probes: dict[str, Measured] = field(default_factory=dict)


class Schedule:
    """Acts of several wefts on one program."""

    def __init__(self, program: Lockstep, chance: random.Random, number: int) -> None:
        self.program = program
        self.chance = chance
        self.actors = [Actor() for _ in range(number)]
        self.acts: Counter[str] = Counter()
        self.refused = 0
        self.is_going = False
        self.done: list[str] = []

    def step(self) -> None:
        """Have one weft do something, or two of them at the same moment."""
        chosen = self.chance.sample(self.actors, self.chance.choice((1, 1, 2)))
        told = [(actor, self._choose(actor)) for actor in chosen]
        for actor, words in told:
            self.done.append(f"{self.actors.index(actor)}: {' '.join(words)}")
            if words[0] != "kill":
                actor.weft.tell(*words)
        # Of two at the same moment, the one may have had what the other was just giving up.
        for actor, words in sorted(told, key=lambda one: one[1][0] not in GIVING_UP):
            self.acts[words[0]] += 1
            if words[0] == "kill":
                self._kill(actor)
            else:
                self._heed(actor, words, actor.weft.answer())

    def _choose(self, actor: Actor) -> tuple[str, ...]:
        """What it does next, of what makes sense for it."""
        if not actor.way:
            way = "take_over" if self.chance.random() < 0.15 else "attach"
            return way, str(self.program.pid)
        if self.chance.random() < 0.08:
            return ("kill",)
        if self.chance.random() < 0.12:
            return (self.chance.choice(("detach", "fork")),)
        if actor.probes and self.chance.random() < 0.5:
            function = self.chance.choice(sorted(actor.probes))
            switch = "disable" if actor.probes[function].is_enabled else "enable"
            return self.chance.choice(("remove", switch, "value")), _path(function)
        free = [function for function in FUNCTIONS if function not in actor.probes]
        if not free:
            return ("detach",)
        return "insert", _path(self.chance.choice(free))

    def _kill(self, actor: Actor) -> None:
        if self.chance.random() < 0.7:
            # In the middle of something: how far it gets, nobody knows.
            for function in self.chance.sample(FUNCTIONS, 2):
                actor.weft.tell("insert", _path(function))
            actor.weft.tell("detach")
            time.sleep(self.chance.uniform(0, 0.05))
        actor.weft.kill()
        self.actors[self.actors.index(actor)] = Actor()

    def _heed(self, actor: Actor, words: tuple[str, ...], answer: str) -> None:
        """Compare what a weft says with what has to be."""
        act, function = words[0], words[-1].rpartition("/")[2]
        if answer.startswith(ERROR):
            is_refusal = any(refusal in answer for refusal in REFUSALS)
            if not (is_refusal and act in ("attach", "take_over", "insert")):
                raise AssertionError(f"{act} has failed: {answer}")
            self.refused += 1
            return
        if act in ("attach", "take_over"):
            actor.way = act
        elif act == "insert":
            self._check_owners(actor, function)
            actor.probes[function] = Measured(is_exact=not self.is_going)
        elif act == "remove":
            del actor.probes[function]
        elif act in ("disable", "enable"):
            probe = actor.probes[function]
            probe.is_enabled = act == "enable"
            probe.is_exact &= not self.is_going
        elif act == "value":
            self._check_value(actor, function, int(answer))
        elif act == "fork":
            assert answer == "forked: 0", answer
        elif act == "detach":
            actor.way = ""
            actor.probes.clear()

    def _check_owners(self, actor: Actor, function: str) -> None:
        others = [one for one in self.actors if one is not actor]
        if any(function in one.probes for one in others):
            raise AssertionError(f"two wefts own {function}")
        if any(one.way != actor.way for one in others if one.way):
            raise AssertionError("one weft has probes beside another's clone")

    def _check_value(self, actor: Actor, function: str, value: int) -> None:
        probe = actor.probes[function]
        if self.is_going or not probe.is_exact:
            return
        if value != probe.expected:
            raise AssertionError(f"{function} was counted {value} times of {probe.expected}")

    def work(self) -> None:
        """Let the program work a little, or begin or end to work while others act."""
        if self.is_going:
            if self.chance.random() < 0.5:
                return
            counts = self.program.rest()
            self.is_going = False
        elif self.chance.random() < 0.2:
            self.program.go()
            self.is_going = True
            return
        else:
            counts = self.program.batch(self.chance.randrange(1, 20))
        for actor in self.actors:
            for function, probe in actor.probes.items():
                if probe.is_enabled:
                    probe.expected += counts[function]

    def check_all(self) -> int:
        """Compare all values, with the program at rest; return how many were exact."""
        exact = 0
        for actor in self.actors:
            for function, probe in actor.probes.items():
                self._check_value(actor, function, int(actor.weft.say("value", _path(function))))
                exact += probe.is_exact
        return exact

    def close(self) -> None:
        """End the wefts, some of them as they should."""
        for actor in self.actors:
            if actor.way and self.chance.random() < 0.7:
                self._heed(actor, ("detach",), actor.weft.say("detach"))
            actor.weft.kill()


def soak(program: Path, acts: int, chance: random.Random) -> str:
    """Do that many acts, and return what was seen in words."""
    number = chance.randrange(2, 5)
    with lockstep(program, 2) as target:
        target.batch(1)
        before = code(target.pid)
        schedule = Schedule(target, chance, number)
        exact = 0
        try:
            for _ in range(acts):
                schedule.step()
                schedule.work()
                if not schedule.is_going:
                    exact += schedule.check_all()
            if schedule.is_going:
                target.rest()
            schedule.close()
        except BaseException:
            print("\n".join(schedule.done[-40:]), file=sys.stderr)
            for actor in schedule.actors:
                actor.weft.kill()
            raise
        # What those have left that were killed, the next one takes out.
        with weft.attach(target.pid):
            pass
        if code(target.pid) != before:
            raise AssertionError("the code is not what it was")
        target.batch(10)
    if not exact:
        raise AssertionError("nothing was compared")
    said = ", ".join(f"{count} {act}" for act, count in sorted(schedule.acts.items()))
    return f"{number} wefts: {said}; {schedule.refused} refused, {exact} values right, 0 wrong"


def main() -> None:
    acts = how_many(__doc__, "acts", SHORT, LONG)
    seed = int(os.environ.get("WEFT_SEED", SEED))
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory:
        program = Builder(Path(directory)).build("counts")
        while acts > 0:
            print(soak(program, min(acts, 150), chance), flush=True)
            acts -= 150


if __name__ == "__main__":
    main()
