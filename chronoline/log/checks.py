"""Checks of the arguments of a log. Each raises `InvalidInput`."""

from __future__ import annotations

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import name_problem
from chronoline.log.contract import LogTopic
from chronoline.log.events import partition_problem
from chronoline.log.once_writer import MAX_NUMBER, Numbered

_LEAST_HOLD_MS = 100


def check_settings(linger_ms: float, object_bytes: int, max_latency_ms: int, hold_ms: int) -> None:
    wrong = (
        (linger_ms < 0 and "linger_ms must be 0 or more")
        or (object_bytes < 1 and "object_bytes must be 1 or more")
        or (max_latency_ms < 1 and "max_latency_ms must be 1 or more")
        or (hold_ms < _LEAST_HOLD_MS and f"hold_ms must be {_LEAST_HOLD_MS} or more")
    )
    if wrong:
        raise InvalidInput(wrong)


def check_group(group: str) -> None:
    if problem := name_problem("group", group):
        raise InvalidInput(problem)


def check_limit(limit: int | None) -> None:
    if limit is not None and (type(limit) is not int or limit < 0):
        raise InvalidInput(f"limit must be a whole number from 0 on, not {limit!r}")


def check_handler(handler: object) -> None:
    if not callable(handler):
        raise InvalidInput(f"a handler is called with each event, and {handler!r} cannot be called")


def check_partition(partition: int, topic: LogTopic) -> None:
    if problem := partition_problem(partition, topic.partitions):
        raise InvalidInput(problem)


def check_numbered(numbered: Numbered) -> None:
    number, kept = numbered.number, numbered.kept
    if type(number) is not int or not 0 <= number <= MAX_NUMBER:
        raise InvalidInput(f"a number is whole and from 0 to {MAX_NUMBER}, not {number!r}")
    if type(kept) is not int or kept < 0:
        raise InvalidInput(f"kept must be 0 or more, not {kept!r}")
