"""The task of a lane: its turn over a piece of the pipe's buckets, until another task relieves it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow.parquet as pq
import pytest
from pyarrow import ipc

from chronoline.core.errors import OutcomeUnknown
from chronoline.core.ids import bucket_of
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.delivery.lane_settings import LaneSettings
from chronoline.log import Log
from chronoline.pipe.lane_tasks import LaneTask, lane_tasks
from chronoline.pipe.lane_work import LaneWork
from chronoline.pipe.places import Place
from chronoline.pipe.receipts import Fired, Receipts
from chronoline.pipe.worker_cache import close_all
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.members import pipe_group
from tests.delivery.inbox import wait_until

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
    """Windows that are short, and quick looks."""
    chosen: dict[str, Any] = {
        "pipe": "p",
        "node": "a",
        "store": f"sqlite:///{folder}/pipe.db",
        "topic_uid": topic.uid,
        "output": Place.of_log("out", (folder / "log").as_uri()),
        "lane": 0,
        "lanes": 2,
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


class Serving:
    """A task in a thread. At the end of the block another task relieves it, unless it has ended."""

    def __init__(self, store: Store, topic: Topic, unit: LaneWork, piece: int = 0) -> None:
        self._store, self._topic, self._unit, self._piece = store, topic, unit, piece
        self._thread = threading.Thread(target=unit.serve, args=(piece, 7))

    @property
    def task(self) -> LaneTask | None:
        name = f"{self._unit.node}/{self._unit.lane}.{self._piece}.7"
        found = (each for each in lane_tasks(self._store, self._topic) if each.name == name)
        return next(found, None)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        task = self.task
        if task is not None:
            rival(self._store, self._topic, piece=self._piece, node=task.node, first=task.first + 1)
        self._thread.join()

    def wait_for_beat(self) -> LaneTask:
        wait_until(lambda: self.task is not None)
        assert self.task is not None
        return self.task

    @property
    def fired(self) -> int:
        return 0 if self.task is None else self.task.counters.fired


def rival(
    store: Store, topic: Topic, *, first: int, until_ms: int | None = None, **more: Any
) -> None:
    """Another task that beats; by default the successor in the other lane."""
    chosen: dict[str, Any] = {
        "node": "a",
        "lane": 1,
        "piece": 0,
        "attempt": 8,
        "window": first,
    } | more
    until_ms = now_ms() + HOUR_MS if until_ms is None else until_ms
    LaneTask(**chosen, first=first, until_ms=until_ms).beat(store, topic, now_ms())


def is_empty(store: Store, topic: Topic) -> bool:
    return store.next_ts(topic.uid, topic.all_buckets) is None


def test_task_fires_what_is_due_and_counts_it(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    put(store, topic, 20, now_ms())
    unit = work(tmp_path, topic)
    unit.warm_up()
    with Serving(store, topic, unit) as serving:
        wait_until(lambda: is_empty(store, topic))
        wait_until(lambda: serving.fired == 20)  # with a beat
    task = serving.task
    assert task is not None
    assert task.ended
    assert task.counters.fired == task.counters.lateness.total == 20
    assert sorted(event.value or b"" for event in log.read("out", follow=False)) == sorted(
        b"%d" % n for n in range(20)
    )


def test_every_fired_message_has_a_receipt_before_it_is_deleted(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    ids = put(store, topic, 20, now_ms())
    folder = tmp_path / "receipts"
    with Serving(store, topic, work(tmp_path, topic, receipts=folder.as_uri())):
        wait_until(lambda: is_empty(store, topic))
        (journal,) = folder.glob(".journal-*")
        with journal.open("rb") as file:  # as a kill now would leave it
            written = [each for batch in ipc.open_stream(file) for each in batch.to_pylist()]
    assert {row["id"] for row in written} == ids
    assert all(row["lateness_ms"] >= 0 and row["node"] == "a" for row in written)


def test_task_fires_although_receipts_cannot_be_written(
    tmp_path: Path, log: Log, store: Store, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    beat(store, topic, "a")
    put(store, topic, 3, now_ms())
    (tmp_path / "file").touch()
    unit = work(tmp_path, topic, receipts=(tmp_path / "file" / "receipts").as_uri())
    with Serving(store, topic, unit):
        wait_until(lambda: is_empty(store, topic))
    assert len(list(log.read("out", follow=False))) == 3
    assert any("receipts are not written yet" in each for each in caplog.messages)
    assert caplog.messages[-1].startswith("receipts of a/0.0.7 are not written yet: ")
    assert "are lost" not in caplog.text
    (tmp_path / "file").unlink()
    store.ask_to_stop(pipe_group(topic), "a")
    unit.serve(0, 8)  # in the same process
    assert pq.read_table(tmp_path / "file" / "receipts").num_rows == 3


def test_receipts_of_a_stopped_task_are_collected_at_once(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    ids = put(store, topic, 3, now_ms())
    folder = tmp_path / "receipts"
    with Serving(store, topic, work(tmp_path, topic, receipts=folder.as_uri())):
        wait_until(lambda: is_empty(store, topic))
        store.ask_to_stop(pipe_group(topic), "a")
    assert set(pq.read_table(folder)["id"].to_pylist()) == ids


def test_receipts_of_earlier_tasks_are_collected_by_a_task_of_a_stopped_pipe(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    folder = tmp_path / "receipts"
    with Receipts(folder.as_uri()) as earlier:
        earlier.write([Fired("a", 1, 0, 0, False)], "a")
    work(tmp_path, topic, receipts=folder.as_uri()).serve(0, 0)
    assert pq.read_table(folder)["id"].to_pylist() == ["a"]


def test_task_goes_on_until_its_successor_beats(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    unit = work(tmp_path, topic)
    with Serving(store, topic, unit) as serving:
        first = serving.wait_for_beat().first
        due_ms = (first + 3) * unit.window_ms
        put(store, topic, 5, due_ms)
        wait_until(lambda: serving.fired == 5)
        task = serving.task
        assert task is not None
        assert task.window >= first + 3
        assert not task.ended
        # Another piece, another node and one that no longer beats relieve nobody.
        rival(store, topic, first=first + 1, piece=1)
        rival(store, topic, first=first + 1, node="b")
        rival(store, topic, first=first + 1, until_ms=now_ms(), attempt=9)
        served = task.window
        wait_until(lambda: (serving.wait_for_beat()).window > served + 1)
    assert serving.wait_for_beat().ended


def test_task_waits_while_its_predecessor_beats(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    put(store, topic, 5, now_ms())
    window_ms = HOUR_MS
    current = now_ms() // window_ms
    unit = work(tmp_path, topic, window_ms=window_ms, lane=(current + 1) % 2)
    before = {"lane": current % 2, "attempt": 6, "window": current}
    rival(store, topic, first=current, **before)
    with Serving(store, topic, unit) as serving:
        beaten_ms = serving.wait_for_beat().until_ms
        wait_until(lambda: serving.wait_for_beat().until_ms > beaten_ms + 100)
        assert list(log.read("out", follow=False)) == []
        # It hangs: its beats are over. The next one does not wait for its window.
        rival(store, topic, first=current, until_ms=now_ms(), **before)
        wait_until(lambda: serving.fired == 5)
        store.ask_to_stop(pipe_group(topic), "a")
    assert serving.wait_for_beat().ended


def test_frozen_piece_is_served_by_the_others(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a", "b")
    ids = put(store, topic, 100, now_ms())
    current = now_ms() // 300
    for node in ("a", "b"):
        rival(store, topic, first=current - 10, node=node, piece=1, attempt=3)
    with Serving(store, topic, work(tmp_path, topic, ranges=2)) as serving:
        wait_until(lambda: 0 < serving.fired < 100)
        wait_until(lambda: not any(each in still_waiting(store, topic) for each in mine(ids)))
        assert serving.fired <= len(mine(ids))
        for node in ("a", "b"):
            rival(
                store, topic, first=current - 10, node=node, piece=1, attempt=3, until_ms=now_ms()
            )
        wait_until(lambda: serving.fired == 100)
    assert is_empty(store, topic)


def mine(ids: set[str]) -> set[str]:
    """The messages of a/0 beside a/1 and b/1: the first third of 8 buckets."""
    return {each for each in ids if bucket_of(each, 8) < 3}


def still_waiting(store: Store, topic: Topic) -> set[str]:
    page = store.select(topic.uid, topic.all_buckets, limit=1_000, max_ts=MAX_TIME_MS)
    return {each.id for each in page.messages}


def test_kept_headers_come_before_all_others(
    tmp_path: Path, log: Log, store: Store, topic: Topic
) -> None:
    beat(store, topic, "a")
    own = (("x", b"1"), ("chronosMessageId", b"another's"), ("x", None))
    due_ms = 1_700_000_000_123
    store.create(
        topic.uid, [NewMessage(id="ä", due=due_ms, body=b"v", headers=own)], now_ms=now_ms()
    )
    unit = work(tmp_path, topic, kept_headers=("chronosMessageId", "chronosDeadline"))
    with Serving(store, topic, unit):
        wait_until(lambda: is_empty(store, topic))
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
    with ExitStack() as exits:
        served = []
        for node in ("a", "b"):
            for piece in (0, 1):
                unit = work(tmp_path, topic, node=node, ranges=2)
                served.append(exits.enter_context(Serving(store, topic, unit, piece)))
        for serving in served:
            serving.wait_for_beat()
        beaten_ms = max(each.wait_for_beat().until_ms for each in served)
        wait_until(lambda: min(each.wait_for_beat().until_ms for each in served) > beaten_ms + 50)
        put(store, topic, 200, now_ms())
        wait_until(lambda: sum(each.fired for each in served) == 200)
        assert all(each.fired for each in served)
    assert len(list(log.read("out", follow=False))) == 200


@pytest.mark.parametrize("told", [True, False])
def test_stopped_pipe_or_non_member_does_nothing(
    tmp_path: Path, log: Log, store: Store, topic: Topic, told: bool
) -> None:
    if told:
        beat(store, topic, "a")
        store.ask_to_stop(pipe_group(topic), "a")
    ids = put(store, topic, 3, now_ms())
    work(tmp_path, topic, window_ms=HOUR_MS).serve(0, 0)
    assert lane_tasks(store, topic) == []
    assert len(store.lookup(topic.uid, list(ids))) == 3
    assert list(log.read("out", follow=False)) == []


def test_a_window_is_skipped_while_the_store_is_away(
    tmp_path: Path, log: Log, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    unit = work(tmp_path, topic, store="postgresql://postgres@127.0.0.1:1/nowhere")
    unit.serve(0, 0)
    assert caplog.messages[-1].startswith("a window is skipped: ")


def test_a_window_is_skipped_after_a_beat_without_an_answer(
    tmp_path: Path,
    store: Store,
    topic: Topic,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    beat(store, topic, "a")

    def unanswered(*_: object) -> None:
        raise OutcomeUnknown

    monkeypatch.setattr(LaneTask, "beat", unanswered)
    work(tmp_path, topic).serve(0, 0)
    assert caplog.messages[-1].startswith("a window is skipped: ")
