"""`chronoline cancel`, `chronoline reschedule` and `chronoline show`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.client.broker import Broker, asks_a_broker
from chronoline.cli.client.options import (
    DEFAULT_GROUP,
    AsJson,
    Due,
    Group,
    In,
    MessageId,
    TopicName,
    when,
)
from chronoline.cli.rendering import json_bytes, printable, shown_bytes
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.status import Status, status_of
from chronoline.runtime.clock import SystemClock, to_ms
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.client.messages import Message


@asks_a_broker
def cancel(
    broker: Broker,
    topic: TopicName,
    message_ids: Annotated[list[str], typer.Argument(metavar="ID…", show_default=False)],
    *,
    group: Group = DEFAULT_GROUP,
) -> None:
    """Cancel messages that wait: nobody gets them any more.

    chronoline cancel reminders ada-1
    chronoline cancel reminders ada-1 ada-2
    """
    with broker.client(group=group) as client:
        outcomes = client.cancel_many(topic, message_ids)
    for each in outcomes:
        if each.done:
            print(f"cancelled {each.id!r}")
    outcomes.raise_for_refused()


@asks_a_broker
def reschedule(
    broker: Broker,
    topic: TopicName,
    message_id: MessageId,
    *,
    due: Due = None,
    delay: In = None,
    group: Group = DEFAULT_GROUP,
) -> None:
    """Move a message that waits to another time.

    chronoline reschedule reminders ada-1 --in 2h
    chronoline reschedule reminders ada-1 --due 2027-01-31T12:00:00Z
    """
    at = when(due, delay)
    if not at:
        raise InvalidInput("say when: --due or --in")
    with broker.client(group=group) as client:
        client.reschedule(topic, message_id, **at)
        moved = client.lookup(topic, message_id)
    print(f"moved {message_id!r}" + (f": due {show_moment(moved.due)}" if moved else ""))


@asks_a_broker
def show(
    broker: Broker,
    topic: TopicName,
    message_id: MessageId,
    *,
    body: Annotated[
        bool, typer.Option("--body", help="Print the body alone. Only its group may see it.")
    ] = False,
    group: Group = DEFAULT_GROUP,
    as_json: AsJson = False,
) -> None:
    """Show where a message stands: when it is due, who has it, how often it was tried.

    chronoline show reminders ada-1
    chronoline show reminders ada-1 --body
    """
    with broker.client(group=group) as client:
        message = client.lookup(topic, message_id)
        if message is None:
            raise ChronolineError(
                f"there is no message {message_id!r} on topic {topic!r}: it was never sent, or was acked or "
                f"cancelled, or it is dead (`chronoline dead list {topic}`)"
            )
        content = client.body(topic, message_id) if body else None
    if body and as_json:
        print(json.dumps({**_as_json(message), "body": json_bytes(content)}, indent=2))
    elif body:
        sys.stdout.buffer.write(content or b"")
        sys.stdout.flush()
    elif as_json:
        print(json.dumps(_as_json(message), indent=2))
    else:
        Console().print(_table(message))


def _as_json(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "status": _status(message),
        "due": show_moment(message.due),
        "ts": show_moment(message.ts),
        "group": message.producer_group,
        "consumer": message.lock_consumer,
        "attempts": message.attempts,
        "expires": None if message.expires is None else show_moment(message.expires),
        "version": message.version,
        "bucket": message.bucket,
        "key": json_bytes(message.key),
        "headers": [[name, json_bytes(value)] for name, value in message.headers],
    }


def _status(message: Message) -> Status:
    """By this machine's clock; the broker's decides."""
    return status_of(to_ms(message.ts), message.lock_consumer is not None, SystemClock().now_ms())


def _table(message: Message) -> Table:
    status = _status(message)
    rows = [("status", str(status)), ("due", show_moment(message.due))]
    if status is Status.PROCESSING:
        rows.append(("lease", f"of {message.lock_consumer}, until {show_moment(message.ts)}"))
    rows += [("group", message.producer_group), ("attempts", f"{message.attempts:,}")]
    if message.expires is not None:
        rows.append(("expires", show_moment(message.expires)))
    rows += [("version", str(message.version)), ("bucket", str(message.bucket))]
    if message.key is not None:
        rows.append(("key", shown_bytes(message.key)))
    rows += [("header", f"{name}={shown_bytes(value)}") for name, value in message.headers]
    table = Table(Column(), Column(overflow="fold"), show_header=False, box=None)
    for name, value in [("id", message.id), *rows]:
        table.add_row(name, Text(printable(value)))
    return table
