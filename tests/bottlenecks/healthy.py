"""Programs that are not slow: they wait for what there is to do, and do it."""

from __future__ import annotations

from dataclasses import replace

from tests.bottlenecks.model import NONE, Case
from tests.bottlenecks.one import one

VISITS = (("visit", "{port}", "20"),)
LIGHT = "20 requests a second, each of which takes far less than a millisecond"


def healthy(name: str, language: str, source: str, truth: str, *arguments: str) -> Case:
    peers = VISITS if "{port}" in arguments else ()
    case = one(name, language, source, NONE, "", truth, *arguments, peers=peers)
    return replace(case, kind="healthy")


def idle(server: str, truth: str) -> Case:
    return Case(
        name=f"{server}-idle",
        language="C",
        source=f"{server}-idle",
        kind="healthy",
        expected=(NONE,),
        focus=(),
        truth=truth,
    )


HEALTHY = (
    healthy("desk", "C", "desk.c", f"a pool of four threads: {LIGHT}", "{port}"),
    healthy("timers", "C++", "timers.cpp", "an event loop: 75 timers a second, nothing else"),
    healthy("stages", "Rust", "stages.rs", "a pipeline of three threads: 100 records a second"),
    healthy("web-go", "Go", "web.go", LIGHT, "{port}"),
    healthy("web-java", "Java", "Web.java", LIGHT, "{port}"),
    healthy("web-node", "node", "web.js", LIGHT, "{port}"),
    healthy("web-python", "Python", "web.py", LIGHT, "{port}"),
    idle("redis", "ten PINGs a second"),
    idle("nginx", LIGHT),
    idle("postgres", "a backend whose client asks for a row every 50 ms"),
)
