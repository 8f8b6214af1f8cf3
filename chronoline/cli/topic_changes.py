"""`chronoline topic pause`, `resume` and `set`: a topic while it runs."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import AsJson
from chronoline.core.errors import InvalidInput
from chronoline.core.units import parse_duration_ms, parse_size_bytes
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.client.topics import Pause, Topic

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
_NONE = "none"


@asks_a_broker
def pause(
    broker: Broker,
    name: Name,
    *,
    reason: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Why: consumers hear it, and `topic show` shows it."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Pause a topic: its consumers get nothing until it is resumed; producers may send.

    chronoline topic pause reminders --reason "the mail server is down"

    Consumers stay connected, and settle the messages that they hold. The target
    of a topic is not called, and a pipe does not fire it. The pause is kept in
    the store: it survives restarts, and holds at every broker.
    """
    with broker.administration() as client:
        paused = client.pause_topic(name, reason=reason)
    assert paused.pause is not None
    print(
        json.dumps(pause_json(paused.pause))
        if as_json
        else f"topic {name!r} {paused_since(paused.pause)}"
    )


@asks_a_broker
def resume(broker: Broker, name: Name) -> None:
    """End the pause of a topic: its consumers get what is due.

    chronoline topic resume reminders
    """
    with broker.administration() as client:
        before = client.topic(name)
        client.resume_topic(name)
    print(f"topic {name!r} is " + ("resumed" if before.pause else "not paused"))


@asks_a_broker
def set_settings(  # noqa: PLR0913 - the options of a command
    broker: Broker,
    name: Name,
    *,
    lease: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The lease of a consumer that sets none.")
    ] = None,
    max_attempts: Annotated[
        int | None,
        typer.Option(metavar="N", help="The attempts before a message is a dead letter."),
    ] = None,
    max_lateness: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="A message that is later is a dead letter; none for no limit."
        ),
    ] = None,
    dedupe: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long an id stays taken after its message is deleted."
        ),
    ] = None,
    dead_letters: Annotated[
        bool | None,
        typer.Option(
            "--dead-letters/--no-dead-letters",
            help="Keep dead letters until they are put back or discarded.",
            show_default=False,
        ),
    ] = None,
    largest_body: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Larger bodies are refused.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(metavar="URL", help="The new URL of a topic that has a target.")
    ] = None,
    most_per_s: Annotated[
        str | None,
        typer.Option(metavar="N", help="The most deliveries a second; none for no limit."),
    ] = None,
    most_in_flight: Annotated[
        str | None,
        typer.Option(metavar="N", help="The most messages leased at a time; none for no limit."),
    ] = None,
    spread: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Spread the messages of one moment over this time after it; none.",
        ),
    ] = None,
    group_waiting: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="The most messages of each producer group; none for no quota."
        ),
    ] = None,
    group_creates_per_s: Annotated[
        str | None,
        typer.Option(
            metavar="N", help="The most creates of each producer group a second; none for no quota."
        ),
    ] = None,
    buckets: Annotated[int | None, typer.Option(hidden=True)] = None,
    window: Annotated[str | None, typer.Option(hidden=True)] = None,
    revision: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Only if the topic has this revision, which `topic show` shows."
        ),
    ] = None,
) -> None:
    """Change settings of a topic while it runs; the others stay as they are.

    chronoline topic set reminders --dedupe 1h
    chronoline topic set jobs --max-attempts 5 --lease 5m
    chronoline topic set jobs --max-lateness none --most-per-s 200

    Every broker uses the new settings within moments. Buckets and window never
    change, and a topic keeps having consumers, or a target.
    """
    durations = {
        "default_lease": lease,
        "max_lateness": max_lateness,
        "dedupe": dedupe,
        "spread": spread,
        "window": window,
    }
    limits = {
        "most_per_s": most_per_s,
        "most_in_flight": most_in_flight,
        "group_waiting": group_waiting,
        "group_creates_per_s": group_creates_per_s,
    }
    given: dict[str, Any] = {
        each: None
        if text == _NONE
        else timedelta(milliseconds=parse_duration_ms(text, _flag(each)))
        for each, text in durations.items()
        if text is not None
    }
    given |= {each: _limit(each, text) for each, text in limits.items() if text is not None}
    others = {
        "max_attempts": max_attempts,
        "dead_letters": dead_letters,
        "target": target,
        "buckets": buckets,
    }
    given |= {each: value for each, value in others.items() if value is not None}
    if largest_body is not None:
        given["largest_body_bytes"] = parse_size_bytes(largest_body, "--largest-body")
    if not given:
        raise InvalidInput("name a setting to change, such as --dedupe 1h")
    with broker.administration() as client:
        before = client.topic(name)
        after = client.change_topic(name, revision=revision, **given)
    for line in _changes(before, after):
        print(line)


def _flag(name: str) -> str:
    return "--lease" if name == "default_lease" else f"--{name.replace('_', '-')}"


def _limit(name: str, text: str) -> int | None:
    if text == _NONE:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidInput(f"{_flag(name)} {text!r} must be a whole number, or none") from None


def _changes(before: Topic, after: Topic) -> list[str]:
    old, new = asdict(before.settings.in_ms()), asdict(after.settings.in_ms())
    changed = [
        f"{each}: {_shown(old[each])} → {_shown(new[each])}"
        for each in new
        if old[each] != new[each]
    ]
    if not changed:
        return [f"topic {after.name!r} has these settings already"]
    return [*changed, f"topic {after.name!r} has revision {after.revision} now"]


def _shown(value: object) -> str:
    return _NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def paused_since(pause: Pause) -> str:
    """Since when, by whom and why a topic is paused."""
    by = f" by {pause.by}" if pause.by else ""
    why = f": {pause.reason}" if pause.reason else ""
    return f"is paused since {show_moment(pause.since)}{by}{why}"


def pause_json(pause: Pause | None) -> dict[str, str] | None:
    if pause is None:
        return None
    return {"since": show_moment(pause.since), "by": pause.by, "reason": pause.reason}
