"""`chronoline send`, `cancel`, `reschedule` and `show`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from io import BufferedReader
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.lines import (
    EagerSource,
    Item,
    LineBatch,
    LineSource,
    LineWriter,
    batches,
    read_lines,
)
from chronoline.cli.options import (
    DEFAULT_GROUP,
    AsJson,
    Body,
    Due,
    Expires,
    Group,
    In,
    MessageHeaders,
    MessageId,
    MessageIds,
    MessageKey,
    TopicName,
    When,
    expiry,
    parse_header,
    read_body,
    when,
)
from chronoline.cli.output import (
    count_of,
    print_line,
    print_to_stderr,
    quiet_when_nobody_reads,
    shown_bytes,
    write_bytes,
)
from chronoline.cli.progress import Advance, showing
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.core.outcome import Refusal
from chronoline.core.status import Status, status_of
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.json_bytes import json_bytes, json_headers
from chronoline.runtime.signals import exit_on_sigterm
from chronoline.runtime.terminal_text import json_text, printable
from chronoline.runtime.timestamps import show_moment, to_ms

if TYPE_CHECKING:
    from chronoline.client.administration import MessageState
    from chronoline.client.aio import Outcomes, ToSend
    from chronoline.client.messages import Message
    from chronoline.client.outcomes import Outcome
    from chronoline.client.sync import Client

_BATCH_LINES = 1_000
_BATCH_BYTES = 512 * 1024


@asks_a_broker
def send(  # noqa: PLR0913 - the options of a command
    broker: Broker,
    topic: TopicName,
    *,
    due: Due = None,
    delay: In = None,
    body: Body = None,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="Its id; by default a new one.")
    ] = None,
    key: MessageKey = None,
    header: MessageHeaders = None,
    expires: Expires = None,
    group: Group = DEFAULT_GROUP,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace the message with this id."),
    ] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="A message for each line from stdin, in batches.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a message on a timeline, and print its id when it is durable.

    chronoline send reminders --in 5s --body hello
    chronoline send reminders --due 2027-01-31T12:00:00Z --id ada-1 --body Hi
    chronoline send reminders --in 1h --id ada-1 --body Hello --replace
    seq 1000 | chronoline send reminders --in 1m --lines

    Without --due and --in it is due at once. --in counts from when the broker
    reads it, by its clock. With --lines the other options apply to each line.

    Ids go to stdout, one per line, in the order of the lines of stdin. For a
    line that was not sent, stderr has its number and the reason, and at the
    end the number of sent lines; then the exit code is 1.
    With --json each line of stdin has an object on stdout: its "line", the "id"
    if it was sent, else "refused" (or "failed") and the "reason".
    """
    at = when(due, delay)
    headers = tuple(map(parse_header, header or []))
    key_bytes = None if key is None else os.fsencode(key)
    from chronoline.client.aio import ToSend  # noqa: PLC0415 - gRPC is slow to import

    make = partial(ToSend, key=key_bytes, headers=headers, expires=expiry(expires), **at)
    if lines:
        if message_id is not None or body is not None or replace:
            raise InvalidInput(
                "--lines takes bodies from stdin and makes ids: not with --id, --body, --replace"
            )
        _send_lines(broker, topic, make, group=group, as_json=as_json)
        return
    message = make(body=read_body(body), id=message_id)
    with broker.client(group=group) as client:
        if_exists = "replace" if replace else "refuse"
        (sent,) = client.send_many(topic, [message], if_exists=if_exists).raise_for_refused()
    if as_json:
        moved = {} if sent.at is None else {"due": show_moment(sent.at)}
        warned = {"warning": sent.warning} if sent.warning else {}
        _print_json(id=sent.id, **moved, **warned)
    else:
        print_line(sent.id)
    if sys.stderr.isatty():
        shown = _shown(at, due, delay) if sent.at is None else f"at {show_moment(sent.at)}"
        print_to_stderr(f"sent; it is due {shown}")


def _shown(at: When, due: str | None, delay: str | None) -> str:
    return f"at {due}" if "due" in at else f"in {delay}" if "delay" in at else "now"


# Lines


def _send_lines(
    broker: Broker,
    topic: str,
    make: Callable[..., ToSend],
    *,
    group: str,
    as_json: bool,
) -> None:
    """Send a message for each line of stdin as it comes, and print the ids.

    Raises `ChronolineError` if some were not sent; each of them was printed before.
    """
    with (
        quiet_when_nobody_reads(),
        broker.client(group=group) as client,
        ThreadPoolExecutor(_Sends.most_batches) as threads,
        exit_on_sigterm(),
        showing("sent") as advance,
    ):
        most_bytes = client.topic(topic).settings.largest_body_bytes
        sends = _Sends(client, threads, topic, advance, as_json=as_json)
        # A program that writes a line and waits for its id gets it.
        source = EagerSource(cast(BufferedReader, sys.stdin.buffer), sends.settle_all)
        sends.write(line_batches(source, most_bytes, lambda line: make(body=line)))
        print_to_stderr(f"sent {sends.done}")


def line_batches(
    source: LineSource, most_bytes: int, take: Callable[[bytes], Item]
) -> Iterator[LineBatch[Item]]:
    """Lines of at most `most_bytes`, in batches as large as a broker allows."""
    too_long = f"it has more than {most_bytes:,} bytes, the limit of this topic"
    found = read_lines(source, most_bytes, too_long)
    return batches(found, take, most_lines=_BATCH_LINES, most_bytes=_BATCH_BYTES)


class _Sends(LineWriter["ToSend", "Outcomes"]):
    """Batches of messages under way to a broker."""

    most_batches = 4
    verb, noun, place = "sent", "message", "onto the timeline"

    def __init__(
        self,
        client: Client,
        threads: ThreadPoolExecutor,
        topic: str,
        advance: Advance,
        *,
        as_json: bool,
    ) -> None:
        super().__init__(advance)
        self._client = client
        self._threads = threads
        self._topic = topic
        self._as_json = as_json
        self._not_sent = 0

    def begin(self, items: list[ToSend]) -> Future[Outcomes]:
        return self._threads.submit(self._client.send_many, self._topic, items)

    def settled(self, batch: LineBatch[ToSend], answer: Outcomes) -> int:
        for line, outcome in enumerate(answer, batch.first_line):
            if outcome.refusal is not None:
                self._print_refusal(line, outcome.refusal, outcome.reason)
            elif self._as_json:
                _print_json(line=line, id=outcome.id)
            else:
                print_line(outcome.id)
        sys.stdout.flush()
        self._not_sent += len(answer.refused)
        return len(answer) - len(answer.refused)

    def _print_refusal(self, line: int, refusal: Refusal, reason: str) -> None:
        if self._as_json:
            _print_json(line=line, refused=refusal.value, reason=reason)
        else:
            print_to_stderr(f"line {line}: refused: {reason}")

    def failed(self, batch: LineBatch[ToSend], error: ChronolineError) -> None:
        from chronoline.wire.codes import failure_of  # noqa: PLC0415 - gRPC is slow to import

        self._not_sent += batch.lines
        if self._as_json:
            code = failure_of(error).code
            for line in range(batch.first_line, batch.last_line + 1):
                _print_json(line=line, failed=code, reason=str(error))
        else:
            print_to_stderr(f"lines {batch.first_line} to {batch.last_line}: {error}")
        sys.stdout.flush()

    def failure(self) -> str | None:
        if not self._not_sent:
            return None
        return f"{count_of(self._not_sent, 'line')} refused or failed; {self.done} sent"


def _print_json(**fields: object) -> None:
    print(json_text(fields))


# One waiting message


@asks_a_broker
def cancel(
    broker: Broker,
    topic: TopicName,
    message_ids: MessageIds,
    *,
    group: Group = DEFAULT_GROUP,
    as_json: AsJson = False,
) -> None:
    """Cancel waiting messages: no consumer gets them.

    chronoline cancel reminders ada-1
    chronoline cancel reminders ada-1 ada-2
    """
    with broker.client(group=group) as client:
        outcomes = client.cancel_many(topic, message_ids)
    for each in outcomes:
        if as_json:
            _print_json(id=each.id, **_outcome_fields(each, cancelled=True))
        elif each.done:
            print(f"cancelled {each.id!r}")
        elif len(outcomes) > 1:
            _print_refusal(each)
    _raise_unless_done(outcomes, "cancelled")


def _outcome_fields(outcome: Outcome, **of_done: object) -> dict[str, object]:
    if outcome.done:
        return of_done
    if outcome.unknown or outcome.refusal is None:
        return {"unknown": True, "reason": outcome.reason}
    return {"refused": outcome.refusal.value, "reason": outcome.reason}


def _print_refusal(outcome: Outcome) -> None:
    how = "unknown" if outcome.unknown else "refused"
    print_to_stderr(f"{outcome.id!r} {how}: {outcome.reason}")


def _raise_unless_done(outcomes: Outcomes, done: str) -> None:
    """Raises if not all are done: of one message its refusal, of several their numbers."""
    if len(outcomes) == 1:
        outcomes.raise_for_refused()
    if outcomes.refused:
        unknown = sum(each.unknown for each in outcomes)
        refused = count_of(len(outcomes.refused) - unknown, "message")
        doubt = f", {unknown} unknown: ask again" if unknown else ""
        raise ChronolineError(f"{refused} of {len(outcomes)} not {done}{doubt}")


@asks_a_broker
def reschedule(
    broker: Broker,
    topic: TopicName,
    message_ids: MessageIds,
    *,
    due: Due = None,
    delay: In = None,
    expires: Expires = None,
    group: Group = DEFAULT_GROUP,
) -> None:
    """Move waiting messages to another time.

    chronoline reschedule reminders ada-1 --in 2h
    chronoline reschedule reminders ada-1 ada-2 --due 2027-01-31T12:00:00Z
    chronoline reschedule reminders ada-1 --in 2h --expires +3h

    A message that was sent with --expires keeps it, unless a new one is given:
    a time after it is refused.
    """
    at = when(due, delay)
    if not at:
        raise InvalidInput("give --due or --in")
    with broker.client(group=group) as client:
        outcomes = client.reschedule_many(topic, message_ids, expires=expiry(expires), **at)
    for each in outcomes:
        if each.done:
            print(f"moved {each.id!r}" + (f": due {show_moment(each.at)}" if each.at else ""))
        elif len(outcomes) > 1:
            _print_refusal(each)
    _raise_unless_done(outcomes, "moved")


@asks_a_broker
def show(
    broker: Broker,
    topic: TopicName,
    message_id: MessageId,
    *,
    body: Annotated[
        bool, typer.Option("--body", help="Print only the body. Only its group may read it.")
    ] = False,
    group: Group = DEFAULT_GROUP,
    as_json: AsJson = False,
) -> None:
    """Show the state of a message: its due time, its consumer, its attempts.

    chronoline show reminders ada-1
    chronoline show reminders ada-1 --body

    Of a message that was delivered, cancelled or is dead it says that, for as
    long as the topic keeps it (its dedupe time).
    """
    with broker.client(group=group) as client:
        found = client.state(topic, message_id)
        if found is None:
            raise ChronolineError(
                f"nothing is known of message {message_id!r} on topic {topic!r}: it was never sent, "
                "or was acked or cancelled longer ago than the topic's dedupe time, or the token may not "
                "see it"
            )
        if body and found.state in ("delivered", "cancelled"):
            raise ChronolineError(f"message {message_id!r} {_fate(found)}; its body is gone")
        content = client.body(topic, message_id) if body else None
    message = found.message
    if body and not as_json:
        write_bytes(content or b"")
    elif as_json:
        shown = _fate_json(found) if message is None else message_json(message)
        print(json.dumps({**shown, "body": json_bytes(content)} if body else shown, indent=2))
    elif message is None:
        print(f"message {printable(message_id)!r} {_fate(found)}")
    else:
        Console().print(_table(message))


def _fate(found: MessageState) -> str:
    """The state of a message that is not on its timeline any more."""
    if found.died is not None:
        why = f": {printable(found.reason)}" if found.reason else ""
        return (
            f"is dead since {show_moment(found.died)}{why}; `chronoline dead redrive` puts it back"
        )
    by = f" to {printable(found.consumer)}" if found.consumer else ""
    until = "" if found.until is None else f"; its id is taken until {show_moment(found.until)}"
    return f"was {found.state}{by}{until}"


def _fate_json(found: MessageState) -> dict[str, Any]:
    return {
        "id": found.id,
        "status": found.state,
        "group": found.producer_group,
        "consumer": found.consumer or None,
        "until": None if found.until is None else show_moment(found.until),
        "died": None if found.died is None else show_moment(found.died),
        "reason": found.reason or None,
    }


def message_json(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "status": message_status(message),
        "due": show_moment(message.due),
        "ts": show_moment(message.ts),
        "group": message.producer_group,
        "consumer": message.lock_consumer,
        "attempts": message.attempts,
        "expires": None if message.expires is None else show_moment(message.expires),
        "version": message.version,
        "bucket": message.bucket,
        "key": json_bytes(message.key),
        "headers": json_headers(message.headers),
    }


def message_status(message: Message) -> Status:
    """By this machine's clock; the broker's decides."""
    return status_of(to_ms(message.ts), message.lock_consumer is not None, SystemClock().now_ms())


def _table(message: Message) -> Table:
    status = message_status(message)
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
