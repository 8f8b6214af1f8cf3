"""One way to put messages somewhere and to get them back: what all of them have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable
from typing import Any

from chronoline_bench.filling import ID_DIGITS
from chronoline_bench.messages import BODY_BYTES

_NUMBER_BYTES = 8
_REST = bytes(BODY_BYTES - _NUMBER_BYTES)


def message_id(number: int) -> str:
    """As `Filling` makes them."""
    return f"m{number:0{ID_DIGITS}}"


def number_of_id(message_id: str) -> int:
    return int(message_id[1:])


def body_of(number: int) -> bytes:
    """As large as the bodies of all benches; it says which message it is."""
    return number.to_bytes(_NUMBER_BYTES, "big") + _REST


def number_of_body(body: bytes) -> int:
    return int.from_bytes(body[:_NUMBER_BYTES], "big")


def now_us() -> int:
    return time.time_ns() // 1_000


class Notes:
    """What came to a consumer, and what became of it."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.came_us = array("q")
        self.acked = 0
        self.refused = 0
        self.last_ack_us = 0

    def came(self, number: int) -> None:
        self.came_us.append(now_us())
        self.numbers.append(number)

    def settled(self, *, acked: int = 0, refused: int = 0) -> None:
        self.acked += acked
        self.refused += refused
        self.last_ack_us = now_us()

    def pairs(self) -> Iterable[tuple[int, int]]:
        return zip(self.numbers, self.came_us, strict=True)


class Line(ABC):
    """To be opened in the event loop in which it is used."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def put(self, number: int, delay_s: int, hand: int = 0) -> int:
        """Puts a message that is due so many seconds after now, and returns when it lasts.

        Answers when it is due, in µs. `hand` tells apart who puts at the same time.
        """

    @abstractmethod
    async def consume(self, notes: Notes, ready: Any) -> None:
        """Takes messages until it is cancelled, and acks each.

        `ready` is called when from now on everything that is due comes. What was taken is settled before
        it ends.
        """
