"""What an agent writes down of the timers that it asked for."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

_ASKED = struct.Struct("<qQqq")
NUMBER_DIGITS = 12
OPAQUE = f"%0{NUMBER_DIGITS}d".encode() + b"." * 52
"""What a timer carries: 64 characters."""


class Asked(NamedTuple):
    """A timer that a node answered for. It is due by the clock of whoever asked, from when it did."""

    number: int
    id: int
    due_us: int
    interval_ms: int


def write_asked(path: Path, asked: Iterable[Asked]) -> None:
    path.write_bytes(b"".join(_ASKED.pack(*each) for each in asked))


def read_asked(path: Path) -> Iterator[Asked]:
    for each in _ASKED.iter_unpack(path.read_bytes()):
        yield Asked(*each)


def now_us() -> int:
    return time.monotonic_ns() // 1_000
