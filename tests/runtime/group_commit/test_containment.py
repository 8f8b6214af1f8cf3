"""Unexpected failures in a committer: the calls get an error, and the committer continues."""

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from chronoline.core.errors import OutcomeUnknown, StoreBusy
from chronoline.runtime.group_commit import Committer, Pace
from chronoline.testing import ManualClock

PATIENCE_S = 60
MOST_ITEMS = 10


class Counter:
    """Committers whose commits wait at a gate, and answer what they were given."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self._committers: list[Committer] = []

    def open_committer(self, *, joint: bool = False) -> Committer:
        committer = Committer(
            "test",
            ManualClock(),
            commit_ms=60_000,  # waits at the gate do not count as slow work
            most_items=MOST_ITEMS,
            most_places=None if joint else 3,
            together=_one_by_one if joint else None,
        )
        self._committers.append(committer)
        return committer

    def write(self, items: Sequence[Any], now_ms: int) -> list[Any]:
        self.entered.release()
        assert self.gate.wait(PATIENCE_S)
        return list(items)

    def occupy(self, submit: Callable[[Any], Future[Any]]) -> Future[Any]:
        """Starts a commit that waits at the gate, so that later calls gather."""
        first = submit(0)
        assert self.entered.acquire(timeout=PATIENCE_S)
        return first

    def close(self) -> None:
        self.gate.set()
        for committer in self._committers:
            committer.close()


def _one_by_one(works: Sequence[Callable[[], Any]]) -> list[Any]:
    return [work() for work in works]


def _fails(*_: object) -> None:
    raise ArithmeticError("nobody foresaw this")


@pytest.fixture
def counter() -> Iterator[Counter]:
    opened = Counter()
    yield opened
    opened.close()


@pytest.mark.parametrize("joint", [False, True], ids=["one kind", "several kinds"])
def test_failure_after_a_commit_leaves_its_calls_unknown(
    counter: Counter,
    joint: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    committer = counter.open_committer(joint=joint)
    queue = committer.open_queue()

    def submit(item: int) -> Future[list[int]]:
        return committer.submit(queue, item % 2, counter.write, [item])

    first = counter.occupy(submit)
    waiting = [submit(item) for item in (1, 2, 3)]
    with monkeypatch.context() as patched, caplog.at_level(logging.ERROR):
        patched.setattr(Pace, "learn", _fails)
        counter.gate.set()
        for call in (first, *waiting):
            with pytest.raises(OutcomeUnknown, match="may have happened or not") as unknown:
                call.result(PATIENCE_S)
            assert isinstance(unknown.value.__cause__, ArithmeticError)
    assert {each.__dict__["action"] for each in caplog.records} == {"committer_failed"}
    assert submit(4).result(PATIENCE_S) == [4]


def test_unanswered_calls_are_unknown_and_not_repeated(
    counter: Counter,
) -> None:
    committer = counter.open_committer(joint=True)
    queue = committer.open_queue()
    written: list[Any] = []

    def write(items: Sequence[Any], now_ms: int) -> list[Any]:
        written.extend(items)
        return []  # which no store does

    calls = [committer.submit(queue, "write", write, [each, each]) for each in ("a", "b")]
    for call in calls:
        with pytest.raises(OutcomeUnknown):
            call.result(PATIENCE_S)
    assert written == ["a", "a", "b", "b"]


def test_broken_queue_fails_all_waiting_calls(counter: Counter) -> None:
    committer = counter.open_committer()
    queue = committer.open_queue()

    def submit(item: Any) -> Future[list[Any]]:
        return committer.submit(queue, "write", counter.write, [item], item_place=lambda each: each)

    first = counter.occupy(submit)
    unhashable: list[int] = []
    waiting = [submit(each) for each in (1, 2, unhashable, 3)]
    counter.gate.set()
    assert first.result(PATIENCE_S) == [0]
    for call in waiting:
        with pytest.raises(OutcomeUnknown):
            call.result(PATIENCE_S)

    counter.gate.clear()
    while counter.entered.acquire(blocking=False):
        pass
    counter.occupy(submit)  # and they take no room
    full = [submit(1) for _ in range(MOST_ITEMS)]
    with pytest.raises(StoreBusy, match=f"{MOST_ITEMS} items"):
        submit(1)
    counter.gate.set()
    assert [call.result(PATIENCE_S) for call in full] == [[1]] * MOST_ITEMS
