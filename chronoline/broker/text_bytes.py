"""Bytes where only text can stand: as they are where they are valid UTF-8, and else as base64."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from chronoline.core.message import Header


def show_bytes(**named: bytes | None) -> dict[str, Any]:
    """Each that there is, by its name; as base64 by another one, `…_base64`."""
    shown: dict[str, Any] = {}
    for name, value in named.items():
        if value is None:
            continue
        try:
            shown[name] = value.decode()
        except UnicodeDecodeError:
            shown[f"{name}_base64"] = base64.b64encode(value).decode()
    return shown


def show_headers(headers: Iterable[Header]) -> list[tuple[str, Any]]:
    """In their order; a value is text, None, or `{"base64": …}`."""
    return [(name, _header_value(value)) for name, value in headers]


def _header_value(value: bytes | None) -> Any:
    shown = show_bytes(text=value)
    return {"base64": shown["text_base64"]} if "text_base64" in shown else shown.get("text")
