"""The Spark jobs that the bench measures write and count the right messages, here in the shared session."""

from pathlib import Path

import pytest

from chronoline.core.message import NewMessage
from chronoline.runtime.clock import SystemClock
from chronoline.stores.factory import open_store
from chronoline.testing.postgres import PostgresServer
from chronoline_bench.pipe import jobs

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("lent_session")]

DAY_MS = 86_400_000
MINUTE_MS = 60_000


def test_frame_is_written_and_rows_are_copied(postgres_server: PostgresServer) -> None:
    now_ms = SystemClock().now_ms()
    own, raw = (postgres_server.create_database(f"jobs_{name}") for name in ("own", "raw"))
    for url in (own, raw):
        with open_store(url) as store:
            store.create_topic("campaign", now_ms=now_ms)
    bulk = jobs.Bulk(
        store=own, topic="campaign", raw=raw, raw_topic="campaign", messages=300, rounds=1
    )
    figures = bulk.run()
    assert {name: len(values) for name, values in figures.items()} == {
        "cold": 1,
        "write": 1,
        "copy_1": 1,
        "copy_2": 1,
    }
    assert all(values[0] > 0 for values in figures.values())
    for url, wanted in ((own, 2 * 300), (raw, 2 * 300)):
        with open_store(url) as store:
            topic = store.find_topic("campaign")
            assert topic is not None
            counts = store.count(
                topic.uid,
                topic.all_buckets,
                start=now_ms,
                end=now_ms + 3 * DAY_MS,
                now_ms=now_ms,
            )
            assert counts.total == counts.waiting == wanted


def test_both_forecasts_count_the_same(tmp_path: Path) -> None:
    now_ms = SystemClock().now_ms()
    coming = f"sqlite:///{tmp_path}/forecast.db"
    start_ms = now_ms // MINUTE_MS * MINUTE_MS + DAY_MS
    with open_store(coming) as store:
        topic = store.create_topic("coming", now_ms=now_ms)
        messages = [
            NewMessage(id=f"m{number}", due=start_ms + number * 1_000) for number in range(150)
        ]
        assert all(each.done for each in store.create(topic.uid, messages, now_ms=now_ms))
    end_ms = start_ms + 5 * MINUTE_MS
    forecast = jobs.Forecast(
        store=coming, topic="coming", start_ms=start_ms, end_ms=end_ms, rounds=1
    )
    figures = forecast.run()
    assert figures["counted"] == figures["grouped"] == [150]
    # The store also returns the minutes without a message.
    assert (figures["counted_steps"], figures["grouped_steps"]) == ([5], [3])
    assert figures["counted_ms"][0] > 0
    assert figures["grouped_ms"][0] > 0
