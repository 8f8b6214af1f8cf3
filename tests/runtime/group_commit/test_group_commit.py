"""Group commit alone: the bounds of the queue and of a commit."""

import operator
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronoline.core.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreBusy,
    StoreError,
    StoreUnavailable,
)
from chronoline.runtime.group_commit import FEWEST_ROWS, MOST_ROWS, Committer, Queue
from chronoline.runtime.group_commit import committer as committer_module
from chronoline.testing import ManualClock

PATIENCE_S = 60
MOST_BYTES = 1_000
COMMIT_BYTES = 300


class Desk:
    """A committer whose items are numbers, each its own size, and whose commits wait at a gate."""

    def __init__(self, linger_ms: float = 0, most_places: int | None = None) -> None:
        self.clock = ManualClock()
        self.committer = Committer(
            "test",
            self.clock,
            commit_ms=60_000,  # waits at the gate do not count as slow work
            most_items=100_000,
            linger_ms=linger_ms,
            most_bytes=MOST_BYTES,
            commit_bytes=COMMIT_BYTES,
            most_places=most_places,
        )
        self.queue: Queue = self.committer.open_queue()
        self.commits: list[list[int]] = []
        self.moments: list[int] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.error: Exception | None = None

    def write(self, sizes: Sequence[int], now_ms: int) -> list[int]:
        self.commits.append(list(sizes))
        self.moments.append(now_ms)
        self.entered.release()
        assert self.gate.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return list(sizes)

    def submit(self, *sizes: int) -> Future[list[int]]:
        return self.committer.submit(
            self.queue,
            "write",
            self.write,
            sizes,
            item_bytes=lambda each: each,
            item_place=lambda each: each,
        )

    def occupy(self) -> Future[list[int]]:
        """Starts a commit that waits at the gate, so that later calls gather."""
        first = self.submit(0)
        assert self.entered.acquire(timeout=PATIENCE_S)
        return first

    def fill(self, size: int) -> list[Future[list[int]]]:
        """Submits until the queue refuses."""
        calls = []
        for _ in range(MOST_BYTES):
            try:
                calls.append(self.submit(size))
            except StoreBusy:
                return calls
        raise AssertionError("the queue has no bound")

    def close(self) -> None:
        self.gate.set()
        self.committer.close()


@pytest.fixture
def desk() -> Iterator[Desk]:
    opened = Desk()
    yield opened
    opened.close()


def test_single_write_is_committed_alone(desk: Desk) -> None:
    first = desk.occupy()
    made = [
        desk.committer.submit_one(desk.queue, partial(operator.add, number)) for number in range(2)
    ]

    def fail(now_ms: int) -> None:
        raise InvalidInput("wrong")

    wrong = desk.committer.submit_one(desk.queue, fail)
    desk.gate.set()
    assert first.result(PATIENCE_S) == [0]
    now_ms = desk.clock.now_ms()
    assert [each.result(PATIENCE_S) for each in made] == [now_ms, now_ms + 1]
    with pytest.raises(InvalidInput, match="wrong"):
        wrong.result(PATIENCE_S)


# Bounds by bytes


def test_waiting_bytes_stay_within_the_bound(desk: Desk) -> None:
    first = desk.occupy()
    waiting = desk.fill(150)
    assert len(waiting) == MOST_BYTES // 150
    desk.gate.set()
    assert first.result(PATIENCE_S) == [0]
    assert [call.result(PATIENCE_S) for call in waiting] == [[150]] * len(waiting)
    assert max(map(sum, desk.commits)) <= COMMIT_BYTES


def test_refused_call_can_be_repeated(desk: Desk) -> None:
    desk.occupy()
    last = desk.fill(150)[-1]
    with pytest.raises(
        StoreBusy, match="900 bytes wait for the store already; nothing was changed"
    ):
        desk.submit(101)
    fits = desk.submit(100)
    desk.gate.set()
    assert (last.result(PATIENCE_S), fits.result(PATIENCE_S)) == ([150], [100])
    assert desk.submit(101).result(PATIENCE_S) == [101]
    assert sum(commit.count(101) for commit in desk.commits) == 1


def test_empty_queue_takes_one_oversized_call(desk: Desk) -> None:
    desk.occupy()
    large = desk.submit(5 * MOST_BYTES, 1)
    with pytest.raises(StoreBusy):
        desk.submit(1)
    desk.gate.set()
    assert large.result(PATIENCE_S) == [5 * MOST_BYTES, 1]
    assert desk.commits == [[0], [5 * MOST_BYTES], [1]]


def test_a_failed_call_gives_its_bytes_back(desk: Desk) -> None:
    desk.gate.set()
    desk.error = StoreUnavailable("gone")
    for _ in range(10):
        with pytest.raises(StoreUnavailable):
            desk.submit(200, 200, 200, 200).result(PATIENCE_S)
    desk.error = None
    desk.submit(0).result(PATIENCE_S)
    desk.gate.clear()
    while desk.entered.acquire(blocking=False):
        pass
    desk.occupy()
    assert len(desk.fill(100)) == MOST_BYTES // 100


def test_call_cut_by_bytes_is_answered_whole(desk: Desk) -> None:
    desk.occupy()
    calls = [desk.submit(100), desk.submit(150, 50, 100, 0), desk.submit(299), desk.submit(1)]
    desk.gate.set()
    assert [call.result(PATIENCE_S) for call in calls] == [[100], [150, 50, 100, 0], [299], [1]]
    assert desk.commits == [[0], [100, 150, 50], [100, 0], [299, 1]]


def test_a_call_of_nothing_is_answered(desk: Desk) -> None:
    desk.occupy()
    calls = [desk.submit(), desk.submit(COMMIT_BYTES), desk.submit()]
    desk.gate.set()
    assert [call.result(PATIENCE_S) for call in calls] == [[], [COMMIT_BYTES], []]


@given(st.lists(st.lists(st.integers(0, 400), max_size=6), max_size=12))
def test_accepted_calls_are_answered_once(
    asked: list[list[int]],
) -> None:
    desk = Desk()
    try:
        desk.occupy()
        taken: list[tuple[list[int], Future[list[int]]]] = []
        waiting = 0
        for sizes in asked:
            try:
                taken.append((sizes, desk.submit(*sizes)))
            except StoreBusy:
                assert waiting + sum(sizes) > MOST_BYTES
            else:
                assert waiting == 0 or waiting + sum(sizes) <= MOST_BYTES
                waiting += sum(sizes)
        desk.gate.set()
        for sizes, call in taken:
            assert call.result(PATIENCE_S) == sizes
        committed = [size for commit in desk.commits[1:] for size in commit]
        assert committed == [size for sizes, _ in taken for size in sizes]
        assert all(len(commit) == 1 or sum(commit) <= COMMIT_BYTES for commit in desk.commits)
    finally:
        desk.close()


# Calls that stay whole


@pytest.fixture
def whole_desk() -> Iterator[Desk]:
    opened = Desk(most_places=3)
    yield opened
    opened.close()


def test_call_that_does_not_fit_waits_for_next_commit(whole_desk: Desk) -> None:
    whole_desk.occupy()
    calls = [whole_desk.submit(100), whole_desk.submit(150, 50, 100), whole_desk.submit(0)]
    whole_desk.gate.set()
    assert [call.result(PATIENCE_S) for call in calls] == [[100], [150, 50, 100], [0]]
    assert whole_desk.commits == [[0], [100], [150, 50, 100], [0]]


def test_place_limit_does_not_cut_a_call(whole_desk: Desk) -> None:
    whole_desk.occupy()
    calls = [whole_desk.submit(1, 2), whole_desk.submit(2, 3), whole_desk.submit(1, 4, 4)]
    wide = whole_desk.submit(1, 2, 3, 4)
    last = whole_desk.submit(1)
    whole_desk.gate.set()
    assert [call.result(PATIENCE_S) for call in calls] == [[1, 2], [2, 3], [1, 4, 4]]
    assert (wide.result(PATIENCE_S), last.result(PATIENCE_S)) == ([1, 2, 3, 4], [1])
    # A call with more places than a commit takes is alone: its writer cuts it.
    assert whole_desk.commits == [[0], [1, 2, 2, 3], [1, 4, 4], [1, 2, 3, 4], [1]]


def test_first_call_is_not_cut(whole_desk: Desk) -> None:
    whole_desk.gate.set()
    whole_desk.submit(*[0] * MOST_ROWS).result(PATIENCE_S)
    assert [len(commit) for commit in whole_desk.commits] == [MOST_ROWS]


def test_a_call_is_whole_whatever_the_pace_is(whole_desk: Desk) -> None:
    whole_desk.occupy()
    before = [whole_desk.submit(0) for _ in range(FEWEST_ROWS - 10)]
    batch = whole_desk.submit(*[0] * 20)
    large = whole_desk.submit(*[0] * MOST_ROWS)
    larger = whole_desk.submit(*[0] * (MOST_ROWS + 1))
    whole_desk.gate.set()
    for call in (*before, batch, large, larger):
        assert set(call.result(PATIENCE_S)) == {0}
    sizes = [len(commit) for commit in whole_desk.commits]
    assert sizes == [1, FEWEST_ROWS - 10, 20, MOST_ROWS, MOST_ROWS, 1]


def test_rest_of_an_oversized_call_shares_its_commit(whole_desk: Desk) -> None:
    whole_desk.occupy()
    calls = [whole_desk.submit(200, 200, 50), whole_desk.submit(50), whole_desk.submit(200)]
    whole_desk.gate.set()
    assert [call.result(PATIENCE_S) for call in calls] == [[200, 200, 50], [50], [200]]
    assert whole_desk.commits == [[0], [200], [200, 50, 50], [200]]


@given(st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=6), max_size=12))
def test_call_that_fits_a_commit_is_not_cut(asked: list[list[int]]) -> None:
    desk = Desk(most_places=3)
    try:
        desk.occupy()
        taken: list[tuple[list[int], Future[list[int]]]] = []
        for sizes in asked:
            with suppress(StoreBusy):
                taken.append((sizes, desk.submit(*sizes)))
        desk.gate.set()
        for sizes, call in taken:
            assert call.result(PATIENCE_S) == sizes
        ends = set(accumulate(map(len, desk.commits[1:]), initial=0))
        place = 0
        for sizes, _ in taken:
            inside = {place + number for number in range(1, len(sizes))}
            fits = sum(sizes) <= COMMIT_BYTES
            assert not (fits and inside & ends), (sizes, desk.commits)
            place += len(sizes)
        assert place == sum(map(len, desk.commits[1:]))
    finally:
        desk.close()


# Lingering


@pytest.mark.parametrize(
    "sizes", [[0] * MOST_ROWS, [COMMIT_BYTES - 1, 1]], ids=["by rows", "by bytes"]
)
def test_linger_ends_with_a_full_commit(sizes: list[int]) -> None:
    desk = Desk(linger_ms=1_000_000)
    desk.gate.set()
    try:
        first = desk.submit(*sizes[:1])
        assert not begins(desk)
        rest = desk.submit(*sizes[1:])
        assert begins(desk, PATIENCE_S)
        assert first.result(PATIENCE_S) == sizes[:1]
    finally:
        desk.close()
    assert rest.result(PATIENCE_S) == sizes[1:]


# Returning callers


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Committers wait without limit for callers that were answered together."""
    # No setting: each commit is one of those that return early.
    monkeypatch.setattr(committer_module, "_RETURN_SHARE", 1e9)
    # As above.
    monkeypatch.setattr(committer_module, "_RETURN_FROM_S", 0)


def begins(desk: Desk, within_s: float = 0.05) -> bool:
    return desk.entered.acquire(timeout=within_s)


def answer_together(desk: Desk, *sizes: int) -> None:
    desk.occupy()
    calls = [desk.submit(size) for size in sizes]
    desk.gate.set()
    for call in calls:
        call.result(PATIENCE_S)
    assert begins(desk)


@pytest.mark.usefixtures("patient")
def test_commit_waits_for_callers_answered_together(desk: Desk) -> None:
    answer_together(desk, 1, 2, 3)
    again = [desk.submit(4), desk.submit(5)]
    assert not begins(desk)
    again.append(desk.submit(6))
    assert [call.result(PATIENCE_S) for call in again] == [[4], [5], [6]]
    assert desk.commits == [[0], [1, 2, 3], [4, 5, 6]]


@pytest.mark.usefixtures("patient")
def test_commit_does_not_wait_for_a_lone_caller(desk: Desk) -> None:
    desk.gate.set()
    for size in (1, 2):
        assert desk.submit(size).result(PATIENCE_S) == [size]


@pytest.mark.usefixtures("patient")
def test_other_work_and_close_end_the_wait(desk: Desk) -> None:
    other = desk.committer.open_queue()
    answer_together(desk, 1, 2)
    late = desk.submit(3)
    assert not begins(desk)
    assert desk.committer.submit(other, "write", desk.write, [4]).result(PATIENCE_S) == [4]
    assert late.result(PATIENCE_S) == [3]
    while desk.entered.acquire(blocking=False):
        pass
    desk.gate.clear()
    answer_together(desk, 5, 6)
    last = desk.submit(7)
    desk.committer.close()
    assert last.result(PATIENCE_S) == [7]


def test_missing_caller_delays_no_commit(desk: Desk) -> None:
    answer_together(desk, 1, 2)
    assert desk.submit(3).result(PATIENCE_S) == [3]


# Failures


@pytest.mark.parametrize(
    "error", [StoreUnavailable("nothing was changed"), StoreError("refused"), InvalidInput("wrong")]
)
def test_error_after_a_part_leaves_the_outcome_unknown(desk: Desk, error: Exception) -> None:
    def write(sizes: Sequence[int], now_ms: int) -> list[int]:
        if sizes == [2]:
            raise error
        return desk.write(sizes, now_ms)

    desk.gate.set()
    sizes = [COMMIT_BYTES, 2]
    call = desk.committer.submit(desk.queue, "part", write, sizes, item_bytes=lambda each: each)
    with pytest.raises(OutcomeUnknown, match=f"a part of the batch is done.*: {error}") as failed:
        call.result(PATIENCE_S)
    assert failed.value.__cause__ is error
    alone = desk.committer.submit(desk.queue, "part", write, sizes[1:])
    with pytest.raises(type(error)):
        alone.result(PATIENCE_S)


def test_call_that_cannot_be_cut_fails_alone(desk: Desk) -> None:
    desk.occupy()
    good = desk.submit(1)
    wrong = desk.committer.submit(desk.queue, "write", desk.write, cast(Sequence[int], {2, 3}))
    also_good = desk.submit(4)
    desk.gate.set()
    with pytest.raises(TypeError):
        wrong.result(PATIENCE_S)
    assert (good.result(PATIENCE_S), also_good.result(PATIENCE_S)) == ([1], [4])
    assert desk.submit(5).result(PATIENCE_S) == [5]


def test_invalid_kind_takes_no_room(desk: Desk) -> None:
    desk.occupy()
    with pytest.raises(TypeError):
        desk.committer.submit(
            desk.queue, [], desk.write, [MOST_BYTES], item_bytes=lambda each: each
        )
    assert len(desk.fill(100)) == MOST_BYTES // 100


def test_failed_commit_does_not_search_complete_calls(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[object] = []
    monkeypatch.setattr(desk.queue, "drop", dropped.append)
    desk.error = StoreUnavailable("gone")
    desk.occupy()
    calls = [desk.submit(number) for number in range(20)]
    desk.gate.set()
    for call in calls:
        with pytest.raises(StoreUnavailable):
            call.result(PATIENCE_S)
    assert dropped == []


def test_fork_refuses_calls_and_close_does_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.occupy()
    with monkeypatch.context() as fork:
        fork.setattr(os, "getpid", lambda: -1)
        desk.committer.close()  # would wait for the commit
        with pytest.raises(StoreError, match="opened before a fork"):
            desk.submit(1)
    desk.gate.set()
    assert desk.submit(2).result(PATIENCE_S) == [2]


# The clock


def test_clock_rollback_does_not_extend_the_linger() -> None:
    desk = Desk(linger_ms=1)
    desk.gate.set()
    try:
        first = desk.submit(1)
        assert first.result(PATIENCE_S) == [1]
        later = desk.clock.now_ms()
        desk.clock.set(later - 3_600_000)
        assert desk.submit(2).result(PATIENCE_S) == [2]
        assert desk.moments == [later, later - 3_600_000]
    finally:
        desk.close()
