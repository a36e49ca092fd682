"""PostgreSQL under pgbench: a server that forks a process for each client, which counts itself."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.harness import NOBODY, eventually, need
from tests.e2e.test_probes import needs_weaver
from tests.e2e.test_servers import data_for_pgbench, postgres_programs
from tests.fleet_servers import PATIENCE, Process, Server
from tests.fleets import SERVER, Namespaces, finished, harmed, problems

pytestmark = [
    needs_weaver,
    pytest.mark.fleet,
    pytest.mark.watchdog(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make network namespaces"),
]

AS_NOBODY = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
CLIENTS = 4


class Postgres(Server):
    """A server of PostgreSQL, whose statistics are those of all its processes."""

    kind = "postgres"
    focus = "/Code/postgres/pg_parse_query"

    def __init__(self, folder: Path, name: str, inside: Sequence[str]) -> None:
        self.folder = folder / name
        data = self.folder / "data"
        self.folder.mkdir(mode=0o755)
        os.chown(self.folder, NOBODY, NOBODY)
        subprocess.run(["cp", "-a", Path(data_for_pgbench().name) / "data", data], check=True)
        settings = ["listen_addresses=", f"unix_socket_directories={self.folder}", "fsync=off"]
        # Statements are counted when they have ended, these included that pgbench prepares with.
        settings += ["shared_preload_libraries=pg_stat_statements"]
        options = [word for setting in settings for word in ("-c", setting)]
        program = str(postgres_programs() / "postgres")
        command = [*inside, *AS_NOBODY, program, "-D", str(data), *options]
        log = folder / f"{name}.log"
        super().__init__(Process(command, log, "ready to accept connections"), self.folder)

    def prepare(self) -> None:
        """Have it count statements, once it runs."""
        self._ask("create extension pg_stat_statements")

    def count(self) -> int:
        return int(self._ask("select sum(calls) from pg_stat_statements")) + 1

    def serve(self, times: int) -> None:
        work = ["-n", "-S", "-c", str(CLIENTS), "-t", str(times)]
        self._run("pgbench", *work)

    def _ask(self, statement: str) -> str:
        return self._run("psql", "-X", "-A", "-t", "-c", statement)

    def _run(self, client: str, *words: str) -> str:
        program = postgres_programs() / client
        command = [str(program), *words, "-h", str(self.folder), "-U", "weft", "postgres"]
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
        return done.stdout


class Databases(Namespaces):
    """Hosts with a server of PostgreSQL each."""

    def servers(self, name: str, inside: Sequence[str]) -> list[Server]:
        return [Postgres(self.folder, name, inside)]


@pytest.fixture(scope="module")
def fleet(public_folder: Path) -> Iterator[Databases]:
    need(SERVER, "ip", "setpriv")
    folder = public_folder / "databases"
    folder.mkdir()
    try:
        with Databases(folder, 2) as fleet:
            policy = '[[allow]]\nrequester = "*"\nprocesses = "exe=postgres"\nbudget = "50%"\n'
            fleet.policy.write_text(f'budget = "100%"\n{policy}')
            for host in fleet.hosts:
                server = host.servers[0]
                assert isinstance(server, Postgres)
                server.prepare()
            fleet.start_services()
            yield fleet
            for host in fleet.hosts:
                assert host.service is not None
                host.service.end(signal.SIGTERM)
    finally:
        shutil.rmtree(folder)


def test_statements_of_all_clients_are_counted(fleet: Databases) -> None:
    """Each client has a process of its own, which comes and goes while it is measured."""
    servers = [host.servers[0] for host in fleet.hosts]
    running = fleet.begin("--where", "exe=postgres", "--for", "600")
    for one in servers:
        one.begin_counting()
    for times in (10, 200, 3):
        for one in servers:
            one.serve(times)
    for one in servers:
        one.end_counting()
        assert one.expected > 213 * CLIENTS
    found = finished(running, stop=True)
    assert problems(fleet, found) == []
    (total,) = found["totals"]
    assert total["value"] == sum(one.expected for one in servers)
    # On a busy machine it may take long to begin with all processes, which is said.
    notes = [note for one in found["hosts"] for note in one.get("notes", ())]
    assert total["complete"] or all("weaving took more than 5 s" in one for one in notes), notes
    eventually(lambda: not harmed(fleet), PATIENCE)
