"""A unit of the intake: it follows the claims in the store, and goes on after every error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, OutcomeUnknown, StoreUnavailable
from chronoline.core.topic import Topic, TopicSettings
from chronoline.log import Log, NewEvent
from chronoline.pipe import intake_work
from chronoline.pipe.contract import Contract, SourceRecord
from chronoline.pipe.intake_work import IntakeUnit, IntakeWork
from chronoline.pipe.places import Place
from chronoline.pipe.readers import InputReader, OutOfRange, ReadRange
from chronoline.runtime.clock import SystemClock
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputClaim
from chronoline.stores.members import pipe_group

NODE, SOURCE = "node", "pipe/in"
HOUR_MS = 3_600_000
now_ms = SystemClock().now_ms


class Scene:
    """A store, a topic of a log as input, and a pipe that is a member."""

    def __init__(self, folder: Path, partitions: int = 3) -> None:
        self.url = f"sqlite:///{folder}/pipe.db"
        self.place = Place.of_log("in", (folder / "log").as_uri())
        self.store: Store = open_store(self.url)
        self.log = Log(self.place.log)
        self.log.create_topic("in", partitions=partitions)
        self.topic: Topic = self.store.create_topic(
            "pipe", TopicSettings(dedupe_ms=0), now_ms=now_ms()
        )
        until_ms = now_ms() + HOUR_MS
        self.store.beat(pipe_group(self.topic), NODE, until_ms=until_ms, now_ms=now_ms())

    def close(self) -> None:
        self.log.close()
        self.store.close()

    def claim(self, *partitions: int, holder: str = NODE) -> dict[int, InputClaim]:
        until_ms = now_ms() + HOUR_MS
        starts = dict.fromkeys(partitions, 0)
        found = self.store.claim_inputs(SOURCE, starts, holder, until_ms=until_ms, now_ms=now_ms())
        return {claim.partition: claim for claim in found}

    def publish(self, partition: int, *ids: str) -> None:
        self.log.append_many(
            "in",
            [
                NewEvent(
                    value=b"v",
                    headers=(
                        ("chronosMessageId", each.encode()),
                        ("chronosDeadline", b"2999-01-01T00:00:00Z"),
                    ),
                    partition=partition,
                )
                for each in ids
            ],
        )

    def ids(self) -> set[str]:
        page = self.store.scan(self.topic.uid, self.topic.all_buckets, limit=100)
        return {each.id for each in page.messages}

    def positions(self) -> dict[int, int]:
        return {each.partition: each.position for each in self.store.input_accounts(SOURCE)}

    def work(self, **more: Any) -> IntakeWork:
        given: dict[str, Any] = {
            "pipe": "pipe",
            "node": NODE,
            "store": self.url,
            "topic_uid": self.topic.uid,
            "input": self.place,
            "source": SOURCE,
            "contract": Contract(topic="in", producer_group="pipe"),
            "intakes": 1,
            "window_ms": HOUR_MS,
            "look_ms": 10,
            "linger_ms": 1,
            "batch_records": 100,
        }
        return IntakeWork(**given | more)

    def stop(self) -> None:
        self.store.ask_to_stop(pipe_group(self.topic), NODE)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


class Script(InputReader):
    """A reader that does one thing after the other, and then asks the pipe to stop."""

    def __init__(self, scene: Scene, *steps: Callable[[], list[ReadRange]]) -> None:
        self._scene = scene
        self._steps = list(steps)
        self.assigned: list[dict[int, int]] = []

    def assign(self, positions: Mapping[int, int]) -> None:
        self.assigned.append(dict(positions))

    def poll(self, *, wait_s: float, limit: int) -> list[ReadRange]:
        if self._steps:
            return self._steps.pop(0)()
        self._scene.stop()
        return []

    def close(self) -> None: ...


def read_range(partition: int, first: int, *ids: str) -> ReadRange:
    headers = (("chronosDeadline", b"2999-01-01T00:00:00Z"),)
    records = [
        SourceRecord(
            partition,
            first + place,
            None,
            b"v",
            (*headers, ("chronosMessageId", each.encode())),
            0,
        )
        for place, each in enumerate(ids)
    ]
    return ReadRange(partition, first, first + len(ids), records)


def fail(error: Exception) -> Callable[[], list[ReadRange]]:
    def step() -> list[ReadRange]:
        raise error

    return step


def run(scene: Scene, reader: Script, **more: Any) -> int:
    return IntakeUnit(scene.work(**more), 0, scene.store, scene.topic, reader).run()


def test_records_are_taken_in_as_they_come(scene: Scene) -> None:
    scene.claim(0, 1)
    scene.publish(0, "a", "b")
    scene.publish(2, "nobody's")
    taken: list[int] = []
    thread = threading.Thread(target=lambda: taken.append(scene.work().serve(0)))
    thread.start()
    _until(lambda: scene.positions() == {0: 2, 1: 0})
    scene.publish(1, "c")
    _until(lambda: scene.positions() == {0: 2, 1: 1})
    scene.claim(2)  # a partition more, without a new task
    _until(lambda: scene.positions() == {0: 2, 1: 1, 2: 1})
    scene.stop()
    thread.join(60)
    assert taken == [4]
    assert scene.ids() == {"a", "b", "c", "nobody's"}


def test_partitions_are_dealt_over_the_units(scene: Scene) -> None:
    scene.claim(0, 1, 2)
    readers = [Script(scene), Script(scene)]
    for piece, reader in enumerate(readers):
        work = scene.work(intakes=2, window_ms=50)
        IntakeUnit(work, piece, scene.store, scene.topic, reader).run()
    # The second unit was asked to stop before it looked.
    assert readers[0].assigned == [{0: 0, 2: 0}, {}]
    assert readers[1].assigned == [{}]


def test_a_window_ends(scene: Scene) -> None:
    scene.claim(0)
    reader = Script(scene, *[lambda: []] * 10_000)
    assert run(scene, reader, window_ms=20) == 0
    assert reader.assigned == [{0: 0}, {}]


@pytest.mark.parametrize("error", [StoreUnavailable("away"), None])
def test_after_an_error_it_reads_from_the_positions_again(
    scene: Scene, error: Exception | None
) -> None:
    """The records that were read before the error are read again; so are those after a gap."""
    scene.claim(0)
    broken = fail(error) if error else lambda: [read_range(0, 5, "too far")]
    reader = Script(scene, lambda: [read_range(0, 0, "a")], broken, lambda: [read_range(0, 1, "b")])
    assert run(scene, reader) == 2
    assert reader.assigned == [{0: 0}, {0: 1}, {}]
    assert scene.ids() == {"a", "b"}


@pytest.mark.parametrize("error", [StoreUnavailable, OutcomeUnknown])
def test_a_unit_without_its_store_ends_in_peace(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def away(url: str) -> Store:
        raise error

    monkeypatch.setattr(intake_work, "warm_store", away)
    # No setting: the test does not wait.
    monkeypatch.setattr(intake_work, "_REST_S", 0.0)
    assert scene.work().serve(0) == 0


def test_a_lost_claim_is_dropped(scene: Scene) -> None:
    stale = scene.claim(0, 1)

    def lose() -> list[ReadRange]:
        scene.store.release_claims([stale[0]])
        scene.claim(0, holder="other")
        return [read_range(0, 0, "a"), read_range(1, 0, "b")]

    reader = Script(scene, lose, lambda: [read_range(1, 0, "b")])
    assert run(scene, reader) == 1
    assert reader.assigned == [{0: 0, 1: 0}, {1: 0}, {}]
    assert scene.ids() == {"b"}


def test_deleted_records_are_skipped(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.claim(0)
    scene.publish(0, "lost", "lost too")
    while scene.log.heads("in")[0].first_sequence < 2:  # they must be a millisecond old
        scene.log.retain("in", max_age_ms=0)
    reader = Script(scene, fail(OutOfRange("deleted")), lambda: [read_range(0, 2, "a")])
    assert run(scene, reader) == 1
    assert reader.assigned == [{0: 0}, {0: 2}, {}]
    assert any("2 records of partition 0" in each for each in caplog.messages)


def test_a_lost_end_ends_the_unit(scene: Scene) -> None:
    scene.store.claim_inputs(SOURCE, {0: 9}, NODE, until_ms=now_ms() + HOUR_MS, now_ms=now_ms())
    reader = Script(scene, fail(OutOfRange("beyond")))
    with pytest.raises(InvalidInput, match="its end was lost"):
        run(scene, reader)
    assert reader.assigned[-1] == {}


def test_a_pipe_that_left_takes_nothing_in(scene: Scene) -> None:
    scene.claim(0)
    scene.store.leave(pipe_group(scene.topic), NODE)
    reader = Script(scene, lambda: [read_range(0, 0, "a")])
    assert run(scene, reader) == 0
    assert scene.ids() == set()


def _until(condition: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(6_000):
        if condition():
            return
        waiting.wait(0.01)
    raise AssertionError("it did not come to that")
