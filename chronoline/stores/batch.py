"""Input, checked once at the edge of a store, and batches of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from typing import Generic, TypeVar

from chronoline.core.errors import InvalidInput, OutcomeUnknown, StoreUnavailable
from chronoline.core.limits import (
    MAX_ID_BYTES,
    MAX_TIME_MS,
    MIN_LEASE_MS,
    id_problem,
    name_problem,
    session_problem,
    time_problem,
)
from chronoline.core.outcome import Outcome, Refusal
from chronoline.stores.changes import LeaseRequest
from chronoline.stores.contract import MAX_BATCH

MAX_RESERVE_AHEAD_MS = 60_000

Item = TypeVar("Item")


class Batch(Generic[Item]):
    """Collects the outcomes of a batch, and deals it out in rounds in which no id occurs twice."""

    def __init__(self, size: int) -> None:
        self._outcomes: list[Outcome | None] = [None] * size
        self._rounds: list[dict[str, tuple[int, Item]]] = [{}]
        self._chosen = self._rounds[0]
        self._repeats: dict[str, int] = {}
        self._begun = False

    def add(self, place: int, message_id: str, item: Item) -> None:
        """Takes in a valid item."""
        if message_id not in self._rounds[0]:
            self._rounds[0][message_id] = (place, item)
            return
        repeat = self._repeats.get(message_id, 0) + 1
        self._repeats[message_id] = repeat
        if repeat == len(self._rounds):
            self._rounds.append({})
        self._rounds[repeat][message_id] = (place, item)

    def refuse(self, place: int, message_id: object, problem: str) -> None:
        """Takes in an item that is not valid."""
        self._outcomes[place] = invalid(message_id, problem)

    def rounds(
        self,
        weight: Callable[[Item], int] = lambda _: 0,
        most: int = 1,
        again: Callable[[Outcome], Outcome | None] | None = None,
    ) -> Iterator[list[Item]]:
        """The valid items, in parts of about `most` by weight.

        Second occurrences of an id come after all first ones. Where `again` knows the outcome of a repeated
        item from the one before it, that is its outcome, and it is not dealt out.
        """
        before: dict[str, tuple[int, Item]] = {}
        for chosen in self._rounds:
            self._chosen = chosen
            part: list[Item] = []
            weighed = 0
            for message_id, (_, item) in chosen.items():
                outcome = self._outcomes[before[message_id][0]] if before else None
                known = again(outcome) if again and outcome else None
                if known:
                    self.settle(known)
                    continue
                part.append(item)
                weighed += weight(item)
                if weighed >= most:
                    yield part
                    part, weighed = [], 0
            if part:
                yield part
            before = chosen

    def settle(self, outcome: Outcome) -> None:
        """Notes what became of an id in the current round."""
        self._outcomes[self._chosen[outcome.id][0]] = outcome

    def settle_done(self, versions: Mapping[str, int], times: Mapping[str, int]) -> None:
        """Notes what was changed in the current round, and which time each change set."""
        self._begun = self._begun or bool(versions)
        for message_id, version in versions.items():
            at = times.get(message_id, 0)
            self.settle(Outcome(id=message_id, version=version, at=at))

    @contextmanager
    def honest(self) -> Iterator[None]:
        """Once something was changed, a store that goes away leaves an unknown outcome."""
        try:
            yield
        except StoreUnavailable as error:
            if not self._begun:
                raise
            raise OutcomeUnknown(f"a part of the batch is done: {error}") from error

    def outcomes(self) -> list[Outcome]:
        """One outcome for each item, in the batch's order."""
        return [outcome for outcome in self._outcomes if outcome is not None]


def invalid(message_id: object, problem: str) -> Outcome:
    """The refusal of an item that is not valid."""
    shown = message_id if isinstance(message_id, str) else repr(message_id)
    return Outcome(id=shown, refusal=Refusal.INVALID, detail=problem)


def check_batch(items: Sized, now_ms: int) -> None:
    check_time("now_ms", now_ms)
    check_size(items)


def check_uid(uid: object) -> None:
    if not isinstance(uid, int) or isinstance(uid, bool):
        raise InvalidInput(f"a topic is named by its uid, a number, not by {type(uid).__name__}")


def check_size(items: Sized) -> None:
    if isinstance(items, str | bytes) or not isinstance(items, Sized):
        raise InvalidInput(f"a batch must be a list or a tuple, not {type(items).__name__}")
    if len(items) > MAX_BATCH:
        raise InvalidInput(f"a batch holds at most {MAX_BATCH} items, not {len(items)}: split it")


def check_limit(limit: int) -> None:
    check_whole("limit", limit, 1, MAX_BATCH)


def check_whole(what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"{what} must be a whole number from {low} to {high}, not {value!r}")


def check_name(what: str, value: str) -> None:
    problem = name_problem(what, value)
    if problem:
        raise InvalidInput(problem)


def check_after(after: str) -> None:
    """The id behind which a page begins; empty for the first."""
    if after != "":
        problem = name_problem("after", after, MAX_ID_BYTES)
        if problem:
            raise InvalidInput(problem)


def check_time(what: str, value: int) -> None:
    problem = time_problem(what, value)
    if problem:
        raise InvalidInput(problem)


def check_span(start: int, end: int) -> None:
    check_time("start", start)
    check_time("end", end)
    if end < start:
        raise InvalidInput(f"end {end} lies before start {start}")


def check_session(session: str) -> None:
    problem = session_problem(session)
    if problem:
        raise InvalidInput(problem)


def check_request(
    consumer: str, lease_ms: int, reserve_ahead_ms: int, session: str, now_ms: int
) -> LeaseRequest:
    check_name("consumer", consumer)
    check_session(session)
    check_time("now_ms", now_ms)
    check_whole("lease_ms", lease_ms, MIN_LEASE_MS, MAX_TIME_MS)
    check_whole("reserve_ahead_ms", reserve_ahead_ms, 0, MAX_RESERVE_AHEAD_MS)
    return LeaseRequest(consumer, lease_ms, reserve_ahead_ms, session or None, now_ms)


def first_of_each(ids: Sequence[str]) -> list[str]:
    """The ids that could exist at all, each once, in their order."""
    return list(dict.fromkeys(each for each in ids if id_problem(each) is None))
