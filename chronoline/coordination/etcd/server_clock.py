"""The clock of an etcd member beside ours, from the dates of its HTTP answers.

No call of etcd's answers with the time, but its HTTP side dates every answer, to the whole second. One date
bounds the offset to a second plus the round trip. Each further request is sent when the answer splits the
bounds: a few of them are enough for some milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime

from chronoline.coordination.contract import ServerOffset
from chronoline.coordination.etcd.url import EtcdAddress

_REQUESTS = 8
_ANSWER_S = 2.0
_SECOND_MS = 1_000.0
_DATE = b"date:"


@dataclass(frozen=True, slots=True)
class OffsetBounds:
    """The offset of a clock lies between these, in milliseconds."""

    low_ms: float
    high_ms: float

    def narrowed(self, date_ms: float, sent_ms: float, received_ms: float) -> OffsetBounds:
        """Narrowed by an answer of this date, to the whole second, that was sent for and received then.

        A clock that was moved meanwhile contradicts the earlier answers: they no longer count.
        """
        low, high = date_ms - received_ms, date_ms + _SECOND_MS - sent_ms
        narrow = OffsetBounds(max(self.low_ms, low), min(self.high_ms, high))
        return narrow if narrow.low_ms <= narrow.high_ms else OffsetBounds(low, high)

    def wait_ms(self, now_ms: float) -> float:
        """The time until that clock begins a second, if the offset lies in the middle."""
        return -(now_ms + self.middle_ms) % _SECOND_MS

    @property
    def middle_ms(self) -> float:
        return (self.low_ms + self.high_ms) / 2

    @property
    def offset(self) -> ServerOffset:
        return ServerOffset(self.middle_ms, (self.high_ms - self.low_ms) / 2)


_UNBOUNDED = OffsetBounds(float("-inf"), float("inf"))


async def measure_offset(
    address: EtcdAddress, member: str, requests: int = _REQUESTS
) -> ServerOffset | None:
    """The offset of a member's clock; None if it does not answer by HTTP. Takes some seconds."""
    bounds = _UNBOUNDED
    try:
        for _ in range(requests):
            if bounds != _UNBOUNDED:
                await asyncio.sleep(bounds.wait_ms(_now_ms()) / 1_000)
            sent_ms = _now_ms()
            date_ms = await asyncio.wait_for(_read_date(address, member), _ANSWER_S)
            bounds = bounds.narrowed(date_ms, sent_ms, _now_ms())
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
        return None
    return bounds.offset


async def _read_date(address: EtcdAddress, member: str) -> float:
    """The date of one answer of a member, in milliseconds."""
    host, _, port = member.rpartition(":")
    reader, writer = await asyncio.open_connection(
        host.strip("[]"), int(port), ssl=address.tls_context()
    )
    try:
        writer.write(
            f"GET /version HTTP/1.1\r\nHost: {member}\r\nConnection: close\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()
    line = next((each for each in head.split(b"\r\n") if each.lower().startswith(_DATE)), b"")
    date = parsedate_to_datetime(line[len(_DATE) :].decode("ascii").strip())
    return date.replace(tzinfo=UTC).timestamp() * 1_000


def _now_ms() -> float:
    return time.time_ns() / 1_000_000
