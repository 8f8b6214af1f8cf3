"""The open stores, readers and outputs of a worker process, which stay open from one task to the next.

Spark runs the tasks of a pipe in a few processes in turn. Opening a store and connecting to Kafka takes
longer than a lane may wait, so each process does it once. They stay open until the process
ends; a reader rests between tasks, and a task waits for all its confirmations before it returns.
"""

from __future__ import annotations

import atexit
import pickle
import threading
from collections.abc import Callable
from typing import TypeVar, cast

from chronoline.core.output_gate import OutputGate
from chronoline.pipe.outputs.contract import Output
from chronoline.pipe.outputs.factory import open_output
from chronoline.pipe.places import Place
from chronoline.pipe.readers import InputReader, open_reader
from chronoline.runtime.service import Closable
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store

Kept = TypeVar("Kept", bound=Closable)

_kept: dict[bytes, Closable] = {}
_lock = threading.Lock()


class WarmOutput(Closable):
    """An output with its gate, which remembers between tasks whether the output accepts messages."""

    def __init__(self, output: Output) -> None:
        self.output = output
        self.gate = OutputGate()

    def close(self) -> None:
        self.output.close()


def warm_store(url: str) -> Store:
    """This process's store at a URL."""
    return _keep(("store", url), lambda: open_store(url))


def warm_reader(place: Place, *, group: str, linger_ms: int) -> InputReader:
    """This process's reader of a topic."""
    return _keep(
        ("reader", place, group, linger_ms),
        lambda: open_reader(place, group=group, linger_ms=linger_ms),
    )


def warm_output(place: Place, *, delivery_timeout_ms: int) -> WarmOutput:
    """This process's output for a topic."""
    return _keep(
        ("output", place, delivery_timeout_ms),
        lambda: WarmOutput(open_output(place, delivery_timeout_ms=delivery_timeout_ms)),
    )


def _keep(key: object, make: Callable[[], Kept]) -> Kept:
    name = pickle.dumps(key)
    with _lock:
        if name not in _kept:
            _kept[name] = make()
        return cast(Kept, _kept[name])


@atexit.register
def close_all() -> None:
    """Closes all stores, readers and outputs."""
    with _lock:
        while _kept:
            _kept.popitem()[1].close()
