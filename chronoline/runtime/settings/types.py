"""The types of settings: values, and their text forms."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, SecretStr

from chronoline.core.addresses import check_address
from chronoline.core.errors import InvalidInput
from chronoline.core.units import parse_duration_ms, parse_size_bytes

_DIGITS = re.compile(r"[0-9]{1,18}")
_MOST_SHOWN = 40


def _whole(value: object) -> int:
    """A whole number, also as text, since the environment has only text."""
    if isinstance(value, str) and _DIGITS.fullmatch(value.strip()):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError(f"must be a whole number, not {shown(value)}")


def _duration_ms(value: object) -> int:
    """Such as 250ms or 5s; a bare number counts milliseconds, as the setting's name says."""
    try:
        return _whole(value)
    except ValueError:
        return _timespan_ms(value)


def _timespan_ms(value: object) -> int:
    """Such as 250ms or 5s. Bare numbers are refused, since they could be seconds or milliseconds."""
    try:
        if isinstance(value, str):
            return parse_duration_ms(value, "")
        if value == 0 and not isinstance(value, bool):
            return 0
    except InvalidInput:
        pass
    bare = isinstance(value, int) or (isinstance(value, str) and _DIGITS.fullmatch(value))
    what = "has no unit" if bare and not isinstance(value, bool) else "is not a duration"
    raise ValueError(f"{shown(value)} {what}; write 250ms, 5s, 15m or 1.5h")


def _size_bytes(value: object) -> int:
    """Such as 64KiB or 16MiB; a bare number counts bytes, as the setting's name says."""
    try:
        return _whole(value)
    except ValueError:
        pass
    try:
        return parse_size_bytes(value if isinstance(value, str) else "", "")
    except InvalidInput:
        raise ValueError(f"{shown(value)} is not a size; write 4096, 64KiB or 16MiB") from None


def _nothing(value: object) -> object:
    """An empty text means no value: the environment cannot omit a setting that the file has."""
    return None if value == "" else value


def _listed(value: object) -> object:
    """A list, or text separated by commas."""
    if isinstance(value, str):
        return [each.strip() for each in value.split(",") if each.strip()]
    return value


def _address(text: str) -> str:
    return check_address(text, example="127.0.0.1:9400") if text else text


Whole = Annotated[int, BeforeValidator(_whole)]
DurationMs = Annotated[int, BeforeValidator(_duration_ms)]
TimespanMs = Annotated[int, BeforeValidator(_timespan_ms)]
OptionalTimespanMs = Annotated[
    Annotated[int, BeforeValidator(_timespan_ms)] | None, BeforeValidator(_nothing)
]
SizeBytes = Annotated[int, BeforeValidator(_size_bytes)]
OptionalText = Annotated[str | None, BeforeValidator(_nothing)]
Secret = Annotated[SecretStr | None, BeforeValidator(_nothing)]
"""A secret, which is shown as stars."""
Listed = Annotated[tuple[str, ...], BeforeValidator(_listed)]


_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]+\]")


def _host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _HOST.fullmatch(name):
            raise ValueError(
                f"{shown(name)} is no name of a host; write timers.example, without scheme and port"
            )
    return names


HostNames = Annotated[Listed, AfterValidator(_host_names)]
Address = Annotated[str, AfterValidator(_address)]


def shown(value: object) -> str:
    """A short form of a value for errors. Never called with a value that may hold a password."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
