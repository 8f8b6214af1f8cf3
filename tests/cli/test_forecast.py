from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from rich.text import Text

from chronoline.cli.forecast import draw
from chronoline.client import Client, Forecast
from chronoline.runtime.timestamps import from_ms
from tests.cli.command import Command

NOON_MS = 1_769_860_800_000
START = datetime(2100, 1, 1, tzinfo=UTC)


def steps(*totals: int, step_ms: int = 60_000, start_ms: int = NOON_MS) -> list[Forecast]:
    return [
        Forecast(
            start=from_ms(start_ms + number * step_ms), available=0, processing=0, waiting=total
        )
        for number, total in enumerate(totals)
    ]


def drawn(found: list[Forecast], width: int, step_ms: int = 60_000) -> list[str]:
    return [line.plain for line in draw(found, step_ms, width)]


def test_longest_bar_fills_the_terminal() -> None:
    lines = drawn(steps(1_000, 500, 1), 40)
    assert lines == [
        "12:00  1,000  " + "█" * 26,
        "12:01    500  " + "█" * 13,
        "12:02      1  ▏",
    ]
    assert len(lines[0]) == 40
    assert len(drawn(steps(7), 3)[0].rstrip("█")) < len(drawn(steps(7), 3)[0])


def test_steps_without_messages_are_counted() -> None:
    assert drawn(steps(0, 0, 2, 0, 1), 20) == [
        "  … 2 steps without messages",
        "12:02  2  " + "█" * 10,
        "  … 1 step without messages",
        "12:04  1  " + "█" * 5,
    ]
    assert drawn(steps(0, 0), 20) == ["  … 2 steps without messages"]
    assert drawn([], 20) == []


@pytest.mark.parametrize(
    ("step_ms", "start_ms", "label"),
    [
        (60_000, NOON_MS, "12:00"),
        (60_000, NOON_MS + 7_000, "12:00:07"),
        (1_000, NOON_MS, "12:00:00"),
        (250, NOON_MS + 250, "12:00:00.250"),
        (86_400_000, NOON_MS, "2026-01-31 12:00"),
    ],
)
def test_labels_are_as_short_as_possible(step_ms: int, start_ms: int, label: str) -> None:
    first, _ = drawn(steps(1, 1, step_ms=step_ms, start_ms=start_ms), 80, step_ms)
    assert first.startswith(f"{label}  1  ")


def test_bar_has_the_colours_of_the_statuses() -> None:
    mixed = Forecast(start=from_ms(NOON_MS), available=1, processing=2, waiting=5)
    (line,) = draw([mixed], 60_000, len("12:00  8  ") + 8)
    assert isinstance(line, Text)
    parts = [(line.plain[span.start : span.end], str(span.style)) for span in line.spans]
    assert parts == [("█", "red"), ("██", "yellow"), ("█████", "blue")]


def test_forecast_is_counted_and_drawn(command: Command, client: Client, topic: str) -> None:
    for minutes in (0, 0, 2):
        client.send(topic, due=START + timedelta(minutes=minutes))
    given = ["forecast", topic, "--from=2100-01-01T00:00:00Z", "--to=2100-01-01T00:03:00Z"]
    shown = command(*given, "--step=1m").splitlines()
    assert shown[0] == (
        f"{topic}: 3 messages from 2100-01-01T00:00:00.000Z to 2100-01-01T00:03:00.000Z"
    )
    assert [line[:8] for line in shown[1:]] == ["00:00  2", "  … 1 st", "00:02  1"]
    assert max(map(len, shown)) == 200
    assert command.json(*given) == [
        {
            "start": f"2100-01-01T00:0{number}:00.000Z",
            "available": 0,
            "processing": 0,
            "waiting": count,
        }
        for number, count in enumerate((2, 0, 1))
    ]


def test_default_is_the_next_hour(command: Command, client: Client, topic: str) -> None:
    client.send(topic, delay=1_800)
    found = command.json("forecast", topic)
    assert len(found) == 60
    assert sum(each["waiting"] for each in found[29:31]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to=now"], "--to now is not after --from now"),
        (["--from=soon"], "--from 'soon' is no moment"),
        (["--step=0ms"], "--step must be at least 1ms"),
        (["--step=1"], "--step '1' is not a duration"),
        (["--step=1ms"], "a forecast has at most 100000 steps"),
    ],
)
def test_bad_options_are_refused(
    command: Command, topic: str, arguments: list[str], words: str
) -> None:
    assert words in command.refusal("forecast", topic, *arguments)


def test_messages_before_the_range_are_reported(
    command: Command, client: Client, topic: str
) -> None:
    client.send(topic)
    given = ["forecast", topic, "--from=2100-01-01T00:00:00Z", "--to=2100-01-01T00:03:00Z"]
    shown = command(*given).splitlines()
    assert shown[0].startswith(f"{topic}: 0 messages from ")
    assert shown[1:] == ["  … 1 message before that", "  … 3 steps without messages"]
