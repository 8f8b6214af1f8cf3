"""Durations and sizes, as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_TIME_MS

_DURATIONS_MS = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
_SIZES_BYTES = {
    "b": 1,
    "kb": 1_000,
    "mb": 1_000**2,
    "gb": 1_000**3,
    "tb": 1_000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_MAX_BYTES = (1 << 63) - 1
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)")


def parse_duration_ms(text: str, what: str) -> int:
    """Such as 250ms, 90s, 15m, 1.5h, 7d or 2w, in whole milliseconds, rounded down."""
    value = find_duration_ms(text)
    if value is None:
        raise InvalidInput(
            f"{what} {text!r} is not a duration: write 250ms, 90s, 15m, 1.5h, 7d or 2w"
        )
    return value


def find_duration_ms(text: str) -> int | None:
    """The same; None if the text is no duration."""
    return _parse(text, _DURATIONS_MS, MAX_TIME_MS)


def parse_size_bytes(text: str, what: str) -> int:
    """Such as 4096B, 64KiB, 8MiB, 1.5GiB, 1TiB, or 500MB, which is decimal; in bytes, rounded down."""
    value = _parse(text, _SIZES_BYTES, _MAX_BYTES)
    if value is None:
        raise InvalidInput(f"{what} {text!r} is not a size: write 4096B, 64KiB, 8MiB, 1GiB or 1TiB")
    return value


def _parse(text: str, units: Mapping[str, int], most: int) -> int | None:
    match = _QUANTITY.fullmatch(text.strip())
    unit = units.get(match[2].lower()) if match else None
    if match is None or unit is None:
        return None
    value = int(Decimal(match[1]) * unit)
    return value if value <= most else None
