"""Batches: each item is checked once, gets one outcome, and no id occurs twice in a write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Generic, TypeVar

from chronoline.core.change import EXTENSIONS, Change
from chronoline.core.errors import OutcomeUnknown, StoreUnavailable
from chronoline.core.ids import bucket_of
from chronoline.core.limits import (
    MIN_LEASE_MS,
    expires_problem,
    id_problem,
    message_problem,
    name_problem,
    reason_problem,
    session_problem,
    time_problem,
    version_problem,
)
from chronoline.core.message import After, NewMessage
from chronoline.core.outcome import Outcome, Refusal, held_error
from chronoline.core.permissions import NewTime, Operation, Role, changes_with
from chronoline.core.topic import Topic
from chronoline.stores.checks import check_batch
from chronoline.stores.guards import NEEDS_TIME_AHEAD

_OF_SYSTEM = changes_with(Role.SYSTEM)
_OF_DUES = changes_with(NewTime.ANY)
"""Changes that put a message at a due from outside. A holder's changes are not spread."""

Item = TypeVar("Item")


class Batch(Generic[Item]):
    """The outcomes of a batch, and its valid items in rounds in which no id occurs twice."""

    def __init__(self, size: int) -> None:
        self._outcomes: list[Outcome | None] = [None] * size
        self._rounds: list[dict[str, tuple[int, Item]]] = [{}]
        self._chosen = self._rounds[0]
        self._repeats: dict[str, int] = {}
        self._begun = False

    def add(self, place: int, message_id: str, item: Item) -> None:
        """Adds a valid item."""
        if message_id not in self._rounds[0]:
            self._rounds[0][message_id] = (place, item)
            return
        repeat = self._repeats.get(message_id, 0) + 1
        self._repeats[message_id] = repeat
        if repeat == len(self._rounds):
            self._rounds.append({})
        self._rounds[repeat][message_id] = (place, item)

    def refuse(self, place: int, message_id: object, problem: str) -> None:
        """Adds an item that is not valid."""
        self._outcomes[place] = invalid(message_id, problem)

    def rounds(self) -> Iterator[list[Item]]:
        """The valid items. The second occurrence of an id comes in a later round than the first."""
        for chosen in self._rounds:
            self._chosen = chosen
            if chosen:
                yield [item for _, item in chosen.values()]

    def weighed_rounds(
        self,
        weight: Callable[[Item], int],
        most: int,
        again: Callable[[Outcome], Outcome | None],
    ) -> Iterator[list[Item]]:
        """The valid items, in parts of about `most` by weight.

        `again` can answer a repeated item by the outcome of the one before it. Then no round contains it.
        """
        before: dict[str, tuple[int, Item]] = {}
        for chosen in self._rounds:
            self._chosen = chosen
            part: list[Item] = []
            weighed = 0
            for message_id, (_, item) in chosen.items():
                outcome = self._outcomes[before[message_id][0]] if before else None
                known = again(outcome) if outcome else None
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
        """Notes the outcome of an id in the current round."""
        self._outcomes[self._chosen[outcome.id][0]] = outcome

    def settle_done(self, versions: Mapping[str, int], times: Mapping[str, int]) -> None:
        """Notes the changes of the current round by their new versions, and the times that they set."""
        self._begun = self._begun or bool(versions)
        outcomes, chosen, time_of = self._outcomes, self._chosen, times.get
        for message_id, version in versions.items():
            done = Outcome(id=message_id, version=version, at=time_of(message_id, 0))
            outcomes[chosen[message_id][0]] = done

    def set_aside(self, ids: Iterable[str]) -> None:
        """Notes that other transactions hold these ids of the current round."""
        for each in ids:
            self.settle(Outcome(id=each, refusal=Refusal.BUSY))

    @contextmanager
    def unknown_once_begun(self) -> Iterator[None]:
        """Turns `StoreUnavailable` into `OutcomeUnknown` once a part of the batch is done."""
        try:
            yield
        except StoreUnavailable as error:
            if not self._begun:
                raise
            raise OutcomeUnknown(f"a part of the batch is done: {error}") from error

    def outcomes(self) -> list[Outcome]:
        """One outcome for each item, in the batch's order; raises if some were set aside."""
        outcomes = [outcome for outcome in self._outcomes if outcome is not None]
        error = held_error(outcomes)
        if error is not None:
            raise error
        return outcomes


def message_batch(
    topic: Topic, messages: Sequence[NewMessage], now_ms: int
) -> Batch[tuple[int, NewMessage]]:
    """New messages, each with its bucket and its due on this topic; the invalid ones are refused."""
    check_batch(messages, now_ms)
    settings = topic.settings
    batch: Batch[tuple[int, NewMessage]] = Batch(len(messages))
    for place, message in enumerate(messages):
        if not isinstance(message, NewMessage):
            problem = f"must be a NewMessage, not {type(message).__name__}"
            batch.refuse(place, message, problem)
            continue
        wrong = message_problem(message, settings.largest_body_bytes)
        if wrong:
            batch.refuse(place, message.id, wrong)
            continue
        if settings.spread_ms:
            due = topic.spread(message.id, message.due, message.expires)
            message = replace(message, due=due)  # noqa: PLW2901 - the message as it is written
        batch.add(place, message.id, (bucket_of(message.id, settings.buckets), message))
    return batch


def change_batch(
    operation: Operation, topic: Topic, changes: Sequence[Change], now_ms: int
) -> Batch[tuple[int, Change]]:
    """Changes, each with its bucket and an absolute time; the invalid ones are refused.

    The caller has checked the size of the batch and the time.
    """
    soonest_ms = 0 if operation in EXTENSIONS else MIN_LEASE_MS
    buckets = topic.settings.buckets
    is_spread = bool(topic.settings.spread_ms) and operation in _OF_DUES
    batch: Batch[tuple[int, Change]] = Batch(len(changes))
    last: Change | None = None
    for place, change in enumerate(changes):
        problem = _change_problem(operation, change, last)
        if problem:
            batch.refuse(place, getattr(change, "id", change), problem)
            continue
        last = change
        placed = change
        if isinstance(change.to, After):
            placed = change._replace(to=now_ms + max(change.to.delay_ms, soonest_ms))
        if change.expires is not None:
            problem = expires_problem(change.expires, placed.to_ms)
            if problem:
                batch.refuse(place, change.id, problem)
                continue
        if is_spread:
            placed = placed._replace(to=topic.spread(change.id, placed.to_ms, placed.expires))
        batch.add(place, change.id, (bucket_of(change.id, buckets), placed))
    return batch


def _change_problem(operation: Operation, change: object, valid: Change | None) -> str | None:
    """The problem of a change. The texts that it shares with a valid one are not checked again."""
    if not isinstance(change, Change):
        return f"must be a Change, not {type(change).__name__}"
    kind, message_id, name, version, to, _, reason, session, problem, _ = change
    if kind is not operation:
        problem = problem or f"all changes of a batch have one operation: {operation}, not {kind}"
    if isinstance(to, After) and operation in NEEDS_TIME_AHEAD:
        wrong_time = time_problem("the delay", to.delay_ms)
    else:
        wrong_time = time_problem("the new time", to)
    shared = (
        valid is not None
        and name == valid.name
        and reason == valid.reason
        and session == valid.session
    )
    return (
        problem
        or id_problem(message_id)
        or version_problem(version)
        or wrong_time
        or (None if shared else _actor_problem(operation, name))
        or (None if shared else reason_problem(reason))
        or (None if shared else session_problem(session))
    )


def _actor_problem(operation: Operation, name: object) -> str | None:
    """Dead letters are changed without a name, too: those of any producer group."""
    if name == "" and operation in _OF_SYSTEM:
        return None
    return name_problem("name", name)


def invalid(message_id: object, problem: str) -> Outcome:
    """The refusal of an item that is not valid."""
    shown = message_id if isinstance(message_id, str) else repr(message_id)
    return Outcome(id=shown, refusal=Refusal.INVALID, detail=problem)
