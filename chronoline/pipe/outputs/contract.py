"""What a pipe asks of a topic that it publishes on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple

from chronoline.core.errors import OutputUnavailable, Unpublishable
from chronoline.core.message import Header
from chronoline.runtime.service import Closing

__all__ = [
    "DEFAULT_DELIVERY_TIMEOUT_MS",
    "Confirm",
    "OutRecord",
    "Output",
    "OutputUnavailable",
    "Unpublishable",
]

DEFAULT_DELIVERY_TIMEOUT_MS = 4_000
"""A record that was not acknowledged by then is given up; below the hold time, which is 5000."""


class OutRecord(NamedTuple):
    """What is published, byte for byte. No key, no value and an empty one are three different things."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


Confirm = Callable[[BaseException | None], None]
"""Told once what became of a record: None when the topic has acknowledged it, else one of

- `OutputUnavailable`: the output as a whole fails. Nothing is wrong with the record; try again later. It may
  have been published all the same, if the acknowledgement was lost.
- `Unpublishable`: this record can never be published as it is.

It is called from any thread, also from within `publish`. It must be quick, and must neither raise nor call
the output.
"""


class Output(Closing):
    """A topic to publish on. Thread-safe; opened by the process that uses it, not before a fork."""

    @abstractmethod
    def publish(self, record: OutRecord, confirm: Confirm) -> None:
        """Sends a record on its way, and does not wait for the acknowledgement.

        It waits while too much is on its way already. Every outcome goes to `confirm`, a refusal at once too;
        it does not raise, and a closed output answers `OutputUnavailable`.
        """

    @abstractmethod
    def flush(self, timeout_s: float) -> int:
        """Waits until all that was published is confirmed; says how much is still on its way."""

    @abstractmethod
    def close(self) -> None:
        """Waits until all that was published is confirmed, acknowledged or not. May be called twice."""
