"""Bounds on JSON of others, checked before it is parsed: a parser makes 50 to 200 bytes out of two.

The check looks at the bytes alone and allocates little. All its passes are searches in C, so that 16 MiB take
20 ms, and 100 ms where a text in them looks like many values.
"""

from __future__ import annotations

import json

from chronoline.core.errors import InvalidInput

MOST_VALUES = 200_000
"""The most items and fields of one JSON text: a batch of 10,000 messages has room for twenty of each."""
MOST_DIGITS = 100
"""The most digits of one number. Converting a number takes time by the square of its digits."""
_SMALL_BYTES = 16 * 1024
"""A smaller text is not looked at: it cannot have many values, or many long numbers."""
_DIGITS_TO_ZERO = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER = b"0" * (MOST_DIGITS + 1)
_UTF_8 = ("utf-8", "utf-8-sig")


def check_json_bounds(text: bytes) -> None:
    """Raises `InvalidInput` for too many values, for too long numbers, and unless it is UTF-8."""
    if json.detect_encoding(text) not in _UTF_8:
        raise InvalidInput("the body is not JSON: it is not UTF-8")
    if len(text) <= _SMALL_BYTES or (_values(text) <= MOST_VALUES and not _has_long_number(text)):
        return
    # The contents of strings may look like values.
    outside = _without_strings(text)
    if _values(outside) > MOST_VALUES:
        raise _too_many()
    if _has_long_number(outside):
        raise InvalidInput(
            f"the body has a number of more than {MOST_DIGITS} digits: send it as text"
        )


def _values(text: bytes) -> int:
    """The number of items and fields, at most: each follows a comma or an opening bracket."""
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def _has_long_number(text: bytes) -> bool:
    return _LONG_NUMBER in text.translate(_DIGITS_TO_ZERO)


def _without_strings(text: bytes) -> bytes:
    """The text outside of strings. In a text that is no JSON, at least what precedes the fault.

    A backslash outside of a string is a fault.
    """
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Each string is an item, a key, or the value of a key.
    if plain.count(b'"') > 4 * MOST_VALUES:
        raise _too_many()
    return b"".join(plain.split(b'"')[::2])


def _too_many() -> InvalidInput:
    return InvalidInput(
        f"the body has more than {MOST_VALUES:,} items and fields: send it in parts, or long JSON as text"
    )
