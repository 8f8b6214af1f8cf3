"""Options of the formats, in Spark's manner: text, names in any case. They are checked on the driver.

Every problem is an `InvalidInput` that names the option and says what to write instead. A misspelt option
would be ignored silently, so `finish` refuses unknown ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from chronoline.core.errors import InvalidInput
from chronoline.core.units import find_duration_ms
from chronoline.runtime.timestamps import parse_when_ms

_WHOLE = re.compile(r"[0-9]{1,18}")
_TRUTHS = {"true": True, "false": False}
_MOST = (1 << 63) - 1

Default = TypeVar("Default", int, None)


class Options:
    """Reads options one by one, and remembers which are known."""

    def __init__(self, format_name: str, given: Mapping[str, str]) -> None:
        self._format = format_name
        self._given = {name.lower(): value for name, value in given.items()}
        self._known: dict[str, str] = {}

    def optional(self, name: str, default: str | None = None) -> str | None:
        """The text of an option; an empty one counts as not given."""
        self._known[name.lower()] = name
        return self._given.get(name.lower()) or default

    def required(self, name: str, example: str) -> str:
        value = self.optional(name)
        if value is None:
            raise InvalidInput(
                f"format {self._format} needs the option {name!r}, such as"
                f" .option({name!r}, {example!r})"
            )
        return value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of a few words."""
        value = self.optional(name, default) or default
        chosen = next((each for each in choices if each.lower() == value.lower()), None)
        if chosen is None:
            raise self.problem(name, value, f"write one of: {', '.join(choices)}")
        return chosen

    def boolean(self, name: str, default: bool) -> bool:
        value = self.optional(name)
        if value is None:
            return default
        if value.lower() not in _TRUTHS:
            raise self.problem(name, value, "write true or false")
        return _TRUTHS[value.lower()]

    def whole(
        self, name: str, default: Default, *, low: int = 0, high: int = _MOST
    ) -> int | Default:
        """A whole number within bounds."""
        value = self.optional(name)
        if value is None:
            return default
        if not _WHOLE.fullmatch(value) or not low <= int(value) <= high:
            raise self.problem(name, value, f"write a whole number from {low} to {high}")
        return int(value)

    def duration_ms(self, name: str, default: Default, *, low_ms: int = 0) -> int | Default:
        """Such as 250ms, 90s, 15m, 1.5h, 7d or 2w, in whole milliseconds, rounded down."""
        value = self.optional(name)
        if value is None:
            return default
        parsed = find_duration_ms(value)
        if parsed is None:
            raise self.problem(name, value, "write a duration: 250ms, 90s, 15m, 1.5h, 7d or 2w")
        if parsed < low_ms:
            raise self.problem(name, value, f"it must be at least {low_ms} ms")
        return parsed

    def moment_ms(self, name: str, default: Default, *, now_ms: int) -> int | Default:
        """A time with its zone, or relative to now: now, +1h, -10m. In UTC ms, fractions rounded up."""
        value = self.optional(name)
        if value is None:
            return default
        try:
            return parse_when_ms(value, name, now_ms)
        except InvalidInput:
            raise self.problem(
                name, value, "write a time with its zone, 2026-01-31T12:00:00Z, or now, +1h, -10m"
            ) from None

    def finish(self, *also_known: str) -> None:
        """Refuses unknown options; those in `also_known` are ignored."""
        known = {**self._known, **{name.lower(): name for name in also_known}}
        unknown = sorted(set(self._given) - set(known))
        if unknown:
            raise InvalidInput(
                f"format {self._format} has no option {unknown[0]!r} here; it has:"
                f" {', '.join(sorted(known.values()))}"
            )

    def problem(self, name: str, value: str, advice: str) -> InvalidInput:
        """The error for an option with an invalid value."""
        return InvalidInput(
            f"option {name!r} of format {self._format} cannot be {value!r}: {advice}"
        )
