"""Where reading begins, as people write it."""

from __future__ import annotations

import re

from chronoline.cli.quantities import parse_duration_ms
from chronoline.core.errors import InvalidInput
from chronoline.log.start_positions import Start
from chronoline.runtime.timestamps import from_ms, parse_moment_ms

_SEQUENCE = re.compile(r"[0-9]{1,18}")


def parse_start(text: str, what: str, now_ms: int) -> Start:
    """Where reading begins: earliest, latest, a sequence, a time, or how long ago, such as -10m."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if _SEQUENCE.fullmatch(text):
        return int(text)
    try:
        if text.startswith("-"):
            return from_ms(max(0, now_ms - parse_duration_ms(text[1:], what)))
        return from_ms(parse_moment_ms(text, what))
    except InvalidInput as error:
        raise InvalidInput(
            f"{what} {text!r} is not a start: write earliest, latest, a sequence, a time with its "
            "zone such as 2026-01-31T12:00:00Z, or how long ago such as -10m"
        ) from error
