"""`chronoline list`: messages of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.messages import message_json, message_status
from chronoline.cli.options import AsJson, TopicName
from chronoline.cli.output import print_table, print_to_stderr, quiet_when_nobody_reads
from chronoline.cli.selection import Chosen, selects_messages
from chronoline.runtime.terminal_text import json_text, printable
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.client.administration import Selection
    from chronoline.client.messages import Message
    from chronoline.client.sync import Client

_PAGE = 1_000


@asks_a_broker
@selects_messages
def list_messages(
    chosen: Chosen,
    broker: Broker,
    topic: TopicName,
    *,
    limit: Annotated[
        int, typer.Option(min=0, metavar="N", help="The most to show; 0 means all.")
    ] = 20,
    as_json: AsJson = False,
) -> None:
    """List the messages of a topic, without their bodies: the next ones first.

    chronoline list reminders
    chronoline list reminders --group shop --from now --to +1h
    chronoline list reminders --status processing --holder worker-1
    chronoline list reminders --prefix order-7 --limit 0 --json

    With a prefix alone they come in the order of their buckets.
    With --json each is a line.
    """
    where = chosen.selection()
    table = Table(Column("id", overflow="fold"))
    for name in ("status", "due", "holder", "until", "group", "attempts"):
        table.add_column(name, overflow="fold")
    shown, more = 0, False
    with broker.client() as client, quiet_when_nobody_reads():
        for message in _messages(client, topic, where, limit):
            if limit and shown == limit:
                more = True
                break
            shown += 1
            if as_json:
                print(json_text(message_json(message)))
            else:
                _add(table, message)
        if shown and not as_json:
            print_table(table)
    if not shown and not as_json:
        print(f"Topic {topic!r} has no such messages.")
    if more:
        print_to_stderr(f"There are more than {limit:,}: --limit shows more.")


def _messages(client: Client, topic: str, where: Selection, limit: int) -> Iterator[Message]:
    after, more = "", True
    while more:
        page = client.list_messages(
            topic, where, limit=min(limit + 1, _PAGE) if limit else _PAGE, after=after
        )
        yield from page.messages
        after, more = page.next, bool(page.next)


def _add(table: Table, message: Message) -> None:
    status = message_status(message)
    leased = status == "processing"
    texts = (
        message.id,
        status,
        show_moment(message.due),
        message.lock_consumer or "–",
        show_moment(message.ts) if leased else "–",
        message.producer_group,
        f"{message.attempts:,}",
    )
    table.add_row(*(Text(printable(each)) for each in texts))
