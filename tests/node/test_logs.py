from __future__ import annotations

import json
import logging
import sys
from typing import Any

from chronoline.node.logs import JsonLines


def line(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonLines().format(record)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.getLogger("x").makeRecord(
        "x.y", logging.WARNING, "f.py", 1, message, args, None, extra=extra
    )
    made.created = 1_769_860_800.25
    return made


def test_record_is_a_line_with_action_and_entity() -> None:
    assert line(record("%s came", "ä\n", action="came", topic="t", count=3)) == {
        "ts": "2026-01-31T12:00:00.250Z",
        "level": "warning",
        "logger": "x.y",
        "message": "ä\n came",
        "action": "came",
        "topic": "t",
        "count": 3,
    }


def test_plain_record_has_four_fields() -> None:
    assert set(line(record("it came"))) == {"ts", "level", "logger", "message"}


def test_exception_is_part_of_the_line() -> None:
    failed = record("it failed", place=object)
    try:
        raise ValueError("no")
    except ValueError:
        failed.exc_info = sys.exc_info()
    found = line(failed)
    assert found["trace"].endswith("ValueError: no")
    assert found["place"] == "<class 'object'>"
