"""Requests of clients: the JSON of a timer, parsed and validated once.

The members are those of Metaswitch Chronos, with its rules; members that it does not know are ignored.
`interval` and `repeat-for` are seconds and may be fractions; `interval-ms` and `repeat-for-ms` are the same
in whole milliseconds. Some input that Metaswitch Chronos ignores without a word is refused: tags that
cannot be read, and callbacks by another mechanism beside `http`.
"""

from __future__ import annotations

import json
import math
from typing import Any

from chronoline.core.errors import InvalidInput
from chronoline.runtime.json_bounds import check_json_bounds
from chronoline.runtime.traces import TRACEPARENT, checked_context
from chronoline.timers.plan import (
    LONGEST_MS,
    TimerPlan,
    check_plan,
    checked_tags,
    checked_uri,
)

DEFAULT_FACTOR = 2
MOST_BODY_BYTES = 1024 * 1024
_MOST_COUNT = (1 << 32) - 1
_ABSENT = object()


class _NoNumber(ValueError):
    """Refuses constants such as NaN."""


def read_plan(body: bytes, *, factor: int | None, traceparent: str | None = None) -> TimerPlan:
    """A plan from a request: its body, the factor in its URL and its header `traceparent`, if there are any.

    An invalid `traceparent` is ignored, as W3C Trace Context wants it.
    """
    asked = _object(_parse(body), "the body")
    interval_ms, repeat_for_ms = _timing(_object(_member(asked, "timing"), "timing"))
    uri, opaque = _callback(_object(_member(asked, "callback"), "callback"))
    plan = TimerPlan(
        interval_ms=interval_ms,
        repeat_for_ms=repeat_for_ms,
        uri=uri,
        opaque=opaque,
        factor=_factor(asked.get("reliability", {}), factor),
        tags=_tags(asked.get("statistics", _ABSENT)),
        traceparent=checked_context(traceparent).get(TRACEPARENT),
    )
    check_plan(plan)
    return plan


def _parse(body: bytes) -> Any:
    check_json_bounds(body)
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except RecursionError:
        raise InvalidInput("the body is nested too deeply") from None
    except (json.JSONDecodeError, UnicodeDecodeError, _NoNumber) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    except ValueError:  # Python refuses longer ones
        raise InvalidInput("the body has a number of thousands of digits") from None


def _refuse_constant(name: str) -> None:
    raise _NoNumber(f"{name} is not a number of JSON")


def _member(where: dict[str, Any], name: str, path: str = "") -> Any:
    if name not in where:
        raise InvalidInput(f"{path}{name} is missing")
    return where[name]


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidInput(f"{what} must be an object")
    return value


def _timing(timing: dict[str, Any]) -> tuple[int, int]:
    interval_ms = _duration_ms(timing, "interval")
    if interval_ms is None:
        raise InvalidInput("timing.interval is missing: say after how many seconds the timer pops")
    repeat_for_ms = _duration_ms(timing, "repeat-for")
    if repeat_for_ms is None:
        repeat_for_ms = interval_ms
    return interval_ms, repeat_for_ms


def _duration_ms(timing: dict[str, Any], name: str) -> int | None:
    """A duration rounded up to whole milliseconds, so that no timer is early."""
    in_ms = f"{name}-ms"
    if name in timing and in_ms in timing:
        raise InvalidInput(f"timing has both {name} and {in_ms}: say one of them")
    if in_ms in timing:
        what, value = f"timing.{in_ms}", timing[in_ms]
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidInput(f"{what} must be a whole number of milliseconds")
        duration_ms = value
    elif name in timing:
        what, value = f"timing.{name}", timing[name]
        if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > LONGEST_MS:
            raise InvalidInput(f"{what} must be a number of seconds, at most {LONGEST_MS // 1000}")
        # Binary fractions mislead: 0.29 * 1000 is more than 290.
        duration_ms = value * 1000 if isinstance(value, int) else math.ceil(round(value * 1000, 6))
    else:
        return None
    if not 0 <= duration_ms <= LONGEST_MS:
        raise InvalidInput(f"{what} must be from 0 to a hundred years")
    return duration_ms


def _callback(callback: dict[str, Any]) -> tuple[str, str]:
    http = _object(_member(callback, "http", "callback."), "callback.http")
    if others := sorted(set(callback) - {"http"}):
        raise InvalidInput(
            f"callback has {others[0]!r:.100} beside http: there is no mechanism but http"
        )
    uri = _member(http, "uri", "callback.http.")
    opaque = _member(http, "opaque", "callback.http.")
    if not isinstance(uri, str) or not isinstance(opaque, str):
        raise InvalidInput("callback.http.uri and callback.http.opaque must be strings")
    return checked_uri(uri), opaque


def _factor(reliability: Any, in_url: int | None) -> int:
    named = _object(reliability, "reliability").get("replication-factor")
    if named is None:
        return DEFAULT_FACTOR if in_url is None else in_url
    if isinstance(named, bool) or not isinstance(named, int):
        raise InvalidInput("reliability.replication-factor must be a whole number")
    if in_url is not None and named != in_url:
        raise InvalidInput(
            f"reliability.replication-factor is {named}, but {in_url} in the timer's URL; it stays the same"
        )
    return named


def _tags(statistics: Any) -> tuple[tuple[str, int], ...]:
    tags: dict[str, int] = {}
    if statistics is _ABSENT:
        return ()
    listed = _object(statistics, "statistics").get("tag-info", [])
    if not isinstance(listed, list):
        raise InvalidInput("statistics.tag-info must be a list")
    for at, entry in enumerate(listed):
        where = f"statistics.tag-info[{at}]"
        tag, count = _member(_object(entry, where), "type", f"{where}."), entry.get("count", 1)
        if not isinstance(tag, str):
            raise InvalidInput(f"{where}.type must be text")
        if type(count) is not int or not 0 < count <= _MOST_COUNT:
            raise InvalidInput(f"{where}.count must be a whole number from 1 to {_MOST_COUNT}")
        tags[tag] = tags.get(tag, 0) + count
    return checked_tags(tuple(tags.items()))
