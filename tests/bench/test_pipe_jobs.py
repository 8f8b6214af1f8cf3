"""The Spark jobs that are measured: that they write and count what they should."""

import json
from pathlib import Path

import pytest

from chronoline.bench.pipes import jobs
from chronoline.bench.pipes.child import Child
from chronoline.clock import SystemClock
from chronoline.core.message import NewMessage
from chronoline.stores.opening import open_store
from chronoline.testing.postgres import PostgresServer

DAY_MS = 86_400_000
MINUTE_MS = 60_000


def run(kind: str, folder: Path, **arguments: object) -> dict[str, list[float]]:
    with Child(jobs.__name__, kind, json.dumps(arguments), log_path=folder / "said") as child:
        figures: dict[str, list[float]] = json.loads(child.await_line("{", 100))
    return figures


@pytest.mark.timeout(300)
def test_a_frame_is_written_and_rows_are_copied(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    now_ms = SystemClock().now_ms()
    urls = [postgres_server.create_database(f"jobs_{name}") for name in ("own", "raw")]
    for url in urls:
        with open_store(url) as store:
            store.create_topic("campaign", now_ms=now_ms)
    figures = run(
        "bulk",
        tmp_path,
        store=urls[0],
        topic="campaign",
        raw=urls[1],
        raw_topic="campaign",
        messages=300,
        rounds=1,
    )
    assert {name: len(values) for name, values in figures.items()} == {
        "write": 1,
        "copy_1": 1,
        "copy_2": 1,
    }
    assert all(values[0] > 0 for values in figures.values())
    for url, wanted in zip(urls, (300 + jobs.WARM_UP, 2 * 300), strict=True):
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


@pytest.mark.timeout(300)
def test_both_forecasts_count_the_same(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/forecast.db"
    now_ms = SystemClock().now_ms()
    start_ms = now_ms // MINUTE_MS * MINUTE_MS + DAY_MS
    with open_store(url) as store:
        topic = store.create_topic("coming", now_ms=now_ms)
        messages = [
            NewMessage(id=f"m{number}", due=start_ms + number * 1_000) for number in range(150)
        ]
        assert all(each.done for each in store.create(topic.uid, messages, now_ms=now_ms))
    figures = run(
        "forecast",
        tmp_path,
        store=url,
        topic="coming",
        start_ms=start_ms,
        end_ms=start_ms + 5 * MINUTE_MS,
        rounds=1,
    )
    assert figures["counted"] == figures["grouped"] == [150]
    # The store tells of the minutes without a message, too.
    assert (figures["counted_steps"], figures["grouped_steps"]) == ([5], [3])
    assert figures["counted_ms"][0] > 0
    assert figures["grouped_ms"][0] > 0
