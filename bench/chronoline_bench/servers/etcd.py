"""An etcd of several members, and a program for servers that are killed.

Versions 3.5.0 to 3.5.2 can corrupt their data when they are killed under load, and the wheel has 3.5.1. So a
server that is to be killed takes another program, if there is one: from PATH, or Debian's package, which is
fetched once, without root, into the cache folder, and not installed.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from chronoline.core.errors import MissingExtra
from chronoline.runtime.service import Service
from chronoline.testing.etcd import EtcdServer, find_program
from chronoline_bench.servers.debian import fetch

_FLAWED = re.compile(r"etcd Version: 3\.5\.[012]\b")


class EtcdCluster(Service):
    """Several members of one etcd, which can be killed and started one by one."""

    def __init__(self, folder: Path, members: int = 3) -> None:
        self.members = [
            EtcdServer(folder / str(number), program=surviving_program) for number in range(members)
        ]
        for member in self.members:
            member.join(self.members)

    def url(self, prefix: str = "") -> str:
        """The URL of a coordination service on all members."""
        return f"etcd://{','.join(member.address for member in self.members)}/{prefix}"

    def start(self) -> None:
        """Starts all members; none is ready before most of them run."""
        with ThreadPoolExecutor(len(self.members)) as threads:
            list(threads.map(EtcdServer.start, self.members))

    def stop(self) -> None:
        for member in self.members:
            member.kill()  # an orderly stop would hand over the leadership first, member by member


def surviving_program() -> Path:
    """A program whose data survives kills, or the wheel's if there is none. Raises `MissingExtra`."""
    for program in _found_elsewhere():
        if survives_kills(program):
            return program
    return find_program()


def survives_kills(program: Path) -> bool:
    """Whether the data of a member is intact after it was killed under load."""
    return not _FLAWED.search(_version_of(program))


def _found_elsewhere() -> Iterator[Path]:
    if installed := shutil.which("etcd"):
        yield Path(installed)
    try:
        yield fetch("etcd-server", "usr/bin/etcd", remedy="install etcd-server")
    except MissingExtra:
        return


def _version_of(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return done.stdout
