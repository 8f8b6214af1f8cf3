"""`chronoline forecast`: a chart of the messages ahead."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import AsJson, TopicName, duration
from chronoline.cli.output import count_of, quiet_when_nobody_reads
from chronoline.cli.topics import counts_json
from chronoline.core.errors import InvalidInput
from chronoline.core.units import parse_duration_ms
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.timestamps import from_ms, parse_when_ms, show_moment, to_ms

if TYPE_CHECKING:
    from chronoline.client.aio import Forecast

_DAY_MS = 86_400_000
_MINUTE_MS = 60_000
_SECOND_MS = 1_000
_EIGHTHS = " ▏▎▍▌▋▊▉"
_STYLES = {"available": "red", "processing": "yellow", "waiting": "blue"}


@asks_a_broker
def forecast(
    broker: Broker,
    topic: TopicName,
    *,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHEN", help="now, +10m, -10m, or a time with its zone."),
    ] = "now",
    end: Annotated[str, typer.Option("--to", metavar="WHEN", help="The same.")] = "+1h",
    step: Annotated[
        str, typer.Option(metavar="DURATION", help="The duration of a step, one bar.")
    ] = "1m",
    as_json: AsJson = False,
) -> None:
    """Draw the number of messages that fall due, step by step. Times are UTC.

    chronoline forecast reminders
    chronoline forecast reminders --to +1d --step 1h
    chronoline forecast reminders --to 2027-02-01T00:00:00Z --step 6h --json

    Waiting messages are blue. Messages that are due and not leased are red.
    Leased messages are yellow, at the end of their lease. Empty steps are
    left out.
    """
    now_ms = SystemClock().now_ms()
    start_ms = parse_when_ms(start, "--from", now_ms)
    end_ms = parse_when_ms(end, "--to", now_ms)
    step_ms = parse_duration_ms(step, "--step")
    if end_ms <= start_ms:
        raise InvalidInput(f"--to {end} is not after --from {start}")
    if step_ms < 1:
        raise InvalidInput("--step must be at least 1ms")
    with broker.client() as client:
        steps = client.forecast(topic, from_ms(start_ms), from_ms(end_ms), duration(step, "--step"))
        before = 0 if as_json else client.count(topic, end=from_ms(start_ms)).total
    if as_json:
        print(json.dumps([_as_json(each) for each in steps], indent=2))
        return
    console = Console()
    with quiet_when_nobody_reads():
        console.print(_title(topic, steps, start_ms, end_ms), soft_wrap=True)
        if before:
            console.print(f"  … {count_of(before, 'message')} before that", style="dim")
        for line in draw(steps, step_ms, console.width):
            console.print(line, no_wrap=True, crop=True)


def _as_json(step: Forecast) -> dict[str, object]:
    return {"start": show_moment(step.start), **counts_json(step)}


def _title(topic: str, steps: Sequence[Forecast], start_ms: int, end_ms: int) -> Text:
    total = count_of(sum(each.total for each in steps), "message")
    return Text.assemble(
        (topic, "bold"), f": {total} from {show_moment(start_ms)} to {show_moment(end_ms)}"
    )


def draw(steps: Sequence[Forecast], step_ms: int, width: int) -> Iterator[Text]:
    """A line for each step with messages; the longest bar fills the terminal."""
    most = max((each.total for each in steps), default=0)
    labels = _labels(steps, step_ms)
    digits = len(f"{most:,}")
    room = max(1, width - len(labels[0]) - digits - len("    ")) if labels else 1
    numbered = zip(labels, steps, strict=True)
    for empty, group in groupby(numbered, lambda each: each[1].total == 0):
        if empty:
            number = len(list(group))
            yield Text(f"  … {count_of(number, 'step')} without messages", style="dim")
            continue
        for label, each in group:
            yield Text.assemble(f"{label}  {each.total:>{digits},}  ", _bar(each, most, room))


def _labels(steps: Sequence[Forecast], step_ms: int) -> list[str]:
    """The labels of steps, as short as possible."""
    if not steps:
        return []
    starts_ms = [to_ms(each.start) for each in steps]
    long = starts_ms[-1] - starts_ms[0] >= _DAY_MS
    fine = step_ms % _MINUTE_MS or starts_ms[0] % _MINUTE_MS
    finest = step_ms % _SECOND_MS
    clock = "%H:%M:%S" if fine else "%H:%M"
    pattern = f"%Y-%m-%d {clock}" if long else clock
    return [
        from_ms(each).strftime(pattern) + (f".{each % _SECOND_MS:03}" if finest else "")
        for each in starts_ms
    ]


def _bar(step: Forecast, most: int, room: int) -> Text:
    """A bar with its parts side by side, to the eighth of a character."""
    bar = Text()
    eighths = max(1, round(8 * room * step.total / most))
    counts = {name: count for name, count in counts_json(step).items() if count}
    drawn = 0
    so_far = 0
    for name, count in counts.items():
        so_far += count
        end = eighths * so_far // step.total
        whole = end // 8 - drawn
        last = so_far == step.total
        bar.append("█" * whole + (_EIGHTHS[end % 8].strip() if last else ""), _STYLES[name])
        drawn += whole
    return bar
