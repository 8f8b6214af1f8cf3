"""Network namespaces for brokers: a way between a broker and its servers or clients can lose all packets.

A broker in a namespace reaches this machine by one pair of interfaces, with a small network for each part:
its etcd, its PostgreSQL, its clients. A part is cut off by a wrong hardware address of the other side, on
both sides. Packets leave, and nobody takes them: no connection ends, and none is refused. Root and `ip` are
needed. The addresses are of the range for benchmarks (RFC 2544), which no other network uses.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress

PARTS = ("etcd", "postgres", "clients")
"""From each of these a broker can be cut off."""
_NOBODY = "02:00:00:00:00:01"
_PREFIX = "clt"
"""Of the names of our namespaces, before the process that made them."""
_TRIES = 10
_OF_A_BROKER = 16
"""The addresses of a broker; each part has four of them."""


class Namespace:
    """The namespace of one broker, with its networks. It exists from its construction to `remove`."""

    def __init__(self, number: int, block: int) -> None:
        """Raises `OSError` or `CalledProcessError` if it cannot be made."""
        self.name = f"{_PREFIX}{os.getpid()}-{number}"
        self._here, self._inside = f"{self.name}h", f"{self.name}n"
        base = number * _OF_A_BROKER
        self._networks = {
            part: f"198.18.{block}.{base + 4 * place}" for place, part in enumerate(PARTS)
        }
        self._ip("netns", "add", self.name)
        try:
            self._connect()
        except BaseException:
            self.remove()
            raise

    def _connect(self) -> None:
        pair = ("type", "veth", "peer", "name", self._inside, "netns", self.name)
        self._ip("link", "add", self._here, *pair)
        for part in PARTS:
            self._ip("address", "add", f"{self.here(part)}/30", "dev", self._here)
            self._ip_inside("address", "add", f"{self.inside(part)}/30", "dev", self._inside)
        self._ip("link", "set", self._here, "up")
        self._ip_inside("link", "set", self._inside, "up")
        self._ip_inside("link", "set", "lo", "up")

    def here(self, part: str) -> str:
        """The address of this machine in the network of a part."""
        return _next(self._networks[part], 1)

    def inside(self, part: str) -> str:
        """The address of the broker in the network of a part."""
        return _next(self._networks[part], 2)

    def command(self, command: Sequence[str]) -> list[str]:
        """The command that runs in the namespace."""
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self, part: str) -> None:
        """From now on all packets from and to the part are lost."""
        lost = ("lladdr", _NOBODY, "nud", "permanent")
        self._ip("neighbour", "replace", self.inside(part), *lost, "dev", self._here)
        self._ip_inside("neighbour", "replace", self.here(part), *lost, "dev", self._inside)

    def heal(self, part: str) -> None:
        """May be called without a cut."""
        with suppress(subprocess.CalledProcessError):
            self._ip("neighbour", "delete", self.inside(part), "dev", self._here)
        with suppress(subprocess.CalledProcessError):
            self._ip_inside("neighbour", "delete", self.here(part), "dev", self._inside)

    def remove(self) -> None:
        """Its interfaces go with it. May be called twice."""
        with suppress(subprocess.CalledProcessError):
            self._ip("netns", "delete", self.name)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _ip_inside(self, *words: str) -> None:
        self._ip("-netns", self.name, *words)


def make_namespaces(count: int) -> list[Namespace]:
    """Returns namespaces for brokers; none if this machine, or this user, cannot make them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return []
    _remove_left_over()
    made: list[Namespace] = []
    try:
        block = _free_block()
        for number in range(count):
            made.append(Namespace(number, block))
    except (OSError, subprocess.CalledProcessError):
        for each in made:
            each.remove()
        return []
    return made


def _remove_left_over() -> None:
    """Removes the namespaces of processes that were killed."""
    found = _output("netns", "list")
    for name, pid in re.findall(rf"^({_PREFIX}(\d+)-\d+)\b", found, re.MULTILINE):
        if not os.path.exists(f"/proc/{pid}"):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _free_block() -> int:
    """The third byte of addresses that this machine does not use."""
    addresses = _output("address", "show")
    for block in random.sample(range(256), _TRIES):
        if f"198.18.{block}." not in addresses:
            return block
    raise OSError("no network is free")


def _output(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def _next(network: str, number: int) -> str:
    start, _, last = network.rpartition(".")
    return f"{start}.{int(last) + number}"
