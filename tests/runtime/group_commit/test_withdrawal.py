"""Withdrawn calls: a call that was cancelled before its commit is never written."""

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from chronoline.core.errors import OutcomeUnknown
from chronoline.runtime.group_commit import Committer, Queue
from chronoline.testing import ManualClock

PATIENCE_S = 60
MOST_ITEMS = 10_000


class Ledger:
    """A committer that notes each item that it writes."""

    def __init__(self, committer: Committer) -> None:
        self.written: list[int] = []
        self.commits = 0
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.committer = committer
        self.queue = self.committer.open_queue()

    def write(self, items: Sequence[int], now_ms: int) -> list[int]:
        self.commits += 1
        self.entered.release()
        assert self.gate.wait(PATIENCE_S)
        self.written += items
        return list(items)

    def submit(self, *items: int, kind: str = "one") -> Future[list[int]]:
        return self.committer.submit(
            self.queue,
            kind,
            self.write,
            items,
            item_bytes=lambda _: 10,
            item_place=lambda item: item,
        )

    def occupy(self) -> Future[list[int]]:
        """Starts a commit that waits at the gate, so that later calls gather."""
        first = self.submit(0, kind="first")
        assert self.entered.acquire(timeout=PATIENCE_S)
        return first


def _one_by_one(works: Sequence[Callable[[], Any]]) -> list[Any]:
    return [work() for work in works]


def _committer(**given: Any) -> Committer:
    return Committer("test", ManualClock(), commit_ms=60_000, most_items=MOST_ITEMS, **given)


@pytest.fixture(params=["alone", "places", "together"])
def ledger(request: pytest.FixtureRequest) -> Iterator[Ledger]:
    given: dict[str, dict[str, Any]] = {
        "alone": {},
        "places": {"most_places": 3},
        "together": {"together": _one_by_one},
    }
    opened = Ledger(_committer(**given[request.param]))
    yield opened
    opened.gate.set()
    opened.committer.close()


def test_withdrawn_call_is_not_written(ledger: Ledger) -> None:
    first = ledger.occupy()
    one, two, three = ledger.submit(1), ledger.submit(2), ledger.submit(3)
    assert two.cancel()
    ledger.gate.set()
    assert [each.result(PATIENCE_S) for each in (first, one, three)] == [[0], [1], [3]]
    ledger.committer.close()
    assert ledger.written == [0, 1, 3]


def test_call_in_a_commit_cannot_be_withdrawn(ledger: Ledger) -> None:
    first = ledger.occupy()
    assert not first.cancel()
    ledger.gate.set()
    assert first.result(PATIENCE_S) == [0]


def test_no_commit_is_made_of_withdrawn_calls_alone(ledger: Ledger) -> None:
    ledger.occupy()
    cancelled = [ledger.submit(item, kind=f"kind {item}").cancel() for item in range(1, 5)]
    assert all(cancelled)
    ledger.gate.set()
    ledger.committer.close()
    assert (ledger.written, ledger.commits) == ([0], 1)


def test_withdrawn_calls_leave_the_queue_at_their_turn(ledger: Ledger) -> None:
    ledger.occupy()
    cancelled = [ledger.submit(item).cancel() for item in range(MOST_ITEMS)]
    assert all(cancelled)
    ledger.gate.set()
    ledger.committer.close()
    assert not ledger.queue
    assert not ledger.queue.is_crowded


def test_begun_batch_cannot_be_withdrawn() -> None:
    ledger = Ledger(_committer(commit_bytes=10))  # one item in a commit
    batch = ledger.submit(1, 2, 3)
    assert ledger.entered.acquire(timeout=PATIENCE_S)
    assert not batch.cancel()
    ledger.gate.set()
    assert batch.result(PATIENCE_S) == [1, 2, 3]
    ledger.committer.close()


def test_call_that_did_not_fit_can_still_be_withdrawn() -> None:
    ledger = Ledger(_committer(commit_bytes=10))
    one, two, three = ledger.submit(1), ledger.submit(2), ledger.submit(3)
    assert ledger.entered.acquire(
        timeout=PATIENCE_S
    )  # the first is in a commit, the others had no room
    assert two.cancel()
    ledger.gate.set()
    assert (one.result(PATIENCE_S), three.result(PATIENCE_S)) == ([1], [3])
    ledger.committer.close()
    assert ledger.written == [1, 3]


def test_defect_of_the_committer_spares_withdrawn_calls(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    first = ledger.occupy()
    gone, waiting = ledger.submit(1), ledger.submit(2)
    assert gone.cancel()
    with monkeypatch.context() as planted:
        planted.setattr(Queue, "take", fail)
        ledger.gate.set()
        assert first.result(PATIENCE_S) == [0]
        with pytest.raises(OutcomeUnknown):
            waiting.result(PATIENCE_S)
    assert ledger.submit(3).result(PATIENCE_S) == [3]
    assert ledger.written == [0, 3]


@pytest.mark.parametrize("seed", range(3))
def test_race_of_withdrawals_and_commits(ledger: Ledger, seed: int) -> None:
    """Each call is either withdrawn or written, never both."""
    ledger.gate.set()
    shuffled = random.Random(seed)
    outcomes: dict[int, bool] = {}

    def call_and_withdraw(numbers: Sequence[int]) -> None:
        for number in numbers:
            call = ledger.submit(2 * number, 2 * number + 1, kind=f"kind {number % 3}")
            withdraws = shuffled.random() < 0.7
            outcomes[number] = withdraws and call.cancel()
            if not outcomes[number]:
                assert call.result(PATIENCE_S) == [2 * number, 2 * number + 1]

    threads = [
        threading.Thread(target=call_and_withdraw, args=(range(start, 2_000, 8),))
        for start in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    ledger.committer.close()
    assert len(outcomes) == 2_000
    assert True in outcomes.values()
    assert False in outcomes.values()
    kept = sorted(number for number, is_withdrawn in outcomes.items() if not is_withdrawn)
    assert sorted(ledger.written) == [item for each in kept for item in (2 * each, 2 * each + 1)]
