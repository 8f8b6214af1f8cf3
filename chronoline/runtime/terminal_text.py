"""Text from anywhere, such as bodies and ids of messages, for terminals and logs: it cannot drive them.

Terminals obey escape sequences (ESC, and the C1 characters of ISO 6429), and invisible characters turn the
direction of what is read. All of them are what Python calls not printable.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any


def printable(text: str, keep: str = "", *, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """The text with a substitute for each character that is not printable, but for those to keep."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else instead for each in text)


class TextLines(logging.Formatter):
    """Lines of a log for people."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), keep="\n\t")


def json_text(
    value: Any,
    *,
    indent: int | None = None,
    compact: bool = False,
    default: Callable[[Any], Any] | None = None,
) -> str:
    """JSON in which characters that are not printable are escaped (\\u001b), and other letters are not."""
    separators = (",", ":") if compact else None
    text = json.dumps(
        value, ensure_ascii=False, indent=indent, separators=separators, default=default
    )
    if text.isprintable():
        return text
    keep = "" if indent is None else "\n"
    return "".join(each if each.isprintable() or each in keep else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    """Beyond the first 65,536 characters, as the pair that JSON has for it."""
    pair = character.encode("utf-16-be", "surrogatepass")
    units = (int.from_bytes(pair[place : place + 2], "big") for place in range(0, len(pair), 2))
    return "".join(f"\\u{unit:04x}" for unit in units)
