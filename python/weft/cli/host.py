"""Serve requests of a fleet on this machine."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weft.base.interrupts import ENDING
from weft.cli import exports
from weft.cli.output import all_of, format_option
from weft.cli.printing import echo
from weft.errors import InvalidArgument

if TYPE_CHECKING:
    from weft.fleet.audit import Audit
    from weft.fleet.broker import Access
    from weft.fleet.service import HostOptions
    from weft.fleet.sinks import Sinks

connection_options = all_of(
    click.option(
        "--nats",
        "url",
        metavar="URL",
        required=True,
        envvar="WEFT_NATS",
        show_envvar=True,
        help="Where the broker is: nats://broker.example.org, tls://10.0.0.1:4222.",
    ),
    click.option(
        "--creds",
        "credentials",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The credentials of a NATS user, or the seed of its NKey.",
    ),
    click.option(
        "--ca",
        "authority",
        metavar="FILE",
        type=click.Path(path_type=Path),
        help="The certificates that the broker is known by, without those of the system.",
    ),
)
"""Gives a command the options of a connection to a broker."""


@click.command()
@connection_options
@click.option("--name", metavar="HOST", help="The name of this host; without it the machine's.")
@click.option(
    "--labels", default="", metavar="NAME=VALUE,...", help="What selectors may ask of this host."
)
@click.option(
    "--only",
    default="*",
    metavar="SELECTOR",
    help="Be a host of these processes, as if no others were on this machine.",
)
@click.option(
    "--policy",
    "policy_file",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Who may measure what here, in TOML; what it does not allow is refused.",
)
@click.option(
    "--audit",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Where each decision is noted, as lines of JSON; without it standard error.",
)
@exports.options
@click.option(
    "--files",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Let the files in this folder be fetched by whom the policy allows it.",
)
@format_option
def command(
    url: str,
    credentials: Path | None,
    authority: Path | None,
    name: str | None,
    labels: str,
    only: str,
    policy_file: Path,
    audit: Path | None,
    prometheus: str | None,
    otlp: str | None,
    folder: Path | None,
    output_format: str,
) -> None:
    """Serve requests of a fleet on this machine.

    It registers with a broker of NATS and measures what `weft fleet run` asks for, in the processes
    that the policy allows, until SIGTERM or Ctrl-C; then all processes are as they were. It waits
    for a broker that is not there, and goes on measuring while it is away. With --prometheus and
    --otlp it tells what it measures to these as well, by itself. --format is that of errors.

    \b
    Examples:
      weft host --nats nats://127.0.0.1 --policy policy.toml
      weft host --nats tls://broker --creds host.creds --labels zone=b,rack=7 --policy policy.toml
      weft host --nats nats://127.0.0.1 --policy policy.toml --audit /var/log/weft-audit.jsonl
      weft host --nats nats://127.0.0.1 --policy policy.toml --prometheus 0.0.0.0:9109
      weft host --nats nats://127.0.0.1 --policy policy.toml --files /var/lib/weft
    """
    del output_format
    quiet()
    from weft.fleet.audit import Audit
    from weft.fleet.broker import Access
    from weft.fleet.names import checked
    from weft.fleet.offering import Offer
    from weft.fleet.policy import Policy
    from weft.fleet.selectors import Selector
    from weft.fleet.service import HostOptions
    from weft.fleet.sinks import INTERVAL, Sinks

    host = checked(name or os.uname().nodename)
    options = HostOptions(
        host,
        _labels(labels),
        Policy.read(policy_file),
        _claims(),
        Selector.parse(only),
        None if folder is None else Offer(folder),
    )
    if not options.policy.rules:
        echo(f"note: {policy_file} allows nothing", err=True)
    access = Access(url, credentials, authority)
    access.options()
    log = Audit(host, audit)
    if prometheus is None and otlp is None:
        asyncio.run(_serve(access, options, log))
        return
    sinks = Sinks(host, options.labels, partial(echo, err=True))
    with exports.Exports(prometheus, otlp, INTERVAL).of(sinks.source):
        asyncio.run(_serve(access, options, log, sinks))


async def _serve(
    access: Access, options: HostOptions, audit: Audit, sinks: Sinks | None = None
) -> None:
    from weft.fleet.host import Host

    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in ENDING:
        # What is ignored stays so: by nohup, or in the background of a shell without job control.
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, stop.set)
    await Host(access, options, audit, echo, sinks=sinks).run(stop)


def quiet() -> None:
    """Keep warnings of the client's event loop, which say nothing to anybody, off the terminal."""
    import logging

    logging.getLogger("asyncio").setLevel(logging.CRITICAL)


def _labels(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, sign, value = part.partition("=")
        is_name = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_./-]*", name)
        if not is_name or not sign or not value:
            raise InvalidArgument(f"{part!r} is no label", advice="write --labels zone=b,rack=7")
        if name in found:
            raise InvalidArgument(f"the label {name!r} has two values", "a host has one of each")
        found[name] = value
    return found


def _claims() -> Path:
    """Where the hosts of this machine know of each other: a folder of the user's own."""
    if os.geteuid() == 0:
        return Path("/run/weft")
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    return Path(runtime, "weft") if runtime else Path(f"/tmp/weft-{os.geteuid()}")
