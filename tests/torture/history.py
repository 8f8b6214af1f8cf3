"""The history of a run: a line of JSON for each event, in one file for each process.

Every process of a scene records each call before it makes it, then its outcome, and every delivery. One
system call writes a line, so that SIGKILL loses at most the line that was being written. Linux's monotonic
clock orders the events: all processes share it, and a moved wall clock does not change it.

The runner counts these kinds; a scene may record others:

| kind | fields | meaning |
| --- | --- | --- |
| `call` | `call`, `op` | a call is about to be made; `call` names it within the history |
| `outcome` | `call`, `outcome`, `reason` | `done`, `refused` or `unknown`; a call without one is unknown |
| `delivery` | the scene's own | the process received a delivery |
| `fault` | `fault` | the scene broke or repaired something |
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CALL: Final = "call"
OUTCOME: Final = "outcome"
DELIVERY: Final = "delivery"
FAULT: Final = "fault"

DONE: Final = "done"
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"

_SUFFIX = ".jsonl"


@dataclass(frozen=True, slots=True)
class Event:
    """One event as its process saw it."""

    kind: str
    process: str
    wall_ms: float
    """The wall clock of that process, which a scene may have moved."""
    mono_ns: int
    """The machine's monotonic clock, the same for all processes."""
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Returns an optional field."""
        return self.fields.get(name, default)


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation of an invariant in a history."""

    rule: str
    """The invariant's number and a few words, such as `7 acknowledged message served again`."""
    detail: str
    """Ids, versions, times and processes: enough to find the events in the history."""


class Recorder:
    """Appends the events of this process to its file. One thread makes calls; all may record."""

    def __init__(self, folder: Path, process: str) -> None:
        """`process` is unique within the history: a process that is started again gets another name."""
        self.process = process
        self._calls = 0
        path = folder / f"{process}{_SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def record(self, kind: str, **fields: Any) -> None:
        """Writes one event; when it returns, a SIGKILL of this process does not lose it."""
        line = json.dumps(
            {"kind": kind, "wall_ms": time.time_ns() / 1e6, "mono_ns": time.monotonic_ns()}
            | fields,
            separators=(",", ":"),
        )
        os.write(self._file, f"{line}\n".encode())

    def call(self, op: str, **fields: Any) -> str:
        """Records a call before it is made; returns its name for `outcome`."""
        self._calls += 1
        name = f"{self.process}:{self._calls}"
        self.record(CALL, call=name, op=op, **fields)
        return name

    def outcome(self, call: str, outcome: str, reason: str = "", **fields: Any) -> None:
        """Records the outcome of a call: `DONE`, `REFUSED` or `UNKNOWN`."""
        self.record(OUTCOME, call=call, outcome=outcome, reason=reason, **fields)

    def fault(self, fault: str, **fields: Any) -> None:
        """Records a fault before it is made, or its repair."""
        self.record(FAULT, fault=fault, **fields)

    def close(self) -> None:
        os.close(self._file)


def read_history(folder: Path) -> list[Event]:
    """Returns all events of a folder and its subfolders, in the order of their times."""
    events = [event for path in sorted(folder.rglob(f"*{_SUFFIX}")) for event in _read_file(path)]
    return sorted(events, key=lambda event: event.mono_ns)


def _read_file(path: Path) -> Iterator[Event]:
    """Yields the events of one process; omits a torn last line, and raises for one before it."""
    lines = path.read_bytes().split(b"\n")
    lines.pop()  # empty, or torn by a SIGKILL
    for line in lines:
        fields = json.loads(line)
        kind, wall_ms, mono_ns = (fields.pop(name) for name in ("kind", "wall_ms", "mono_ns"))
        yield Event(kind, path.name.removesuffix(_SUFFIX), wall_ms, mono_ns, fields)
