"""A log with simulated time, as two processes see it. A test file takes what it needs: `log = timed.log`."""

from collections.abc import Iterator

import pytest

from chronoline.log import Log
from chronoline.testing import ManualClock

HOLD_MS = 300


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(url: str, clock: ManualClock) -> Iterator[Log]:
    """A log of four partitions with simulated time."""
    with Log(url, clock=clock, hold_ms=HOLD_MS) as log:
        log.create_topic("t", partitions=4)
        yield log


@pytest.fixture
def other(log: Log, url: str, clock: ManualClock) -> Iterator[Log]:
    """Another process, with the same time."""
    with Log(url, clock=clock, hold_ms=HOLD_MS) as other:
        yield other


def fill(log: Log, count: int, partition: int = 0) -> None:
    """Each event in an object of its own."""
    for n in range(count):
        log.append("t", value=b"%d" % n, partition=partition)
