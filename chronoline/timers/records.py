"""Records as JSON, for other nodes and for the journal.

Moments never travel. The start of a timer is sent as its age, and the receiver counts back from its own
clock, so that nodes need no common one. The time under way makes the timer that much later, never earlier.

Every number and text is bounded, so that every record that a node derives can be saved, sent and read again.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.runtime.traces import TRACEPARENT, checked_context
from chronoline.timers.plan import TimerPlan
from chronoline.timers.requests import LONGEST_MS, MOST_POPS, MOST_REPLICAS
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
                id=_number(record["id"], most=(1 << 64) - 1),
                version=Version(
                    _number(record["version"], most=MOST_NUMBER), self._shared(_name(record["by"]))
                ),
                plan=None if record["plan"] is None else self._plan(record["plan"]),
                start_ms=now_ms - _number(record["age"], least=-MOST_AGE_MS, most=MOST_AGE_MS),
                popped=_number(record["popped"], most=MOST_POPS),
                step=_number(record["step"], most=MOST_STEPS),
                wait_ms=_number(record["wait"], most=MOST_MS),
                renewed=_number(record.get("renewed", 0), most=MOST_STEPS),
                replicas=self._shared(_names(record["replicas"])),
                view=self._shared(_name(record["view"])),
                kept_ms=_number(record["kept"], least=-MOST_MS, most=MOST_MS),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            problem = f"{error}" if isinstance(error, ValueError) else f"{error!r}"
            raise InvalidInput(f"not a timer's record: {problem:.300}") from None

    def _plan(self, plan: Any) -> TimerPlan:
        read = TimerPlan(
            interval_ms=_number(plan["interval"], most=LONGEST_MS),
            repeat_for_ms=_number(plan["repeat_for"], most=LONGEST_MS),
            uri=self._shared(_text(plan["uri"])),
            opaque=_text(plan["opaque"]),
            factor=_number(plan["factor"], least=1, most=MOST_REPLICAS),
            tags=self._shared(
                tuple(
                    (_text(tag), _number(count, most=_MOST_TAGGED)) for tag, count in plan["tags"]
                )
            ),
            # Records of nodes of an earlier version have none.
            traceparent=checked_context(plan.get(TRACEPARENT)).get(TRACEPARENT),
        )
        _number(read.pops, most=MOST_POPS)
        return read


_MOST_WORDS = 10_000
_MOST_TAGGED = 1 << 40
_MOST_NAMES = 1_000
_MOST_NAME = 1_000


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


def _name(value: Any) -> str:
    if len(value) > _MOST_NAME:
        raise ValueError(f"a name of {len(value):,} characters")
    return _text(value)


def _names(value: Any) -> tuple[str, ...]:
    if type(value) not in (list, tuple) or len(value) > _MOST_NAMES:
        raise ValueError(f"{value!r:.100} is not a list of at most {_MOST_NAMES} nodes")
    return tuple(map(_name, value))
