"""A start in time misses nothing that was being appended then."""

from datetime import UTC, datetime, timedelta

import pytest

from chronoline.log import Log
from chronoline.testing import ManualClock
from tests.log import timed
from tests.log.internals import objects_of
from tests.log.timed import fill

clock = timed.clock
log = timed.log


def test_start_time_includes_appends_in_progress(
    log: Log, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 1)
    clock.advance(1_000)
    put = objects_of(log).put

    def put_slowly(name: str, data: bytes) -> None:
        put(name, data)
        clock.advance(5_000)

    began = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    monkeypatch.setattr(objects_of(log), "put", put_slowly)
    fill(log, 1)
    for seconds, expected in ((0, [1]), (1, [1]), (5, [1]), (6, [])):
        start = began + timedelta(seconds=seconds)
        found = [event.sequence for event in log.read("t", start=start, follow=False)]
        assert found == expected
