"""Hosts and front ends of an older weft beside those of this one.

    python -m tests.soak.fleet_versions [--revision REVISION]

The Python of the older one is taken from the repository, and the compiled core is that of this one.
An older host is asked by this front end, and a host of this one by the older front end, while the
server works. Each total has to be what the server has counted, or say why it is not.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import weft
from tests.e2e.harness import eventually
from tests.fleets import FUNCTION, PATIENCE, WEFT, Fleet, harmed, redis_cli

ROOT = Path(__file__).parents[2]


def first() -> str:
    """The first revision that has a fleet."""
    added = ["log", "--diff-filter=A", "--format=%H", "--", "python/weft/fleet/protocol.py"]
    done = subprocess.run(["git", *added], cwd=ROOT, capture_output=True, text=True, check=True)
    if not done.stdout:
        sys.exit("this checkout does not go back to when there was no fleet: git fetch --unshallow")
    return done.stdout.split()[-1]


def older(folder: Path, revision: str) -> list[str]:
    """Unpack an older weft, and return the command that is it."""
    packed = subprocess.run(
        ["git", "archive", revision, "python/weft"], cwd=ROOT, capture_output=True, check=True
    )
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder)
    for core in Path(weft.__file__).parent.glob("_native*.so"):
        shutil.copy(core, folder / "python/weft")
    return ["env", f"PYTHONPATH={folder}/python", *WEFT]


def measured(fleet: Fleet, command: list[str]) -> str:
    """Measure while the server works, and say what came of it; a wrong total is an error."""
    (host,) = fleet.hosts
    running = subprocess.Popen(
        [
            *command,
            *("fleet", "run", "-m", f"calls@{FUNCTION}", "--where", "host=h1", "--for", "600"),
            *("--nats", fleet.url_of(0), "--as", "tests", "--format", "json"),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    fleet.stack.callback(running.kill)
    eventually(lambda: fleet.states() == {"h1": "measuring"}, PATIENCE)
    before = host.commands()
    redis_cli(host.socket, "-r", "10000", "ping")
    expected = host.commands() - before + 1
    fleet.ask("stop", fleet.ask("status")["requests"][0]["id"])
    (total,) = json.loads(running.communicate(timeout=PATIENCE)[0])["totals"]
    if not total["complete"] or total["value"] != expected:
        raise AssertionError(f"{total} of {expected}")
    return f"{total['value']:,} calls of {expected:,}"


def main() -> int:
    """Try both ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--revision", help="without it the first that has a fleet")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-fleet-") as name:
        folder = Path(name)
        other = older(folder, options.revision or first())
        with Fleet(folder, 1) as fleet:
            (host,) = fleet.hosts
            for service, front in ((other, WEFT), (WEFT, other)):
                host.start_service(weft=service)
                assert host.service is not None
                host.service.wait_until_ready()
                said = measured(fleet, front)
                host.service.end(15)
                ends = ["older" if one is other else "newest" for one in (service, front)]
                print(f"{ends[0]} host, {ends[1]} front end: {said}")
            if hurt := harmed(fleet):
                raise AssertionError(f"these servers are not as they were: {hurt}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
