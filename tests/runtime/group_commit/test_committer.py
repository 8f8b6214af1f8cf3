"""Group commit of several kinds: one commit, with its own answers for each kind."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from chronoline.core.errors import InvalidInput, StoreUnavailable
from chronoline.runtime.group_commit import Committer
from chronoline.runtime.group_commit import queue as queue_module
from chronoline.testing import ManualClock

PATIENCE_S = 60


class Joint:
    """A committer that commits everything together; each kind writes under its name."""

    def __init__(self) -> None:
        self.commits: list[list[str]] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.error: Exception | None = None
        self._names: list[str] = []
        self.committer = Committer(
            "test",
            ManualClock(),
            commit_ms=60_000,
            most_items=100_000,
            together=self._together,
        )
        self.queues = [self.committer.open_queue(), self.committer.open_queue()]

    def _together(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        self._names = []
        answers: list[Any] = []
        for work in works:
            try:
                answers.append(work())
            except InvalidInput as error:
                answers.append(error)
        self.commits.append(self._names)
        if self.error is not None:
            raise self.error
        return answers

    def submit(self, queue: int, kind: str, *items: int) -> Future[list[int]]:
        def write(written: Sequence[int], now_ms: int) -> list[int]:
            self._names.append(kind)
            self.entered.release()
            assert self.gate.wait(PATIENCE_S)
            if 13 in written:
                raise InvalidInput("thirteen")
            return list(written)

        return self.committer.submit(self.queues[queue], kind, write, items)

    def gather(self, *asked: tuple[int, str, int]) -> list[Future[list[int]]]:
        """Submits calls while a first commit runs, and lets it end."""
        first = self.submit(0, "first", 0)
        assert self.entered.acquire(timeout=PATIENCE_S)
        waiting = [self.submit(*each) for each in asked]
        self.gate.set()
        assert first.result(PATIENCE_S) == [0]
        return waiting


@pytest.fixture
def joint() -> Iterator[Joint]:
    opened = Joint()
    yield opened
    opened.gate.set()
    opened.committer.close()


def test_kinds_and_queues_that_wait_are_one_commit(joint: Joint) -> None:
    waiting = joint.gather((0, "ack", 1), (1, "create", 2), (0, "reserve", 3), (0, "ack", 4))
    assert [each.result(PATIENCE_S) for each in waiting] == [[1], [2], [3], [4]]
    assert joint.commits == [
        ["ack", "reserve", "create"]
    ]  # the first was alone, and needs no company


def test_an_error_reaches_its_own_calls_and_no_others(joint: Joint) -> None:
    bad, also, good = joint.gather((0, "ack", 13), (0, "ack", 1), (1, "create", 2))
    with pytest.raises(InvalidInput, match="thirteen"):
        bad.result(PATIENCE_S)
    assert (also.result(PATIENCE_S), good.result(PATIENCE_S)) == ([1], [2])


def test_failed_commit_fails_all_its_calls(joint: Joint) -> None:
    joint.error = StoreUnavailable("gone")
    for each in joint.gather((0, "ack", 1), (1, "create", 2)):
        with pytest.raises(StoreUnavailable, match="gone"):
            each.result(PATIENCE_S)
    joint.error = None
    assert joint.submit(0, "ack", 5).result(PATIENCE_S) == [5]


def test_not_too_many_kinds_are_in_a_commit(joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    # No setting: a small bound is reached soon.
    monkeypatch.setattr(queue_module, "_MOST_KINDS", 3)
    waiting = joint.gather(*((0, f"reserve {number}", number) for number in range(8)))
    assert [each.result(PATIENCE_S) for each in waiting] == [[number] for number in range(8)]
    assert max(map(len, joint.commits)) == 3
