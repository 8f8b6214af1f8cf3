"""`chronoline send`."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from chronoline.cli.client.broker import Broker, asks_a_broker
from chronoline.cli.client.options import (
    DEFAULT_GROUP,
    AsJson,
    Due,
    Group,
    In,
    TopicName,
    When,
    when,
)
from chronoline.cli.rendering import tell
from chronoline.core.errors import InvalidInput
from chronoline.core.message import Header


@asks_a_broker
def send(  # noqa: PLR0913 - the options of a command
    broker: Broker,
    topic: TopicName,
    *,
    due: Due = None,
    delay: In = None,
    body: Annotated[
        str | None, typer.Option(metavar="TEXT|-", help="The body, or - to take it from stdin.")
    ] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its id; else one is made.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="A key, which travels along.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated.")
    ] = None,
    group: Group = DEFAULT_GROUP,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Put it in the place of the message that has the id."),
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="A message for each line from stdin, in batches.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a message on a timeline, and print its id. Then it is durable.

    chronoline send reminders --in 5s --body hello
    chronoline send reminders --due 2027-01-31T12:00:00Z --id ada-1 --body Hi
    chronoline send reminders --in 1h --id ada-1 --body Hello --replace
    seq 1000 | chronoline send reminders --in 1m --lines

    Without --due and --in it is due at once. --in counts from when the broker
    reads it, by its clock. With --lines the other options hold for each line.

    Ids go to stdout, one in a line, in the order of the lines of stdin. A line
    that was not sent is told on stderr with its number, and why; then the exit
    code is 1. So is how many were sent.
    With --json each line of stdin has an object on stdout: its "line", the "id"
    if it was sent, else "refused" (or "failed") and the "reason".
    """
    at = when(due, delay)
    headers = tuple(map(_header, header or []))
    key_bytes = None if key is None else os.fsencode(key)
    if lines:
        if message_id is not None or body is not None or replace:
            raise InvalidInput(
                "--lines takes bodies from stdin and makes ids: not with --id, --body, --replace"
            )
        from chronoline.cli.client.lines import send_lines  # noqa: PLC0415 - gRPC is slow to import

        send_lines(broker, topic, at, key=key_bytes, headers=headers, group=group, as_json=as_json)
        return
    with broker.client(group=group) as client:
        sent = client.send(
            topic,
            _body(body),
            id=message_id,
            key=key_bytes,
            headers=headers,
            if_exists="replace" if replace else "refuse",
            **at,
        )
    print(json.dumps({"id": sent}, ensure_ascii=False) if as_json else sent)
    if sys.stderr.isatty():
        tell(f"sent; it is due {_shown(at, due, delay)}")


def _body(text: str | None) -> bytes:
    if text is None:
        return b""
    return sys.stdin.buffer.read() if text == "-" else os.fsencode(text)


def _header(text: str) -> Header:
    name, equals, value = text.partition("=")
    if not equals:
        raise InvalidInput(f"header {text!r} is not of the form name=value")
    return name, os.fsencode(value)


def _shown(at: When, due: str | None, delay: str | None) -> str:
    return f"at {due}" if "due" in at else f"in {delay}" if "delay" in at else "now"
