"""The chores of a pipe: positions for the input's tools, dead letters, purges, clocks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import StoreUnavailable
from chronoline.core.message import NewMessage
from chronoline.core.topic import Topic, TopicSettings
from chronoline.log import Log
from chronoline.pipe import upkeep as upkeep_module
from chronoline.pipe.claims import source_name
from chronoline.pipe.counters import Counters
from chronoline.pipe.inputs import Input
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.upkeep import PipeUpkeep
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputRecord, Intake, Rejected
from chronoline.stores.members import pipe_group

PATIENCE_S = 60
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Shown(Input):
    """An input that notes what is shown to its tools."""

    def __init__(self) -> None:
        self.positions: dict[int, int] = {}
        self.away = False
        self._changed = threading.Condition()

    def identity(self) -> str:
        return "7"

    def partitions(self) -> list[int]:
        return [0, 1]

    def earliest(self) -> dict[int, int]:
        return {0: 0, 1: 0}

    def latest(self) -> dict[int, int]:
        if self.away:
            raise StoreUnavailable("nobody is there")
        return {0: 10, 1: 10}

    def commit(self, positions: Mapping[int, int]) -> None:
        with self._changed:
            self.positions |= positions
            self._changed.notify_all()

    def wait_for(self, positions: dict[int, int]) -> None:
        with self._changed:
            found = self._changed.wait_for(lambda: self.positions == positions, PATIENCE_S)
        assert found, self.positions

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(upkeep_module, "_EVERY_S", 0.01)


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store("memory:") as store:
        yield store


@pytest.fixture
def topic(store: Store) -> Topic:
    return store.create_topic("p", TopicSettings(dedupe_ms=0), now_ms=now_ms())


@pytest.fixture
def source() -> Shown:
    return Shown()


def settings(folder: Path, **more: Any) -> PipeSettings:
    log = str(folder / "log")
    places = {each: {"topic": each, "log": log} for each in ("input", "output")}
    return PipeSettings.load(None, {}, {"name": "p", **places, **more})


@contextmanager
def kept(
    chosen: PipeSettings, store: Store, topic: Topic, source: Shown, node: str = "a"
) -> Iterator[Counters]:
    counters = Counters()
    counters.source = source_name(chosen, "7")
    with PipeUpkeep(chosen, store, topic, source, counters, node=node):
        yield counters


def take_in(store: Store, topic: Topic, chosen: PipeSettings, node: str, *letters: str) -> None:
    """Moves partition 0 by a record for each letter, and claims both."""
    claims = store.claim_inputs(
        source_name(chosen, "7"), {0: 0, 1: 0}, node, until_ms=now_ms() + HOUR_MS, now_ms=now_ms()
    )
    first = next(claim for claim in claims if claim.partition == 0)
    records = [
        InputRecord(first.position + n, Rejected(NewMessage(id=each, due=now_ms())))
        for n, each in enumerate(letters)
    ]
    upto = first.position + len(records)
    store.take_in(topic.uid, [Intake(first, records, 0, upto)], producer_group="p", now_ms=now_ms())


def test_positions_and_lag_are_published_until_the_end(
    tmp_path: Path, store: Store, topic: Topic, source: Shown
) -> None:
    chosen = settings(tmp_path)
    take_in(store, topic, chosen, "a", "x", "y")
    with kept(chosen, store, topic, source) as counters:
        source.wait_for({0: 2, 1: 0})
        assert counters.lag == 18
        source.away = True
        take_in(store, topic, chosen, "a", "z")
        claims = store.claim_inputs(
            source_name(chosen, "7"),
            {0: 0, 1: 0},
            "a",
            until_ms=now_ms() + HOUR_MS,
            now_ms=now_ms(),
        )
        store.release_claims(claims)
        source.away = False
    assert source.positions == {0: 3, 1: 0}


def test_partitions_of_another_pipe_are_left_alone(
    tmp_path: Path, store: Store, topic: Topic, source: Shown
) -> None:
    chosen = settings(tmp_path)
    take_in(store, topic, chosen, "b", "x")
    with kept(chosen, store, topic, source):
        pass
    assert source.positions == {}


def test_one_of_the_pipes_moves_the_dead_letters(
    tmp_path: Path, store: Store, topic: Topic, source: Shown
) -> None:
    log = str(tmp_path / "log")
    chosen = settings(tmp_path, dead_letters={"topic": "dead", "log": log})
    for node in ("a", "b"):
        store.beat(pipe_group(topic), node, until_ms=now_ms() + HOUR_MS, now_ms=now_ms())
    take_in(store, topic, chosen, "b", "x", "y")
    with Log((tmp_path / "log").as_uri()) as opened:
        opened.create_topic("dead", partitions=1)
        with kept(chosen, store, topic, source, "b") as counters:
            source.wait_for({0: 2, 1: 0})
        assert counters.relayed == 0
        assert len(store.dead_letters(topic.uid, limit=10)) == 2
        with kept(chosen, store, topic, source, "a") as counters:
            assert len(list(opened.read("dead", limit=2))) == 2
        assert counters.relayed == 2
    assert store.dead_letters(topic.uid, limit=10) == []


def test_failed_chore_does_not_stop_the_others(
    tmp_path: Path, store: Store, topic: Topic, source: Shown, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = settings(tmp_path)
    source.away = True
    take_in(store, topic, chosen, "a", "x")
    with kept(chosen, store, topic, source):
        until_s = time.monotonic() + PATIENCE_S
        while not caplog.messages and time.monotonic() < until_s:
            threading.Event().wait(0.01)
        source.away = False
        source.wait_for({0: 1, 1: 0})
    assert caplog.messages[0] == "upkeep of pipe 'p': nobody is there"
