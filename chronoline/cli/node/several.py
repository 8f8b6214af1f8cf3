"""Several nodes on this machine, to play with: a process for each, and a list of nodes that they share."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from chronoline.broker.auth import Door
from chronoline.broker.settings import SOURCES, Listener, NodeSettings
from chronoline.cli.node.running import check_free, open_door
from chronoline.core.errors import InvalidInput
from chronoline.timers.journal import claim, has_waiting

_MOST = 16
_JOURNAL = "timers.db"
_LAST_PORT = 65_535
_PREFIX = SOURCES.prefix
_LOOK_EVERY_S = 0.02
_LIST_HEAD = "# `chronoline up --nodes` writes this file anew each time it starts.\n"


def run_several(settings: NodeSettings, number: int) -> None:
    """Until SIGTERM or SIGINT, or until all of them have ended."""
    listeners = _listeners(settings, number)
    door = _open_door(settings)
    settings.data.mkdir(parents=True, exist_ok=True)
    nodes_file = settings.data / "nodes.toml"
    with claim(nodes_file):
        _check_folder(settings.data, number)
        _run(settings, listeners, door, nodes_file)


def _run(settings: NodeSettings, listeners: list[Listener], door: Door, nodes_file: Path) -> None:
    addresses = [_address(each) for each in listeners]
    nodes_file.write_text(
        f"{_LIST_HEAD}staying = {json.dumps(addresses)}\njoining = []\nleaving = []\n"
    )
    others = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    environment = {**others, **settings.variables()}
    family = _Family(as_json=settings.log_format == "json")
    for index, listener in enumerate(listeners, 1):
        family.start(_command(settings, index, listener, nodes_file), environment, listener)
    family.await_listening()
    if not family.is_told_to_stop and family.living:
        print("\n".join(_banner(settings, family, nodes_file, door)), flush=True)
    raise SystemExit(family.wait())


def _listeners(settings: NodeSettings, number: int) -> list[Listener]:
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
    return listeners


def _check_folder(data: Path, number: int) -> None:
    """Raises `InvalidInput` if there are timers in it that none of so many nodes would pop."""
    if has_waiting(data / _JOURNAL):
        raise InvalidInput(
            f"{data} has timers of a node that was started without --nodes, and they would not pop. Name "
            "another folder by --data, or leave --nodes out"
        )
    for index in range(_MOST, number, -1):
        if has_waiting(data / f"node-{index}" / _JOURNAL):
            raise InvalidInput(
                f"{data} has timers of {index} nodes, and some of them would not pop. Start as many, or name "
                "another folder by --data"
            )


def _open_door(settings: NodeSettings) -> Door:
    door = open_door(settings)
    if door.asks:
        raise InvalidInput(
            f"{settings.tokens_file} has tokens, and each node of --nodes has a folder of its own, without "
            "them. Name another folder by --data, or start the nodes one by one"
        )
    return door


def _address(listener: Listener) -> str:
    return f"{listener.bracketed}:{listener.port}"


def _command(settings: NodeSettings, index: int, listener: Listener, nodes_file: Path) -> list[str]:
    given = [
        *("--roles", "timers", "--timers", _address(listener)),
        *("--data", str(settings.data / f"node-{index}")),
        *("--set", f"replication.nodes={nodes_file}"),
    ]
    return [sys.executable, "-m", "chronoline", "up", "--quiet", "--until-eof", *given]


def _banner(settings: NodeSettings, family: _Family, nodes_file: Path, door: Door) -> Iterator[str]:
    children = family.living
    yield (
        "1 node for timers. Ctrl-C stops it."
        if len(children) == 1
        else f"{len(children)} nodes for timers. Ctrl-C stops them all."
    )
    yield ""
    for child in children:
        where = f"{door.scheme}://{_address(child.listener)}"
        yield f"  timers  {where}   process {child.process.pid}"
    yield f"  list    {nodes_file}"
    yield f"  calls   the public internet, and {', '.join(settings.may_call) or 'nothing else'}"
    yield ""
    yield f"chronoline timers nodes --address {_address(children[0].listener)}"


class _Child:
    """One node: a process, and a thread that shows what it says."""

    def __init__(self, family: _Family, process: subprocess.Popen[str], listener: Listener) -> None:
        self.process = process
        self.listener = listener
        self._family = family
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def await_listening(self) -> None:
        while self.process.poll() is None:
            try:
                socket.create_connection((self.listener.host, self.listener.port)).close()
            except OSError:
                time.sleep(_LOOK_EVERY_S)  # nobody says when a process listens
            else:
                return

    def wait(self) -> int:
        self._thread.join()
        return self.process.wait()

    def _show(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                sys.stderr.write(self._family.shown(line, self.listener))
        code = self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()
        if not self._family.is_told_to_stop:
            rest = "; the others go on" if self._family.living else ""
            sys.stderr.write(f"node {_address(self.listener)} ended with {code}{rest}\n")


class _Family:
    """All of them. A signal is passed on to each; when one ends by itself, the others go on."""

    def __init__(self, *, as_json: bool) -> None:
        self.children: list[_Child] = []
        self.is_told_to_stop = False
        self._as_json = as_json
        self._is_listening = False
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._pass_on)

    def start(self, command: list[str], environment: dict[str, str], listener: Listener) -> None:
        if self.is_told_to_stop:
            return
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,  # it ends with this process, however that ends
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A terminal sends Ctrl-C to its whole session; they are to hear of it once, from here.
            start_new_session=True,
        )
        self.children.append(_Child(self, process, listener))
        if self.is_told_to_stop:  # while it was being started
            process.terminate()

    def await_listening(self) -> None:
        for child in self.children:
            child.await_listening()
        self._is_listening = True

    @property
    def living(self) -> list[_Child]:
        return [child for child in self.children if child.process.poll() is None]

    def wait(self) -> int:
        """What this process is to end with: what failed by itself was told when it did."""
        codes = [child.wait() for child in self.children]
        return 0 if self.is_told_to_stop else next((code for code in codes if code), 0)

    def shown(self, line: str, listener: Listener) -> str:
        """A line of a log, with the node whose it is."""
        if not self._as_json:
            return f"[{listener.port}] {line}"
        try:
            return json.dumps({**json.loads(line), "node": _address(listener)}) + "\n"
        except (TypeError, ValueError):
            return line

    def _pass_on(self, number: int, _: object) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self.is_told_to_stop = True
        elif not self._is_listening:  # they would die of it; and they are about to read the list
            return
        for child in self.children:
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM if number == signal.SIGINT else number)
