"""Crashes: an answered change survives the death of a writer or of the server.

Writers are killed twenty times on each durable engine, and PostgreSQL's server several times under a
client that goes on by itself.
"""

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.topic import TopicSettings
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.timeline import Timeline
from chronoline.testing.postgres import PostgresServer
from tests.stores.conftest import Engine
from tests.stores.line import NOW, OWNERS, Line, new

ROOT = Path(__file__).parents[2]
KILLS = 10
SERVER_KILLS = 3
PATIENCE_S = 60
FOREVER = TopicSettings(dedupe_ms=MAX_TIME_MS // 2)


@dataclass
class Diary:
    """The changes that writers announced, and the answers of the store."""

    created: set[str] = field(default_factory=set)
    """Their creation was answered."""
    deleted: set[str] = field(default_factory=set)
    """Their ack or cancel was answered."""
    doubtful: set[str] = field(default_factory=set)
    """An ack or cancel was on its way."""

    def note(self, step: str, did: str, ids: Iterable[str]) -> None:
        if did == "create":
            self.created |= set(ids) if step == "done" else set()
        elif step == "done":
            self.deleted |= set(ids)
        else:
            self.doubtful |= set(ids)

    def check(self, store: Store, uid: int) -> None:
        """Every answered create is there, and no answered deletion has come back."""
        there = set(in_batches(store, uid, self.created | self.deleted))
        assert self.created - self.doubtful - there == set()
        assert self.deleted & there == set()


def in_batches(store: Store, uid: int, ids: Iterable[str]) -> Iterator[str]:
    wanted = sorted(ids)
    for place in range(0, len(wanted), 5_000):
        yield from store.lookup(uid, wanted[place : place + 5_000])


# Writers


def write_and_be_killed(url: str, uid: int, run: str, diary: Diary, chance: random.Random) -> None:
    """Starts a writer, and kills it at a random moment."""
    command = [sys.executable, "-m", "tests.stores.writer", url, str(uid), run]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        for _ in range(chance.randrange(2, 60)):
            diary.note(*json.loads(writer.stdout.readline()))
        time.sleep(chance.uniform(0, 0.003))  # in the middle of the next change
        writer.kill()
        # Complete lines count; a line that the writer could not finish does not.
        for line in writer.stdout:
            if line.endswith(b"\n"):
                diary.note(*json.loads(line))


@pytest.mark.parametrize("engine", ["sqlite", "postgres"], indirect=True)
def test_answered_change_survives_the_death_of_the_writer(engine: Engine) -> None:
    chance, diary = random.Random(20), Diary()
    with engine.open() as store:
        uid = store.create_topic(f"crashes of {engine.name}", FOREVER, now_ms=NOW).uid
    for number in range(KILLS):
        write_and_be_killed(engine.url, uid, f"run{number}", diary, chance)
        with engine.open() as store:
            diary.check(store, uid)
    assert len(diary.created) > KILLS
    assert diary.deleted
    with engine.open() as store:
        drained = drain(store, uid)
        assert drained & diary.deleted == set()
        assert diary.created - diary.doubtful - drained == set()


def drain(store: Store, uid: int) -> set[str]:
    """Leases everything that is left, long after all leases have ended."""
    found: set[str] = set()
    topic = store.get_topic(uid)
    while True:
        grant = store.reserve(
            uid,
            topic.all_buckets,
            consumer="drain",
            limit=5_000,
            lease_ms=60_000,
            now_ms=SystemClock().now_ms() + 3_600_000,
        )
        if not grant.leased:
            return found
        assert {each.body for each in grant.leased} == {bytes(4_000)}
        found |= {each.lease.id for each in grant.leased}


# The server


class Client:
    """Creates, acks and cancels on one store while the server is killed."""

    def __init__(self, store: Store, uid: int) -> None:
        self.diary = Diary()
        self.answers = 0
        self.errors: list[Exception] = []
        self.broken: Exception | None = None
        """An unexpected error."""
        self.changed = threading.Condition()
        self._store, self._uid = store, uid
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Client":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def wait_for_answers(self, more: int) -> None:
        wanted = self.answers + more
        self._wait_for(lambda: self.answers >= wanted)

    def wait_for_error(self, count: int) -> None:
        self._wait_for(lambda: len(self.errors) >= count)

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: condition() or self.broken, PATIENCE_S)
        assert self.broken is None

    def _run(self) -> None:
        number = 0
        while not self._stopped.is_set():
            number += 1
            try:
                self._write(number)
            except (OutcomeUnknown, StoreUnavailable) as error:
                with self.changed:
                    self.errors.append(error)
                    self.changed.notify_all()
            except Exception as error:
                with self.changed:
                    self.broken = error
                    self.changed.notify_all()
                return

    def _write(self, number: int) -> None:
        ids = [f"{number}-{place}" for place in range(10)]
        outcomes = self._store.create(self._uid, [new(each) for each in ids], now_ms=NOW)
        self._answered("create", [each.id for each in outcomes if each.done])
        self.diary.note("try", "cancel", ids[:5])
        gone = self._store.cancel(self._uid, ids[:5], producer_group=OWNERS, now_ms=NOW)
        self._answered("cancel", [each.id for each in gone if each.done])
        wanted = [(each, NOW) for each in ids[5:8]]
        leased = self._store.lease(
            self._uid, wanted, consumer="c", lease_ms=1_000, now_ms=NOW
        ).leased
        self.diary.note("try", "ack", ids[5:8])
        acked = self._store.ack(self._uid, [each.lease for each in leased], now_ms=NOW)
        self._answered("ack", [each.id for each in acked if each.done])

    def _answered(self, did: str, ids: list[str]) -> None:
        with self.changed:
            self.diary.note("done", did, ids)
            self.answers += 1
            self.changed.notify_all()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[PostgresServer]:
    """A server of its own, which the test may kill."""
    with PostgresServer(tmp_path / "data") as server:
        yield server


def test_answered_change_survives_the_death_of_the_server(own_server: PostgresServer) -> None:
    with open_store(own_server.create_database("crashes")) as store:
        uid = store.create_topic("t", FOREVER, now_ms=NOW).uid
        with Client(store, uid) as client:
            for number in range(SERVER_KILLS):
                client.wait_for_answers(20)
                own_server.kill()
                client.wait_for_error(number + 1)
                own_server.start()
            client.wait_for_answers(20)  # on the same store, by itself
        client.diary.check(store, uid)
        assert len(client.diary.deleted) > SERVER_KILLS


# A store that fails between a change and the read that names its refusals


def fail(*_: object, **__: object) -> dict[str, int]:
    raise StoreUnavailable("the store is gone")


def engine_of(line: Line) -> Any:
    assert isinstance(line.store, Timeline)
    return line.store.engine


def test_partly_done_create_has_an_unknown_outcome(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.put("taken")
    monkeypatch.setattr(engine_of(line), "rows", fail)
    with pytest.raises(OutcomeUnknown):
        line.create(new("a"), new("taken"))
    assert "a" in line


def test_partly_done_change_has_an_unknown_outcome(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.put("a")
    monkeypatch.setattr(engine_of(line), "rows", fail)
    with pytest.raises(OutcomeUnknown):
        line.cancel("a", "no such message")
    assert "a" not in line


def test_partly_granted_lease_has_an_unknown_outcome(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.put("a")
    monkeypatch.setattr(engine_of(line), "rows", fail)
    with pytest.raises(OutcomeUnknown):
        line.lease(("a", NOW), ("no such message", 1))
    assert line["a"].lock_consumer == "c"


def test_failed_second_round_has_an_unknown_outcome(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = iter([engine_of(line).create, fail])

    def create_once(*arguments: Any) -> Any:
        return next(rounds)(*arguments)

    monkeypatch.setattr(engine_of(line), "create", create_once)
    with pytest.raises(OutcomeUnknown):
        line.create(new("a"), new("a"), if_exists="replace")
    assert "a" in line


def test_batch_without_any_change_is_unavailable(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.put("taken")
    monkeypatch.setattr(engine_of(line), "rows", fail)
    with pytest.raises(StoreUnavailable):
        line.create(new("taken"))
