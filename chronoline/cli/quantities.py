"""Durations, sizes and counts, as people write and read them."""

from __future__ import annotations

from chronoline.core.quantities import parse_duration_ms, parse_size_bytes

__all__ = ["count_of", "parse_duration_ms", "parse_size_bytes"]


def count_of(number: int, noun: str) -> str:
    """Such as 1 event, or 1,200 events."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
