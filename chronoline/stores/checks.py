"""Checks of arguments at the edge of a store. They raise `InvalidInput`."""

from __future__ import annotations

from chronoline.core.change import check_batch_size
from chronoline.core.errors import InvalidInput
from chronoline.core.limits import (
    MAX_BATCH,
    MAX_ID_BYTES,
    name_problem,
    session_problem,
    time_problem,
)


def check_batch(items: object, now_ms: int) -> None:
    check_time("now_ms", now_ms)
    check_batch_size(items)


def check_uid(uid: object) -> None:
    if not isinstance(uid, int) or isinstance(uid, bool):
        raise InvalidInput(f"a topic is named by its uid, a number, not by {type(uid).__name__}")


def check_limit(limit: int) -> None:
    check_whole("limit", limit, 1, MAX_BATCH)


def check_whole(what: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise InvalidInput(f"{what} must be a whole number from {low} to {high}, not {value!r}")


def check_name(what: str, value: str) -> None:
    _check(name_problem(what, value))


def check_after(after: str) -> None:
    """Checks the id behind which a page begins; empty for the first page."""
    if after != "":
        _check(name_problem("after", after, MAX_ID_BYTES))


def check_time(what: str, value: int) -> None:
    _check(time_problem(what, value))


def check_span(start: int, end: int) -> None:
    check_time("start", start)
    check_time("end", end)
    if end < start:
        raise InvalidInput(f"end {end} lies before start {start}: give the earlier moment first")


def check_session(session: str) -> None:
    _check(session_problem(session))


def _check(problem: str | None) -> None:
    if problem:
        raise InvalidInput(problem)
