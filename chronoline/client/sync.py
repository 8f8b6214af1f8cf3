"""The blocking client. Made by `python -m scripts.unasync`: edit the asynchronous one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from chronoline.client.administration import (
    ALL_MESSAGES,
    BulkResult,
    MessagePage,
    MessageState,
    Progress,
    Selection,
)
from chronoline.client.aio import DEFAULT_PREFETCH, DEFAULT_TIMEOUT_S, AsyncClient
from chronoline.client.cluster import Cluster, PreferredBroker
from chronoline.client.event_loop import BlockingIterator, Home, run_in
from chronoline.client.leases import AsyncLease
from chronoline.client.messages import DeadLetter, Forecast, Headers, Message, ToSend
from chronoline.client.outcomes import Outcomes
from chronoline.client.schedules import Schedule
from chronoline.client.times import Delay
from chronoline.client.tls import Tls
from chronoline.client.topics import Topic, TopicSettings
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, Header, SavedMessage
from chronoline.runtime.service import Closable

if TYPE_CHECKING:
    from pydantic import BaseModel

    Model = TypeVar("Model", bound=BaseModel)

Result = TypeVar("Result")


class Lease:
    """One message, and the right to it until its lease is over.

    Settle it with one of `ack`, `retry`, `release`, `bury`. Until then `extend` keeps it; when the lease is
    over, or was lost, `is_lost` is true and the message is served again, perhaps to another consumer.

    Repeating the same call is done, and changes nothing; another call after it raises `ChronolineError`. A
    lease that was over when it was settled is refused with the same reason ever after.
    """

    def __init__(self, lease: AsyncLease, loop: asyncio.AbstractEventLoop) -> None:
        self._inner = lease
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._inner)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return run_in(self._loop, work)

    @property
    def topic(self) -> str:
        return self._inner.topic

    @property
    def topic_uid(self) -> int:
        return self._inner.topic_uid

    @property
    def version(self) -> int:
        return self._inner.version

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def body(self) -> bytes:
        """The body as bytes; empty if there is none."""
        return self._inner.body

    @property
    def key(self) -> bytes | None:
        return self._inner.key

    @property
    def headers(self) -> tuple[Header, ...]:
        return self._inner.headers

    def header(self, name: str) -> bytes | None:
        """The last header of this name."""
        return self._inner.header(name)

    @property
    def due(self) -> datetime:
        """The time at which the message is meant to fire, in UTC."""
        return self._inner.due

    @property
    def until(self) -> datetime:
        """The end of the lease, by the broker's clock, in UTC."""
        return self._inner.until

    @property
    def attempts(self) -> int:
        """The number of failed attempts before this one."""
        return self._inner.attempts

    @property
    def redelivered(self) -> bool:
        """Whether an earlier lease on it lapsed: another consumer may have worked on it."""
        return self._inner.redelivered

    @property
    def producer_group(self) -> str:
        return self._inner.producer_group

    @property
    def consumer(self) -> str:
        return self._inner.consumer

    @property
    def traceparent(self) -> str | None:
        """The `traceparent` of its sender, as in W3C Trace Context."""
        return self._inner.traceparent

    @property
    def tracestate(self) -> str | None:
        """The `tracestate` of its sender, as in W3C Trace Context."""
        return self._inner.tracestate

    @property
    def late_ms(self) -> float:
        """How late it was handed over, by the broker's clock as far as it is known here."""
        return self._inner.late_ms

    def json(self) -> Any:
        """The body as JSON. Raises `InvalidInput` if it is not JSON."""
        return self._inner.json()

    def model(self, kind: type[Model]) -> Model:
        """The body as a pydantic model. Raises pydantic's `ValidationError` if it does not fit."""
        return self._inner.model(kind)

    @property
    def seconds_left(self) -> float:
        """The seconds until the lease is over, by the broker's clock; 0 if it is over."""
        return self._inner.seconds_left

    @property
    def is_lost(self) -> bool:
        """Whether the lease is over or lost: from now on another consumer may work on the message."""
        return self._inner.is_lost

    @property
    def is_live(self) -> bool:
        return self._inner.is_live

    def ack(self) -> None:
        """Done: deletes the message. Raises `Refused` if the lease was over."""
        return self._run(self._inner.ack())

    def retry(self, *, delay: Delay | None = None, due: datetime | None = None) -> None:
        """Failed: the message is served again, at once without a time, and an attempt is counted."""
        return self._run(self._inner.retry(delay=delay, due=due))

    def release(self, *, delay: Delay | None = None, due: datetime | None = None) -> None:
        """Not now: the message is served again, at once without a time; no attempt is counted."""
        return self._run(self._inner.release(delay=delay, due=due))

    def bury(self, reason: str) -> None:
        """Given up: the message becomes a dead letter, and is not served again."""
        return self._run(self._inner.bury(reason))

    def extend(self, lease: Delay | None = None) -> None:
        """More time: the lease ends this long after now; without a duration, as long as the first lease."""
        return self._run(self._inner.extend(lease))

    @property
    def is_settled(self) -> bool:
        return self._inner.is_settled


class Client(Closable):
    """Puts messages on timelines, moves and cancels them, looks ahead, and consumes.

    It connects at its first use, and reconnects by itself. It repeats a request until it is answered or
    `timeout` seconds are over: then it raises `OutcomeUnknown` if the request may have happened, and
    `BrokerUnavailable` if it has not. If no broker ever answered, it raises at once. `address` is that of a
    broker, or of several, as a list or separated by commas: while one of them answers, it learns the others
    of the cluster from it, and goes to another when one is lost. `address` and `token` default to
    `CHRONOLINE_ADDRESS` and `CHRONOLINE_TOKEN`.
    """

    def __init__(
        self,
        address: str | Iterable[str] | None = None,
        *,
        token: str | None = None,
        producer_group: str = DEFAULT_PRODUCER_GROUP,
        tls: bool | str | Path | Tls = False,
        insecure: bool = False,
        timeout: Delay = DEFAULT_TIMEOUT_S,
        rack: str = "",
    ) -> None:
        """`producer_group` owns the sent messages. `tls` is true, the authority to trust (PEM), or
        `Tls`, with the certificate of the client.

        Without TLS it sends a token to this machine only, unless `insecure` (or `CHRONOLINE_INSECURE=1`)
        declares the network trusted. `rack` says where the client runs: its streams open at healthy brokers
        of the same rack while these have room, and consumers of other racks serve its messages if its rack
        is lost.
        """
        self._inner = AsyncClient(
            address,
            token=token,
            producer_group=producer_group,
            tls=tls,
            insecure=insecure,
            timeout=timeout,
            rack=rack,
        )
        self._home = Home(self._inner.close)

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._home.run(work)

    def close(self) -> None:
        """Ends all streams and gives back messages that were not handed over. May be called twice."""
        return self._run(self._inner.close())

    def create_topic(
        self, name: str, settings: TopicSettings | None = None, *, if_missing: bool = True
    ) -> Topic:
        """Creates a topic. Returns an existing one unchanged, unless `if_missing` is false.

        If an existing one has other settings than are given here, a warning in the log names them.
        """
        return self._run(self._inner.create_topic(name, settings, if_missing=if_missing))

    def topic(self, name: str) -> Topic:
        """Raises `TopicNotFound`."""
        return self._run(self._inner.topic(name))

    def topics(self) -> list[Topic]:
        """All topics, by name."""
        return self._run(self._inner.topics())

    def cluster(self) -> Cluster:
        """The brokers with their health and load, and the consumers of all topics with their buckets."""
        return self._run(self._inner.cluster())

    def info(self) -> Cluster:
        """The brokers with version, health and problems, and all consumers: what `GET /v1/info` shows."""
        return self._run(self._inner.info())

    def preferred_brokers(
        self, topic: str, *, producer: bool = False, rack: str | None = None
    ) -> list[PreferredBroker]:
        """The brokers in the order in which consumers of a topic, or its producers, should try them.

        `rack` is that of the client who asks, unless another one is given.
        """
        return self._run(self._inner.preferred_brokers(topic, producer=producer, rack=rack))

    def delete_topic(self, name: str) -> bool:
        """Deletes a topic and everything on it; false if it was deleted already."""
        return self._run(self._inner.delete_topic(name))

    def pause_topic(self, name: str, *, reason: str = "") -> Topic:
        """Pauses a topic: consumers get nothing until it is resumed, and producers may send.

        Consumers stay connected, and settle what they hold. A topic that is paused already stays so since
        then, with the new reason.
        """
        return self._run(self._inner.pause_topic(name, reason=reason))

    def resume_topic(self, name: str) -> Topic:
        """Ends the pause of a topic."""
        return self._run(self._inner.resume_topic(name))

    def change_topic(self, name: str, *, revision: int | None = None, **settings: Any) -> Topic:
        """Changes settings of a topic while it runs; the others stay as they are.

        They have the names of `TopicSettings`; None removes an optional one. With a `revision` the topic
        must have it: raises `TopicChanged` if another changed it meanwhile. Raises `InvalidInput` for
        settings that cannot change, with the reason.
        """
        return self._run(self._inner.change_topic(name, revision=revision, **settings))

    def send(
        self,
        topic: str,
        body: bytes | str | BaseModel | None = b"",
        *,
        json: Any = None,
        id: str | None = None,
        due: datetime | None = None,
        delay: Delay | None = None,
        key: bytes | None = None,
        headers: Headers = (),
        expires: datetime | None = None,
        if_exists: str = "refuse",
    ) -> str:
        """Puts one message on a timeline and returns its id. Raises `Refused` if it was refused.

        Of a refusal that passes, such as a used up quota, the error's `retry_after` says when to try again.

        `due` is a moment with its zone, `delay` seconds or a timedelta, from when the broker reads it;
        without either it is served at once. `json` is written as JSON, and so is a pydantic model as `body`.
        With `if_exists="replace"` a message with that id and of the own group is cancelled and replaced.
        """
        return self._run(
            self._inner.send(
                topic,
                body,
                json=json,
                id=id,
                due=due,
                delay=delay,
                key=key,
                headers=headers,
                expires=expires,
                if_exists=if_exists,
            )
        )

    def send_many(
        self, topic: str, messages: Iterable[ToSend], *, if_exists: str = "refuse"
    ) -> Outcomes:
        """Puts messages on a timeline, in as few frames as possible; returns an outcome for each.

        They are not one transaction: each is done or refused by itself. An invalid message raises
        `InvalidInput`, and nothing is sent. The first message of each moment that is fuller than the topic
        can deliver has a `warning`, which is logged too, at most once a minute for a topic.
        """
        return self._run(self._inner.send_many(topic, messages, if_exists=if_exists))

    def reschedule(
        self,
        topic: str,
        id: str,
        *,
        due: datetime | None = None,
        delay: Delay | None = None,
        expires: datetime | None = None,
    ) -> None:
        """Moves a message of the own group. Raises `Refused` if it is leased, or another group owns it.

        A message with `expires` keeps it, unless a new one is given here. A due at or after `expires` is
        refused (`expired`).
        """
        return self._run(self._inner.reschedule(topic, id, due=due, delay=delay, expires=expires))

    def reschedule_many(
        self,
        topic: str,
        ids: Iterable[str],
        *,
        due: datetime | None = None,
        delay: Delay | None = None,
        expires: datetime | None = None,
    ) -> Outcomes:
        """Moves messages of the own group to one time; returns an outcome for each, with the new due as `at`.

        They are not one transaction. `expires` is as for `reschedule`.
        """
        return self._run(
            self._inner.reschedule_many(topic, ids, due=due, delay=delay, expires=expires)
        )

    def cancel(self, topic: str, id: str) -> None:
        """Cancels a message of the own group. Raises `Refused` if it is leased, or another group owns it."""
        return self._run(self._inner.cancel(topic, id))

    def cancel_many(self, topic: str, ids: Iterable[str]) -> Outcomes:
        """Cancels messages of the own group; returns an outcome for each. They are not one transaction."""
        return self._run(self._inner.cancel_many(topic, ids))

    def lookup(self, topic: str, id: str) -> Message | None:
        """A message without its body; None if it does not exist, or is deleted or dead."""
        return self._run(self._inner.lookup(topic, id))

    def body(self, topic: str, id: str) -> bytes | None:
        """The body of a message of the own group. Raises `Refused`."""
        return self._run(self._inner.body(topic, id))

    def count(
        self, topic: str, start: datetime | None = None, end: datetime | None = None
    ) -> Forecast:
        """The number of messages between two moments, by status; without them, of all messages."""
        return self._run(self._inner.count(topic, start, end))

    def forecast(self, topic: str, start: datetime, end: datetime, step: Delay) -> list[Forecast]:
        """The load ahead: counts by status for each step."""
        return self._run(self._inner.forecast(topic, start, end, step))

    def dead_letters(
        self, topic: str, *, limit: int = 100, after: DeadLetter | None = None
    ) -> list[DeadLetter]:
        """The dead letters, oldest first; `after` is the last one of the previous page."""
        return self._run(self._inner.dead_letters(topic, limit=limit, after=after))

    def redrive(
        self,
        topic: str,
        ids: Iterable[str],
        *,
        due: datetime | None = None,
        delay: Delay | None = None,
    ) -> Outcomes:
        """Puts dead letters back on the timeline, with no attempts counted.

        They must be of the own group; with the right to administer the topic they may be of any.
        """
        return self._run(self._inner.redrive(topic, ids, due=due, delay=delay))

    def discard(self, topic: str, ids: Iterable[str]) -> Outcomes:
        """Deletes dead letters of the own group; with the right to administer the topic, of any group."""
        return self._run(self._inner.discard(topic, ids))

    def create_schedule(
        self,
        name: str,
        topic: str,
        body: bytes | str | BaseModel | None = b"",
        *,
        json: Any = None,
        cron: str | None = None,
        zone: str | None = None,
        every: Delay | None = None,
        start: datetime | None = None,
        catch_up: str = "one",
        key: bytes | None = None,
        headers: Headers = (),
        if_exists: str = "refuse",
        dry_run: bool = False,
        times: int = 0,
    ) -> Schedule:
        """Sends a message again and again: by a cron expression in a time zone, or at an interval.

        `cron` has five fields, or six with seconds in front; `zone` is such as Europe/Berlin. `every` is at
        least a second; it counts from `start`, else from now. `catch_up` says what is done about occurrences
        that no broker created in time: `none`, `one` (the latest), or `all`. The occurrences belong to the
        own producer group. A schedule that says the same is left as it is; another one of that name raises
        `ScheduleExists`, or is changed with `if_exists="replace"`. With `dry_run` nothing is written. The
        answer has the next `times`, at most 1,000.
        """
        return self._run(
            self._inner.create_schedule(
                name,
                topic,
                body,
                json=json,
                cron=cron,
                zone=zone,
                every=every,
                start=start,
                catch_up=catch_up,
                key=key,
                headers=headers,
                if_exists=if_exists,
                dry_run=dry_run,
                times=times,
            )
        )

    def schedule(self, name: str, *, times: int = 0) -> Schedule:
        """A schedule, with its next times. Raises `ScheduleNotFound`."""
        return self._run(self._inner.schedule(name, times=times))

    def schedules(
        self, topic: str | None = None, *, limit: int = 100, after: str = ""
    ) -> list[Schedule]:
        """The schedules of a topic, or of all, by name; `after` is the last name of the previous page."""
        return self._run(self._inner.schedules(topic, limit=limit, after=after))

    def pause_schedule(self, name: str) -> Schedule:
        """Ends the occurrences of a schedule until it is resumed.

        The ones that were created ahead are cancelled, except those of the next second and leased ones.
        """
        return self._run(self._inner.pause_schedule(name))

    def resume_schedule(self, name: str) -> Schedule:
        """Goes on with a paused schedule; the occurrences of the pause are left out."""
        return self._run(self._inner.resume_schedule(name))

    def delete_schedule(self, name: str) -> bool:
        """Deletes a schedule, and cancels as `pause_schedule` does; false if there is none."""
        return self._run(self._inner.delete_schedule(name))

    def list_messages(
        self, topic: str, where: Selection = ALL_MESSAGES, *, limit: int = 100, after: str = ""
    ) -> MessagePage:
        """A page of the messages of a selection, without their bodies.

        They come by position, with a prefix alone by bucket and id. `after` is the `next` of the page before.
        """
        return self._run(self._inner.list_messages(topic, where, limit=limit, after=after))

    def state(self, topic: str, id: str) -> MessageState | None:
        """The state of a message, on its timeline or after it: see `MessageState.state`.

        None if nothing is known of it, or not any more: what was deleted is kept for the topic's `dedupe`.
        """
        return self._run(self._inner.state(topic, id))

    def change_matching(
        self,
        topic: str,
        operation: str,
        where: Selection,
        *,
        due: datetime | None = None,
        delay: Delay | None = None,
        dry_run: bool = False,
        after: str = "",
        progress: Progress | None = None,
    ) -> BulkResult:
        """Cancels, reschedules, redrives or discards all messages of a selection, in bounded batches.

        `operation` is `cancel` or `reschedule`, or, of dead letters, `redrive` or `discard`. Messages under a
        live lease are left alone. `progress` gets the result so far after each batch; if it raises, or the
        call is cancelled, what was done stays done, and `after=result.next` goes on from there. With
        `dry_run` nothing is changed. Without a producer group in the selection it takes the right to
        administer the topic.
        """
        return self._run(
            self._inner.change_matching(
                topic,
                operation,
                where,
                due=due,
                delay=delay,
                dry_run=dry_run,
                after=after,
                progress=progress,
            )
        )

    def purge_topic(
        self, topic: str, *, dead_letters: bool = False, progress: Progress | None = None
    ) -> BulkResult:
        """Removes all messages of a topic that no consumer holds, and keeps the topic.

        With `dead_letters` it removes these too. Ids stay taken for the topic's `dedupe`, as after a cancel.
        """
        return self._run(
            self._inner.purge_topic(topic, dead_letters=dead_letters, progress=progress)
        )

    def export_page(
        self, topic: str, *, dead_letters: bool = False, after: str = ""
    ) -> tuple[list[SavedMessage], str]:
        """Some messages of a topic with everything that can be imported, and the `after` of the next page.

        That is empty at the end. It takes the right to administer the topic.
        """
        return self._run(self._inner.export_page(topic, dead_letters=dead_letters, after=after))

    def import_messages(self, topic: str, messages: Sequence[SavedMessage]) -> Outcomes:
        """Creates messages and dead letters as an export saved them, in one transaction.

        An id that is taken is refused as `exists`, so an import can be repeated. It takes the right to
        administer the topic. At most 500 messages, and 4 MiB, are a good batch.
        """
        return self._run(self._inner.import_messages(topic, messages))

    def consume(
        self,
        topic: str,
        *,
        consumer: str | None = None,
        lease: Delay | None = None,
        prefetch: int = DEFAULT_PREFETCH,
    ) -> BlockingIterator[Lease]:
        """Yields messages, each when it is due, until the caller stops.

        Settle each with `ack`, `retry`, `release` or `bury`. `consumer` is a name that a restarted process
        uses again, to get its live leases back; without it the SDK makes one. `lease` is the duration of each
        lease; by default the topic's. `prefetch` is the number of messages that may be held at a time,
        including those that wait here, whose leases are renewed until they are handed over. Messages that the
        caller holds when it stops can still be settled, until their lease or the client ends.
        """
        leases = self._inner.consume(topic, consumer=consumer, lease=lease, prefetch=prefetch)
        return BlockingIterator(self._home, leases, lambda lease: Lease(lease, self._home.loop))
