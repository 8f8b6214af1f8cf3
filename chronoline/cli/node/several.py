"""Several nodes on this machine, to play with: a process for each, and a list of nodes that they share."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from chronoline.broker.settings import SOURCES, Listener, NodeSettings
from chronoline.cli.node.running import check_free
from chronoline.core.errors import InvalidInput

_MOST = 16
_LAST_PORT = 65_535
_PREFIX = SOURCES.prefix


def run_several(settings: NodeSettings, number: int) -> None:
    """Until SIGTERM or SIGINT, or until all of them have ended."""
    addresses = _addresses(settings, number)
    settings.data.mkdir(parents=True, exist_ok=True)
    nodes_file = settings.data / "nodes.toml"
    nodes_file.write_text(f"staying = {json.dumps(addresses)}\njoining = []\nleaving = []\n")
    others = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    environment = {**others, **settings.variables()}
    children: list[subprocess.Popen[bytes]] = []
    _pass_signals_on(children)
    for index, address in enumerate(addresses, 1):
        command = _command(settings, index, address, nodes_file)
        # A terminal sends Ctrl-C to its whole session; they are to hear of it once, from here.
        children.append(subprocess.Popen(command, env=environment, start_new_session=True))
    print("\n".join(_banner(addresses, nodes_file)), flush=True)
    codes = [child.wait() for child in children]
    if any(codes):
        raise SystemExit(next(code for code in codes if code))


def _addresses(settings: NodeSettings, number: int) -> list[str]:
    """Where they listen. Raises `InvalidInput` for what cannot be started."""
    if settings.roles != ("timers",):
        raise InvalidInput("--nodes starts nodes for timers: say --roles timers with it")
    if not 1 <= number <= _MOST:
        raise InvalidInput(f"--nodes takes 1 to {_MOST}, not {number}")
    if settings.replication.nodes is not None:
        raise InvalidInput("--nodes writes a list of nodes of its own; leave replication.nodes out")
    first = settings.timers_listener
    if first.port == 0:
        raise InvalidInput("--nodes needs a port to count from; --timers names it")
    if first.port + number - 1 > _LAST_PORT:
        raise InvalidInput(f"there are not {number} ports from {first.port} on; name a lower one")
    listeners = [Listener(first.host, first.port + index) for index in range(number)]
    for listener in listeners:
        check_free(listener, "--timers")
    return [f"{listener.bracketed}:{listener.port}" for listener in listeners]


def _command(settings: NodeSettings, index: int, address: str, nodes_file: Path) -> list[str]:
    given = [
        *("--roles", "timers", "--timers", address),
        *("--data", str(settings.data / f"node-{index}")),
        *("--set", f"replication.nodes={nodes_file}"),
    ]
    if settings.origin(("log_level",)) is None:
        given += ["--set", "log_level=warning"]
    return [sys.executable, "-m", "chronoline", "up", "--quiet", *given]


def _banner(addresses: list[str], nodes_file: Path) -> Iterator[str]:
    yield f"{len(addresses)} nodes for timers. Ctrl-C stops them all."
    yield ""
    yield from (f"  timers  http://{address}" for address in addresses)
    yield f"  list    {nodes_file}"
    yield ""
    yield f"chronoline timers nodes --address {addresses[0]}"


def _pass_signals_on(children: list[subprocess.Popen[bytes]]) -> None:
    """A signal is passed on to all that have started; when one ends by itself, the others go on."""

    def pass_on(number: int, _: object) -> None:
        for child in children:
            if child.poll() is None:
                child.send_signal(signal.SIGTERM if number == signal.SIGINT else number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, pass_on)
