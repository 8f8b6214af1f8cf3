"""Appends at random moments, and says what was acknowledged when. Also a process beside a waiting reader:

`python -m chronoline_bench.appender URL TOPIC EVENTS LONGEST_GAP_S` prints a line for each event: partition,
sequence, the time of the acknowledgement by the monotonic clock, which processes share, and the value.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass
from typing import Self

from chronoline.log import Log
from chronoline_bench.events import make_events


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An event, where it lies, and when its producer knew."""

    partition: int
    sequence: int
    at_s: float
    value: bytes

    def __str__(self) -> str:
        return f"{self.partition} {self.sequence} {self.at_s} {self.value.hex()}"

    @classmethod
    def parse(cls, line: str) -> Self:
        partition, sequence, at_s, value = line.split()
        return cls(int(partition), int(sequence), float(at_s), bytes.fromhex(value))


def append_now_and_then(
    log: Log, topic: str, events: int, longest_gap_s: float
) -> list[Acknowledged]:
    """Appends events one by one, each after a while of random length."""
    acknowledged = []
    for event in make_events(events):
        time.sleep(random.uniform(0, longest_gap_s))  # at any moment of the reader's looks
        place = log.append(topic, key=event.key, value=event.value)
        at_s = time.monotonic()
        value = event.value or b""
        acknowledged.append(Acknowledged(place.partition, place.sequence, at_s, value))
    return acknowledged


def main(url: str, topic: str, events: str, longest_gap_s: str) -> None:
    with Log(url) as log:
        for each in append_now_and_then(log, topic, int(events), float(longest_gap_s)):
            print(each)


if __name__ == "__main__":
    main(*sys.argv[1:])
