"""Where a task runs, seen from the driver: a file of the driver's machine is of no use elsewhere.

A format learns nothing of the session's master. But every Python process of Spark's is a child of its JVM,
and with a local master the tasks' JVM is the driver's. So the driver notes its machine and its JVM, and a
task compares.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

from chronoline.core.errors import InvalidInput

_MOST_ANCESTORS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Locality:
    """A machine, and the JVM above this process; None where that cannot be found out."""

    host: str
    jvm: int | None

    def check(self, what: str) -> None:
        """Raises `InvalidInput` if this process does not belong to the same JVM."""
        here = locate()
        known = self.jvm is not None and here.jvm is not None
        if here.host != self.host or (known and here.jvm != self.jvm):
            raise InvalidInput(
                f"{what} lies on one machine, and this master is not local: its tasks run elsewhere"
                " and would find another file, or none. Use postgresql://…, or a local[…] master"
            )


def locate() -> Locality:
    """Where this process runs."""
    return Locality(host=socket.gethostname(), jvm=_jvm_above(os.getppid()))


def _jvm_above(process: int) -> int | None:
    for _ in range(_MOST_ANCESTORS):
        try:
            name, rest = Path(f"/proc/{process}/stat").read_text().split("(", 1)[1].rsplit(")", 1)
        except (OSError, IndexError, ValueError):
            return None
        if name == "java":
            return process
        process = int(rest.split()[1])
    return None
