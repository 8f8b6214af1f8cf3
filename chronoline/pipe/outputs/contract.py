"""The contract of a pipe's output: publish records, and confirm each of them once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from chronoline.core.errors import OutputUnavailable, Unpublishable
from chronoline.core.message import Header
from chronoline.runtime.service import Closable

__all__ = [
    "DEFAULT_DELIVERY_TIMEOUT_MS",
    "Confirm",
    "OutRecord",
    "Output",
    "OutputUnavailable",
    "Unpublishable",
]

DEFAULT_DELIVERY_TIMEOUT_MS = 4_000
"""A record that is not acknowledged in this time is given up. It is below the default hold time, 5000."""


class OutRecord(NamedTuple):
    """A record to publish, byte for byte. A missing key or value differs from an empty one."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


Confirm = Callable[[BaseException | None], None]
"""Called once with the outcome of a record: None when the topic has acknowledged it, else one of

- `OutputUnavailable`: the output as a whole fails. The record is fine; try again later. The record may still
  have been published, if the acknowledgement was lost.
- `Unpublishable`: this record can never be published.

It is called from any thread, also from within `publish`. It must return quickly, and must neither raise nor
call the output.
"""


class Output(Closable):
    """A topic to publish on. Thread-safe; opened by the process that uses it, not before a fork."""

    @abstractmethod
    def publish(self, record: OutRecord, confirm: Confirm) -> None:
        """Sends a record, without waiting for its acknowledgement.

        It waits while the queue is full. It reports every outcome to `confirm`, also an immediate refusal,
        and does not raise. A closed output confirms with `OutputUnavailable`.
        """

    @abstractmethod
    def flush(self, timeout_s: float) -> int:
        """Waits until all records are confirmed. Returns the number of unconfirmed ones."""

    @abstractmethod
    def close(self) -> None:
        """Waits until all records are confirmed, acknowledged or not. May be called twice."""
