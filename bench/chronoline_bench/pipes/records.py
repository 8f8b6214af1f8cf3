"""The files in which the processes around a pipe say what they did: pairs of whole numbers, in a row."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

PAIR = struct.Struct("<qq")
"""A message's number; and when it is due, in ms, or when it came, in µs."""


def write_pairs(path: Path, pairs: Iterable[tuple[int, int]]) -> None:
    """The file appears as a whole."""
    partial = path.with_suffix(".part")
    partial.write_bytes(b"".join(PAIR.pack(*pair) for pair in pairs))
    partial.rename(path)


def read_pairs(path: Path, start: int = 0) -> Iterator[tuple[int, int]]:
    """The pairs from number `start` on; one that is not written to its end yet is left for the next time."""
    with path.open("rb") as file:
        file.seek(start * PAIR.size)
        data = file.read()
    for number, value in PAIR.iter_unpack(data[: len(data) // PAIR.size * PAIR.size]):
        yield int(number), int(value)


def count_pairs(path: Path) -> int:
    """How many there are, without a look at them."""
    return path.stat().st_size // PAIR.size
