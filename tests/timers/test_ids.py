"""The forms of a timer's name."""

from __future__ import annotations

import pytest

from chronoline.timers.ids import TimerName, parse_name

_BOTH = TimerName(1234, replicas_filter=0xA0000000C0000001, factor=2)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("00000000000004d2a0000000c0000001", TimerName(1234, replicas_filter=0xA0000000C0000001)),
        ("00000000000004D2-2", TimerName(1234, factor=2)),
        ("ffffffffffffffff-10", TimerName(2**64 - 1, factor=10)),
        ("00000000000004d2a0000000c0000001-2", _BOTH),
        ("00000000000004d2a0000000c0000001-2/and-more", _BOTH),
        ("00000000000004d2-2/and-more", TimerName(1234, factor=2)),
        ("00000000000004d2a0000000c0000001?x", TimerName(1234, replicas_filter=0xA0000000C0000001)),
    ],
)
def test_a_name_is_read(text: str, name: TimerName) -> None:
    assert parse_name(text) == name


@pytest.mark.parametrize(
    "name", [TimerName(1234, replicas_filter=7), TimerName(2**64 - 1, factor=3), _BOTH]
)
def test_a_name_is_read_as_it_was_written(name: TimerName) -> None:
    assert parse_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1234",
        "00000000000004d2",
        "00000000000004d2-",
        "00000000000004d2-x",
        "x0000000000004d2-2",
        "00000000000004d2a0000000c000000",
        "00000000000004d2a0000000c00000011",
        "00000000000004d2a0000000c000000-2",
        "references",
    ],
)
def test_invalid_name_is_refused(text: str) -> None:
    assert parse_name(text) is None
