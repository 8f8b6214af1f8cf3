"""Failed events are retried, become dead letters, and are not waited for when they are gone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, StoreUnavailable
from chronoline.core.limits import MAX_HEADERS
from chronoline.log import Again, Event, Log, NewEvent
from chronoline.log.contract import Hold
from chronoline.log.group_reader import GroupReader
from chronoline.log.processor import Processor
from chronoline.testing import ManualClock
from tests.log.internals import arrivals_of, index_of, objects_of, readers_of

HOLD_MS = 60_000
AT_ONCE = Again(retry_ms=0, longest_retry_ms=0, max_attempts=1)


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    with Log(url, hold_ms=HOLD_MS) as log:
        log.create_topic("t", partitions=1)
        log.create_topic("dead", partitions=1)
        yield log


def fill(log: Log, count: int) -> None:
    log.append_many("t", [NewEvent(value=b"%d" % n) for n in range(count)])


def letters(log: Log) -> list[Event]:
    return list(log.read("dead", follow=False))


# Dead letters


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        ((), 0),
        ((("a", b"1"),), 1),
        ((("a", b"1"),) * (MAX_HEADERS - 4), MAX_HEADERS - 4),
        ((("a", b"1"),) * (MAX_HEADERS - 3), 0),  # no room for the four that say why
        ((("a", b"1"),) * MAX_HEADERS, 0),
        ((("a", bytes(65_000)),), 0),
    ],
)
def test_dead_letter_keeps_the_headers_that_fit(
    log: Log, headers: tuple[tuple[str, bytes | None], ...], kept: int
) -> None:
    log.append("t", value=b"bad", key=b"k", headers=headers, ts=7)
    fill(log, 1)
    seen: list[int] = []

    def handle(event: Event) -> None:
        seen.append(event.sequence)
        if event.sequence == 0:
            raise ValueError("x" * 5_000)

    process = log.process("t", "g", handle, follow=False, again=AT_ONCE, dead_letter_topic="dead")
    assert (process, seen) == (1, [0, 1])
    (letter,) = letters(log)
    assert (letter.value, letter.key, letter.ts) == (b"bad", b"k", 7)
    assert letter.headers[:kept] == headers[:kept]
    assert dict(letter.headers[kept:]) == {
        "chronolineTopic": b"t",
        "chronolinePartition": b"0",
        "chronolineSequence": b"0",
        "chronolineError": (b"ValueError: " + b"x" * 5_000)[:1_000],
    }


def test_error_with_invalid_text_makes_a_dead_letter(log: Log) -> None:
    fill(log, 1)

    def handle(event: Event) -> None:
        raise ValueError("half of \ud800")

    log.process("t", "g", handle, follow=False, again=AT_ONCE, dead_letter_topic="dead")
    (letter,) = letters(log)
    assert dict(letter.headers)["chronolineError"] == b"ValueError: half of ?"
    assert [each.lag for each in log.groups("t")] == [0]


def test_dead_letter_waits_for_a_failing_store(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 3)
    put = objects_of(log).put
    failures = iter([StoreUnavailable("full"), StoreUnavailable("still full")])

    def put_or_fail(name: str, data: bytes) -> None:
        for failure in failures:
            raise failure
        put(name, data)

    monkeypatch.setattr(objects_of(log), "put", put_or_fail)
    seen: list[int] = []

    def handle(event: Event) -> None:
        seen.append(event.sequence)
        if event.sequence == 1:
            raise ValueError("never")

    handled = log.process("t", "g", handle, follow=False, again=AT_ONCE, dead_letter_topic="dead")
    assert (handled, seen) == (2, [0, 1, 1, 1, 2])
    assert [letter.value for letter in letters(log)] == [b"1"]
    assert [each.sequence for each in log.groups("t")] == [3]


def test_dead_letter_counts_toward_the_limit(log: Log) -> None:
    fill(log, 3)

    def handle(event: Event) -> None:
        raise ValueError("never")

    assert log.process("t", "g", handle, limit=2, again=AT_ONCE, dead_letter_topic="dead") == 0
    assert [letter.value for letter in letters(log)] == [b"0", b"1"]


# Retries of a failed event


def test_retry_delay_grows_with_each_failure(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with Log(url, clock=clock, hold_ms=HOLD_MS, max_latency_ms=100) as log:
        log.create_topic("t", partitions=1)
        fill(log, 1)
        began_ms = clock.now_ms()
        attempts_ms: list[int] = []

        def advance(topic_uid: int, seen: int, timeout_s: float) -> bool:
            clock.advance(seconds=timeout_s)
            return False

        monkeypatch.setattr(arrivals_of(log), "wait", advance)

        def handle(event: Event) -> None:
            attempts_ms.append(clock.now_ms() - began_ms)
            if len(attempts_ms) < 5:
                raise ValueError("not yet")

        again = Again(retry_ms=1_000, longest_retry_ms=3_000)
        assert log.process("t", "g", handle, follow=False, again=again) == 1
    assert attempts_ms == [0, 1_000, 3_000, 6_000, 9_000]


Elsewhere = Callable[[Log], object]
ELSEWHERE: dict[str, Elsewhere] = {
    "a seek": lambda other: other.skip_to_end("t", "g"),
    "retention": lambda other: other.retain("t", max_age_ms=0),
}


@dataclass
class Scene:
    """A log of one event, with time that passes while its reader waits, and another process."""

    log: Log
    other: Log
    clock: ManualClock
    readers: list[GroupReader] = field(default_factory=list)
    waits: int = 0
    first_wait: Callable[[], object] = lambda: None

    def open_reader(self, make: Callable[..., GroupReader], *arguments: Any) -> GroupReader:
        self.readers.append(make(*arguments))
        return self.readers[-1]

    def wait(self, topic_uid: int, seen: int, timeout_s: float) -> bool:
        self.waits += 1
        assert self.waits < 100, "it waits in vain"
        if self.waits == 1:
            self.first_wait()
        self.clock.advance(seconds=timeout_s)
        return False

    def take_away(self, elsewhere: Elsewhere) -> None:
        self.clock.advance(1)
        elsewhere(self.other)


@pytest.fixture
def scene(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    clock = ManualClock()
    # The test beats by itself: each step is the test's.
    monkeypatch.setattr(GroupReader, "_keep_alive", lambda self: None)
    with Log(url, clock=clock, hold_ms=HOLD_MS) as log, Log(url, clock=clock) as other:
        scene = Scene(log, other, clock)
        open_reader = partial(scene.open_reader, readers_of(log).group_reader)
        monkeypatch.setattr(readers_of(log), "group_reader", open_reader)
        monkeypatch.setattr(arrivals_of(log), "wait", scene.wait)
        log.create_topic("t", partitions=1)
        fill(log, 1)
        yield scene


@pytest.mark.parametrize("elsewhere", ELSEWHERE.values(), ids=ELSEWHERE)
def test_failed_event_that_is_gone_is_not_retried(scene: Scene, elsewhere: Elsewhere) -> None:
    def handle(event: Event) -> None:
        scene.take_away(elsewhere)
        raise ValueError("never")

    assert scene.log.process("t", "g", handle, follow=False) == 0
    assert [each.lag for each in scene.log.groups("t")] == [0]


@pytest.mark.parametrize("elsewhere", ELSEWHERE.values(), ids=ELSEWHERE)
def test_retry_ends_when_its_event_is_gone(scene: Scene, elsewhere: Elsewhere) -> None:
    def take_away() -> None:
        scene.take_away(elsewhere)
        scene.readers[0].beat()  # it learns that the hold is lost

    scene.first_wait = take_away
    assert scene.log.process("t", "g", _fail, follow=False) == 0
    assert scene.waits >= 1
    assert [each.lag for each in scene.log.groups("t")] == [0]


def _fail(event: Event) -> None:
    raise ValueError("never")


def test_partition_lost_during_processing_stays_lost(
    scene: Scene,
) -> None:
    holds: list[Hold] = []

    def lose_and_fail(event: Event) -> None:
        scene.other.seek("t", "g", "earliest")
        uid, now_ms = scene.other.topic("t").uid, scene.clock.now_ms()
        holds.extend(
            index_of(scene.other).hold(
                "g", uid, [0], "another", until_ms=now_ms + HOLD_MS, now_ms=now_ms
            )
        )
        raise ValueError("never")

    assert scene.log.process("t", "g", lose_and_fail, follow=False) == 0
    assert [each.holder for each in scene.log.groups("t")] == ["another"]
    assert len(holds) == 1


def test_attempts_are_forgotten_with_the_partition(scene: Scene) -> None:
    """A reader that follows for years must not remember every failed event."""
    reader = readers_of(scene.log).group_reader(scene.log.topic("t"), "g")
    processor = Processor(reader, _fail, Again(), None, lambda: False)
    for number in range(5):
        batch = reader.next_batch(1)
        assert batch is not None
        processor.work(*batch)
        fill(scene.log, 1)
        scene.other.seek("t", "g", number + 1)  # past what failed
        reader.beat()
        scene.clock.advance(1_000)
    # That it does not grow is the rule.
    assert len(processor._attempts) == 1
    reader.close()


@pytest.mark.parametrize(
    "wrong",
    [{"retry_ms": -1}, {"retry_ms": 2, "longest_retry_ms": 1}, {"max_attempts": 0}],
)
def test_invalid_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidInput, match="retry_ms must be"):
        Again(**wrong)
