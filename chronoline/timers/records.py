"""Records as JSON: what nodes tell each other, and what a journal keeps.

A moment never travels. The start of a timer is told as its age, and the node that hears it counts back from
its own clock, so that nodes need no common one. What the message took to arrive makes the timer that much
later, never earlier.
"""

from __future__ import annotations

from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.timers.plan import Plan
from chronoline.timers.timer import Timer, Version


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
        },
    }


class Reader:
    """Reads records, with one copy of the words that thousands of them share."""

    def __init__(self) -> None:
        self._words: dict[Any, Any] = {}

    def timer(self, record: Any, now_ms: int) -> Timer:
        """The timer of a record that is as old as it says, now."""
        try:
            return Timer(
                id=_number(record["id"], most=(1 << 64) - 1),
                version=Version(_number(record["version"]), self._shared(_text(record["by"]))),
                plan=None if record["plan"] is None else self._plan(record["plan"]),
                start_ms=now_ms - _number(record["age"], least=-(1 << 62)),
                popped=_number(record["popped"]),
                step=_number(record["step"]),
                wait_ms=_number(record["wait"]),
                renewed=_number(record.get("renewed", 0)),
                replicas=self._shared(tuple(map(_text, record["replicas"]))),
                view=self._shared(_text(record["view"])),
                kept_ms=_number(record["kept"], least=-(1 << 62)),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"not a timer's record: {error!r}") from None

    def _plan(self, plan: Any) -> Plan:
        return Plan(
            interval_ms=_number(plan["interval"]),
            repeat_for_ms=_number(plan["repeat_for"]),
            uri=self._shared(_text(plan["uri"])),
            opaque=_text(plan["opaque"]),
            factor=_number(plan["factor"], least=1),
            tags=self._shared(tuple((_text(tag), _number(count)) for tag, count in plan["tags"])),
        )

    def _shared(self, word: Any) -> Any:
        if len(self._words) > _MOST_WORDS:
            self._words.clear()
        return self._words.setdefault(word, word)


_MOST_WORDS = 10_000


def _number(value: Any, *, least: int = 0, most: int = 1 << 62) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{value!r} is not a number from {least} to {most}")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not a text")
    return value
