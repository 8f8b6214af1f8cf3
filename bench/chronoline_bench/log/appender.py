"""Appends at random moments, in this process or as an agent."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from chronoline.log import Log
from chronoline_bench.harness.agent import Figures
from chronoline_bench.log.events import make_events


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An appended event: its place, and the time of its acknowledgement by the machine's monotonic clock."""

    partition: int
    sequence: int
    at_s: float
    value: bytes


def append_now_and_then(
    log: Log, topic: str, events: int, longest_gap_s: float
) -> list[Acknowledged]:
    """Appends events one by one, each after a gap of random length."""
    acknowledged = []
    for event in make_events(events):
        # Spreads the appends over the reader's poll interval.
        time.sleep(random.uniform(0, longest_gap_s))
        place = log.append(topic, key=event.key, value=event.value)
        at_s = time.monotonic()
        value = event.value or b""
        acknowledged.append(Acknowledged(place.partition, place.sequence, at_s, value))
    return acknowledged


class Agent:
    async def append(self, url: str, topic: str, events: int, longest_gap_s: float) -> Figures:
        with Log(url) as log:
            acknowledged = append_now_and_then(log, topic, events, longest_gap_s)
        return {
            "acknowledged": [
                (each.partition, each.sequence, each.at_s, each.value.hex())
                for each in acknowledged
            ]
        }
