"""`chronoline schedule`."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import (
    DEFAULT_GROUP,
    AsJson,
    Body,
    Group,
    MessageHeaders,
    MessageKey,
    TopicName,
    Yes,
    confirm,
    duration,
    parse_header,
    read_body,
)
from chronoline.cli.output import print_table, shown_bytes
from chronoline.core.errors import InvalidInput
from chronoline.core.schedule import CatchUpRule, occurrence_id
from chronoline.runtime.json_bytes import json_bytes, json_headers
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.timestamps import from_ms, parse_moment_ms, show_moment, to_ms

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from chronoline.client.schedules import Schedule
    from chronoline.client.sync import Client

app = typer.Typer(
    name="schedule",
    help="""Schedules: messages that come again and again.

    chronoline schedule create report jobs --cron '0 9 * * MON-FRI'
    chronoline schedule create poll jobs --every 15m
    chronoline schedule list
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_PAGE = 1_000
_TIMES = 5

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@app.command()
@asks_a_broker
def create(  # noqa: PLR0913 - the options of a command
    broker: Broker,
    name: Name,
    topic: TopicName,
    *,
    cron: Annotated[
        str | None,
        typer.Option(
            metavar="'M H D M W'",
            help="Minute, hour, day of month, month, day of week; with a sixth field in front, the second.",
        ),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="The time zone of --cron, such as Europe/Berlin; or UTC."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The interval, such as 30s or 15m.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Not before. An interval counts from here, else from now."
        ),
    ] = None,
    catch_up: Annotated[
        CatchUpRule,
        typer.Option(
            help="The occurrences to create of those that an outage of all brokers prevented."
        ),
    ] = CatchUpRule.ONE,
    body: Body = None,
    key: MessageKey = None,
    header: MessageHeaders = None,
    group: Group = DEFAULT_GROUP,
    replace: Annotated[
        bool, typer.Option("--replace", help="Change the schedule that has this name.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Create nothing, and show its next times.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Send a message again and again, and show its next times.

    chronoline schedule create report jobs --cron '0 9 * * MON-FRI'
    chronoline schedule create sum jobs --cron '30 2 * * *' --zone Europe/Berlin
    chronoline schedule create tick jobs --cron '*/10 * * * * *' --body tick
    chronoline schedule create poll jobs --every 15m --catch-up none
    chronoline schedule create poll jobs --every 5m --replace

    Each occurrence is a message, created up to a minute before it is due. Its id
    is the name and the time, such as report@2027-01-29T08:00:00.000Z.

    Without --replace an existing schedule is left as it is if it says the same.
    """
    if (cron is None) == (every is None):
        raise InvalidInput(
            "give either --cron or --every, such as --cron '0 9 * * MON-FRI' or --every 15m"
        )
    with broker.client(group=group) as client:
        made = client.create_schedule(
            name,
            topic,
            read_body(body),
            cron=cron,
            zone=zone,
            every=None if every is None else duration(every, "--every"),
            start=None if start is None else from_ms(parse_moment_ms(start, "--start")),
            catch_up=catch_up.value,
            key=None if key is None else os.fsencode(key),
            headers=tuple(map(parse_header, header or [])),
            if_exists="replace" if replace else "refuse",
            dry_run=dry_run,
            times=_TIMES,
        )
    if as_json:
        print(json.dumps(schedule_json(made), indent=2))
        return
    does = "would send" if dry_run else "is paused, and sends" if made.paused else "sends"
    print(f"schedule {name!r} {does} to topic {made.topic!r} {_rule(made)}; the next times:")
    _print_times(made)


@app.command("list")
@asks_a_broker
def list_schedules(
    broker: Broker,
    *,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Only those of this topic.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the schedules by name.

    chronoline schedule list
    chronoline schedule list --topic reminders
    """
    with broker.administration() as client:
        found = _all_schedules(client, topic)
    if as_json:
        print(json.dumps([schedule_json(each) for each in found], indent=2))
        return
    if not found:
        print("There are no schedules: `chronoline schedule create NAME TOPIC …` makes one.")
        return
    table = Table(Column("schedule", overflow="fold"), Column("topic", overflow="fold"))
    for name in ("fires", "next"):
        table.add_column(name, overflow="fold")
    for each in found:
        table.add_row(
            *(Text(printable(cell)) for cell in (each.name, each.topic, _rule(each), _next(each)))
        )
    print_table(table)


def _all_schedules(client: Client, topic: str | None) -> list[Schedule]:
    found: list[Schedule] = []
    while True:
        page = client.schedules(topic, limit=_PAGE, after=found[-1].name if found else "")
        found += page
        if len(page) < _PAGE:
            return found


@app.command()
@asks_a_broker
def show(broker: Broker, name: Name, as_json: AsJson = False) -> None:
    """Show a schedule and its next times.

    chronoline schedule show report
    """
    with broker.administration() as client:
        found = client.schedule(name, times=_TIMES)
    if as_json:
        print(json.dumps(schedule_json(found), indent=2))
        return
    rows = [("topic", found.topic), ("fires", _rule(found)), ("next", _next(found))]
    if found.start is not None:
        rows.append(("start", show_moment(found.start)))
    rows += [("catch-up", found.catch_up), ("group", found.producer_group)]
    if found.key is not None:
        rows.append(("key", shown_bytes(found.key)))
    rows += [("header", f"{name}={shown_bytes(value)}") for name, value in found.headers]
    rows.append(("body", shown_bytes(found.body)))
    later = found.times if found.problem or found.paused else found.times[1:]
    rows += [("then", show_moment(each)) for each in later]
    table = Table(Column(), Column(overflow="fold"), show_header=False, box=None)
    for row_name, value in [("schedule", found.name), *rows]:
        table.add_row(row_name, Text(printable(value)))
    Console().print(table)


@app.command("next")
@asks_a_broker
def next_times(
    broker: Broker,
    name: Name,
    *,
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, max=1_000, help="How many.")
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """List the next times of a schedule, as if it were not paused.

    chronoline schedule next report
    chronoline schedule next report -n 100
    """
    with broker.administration() as client:
        found = client.schedule(name, times=count)
    if as_json:
        print(json.dumps(_times_json(found), indent=2))
    else:
        _print_times(found)


@app.command()
@asks_a_broker
def pause(broker: Broker, name: Name) -> None:
    """End its occurrences until it is resumed.

    chronoline schedule pause report

    Occurrences created ahead are cancelled, except those that fall due
    within a second and those that a consumer has.
    """
    with broker.administration() as client:
        client.pause_schedule(name)
    print(f"paused {name!r}: `chronoline schedule resume {name}` goes on")


@app.command()
@asks_a_broker
def resume(broker: Broker, name: Name) -> None:
    """Go on with a paused schedule; the occurrences of the pause are left out.

    chronoline schedule resume report
    """
    with broker.administration() as client:
        found = client.resume_schedule(name)
    print(f"resumed {name!r}; next {_next(found)}")


@app.command()
@asks_a_broker
def delete(broker: Broker, name: Name, yes: Yes = False) -> None:
    """Delete a schedule, and cancel what was created ahead, as pause does.

    chronoline schedule delete report
    """
    with broker.administration() as client:
        found = client.schedule(name)
        confirm(f"Delete schedule {name!r} of topic {found.topic!r}?", yes=yes)
        client.delete_schedule(name)
    print(f"deleted schedule {name!r}")


def schedule_json(schedule: Schedule) -> dict[str, Any]:
    return {
        "schedule": schedule.name,
        "topic": schedule.topic,
        "cron": schedule.cron,
        "zone": schedule.zone,
        "every_ms": None if schedule.every is None else _ms(schedule.every),
        "start": _shown(schedule.start),
        "catch_up": schedule.catch_up,
        "group": schedule.producer_group,
        "paused": schedule.paused,
        "next": _shown(schedule.next),
        "times": _times_json(schedule),
        "key": json_bytes(schedule.key),
        "headers": json_headers(schedule.headers),
        "body": json_bytes(schedule.body),
        "problem": schedule.problem,
    }


def _times_json(schedule: Schedule) -> list[dict[str, str]]:
    return [
        {"id": occurrence_id(schedule.name, to_ms(each)), "due": show_moment(each)}
        for each in schedule.times
    ]


def _print_times(schedule: Schedule) -> None:
    for each in schedule.times:
        print(show_moment(each))


def _rule(schedule: Schedule) -> str:
    if schedule.every is not None:
        return f"every {_ms(schedule.every) / 1000:,g} s"
    return f"at {schedule.cron!r} in {schedule.zone}"


def _next(schedule: Schedule) -> str:
    if schedule.problem:
        return schedule.problem
    if schedule.paused:
        return "paused"
    # `schedule.next` comes after the occurrences that were created ahead.
    upcoming = schedule.times[0] if schedule.times else schedule.next
    return "never" if upcoming is None else show_moment(upcoming)


def _shown(moment: datetime | None) -> str | None:
    return None if moment is None else show_moment(moment)


def _ms(every: timedelta) -> int:
    return round(every.total_seconds() * 1000)
