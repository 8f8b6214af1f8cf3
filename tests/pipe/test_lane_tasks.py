"""Tasks of lanes as the store knows them, and the accounts that a pipe makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from chronoline.core.topic import Topic
from chronoline.pipe.counters import Counters
from chronoline.pipe.lane_tasks import LaneTask, TaskAccounts, lane_tasks, node_counters
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.members import lane_group, pipe_group

NOW = 10_000_000
HOUR_MS = 3_600_000


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("p", now_ms=NOW)


def task(fired: int = 0, **more: Any) -> LaneTask:
    chosen: dict[str, Any] = {"node": "a", "lane": 0, "piece": 0, "attempt": 1, "first": 4}
    counters = Counters()
    for _ in range(fired):
        counters.add_fired(1, redelivered=False)
    chosen |= {"window": 4, "until_ms": NOW + 1_000, "counters": counters}
    return LaneTask(**chosen | more)


class Pipe:
    """The steps of a pipe's heartbeat, which may be interrupted after each."""

    def __init__(self, store: Store, topic: Topic) -> None:
        self._store, self._topic = store, topic
        self._accounts = TaskAccounts("a", 1)
        self.counters = Counters()

    def beat(self, *, now_ms: int = NOW, removes: bool = True) -> None:
        removable = self._accounts.take(lane_tasks(self._store, self._topic), now_ms)
        details = self._accounts.show(self.counters)
        group = pipe_group(self._topic)
        self._store.beat(group, "a", until_ms=now_ms + 1_000, details=details, now_ms=now_ms)
        for name in removable if removes else ():
            self._store.leave(lane_group(self._topic), name)

    @property
    def shown(self) -> int:
        """The count that another process reads from the store."""
        (member,) = self._store.members(pipe_group(self._topic))
        return node_counters(member, lane_tasks(self._store, self._topic)).fired


def test_task_round_trip(store: Store, topic: Topic) -> None:
    told = task(3, suspects={"b/0.1.7": 2})
    assert told.beat(store, topic, NOW) == [told]
    assert lane_tasks(store, topic) == [told]
    assert (told.name, told.share, told.turn) == ("a/0.0.1", "a/0", (4, 1))
    assert told.serves(NOW + 999)
    assert not told.serves(NOW + 1_000)


def test_members_of_another_form_are_ignored(store: Store, topic: Topic) -> None:
    for name, details in {"x": "", "a/0.0.1": "{}", "a/0.1": "{}", "a/0.0.2": "[]"}.items():
        store.beat(lane_group(topic), name, until_ms=NOW + 1, details=details, now_ms=NOW)
    assert lane_tasks(store, topic) == []


def test_each_message_counts_once_at_every_step(store: Store, topic: Topic) -> None:
    pipe = Pipe(store, topic)
    task(2).beat(store, topic, NOW)
    pipe.beat()
    assert (pipe.counters.fired, pipe.shown) == (2, 2)
    task(5).beat(store, topic, NOW)
    assert pipe.shown == 5  # the pipe may be dead by now
    task(6, ended=True).beat(store, topic, NOW)
    task(10, attempt=2).beat(store, topic, NOW)
    for _ in range(2):
        pipe.beat(removes=False)
        assert (pipe.counters.fired, pipe.shown) == (16, 16)
    pipe.beat()
    assert (pipe.counters.fired, pipe.shown) == (16, 16)
    assert [each.attempt for each in lane_tasks(store, topic)] == [2]
    pipe.beat()
    assert (pipe.counters.fired, pipe.shown) == (16, 16)


def test_killed_task_counts_after_the_store_forgot_it(store: Store, topic: Topic) -> None:
    pipe = Pipe(store, topic)
    task(7).beat(store, topic, NOW)
    for now_ms in range(NOW, NOW + 2 * HOUR_MS, HOUR_MS // 8):
        pipe.beat(now_ms=now_ms)
        assert (pipe.counters.fired, pipe.shown) == (7, 7)
    assert lane_tasks(store, topic) == []


def test_counts_never_drop_and_those_of_other_threads_are_left() -> None:
    written: list[tuple[Counters, str, Any]] = []

    class Watched(Counters):
        def __setattr__(self, name: str, value: Any) -> None:
            written.append((self, name, value))
            super().__setattr__(name, value)

    counters, accounts = Watched(relayed=3, restarts=2, lag=9), TaskAccounts("a", 1)
    accounts.take([task(6, ended=True), task(10, attempt=2)], NOW)
    written.clear()
    accounts.show(counters)
    mine = [(name, value) for owner, name, value in written if owner is counters]
    assert [value for name, value in mine if name == "fired"] == [16]
    assert {name for name, _ in mine} == {"fired", "redelivered", "served", "skipped", "lateness"}
    assert (counters.relayed, counters.restarts, counters.lag) == (3, 2, 9)


def test_tasks_of_other_pipes_are_theirs(store: Store, topic: Topic) -> None:
    pipe = Pipe(store, topic)
    task(7, node="b", ended=True).beat(store, topic, NOW)
    pipe.beat()
    pipe.beat()
    assert (pipe.counters.fired, pipe.shown) == (0, 0)
    assert len(lane_tasks(store, topic)) == 1


def test_suspicion_is_logged_by_the_pipe(caplog: pytest.LogCaptureFixture) -> None:
    accounts = TaskAccounts("a", 1)
    for count in (2, 2, 5):
        accounts.take([task(suspects={"b/0.1.7": count})], NOW)
    assert caplog.messages == [
        "suspected failure of b/0.1.7: 2 of its messages were taken over by a/0.0.1",
        "suspected failure of b/0.1.7: 3 of its messages were taken over by a/0.0.1",
    ]


def test_windows_of_running_ended_and_killed_tasks() -> None:
    counters, accounts = Counters(), TaskAccounts("a", 1)
    accounts.take([task(first=4, window=6, ended=True)], NOW)  # it went on for two windows
    accounts.take([task(first=7, window=8, attempt=2)], NOW)  # it was killed in window 8
    accounts.take([task(first=9, window=11, attempt=3)], NOW)  # it is in window 11
    accounts.count_windows(11)
    accounts.show(counters)
    assert (counters.served, counters.skipped) == (6, 1)
