"""Records as JSON, for other nodes and for the journal.

Moments never travel. The start of a timer is sent as its age, and the receiver counts back from its own
clock, so that nodes need no common one. The time under way makes the timer that much later, never earlier.

Every number and text is bounded, so that every record that a node derives can be saved, sent and read again,
and a plan passes the checks of a client's request.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.runtime.traces import TRACEPARENT, checked_context
from chronoline.timers.plan import (
    LONGEST_MS,
    MOST_POPS,
    MOST_REPLICAS,
    MOST_TAGGED,
    TimerPlan,
    check_plan,
    checked_tags,
    checked_uri,
)
from chronoline.timers.timer import MOST_AGE_MS, MOST_MS, MOST_NUMBER, MOST_STEPS, Timer, Version


def to_record(timer: Timer, now_ms: int) -> dict[str, Any]:
    """A record of a timer, as old as it is now."""
    plan = timer.plan
    return {
        "id": timer.id,
        "version": timer.version.number,
        "by": timer.version.giver,
        "age": now_ms - timer.start_ms,
        "popped": timer.popped,
        "step": timer.step,
        "wait": timer.wait_ms,
        "renewed": timer.renewed,
        "replicas": timer.replicas,
        "view": timer.view,
        "kept": timer.kept_ms,
        "plan": None
        if plan is None
        else {
            "interval": plan.interval_ms,
            "repeat_for": plan.repeat_for_ms,
            "uri": plan.uri,
            "opaque": plan.opaque,
            "factor": plan.factor,
            "tags": plan.tags,
            **({} if plan.traceparent is None else {TRACEPARENT: plan.traceparent}),
        },
    }


class Reader:
    """Reads records, and interns the texts that thousands of them share."""

    def __init__(self) -> None:
        self._shared = lru_cache(_MOST_WORDS)(lambda word: word)

    def timer(self, record: Any, now_ms: int) -> Timer:
        """The timer of a record that is as old as it says, now."""
        try:
            return Timer(
                id=_number(record["id"], most=_HIGHEST_ID),
                version=Version(
                    _number(record["version"], most=MOST_NUMBER),
                    self._shared(name_of(record["by"])),
                ),
                plan=None if record["plan"] is None else self._plan(record["plan"]),
                start_ms=now_ms - _number(record["age"], least=-MOST_AGE_MS, most=MOST_AGE_MS),
                popped=_number(record["popped"], most=MOST_POPS),
                step=_number(record["step"], most=MOST_STEPS),
                wait_ms=_number(record["wait"], most=MOST_MS),
                renewed=_number(record.get("renewed", 0), most=MOST_STEPS),
                replicas=self._shared(names_of(record["replicas"])),
                view=self._shared(name_of(record["view"])),
                kept_ms=_number(record["kept"], least=-MOST_MS, most=MOST_MS),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            problem = f"{error}" if isinstance(error, ValueError) else f"{error!r}"
            raise InvalidInput(f"not a timer's record: {problem:.300}") from None

    def _plan(self, plan: Any) -> TimerPlan:
        read = TimerPlan(
            interval_ms=_number(plan["interval"], most=LONGEST_MS),
            repeat_for_ms=_number(plan["repeat_for"], most=LONGEST_MS),
            uri=checked_uri(_text(plan["uri"])),
            opaque=_text(plan["opaque"]),
            factor=_number(plan["factor"], least=1, most=MOST_REPLICAS),
            tags=_tags(plan["tags"]),
            # Records of nodes of an earlier version have none.
            traceparent=checked_context(plan.get(TRACEPARENT)).get(TRACEPARENT),
        )
        check_plan(read)
        return read


def id_of(value: Any) -> int | None:
    """A value that is to be the id of a timer; None if it cannot be one."""
    return value if type(value) is int and 0 <= value <= _HIGHEST_ID else None


_MOST_WORDS = 10_000
_HIGHEST_ID = (1 << 64) - 1
_MOST_NAMES = 1_000
MOST_NAME = 1_000


def _number(value: Any, *, least: int = 0, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r:.100} is not a number from {least} to {most}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r:.100} is not a text")
    if not value.isascii():
        value.encode()  # half of a surrogate pair can be neither called with nor shown
    return value


def _tags(value: Any) -> tuple[tuple[str, int], ...]:
    tags = tuple((_text(tag), _number(count, most=MOST_TAGGED)) for tag, count in value)
    if len(dict(tags)) < len(tags):
        raise ValueError("a tag is named twice")
    return checked_tags(tags)


def name_of(value: Any) -> str:
    """A value that is to be the name of a node or of a life. Raises `ValueError`."""
    if type(value) is not str or len(value) > MOST_NAME or not value.isprintable():
        raise ValueError(
            f"{value!r:.100} is not a printable name of at most {MOST_NAME} characters"
        )
    return value


def names_of(value: Any) -> tuple[str, ...]:
    """A value that is to be a list of nodes. Raises `ValueError`."""
    if type(value) not in (list, tuple) or len(value) > _MOST_NAMES:
        raise ValueError(f"{value!r:.100} is not a list of at most {_MOST_NAMES} nodes")
    return tuple(map(name_of, value))
