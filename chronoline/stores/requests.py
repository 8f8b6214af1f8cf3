"""Batches as their callers asked for them: each item is checked once, and the invalid ones are refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from chronoline.core.ids import bucket_of
from chronoline.core.limits import (
    id_problem,
    message_problem,
    name_problem,
    reason_problem,
    session_problem,
    time_problem,
    version_problem,
)
from chronoline.core.message import After, Lease, NewMessage
from chronoline.core.topic import Topic
from chronoline.stores.batch import Batch, check_batch
from chronoline.stores.changes import Change


def new_message_batch(
    topic: Topic, messages: Sequence[NewMessage], now_ms: int
) -> Batch[tuple[int, NewMessage]]:
    """Messages that are to be created, each with its bucket; the invalid ones refused."""
    check_batch(messages, now_ms)
    settings = topic.settings
    batch: Batch[tuple[int, NewMessage]] = Batch(len(messages))
    for place, message in enumerate(messages):
        if not isinstance(message, NewMessage):
            batch.refuse(place, message, f"must be a NewMessage, not {type(message).__name__}")
            continue
        problem = message_problem(message, settings.largest_body_bytes)
        if problem:
            batch.refuse(place, message.id, problem)
        else:
            batch.add(place, message.id, (bucket_of(message.id, settings.buckets), message))
    return batch


class Asked(NamedTuple):
    """A change as its caller asked for it: nothing of it has been checked."""

    id: Any
    name: Any
    version: Any
    to: Any
    problem: str = ""
    """What is wrong with it as a whole."""
    until: Any = 0
    """The end of the lease, as its holder knows it."""
    reason: Any = ""
    """Why a message is buried."""
    session: Any = ""
    """Which session the lease was granted to."""


def lease_item(lease: object, to: object, reason: object = "") -> Asked:
    """What is asked for on a lease."""
    if isinstance(lease, Lease):
        return Asked(
            lease.id,
            lease.consumer,
            lease.version,
            to,
            until=lease.until,
            reason=reason,
            session=lease.session,
        )
    return Asked(lease, "-", 0, 0, f"must be a Lease, not {type(lease).__name__}")


def pair_item(pair: object, form: str, name: str) -> Asked:
    """What is asked for by a pair."""
    if isinstance(pair, tuple) and len(pair) == len(("first", "second")):
        return Asked(pair[0], name, 0, pair[1])
    return Asked(pair, name, 0, 0, f"must be a pair {form}, not {type(pair).__name__}")


def move_item(pair: object, now_ms: int, soonest_ms: int) -> Asked:
    """The change that a lease and a new time ask for; a relative time is made absolute."""
    asked = pair_item(pair, "(lease, time)", "-")
    if asked.problem:
        return asked
    to = asked.to
    if isinstance(to, After):
        problem = time_problem("the delay", to.delay_ms)
        if problem:
            return asked._replace(id=getattr(asked.id, "id", asked.id), problem=problem)
        to = now_ms + max(to.delay_ms, soonest_ms)
    return lease_item(asked.id, to)


def burial_item(pair: object, now_ms: int) -> Asked:
    """What is asked for by a lease and a reason."""
    asked = pair_item(pair, "(lease, reason)", "-")
    return asked if asked.problem else lease_item(asked.id, now_ms, asked.to)


def change_batch(topic: Topic, items: Sequence[Asked], now_ms: int) -> Batch[Change]:
    """Changes that are asked for; the invalid ones refused."""
    check_batch(items, now_ms)
    batch: Batch[Change] = Batch(len(items))
    for place, (message_id, name, version, to, wrong, until, reason, session) in enumerate(items):
        problem = (
            wrong
            or id_problem(message_id)
            or name_problem("name", name)
            or version_problem(version)
            or time_problem("the new time", to)
            or reason_problem(reason)
            or session_problem(session)
        )
        if problem:
            batch.refuse(place, message_id, problem)
        else:
            bucket = bucket_of(message_id, topic.settings.buckets)
            shortens = isinstance(until, int) and to < until
            change = Change(bucket, message_id, name, version, to, shortens, reason, session)
            batch.add(place, message_id, change)
    return batch
