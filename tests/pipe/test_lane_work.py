"""One unit of a lane's work: a window over a piece of the pipe's buckets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.lane_settings import LaneSettings
from chronoline.log import Log
from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.places import Place
from chronoline.pipe.worker_cache import close_all
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.members import pipe_group

HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with Log((tmp_path / "log").as_uri()) as log:
        log.create_topic("out", partitions=1)
        yield log


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path}/pipe.db") as store:
        yield store
    close_all()


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("p", TopicSettings(buckets=8, dedupe_ms=0), now_ms=now_ms())


def work(folder: Path, topic: Topic, **more: Any) -> LaneWork:
    """Windows that are short, and only one lane: each begins at once."""
    chosen: dict[str, Any] = {
        "pipe": "p",
        "node": "a",
        "store": f"sqlite:///{folder}/pipe.db",
        "topic_uid": topic.uid,
        "output": Place.of_log("out", (folder / "log").as_uri()),
        "lane": 0,
        "lanes": 1,
        "ranges": 1,
        "window_ms": 300,
        "look_ms": 10,
        "delivery_timeout_ms": 4_000,
        "settings": LaneSettings(),
    }
    return LaneWork(**chosen | more)


def beat(store: Store, topic: Topic, *nodes: str) -> None:
    for node in nodes:
        store.beat(pipe_group(topic), node, until_ms=now_ms() + HOUR_MS, now_ms=now_ms())


def put(store: Store, topic: Topic, count: int, due_ms: int) -> set[str]:
    messages = [NewMessage(id=f"m{n}", due=due_ms, body=b"%d" % n) for n in range(count)]
    store.create(topic.uid, messages, now_ms=now_ms())
    return {each.id for each in messages}


def fired_by(unit: LaneWork, piece: int = 0) -> list[dict[str, Any]]:
    """The receipts of the first window in which something was fired: the one that is now may end soon."""
    while True:
        rows: list[dict[str, Any]] = unit.serve(piece, "7").to_pylist()
        *fired, window = rows
        if fired:
            assert window["outcome"] == "served"
            return fired


def test_a_window_fires_what_is_due_and_answers_receipts(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    ids = put(store, topic, 20, now_ms())
    unit = work(tmp_path, topic)
    unit.warm_up()
    fired = fired_by(unit)
    assert {row["id"] for row in fired} == ids
    assert {(row["outcome"], row["node"]) for row in fired} == {("fired", "a")}
    assert all(row["lateness_ms"] >= 0 for row in fired)
    assert sorted(event.value or b"" for event in log.read("out", follow=False)) == sorted(
        b"%d" % n for n in range(20)
    )
    assert store.next_ts(topic.uid, topic.all_buckets) is None


def test_kept_headers_come_before_all_others(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    own = (("x", b"1"), ("chronosMessageId", b"another's"), ("x", None))
    due_ms = 1_700_000_000_123
    store.create(
        topic.uid, [NewMessage(id="ä", due=due_ms, body=b"v", headers=own)], now_ms=now_ms()
    )
    fired_by(work(tmp_path, topic, kept_headers=("chronosMessageId", "chronosDeadline")))
    (event,) = log.read("out", follow=False)
    assert event.headers == (
        ("chronosMessageId", "ä".encode()),
        ("chronosDeadline", b"2023-11-14T22:13:20.123Z"),
        *own,
    )


def test_pieces_and_pipes_share_the_buckets(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a", "b")
    ids = put(store, topic, 100, now_ms())
    served: list[str] = []
    for node in ("a", "b"):
        for piece in (0, 1):
            fired = fired_by(work(tmp_path, topic, node=node, ranges=2), piece)
            assert len(fired) < 100
            served += [row["id"] for row in fired]
    assert sorted(served) == sorted(ids)


@pytest.mark.parametrize("told", [True, False])
def test_stopped_pipe_or_non_member_does_nothing(
    tmp_path: Path, log: Log, store: Store, topic: Topic, told: bool
) -> None:
    if told:
        beat(store, topic, "a")
        store.ask_to_stop(pipe_group(topic), "a")
    ids = put(store, topic, 3, now_ms())
    (window,) = work(tmp_path, topic, window_ms=HOUR_MS).serve(0, "0").to_pylist()
    assert window["outcome"] == "stopped"
    assert len(store.lookup(topic.uid, list(ids))) == 3
    assert list(log.read("out", follow=False)) == []


def test_a_window_is_skipped_while_the_store_is_away(
    tmp_path: Path, log: Log, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    unit = work(tmp_path, topic, store="postgresql://postgres@127.0.0.1:1/nowhere")
    (window,) = unit.serve(0, "0").to_pylist()
    assert window["outcome"] == "skipped"
    assert caplog.messages[-1].startswith("a window is skipped: ")
