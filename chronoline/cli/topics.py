"""`chronoline topic`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.bulk import purge
from chronoline.cli.cluster import served_table
from chronoline.cli.options import AsJson, Yes, confirm
from chronoline.cli.output import count_of, print_table
from chronoline.cli.topic_changes import (
    Name,
    pause,
    pause_json,
    paused_since,
    resume,
    set_settings,
)
from chronoline.client.topics import Topic, TopicSettings
from chronoline.core.errors import Forbidden, TopicNotFound
from chronoline.core.selector import BrokerHealth
from chronoline.core.units import parse_duration_ms, parse_size_bytes
from chronoline.runtime.terminal_text import printable

if TYPE_CHECKING:
    from chronoline.client import Client
    from chronoline.client.cluster import PreferredBroker
    from chronoline.client.messages import Forecast

app = typer.Typer(
    name="topic",
    help="""Topics: named timelines, with their settings.

    chronoline topic create reminders
    chronoline topic list
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_DEFAULT = TopicSettings()
_COUNTS = ("available", "processing", "waiting")

app.command()(pause)
app.command()(resume)
app.command("set")(set_settings)
app.command()(purge)


@app.command()
@asks_a_broker
def create(  # noqa: PLR0913 - the options of a command
    broker: Broker,
    name: Name,
    *,
    buckets: Annotated[
        int, typer.Option(metavar="N", help="The most consumers that can share it.")
    ] = _DEFAULT.buckets,
    lease: Annotated[
        str,
        typer.Option(metavar="DURATION", help="The lease of a consumer that sets none."),
    ] = "30s",
    max_attempts: Annotated[
        int, typer.Option(metavar="N", help="The attempts before a message is a dead letter.")
    ] = _DEFAULT.max_attempts,
    max_lateness: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="A message that is later is a dead letter."),
    ] = None,
    dedupe: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long an id stays taken after its message is deleted."
        ),
    ] = "5m",
    dead_letters: Annotated[
        bool, typer.Option(help="Keep dead letters until they are put back or discarded.")
    ] = True,
    largest_body: Annotated[
        str, typer.Option(metavar="SIZE", help="Larger bodies are refused.")
    ] = "1MiB",
    window: Annotated[
        str,
        typer.Option(metavar="DURATION", help="New consumers get their share at the next one."),
    ] = "2s",
    target: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Post each message there at its due, instead of to consumers."
        ),
    ] = None,
    most_per_s: Annotated[
        int | None, typer.Option(metavar="N", help="The most deliveries a second.")
    ] = None,
    most_in_flight: Annotated[
        int | None, typer.Option(metavar="N", help="The most messages under a lease at a time.")
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Spread the messages of one moment over this time after it."
        ),
    ] = None,
    group_waiting: Annotated[
        int | None,
        typer.Option(metavar="N", help="The most messages of each producer group that wait."),
    ] = None,
    group_creates_per_s: Annotated[
        int | None,
        typer.Option(metavar="N", help="The most creates of each producer group a second."),
    ] = None,
    if_missing: Annotated[
        bool, typer.Option("--if-missing", help="Leave an existing topic unchanged.")
    ] = False,
) -> None:
    """Create a topic. `chronoline topic set` changes most of its settings later.

    chronoline topic create reminders
    chronoline topic create jobs --lease 5m --max-attempts 5 --dedupe 1d
    chronoline topic create calls --target https://example.com/remind
    chronoline topic create mails --most-per-s 100 --spread 5m
    """
    settings = TopicSettings(
        buckets=buckets,
        window=_duration(window, "--window"),
        default_lease=_duration(lease, "--lease"),
        max_attempts=max_attempts,
        max_lateness=None if max_lateness is None else _duration(max_lateness, "--max-lateness"),
        dedupe=_duration(dedupe, "--dedupe"),
        dead_letters=dead_letters,
        largest_body_bytes=parse_size_bytes(largest_body, "--largest-body"),
        target=target,
        most_per_s=most_per_s,
        most_in_flight=most_in_flight,
        spread=None if spread is None else _duration(spread, "--spread"),
        group_waiting=group_waiting,
        group_creates_per_s=group_creates_per_s,
    )
    with broker.administration() as client:
        topic = _existing(client, name) if if_missing else None
        topic = topic or client.create_topic(name, settings, if_missing=if_missing)
    wanted, found = asdict(settings.in_ms()), asdict(topic.settings.in_ms())
    other = [name for name in wanted if wanted[name] != found[name]]
    if other:  # it exists
        print(f"topic {name!r} exists already, with other settings: {', '.join(other)}")
    else:
        calls = "" if target is None else f"; it calls {target}"
        print(f"topic {name!r} exists, with {count_of(topic.settings.buckets, 'bucket')}{calls}")


def _existing(client: Client, name: str) -> Topic | None:
    try:
        return client.topic(name)
    except TopicNotFound:
        return None


@app.command("list")
@asks_a_broker
def list_topics(broker: Broker, as_json: AsJson = False) -> None:
    """List the topics, and the number of their messages.

    chronoline topic list
    """
    with broker.administration() as client:
        found = [(topic, _count_if_allowed(client, topic.name)) for topic in client.topics()]
    if as_json:
        print(json.dumps([topic_json(*each) for each in found], indent=2))
    elif found:
        print_table(topic_table(found))
    else:
        print("There are no topics yet: `chronoline topic create NAME` makes one.")


@app.command()
@asks_a_broker
def show(
    broker: Broker,
    name: Name,
    rack: Annotated[
        str, typer.Option(metavar="RACK", help="Show the brokers in the order for clients there.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the settings of a topic, the number of its messages, and who serves which buckets.

    chronoline topic show reminders
    chronoline topic show reminders --rack r1

    It also shows to which brokers consumers go, the preferred one first.
    """
    with broker.administration() as client:
        topic = client.topic(name)
        count = _count_if_allowed(client, name)
        cluster = None if count is None else client.cluster()
        preferred = client.preferred_brokers(name, rack=rack)
    if as_json:
        subscribers = () if cluster is None else cluster.subscribers
        served = [asdict(each) for each in subscribers if each.topic_uid == topic.uid]
        brokers = [asdict(each) for each in preferred]
        whole = {**topic_json(topic, count), "subscribers": served, "brokers": brokers}
        print(json.dumps(whole, indent=2))
        return
    if topic.pause is not None:
        words = f"topic {name!r} {paused_since(topic.pause)}"
        Console().print(Text(printable(words), style="yellow"), soft_wrap=True)
    table = Table(Column(), Column(overflow="fold"), show_header=False, box=None)
    counts = {**_counts_if_known(count), "revision": topic.revision}
    for key, value in {**counts, **asdict(topic.settings.in_ms())}.items():
        shown = "–" if value is None else str(value).lower() if value in (True, False) else value
        table.add_row(key, Text(f"{shown:,}" if isinstance(shown, int) else printable(str(shown))))
    table.add_row("brokers", Text(printable(", ".join(map(_shown_broker, preferred)))))
    Console().print(table)
    if cluster is None:
        return
    if (served_by := served_table(cluster, topic.uid)) is not None:
        print_table(served_by)
    elif topic.settings.target is None:
        Console().print("Nobody consumes.")


@app.command()
@asks_a_broker
def delete(broker: Broker, name: Name, yes: Yes = False) -> None:
    """Delete a topic, and every message on it, for good.

    chronoline topic delete reminders
    """
    with broker.administration() as client:
        count = client.count(name).total
        what = f"topic {name!r} with {count_of(count, 'message')}"
        confirm(f"Delete {what} for good?", yes=yes)
        client.delete_topic(name)
    print(f"deleted {what}")


def _shown_broker(broker: PreferredBroker) -> str:
    is_degraded = broker.health == BrokerHealth.DEGRADED
    return f"{broker.name} (degraded)" if is_degraded else broker.name


def _duration(text: str, what: str) -> timedelta:
    return timedelta(milliseconds=parse_duration_ms(text, what))


def _count_if_allowed(client: Client, topic: str) -> Forecast | None:
    """None for a token with another right to the topic, which sees its settings alone."""
    try:
        return client.count(topic)
    except Forbidden:
        return None


def topic_json(topic: Topic, count: Forecast | None) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "uid": topic.uid,
        "revision": topic.revision,
        "paused": pause_json(topic.pause),
        **_counts_if_known(count),
        "settings": asdict(topic.settings.in_ms()),
    }


def counts_json(count: Forecast) -> dict[str, int]:
    return {
        "available": count.available,
        "processing": count.processing,
        "waiting": count.waiting,
    }


def _counts_if_known(count: Forecast | None) -> dict[str, int | None]:
    return dict.fromkeys(_COUNTS) if count is None else {**counts_json(count)}


def topic_table(found: Sequence[tuple[Topic, Forecast | None]]) -> Table:
    table = Table(Column("topic", overflow="fold"))
    for name in (*_COUNTS, "buckets"):
        table.add_column(name, justify="right", overflow="fold")
    for topic, count in found:
        figures = (*_counts_if_known(count).values(), topic.settings.buckets)
        shown = Text(printable(topic.name))
        if topic.pause is not None:
            shown.append(" (paused)", style="yellow")
        table.add_row(shown, *("–" if each is None else f"{each:,}" for each in figures))
    return table
