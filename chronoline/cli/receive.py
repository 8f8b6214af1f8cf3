"""`chronoline receive`: wait for messages, and print them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chronoline.cli.broker import Broker, asks_a_broker
from chronoline.cli.options import AsJson, TopicName, duration
from chronoline.cli.output import (
    count_of,
    json_line,
    print_to_stderr,
    quiet_when_nobody_reads,
    write_bytes,
)
from chronoline.core.errors import ChronolineError, InvalidInput, Refused
from chronoline.runtime.json_bytes import json_bytes, json_headers
from chronoline.runtime.signals import result_of, stop_on_signal
from chronoline.runtime.terminal_text import printable
from chronoline.runtime.timestamps import show_moment

if TYPE_CHECKING:
    from chronoline.client.aio import AsyncClient
    from chronoline.client.consumer_stream import ConsumerStream
    from chronoline.client.leases import AsyncLease

_MOST_HELD = 1_000
_PREFETCH = 16


@asks_a_broker
def receive(
    broker: Broker,
    topic: TopicName,
    *,
    count: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="End after this number; 0: continue until Ctrl-C."),
    ] = 1,
    ack: Annotated[
        bool,
        typer.Option(
            "--ack/--no-ack",
            help="Ack each message, which deletes it. By default it is given back.",
        ),
    ] = False,
    timeout: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="End with exit code 1 if no message came for this time."
        ),
    ] = None,
    lease: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="The duration of leases; by default the topic's."),
    ] = None,
    consumer: Annotated[
        str | None,
        typer.Option(metavar="C", help="The consumer's name; by default a new one."),
    ] = None,
    rack: Annotated[
        str,
        typer.Option(
            metavar="R", help="Where the consumer runs: other racks are its backups in a cluster."
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Wait for messages, and print each when it is due.

    chronoline receive reminders
    chronoline receive reminders --ack --count 0 --json
    chronoline receive reminders --ack --timeout 10s

    The body goes to stdout; the due time and the lateness go to stderr.
    With --json a line has all of it; bytes other than UTF-8 are {"base64": "…"}.

    Without --ack it only shows: when the command ends, it gives the printed
    messages back unchanged, with their due and their attempts.
    """
    if not ack and not 0 < count <= _MOST_HELD:
        raise InvalidInput(
            "without --ack what was printed is held until the end: say how many, from --count 1 to "
            f"--count {_MOST_HELD}; or --ack"
        )
    receiving = _MessagePrinter(
        count=count,
        ack=ack,
        as_json=as_json,
        timeout=None if timeout is None else duration(timeout, "--timeout"),
        lease=None if lease is None else duration(lease, "--lease"),
        rack=rack,
    )
    with quiet_when_nobody_reads():
        _run_until_signal(lambda stop: receiving.run(broker, topic, consumer, stop))
    if count and receiving.shown < count:
        came = f"{receiving.shown:,} of {count:,}" if receiving.shown else "nothing"
        raise ChronolineError(f"{came} came within {timeout}")


def _run_until_signal(work: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    """Run work in the client's event loop. SIGTERM and SIGINT set its event and choose the exit code.

    A second signal ends the process as usual.
    """
    from chronoline.client.event_loop import shared_loop  # noqa: PLC0415 - gRPC is slow to import

    loop = shared_loop()
    stop = asyncio.Event()
    with stop_on_signal(lambda: loop.call_soon_threadsafe(stop.set)) as received:
        result_of(asyncio.run_coroutine_threadsafe(work(stop), loop))
    if received:
        raise typer.Exit(128 + received[0])


class _MessagePrinter:
    """Prints messages, and acks them or gives them back."""

    def __init__(
        self,
        *,
        count: int,
        ack: bool,
        as_json: bool,
        timeout: timedelta | None,
        lease: timedelta | None,
        rack: str,
    ) -> None:
        self._count = count
        self._ack = ack
        self._as_json = as_json
        self._timeout_s = None if timeout is None else timeout.total_seconds()
        self._lease = lease
        self._rack = rack
        self._held: list[AsyncLease] = []
        self.shown = 0

    async def run(
        self, broker: Broker, topic: str, consumer: str | None, stop: asyncio.Event
    ) -> None:
        """Runs until the count is reached, or the time-out, or `stop` is set."""
        receiving = asyncio.create_task(self._receive(broker, topic, consumer))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([receiving, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        receiving.cancel()  # held messages are given back first
        with suppress(asyncio.CancelledError):
            await receiving

    async def _receive(self, broker: Broker, topic: str, consumer: str | None) -> None:
        async with broker.async_client(rack=self._rack) as client:
            stream = await client.subscribe(
                [topic],
                consumer=consumer,
                lease=self._lease,
                prefetch=self._prefetch,
                renew_in_hand=True,
            )
            try:
                while not self._complete and (lease := await self._next(stream)) is not None:
                    await self._take(stream, lease)
            finally:
                await self._end(client, stream)

    @property
    def _complete(self) -> bool:
        return 0 < self._count <= self.shown

    @property
    def _prefetch(self) -> int:
        """The prefetch: no more than the messages that are still wanted."""
        most = _PREFETCH if self._ack else _MOST_HELD
        return min(self._count or most, most)

    async def _next(self, stream: ConsumerStream) -> AsyncLease | None:
        """The next lease; None after the time-out."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await stream.next()
        except TimeoutError:
            return None

    async def _take(self, stream: ConsumerStream, lease: AsyncLease) -> None:
        self._held.append(lease)  # if it cannot be printed, it is given back
        if self._as_json:
            write_bytes(_json_line(lease))
        else:
            write_bytes(lease.body, end=b"\n")
        if not self._as_json:
            print_to_stderr(_detail(lease))
        self.shown += 1
        if self._ack:
            self._held.pop()
            if self._complete:
                await (
                    stream.unsubscribe_all()
                )  # an ack makes room for one more, which is not wanted
            await lease.ack()

    async def _end(self, client: AsyncClient, stream: ConsumerStream) -> None:
        """Gives back held messages, and those that were pushed and not printed."""
        await stream.unsubscribe_all()
        given_back = 0
        for lease in self._held:
            try:
                await lease.give_back()
                given_back += 1
            except Refused:
                pass  # the lease was over, so it is served again anyway
        await client.unsubscribe(stream)
        if given_back and not self._ack:
            what = "it was" if given_back == 1 else f"{count_of(given_back, 'message')} were"
            print_to_stderr(f"{what} only shown, and given back: --ack takes a message for good")


def _detail(lease: AsyncLease) -> str:
    before = f", {count_of(lease.attempts, 'attempt')} before" if lease.attempts else ""
    again = ", redelivered" if lease.redelivered else ""
    return f"  {printable(lease.id)}: due {show_moment(lease.due)}, {_late(lease.late_ms)}{before}{again}"


def _late(late_ms: float) -> str:
    second_ms, minute_ms = 1_000, 60_000
    if late_ms < second_ms:
        return f"{late_ms:.1f} ms late"
    if late_ms < minute_ms:
        return f"{late_ms / second_ms:.1f} s late"
    return f"{timedelta(seconds=late_ms // second_ms)} late"


def _json_line(lease: AsyncLease) -> bytes:
    fields = {
        "topic": lease.topic,
        "id": lease.id,
        "due": show_moment(lease.due),
        "late_ms": round(lease.late_ms, 3),
        "attempts": lease.attempts,
        "redelivered": lease.redelivered,
        "group": lease.producer_group,
        "version": lease.version,
        "key": json_bytes(lease.key),
        "headers": json_headers(lease.headers),
        "body": json_bytes(lease.body),
    }
    return json_line(fields)
