"""The asynchronous client. `python -m scripts.unasync` generates `Client` from it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from chronoline.client.administration import (
    ALL_MESSAGES,
    KINDS,
    BulkResult,
    MessagePage,
    MessageState,
    Progress,
    Selection,
)
from chronoline.client.brokers import Brokers
from chronoline.client.cluster import Cluster, PreferredBroker
from chronoline.client.consumer_stream import ConsumerStream
from chronoline.client.leases import AsyncLease
from chronoline.client.messages import (
    DeadLetter,
    Forecast,
    Headers,
    Message,
    ToSend,
    content_of,
    describe_send,
    outgoing_messages,
)
from chronoline.client.outcomes import Outcome, Outcomes, outcomes_from_wire
from chronoline.client.producer_stream import ProducerStream
from chronoline.client.renewal import renew
from chronoline.client.requests import RequestKind
from chronoline.client.schedules import Schedule, recurrence_of
from chronoline.client.times import (
    Delay,
    check_count,
    duration_ms,
    lease_length_ms,
    moment_ms,
    when,
)
from chronoline.client.tls import Tls
from chronoline.client.topics import Topic, TopicSettings, settings_in_ms
from chronoline.core.change import Change
from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.limits import id_problem, name_problem
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, After, SavedMessage
from chronoline.core.outcome import raise_for_refused
from chronoline.core.permissions import Operation
from chronoline.core.schedule import CatchUpRule, check_new_schedule, check_schedule_name
from chronoline.core.schedule import Schedule as CoreSchedule
from chronoline.runtime.bounded_cache import BoundedCache
from chronoline.runtime.tasks import TaskSet
from chronoline.runtime.timestamps import to_ms
from chronoline.runtime.traces import TraceStep, span_of
from chronoline.wire.codec import (
    saved_from_wire,
    saved_to_wire,
    schedule_to_wire,
    settings_to_wire,
    topic_from_wire,
)
from chronoline.wire.v1 import chronoline_pb2 as pb

if TYPE_CHECKING:
    from pydantic import BaseModel

logger = logging.getLogger(__name__)

__all__ = ["AsyncClient", "DeadLetter", "Forecast", "Headers", "Message", "Outcomes", "ToSend"]

DEFAULT_TIMEOUT_S = 30.0
DEFAULT_PREFETCH = 16
_PAGE_IDS = 1_000
_WARN_EVERY_S = 60.0
_MOST_TOPICS = 10_000
"""The topics whose uids are remembered; others are asked for again."""

Result = TypeVar("Result")


class AsyncClient:
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
        _check_name("producer_group", producer_group)
        self._timeout_s = duration_ms(timeout, "timeout") / 1000
        if self._timeout_s == 0:
            raise InvalidInput("timeout must be more than 0 seconds")
        if rack:
            _check_name("rack", rack)
        self._brokers = Brokers(
            address,
            token,
            tls,
            insecure=insecure,
            rack=rack,
        )
        self._producer = ProducerStream(self._brokers, producer_group, timeout_s=self._timeout_s)
        # Each stream with the task that renews its leases.
        self._consumers: dict[ConsumerStream, asyncio.Task[None]] = {}
        self._lingering = TaskSet()
        self._topics: BoundedCache[str, Topic] = BoundedCache(_MOST_TOPICS)
        # By topic: no warning is logged before this moment.
        self._warn_again_s: dict[str, float] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends all streams and gives back messages that were not handed over. May be called twice."""
        for consumer in list(self._consumers):
            await consumer.unsubscribe_all()
            await self._end(consumer)
        await self._producer.close()
        await self._brokers.close()

    # Topics

    async def create_topic(
        self, name: str, settings: TopicSettings | None = None, *, if_missing: bool = True
    ) -> Topic:
        """Creates a topic. Returns an existing one unchanged, unless `if_missing` is false.

        If an existing one has other settings than are given here, a warning in the log names them.
        """
        _check_name("topic", name)
        chosen = TopicSettings() if settings is None else settings
        if not isinstance(chosen, TopicSettings):  # a store's, in milliseconds
            raise InvalidInput("settings must be the TopicSettings of chronoline.client")
        asked = pb.CreateTopicRequest(
            name=name, settings=settings_to_wire(chosen.in_ms()), if_missing=if_missing
        )
        made = await self._ask("Overseer/CreateTopic", asked, pb.Topic, repeatable=if_missing)
        topic = self._remember(name, made)
        if settings is not None and (other := chosen.differing(topic.settings)):
            logger.warning(
                "topic %r exists with other settings than were given: %s; change_topic changes them",
                name,
                ", ".join(
                    f"{each} is {getattr(topic.settings, each)}, not {getattr(chosen, each)}"
                    for each in other
                ),
                extra={"action": "settings_differ", "topic": name},
            )
        return topic

    async def topic(self, name: str) -> Topic:
        """Raises `TopicNotFound`."""
        _check_name("topic", name)
        found = await self._ask("Overseer/GetTopic", pb.GetTopicRequest(name=name), pb.Topic)
        return self._remember(name, found)

    async def topics(self) -> list[Topic]:
        """All topics, by name."""
        found = await self._ask("Overseer/ListTopics", pb.ListTopicsRequest(), pb.Topics)
        return [Topic.of(topic_from_wire(each)) for each in found.topics]

    async def cluster(self) -> Cluster:
        """The brokers with their health and load, and the consumers of all topics with their buckets."""
        found = await self._ask("Overseer/Info", pb.InfoRequest(), pb.Cluster)
        return Cluster.from_wire(found)

    async def info(self) -> Cluster:
        """The brokers with version, health and problems, and all consumers: what `GET /v1/info` shows."""
        return await self.cluster()

    async def preferred_brokers(
        self, topic: str, *, producer: bool = False, rack: str | None = None
    ) -> list[PreferredBroker]:
        """The brokers in the order in which consumers of a topic, or its producers, should try them.

        `rack` is that of the client who asks, unless another one is given.
        """
        kind = pb.PreferRequest.KIND_PRODUCER if producer else pb.PreferRequest.KIND_CONSUMER
        rack = self._brokers.rack if rack is None else rack

        def asked(uid: int) -> pb.PreferRequest:
            return pb.PreferRequest(topic_uid=uid, kind=kind, rack=rack, only_look=True)

        found = await self._ask_of(topic, "Overseer/Prefer", asked, pb.PreferredBrokers)
        return [PreferredBroker.from_wire(broker) for broker in found.brokers]

    async def delete_topic(self, name: str) -> bool:
        """Deletes a topic and everything on it; false if it was deleted already."""
        topic = await self.topic(name)
        self._topics.pop(name)
        asked = pb.TopicRef(uid=topic.uid)
        done = await self._ask("Overseer/DropTopic", asked, pb.Dropped, repeatable=False)
        return bool(done.dropped)

    async def pause_topic(self, name: str, *, reason: str = "") -> Topic:
        """Pauses a topic: consumers get nothing until it is resumed, and producers may send.

        Consumers stay connected, and settle what they hold. A topic that is paused already stays so since
        then, with the new reason.
        """
        return await self._change_topic(
            name, "PauseTopic", lambda uid: pb.PauseTopicRequest(uid=uid, reason=reason)
        )

    async def resume_topic(self, name: str) -> Topic:
        """Ends the pause of a topic."""
        return await self._change_topic(name, "ResumeTopic", lambda uid: pb.TopicRef(uid=uid))

    async def change_topic(
        self, name: str, *, revision: int | None = None, **settings: Any
    ) -> Topic:
        """Changes settings of a topic while it runs; the others stay as they are.

        They have the names of `TopicSettings`; None removes an optional one. With a `revision` the topic
        must have it: raises `TopicChanged` if another changed it meanwhile. Raises `InvalidInput` for
        settings that cannot change, with the reason.
        """
        changed, unset = settings_in_ms(settings)
        try:
            wire = pb.TopicSettings(**changed)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"topic settings: {error}") from None
        return await self._change_topic(
            name,
            "ChangeTopic",
            lambda uid: pb.ChangeTopicRequest(
                uid=uid, revision=revision, settings=wire, unset=unset
            ),
            repeatable=revision is None,
        )

    async def _change_topic(
        self, name: str, method: str, asked: Callable[[int], Any], *, repeatable: bool = True
    ) -> Topic:
        changed = await self._ask_of(
            name, f"Overseer/{method}", asked, pb.Topic, repeatable=repeatable
        )
        return self._remember(name, changed)

    # Sending

    async def send(
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
        message = ToSend(
            body=body,
            json=json,
            id=id,
            due=due,
            delay=delay,
            key=key,
            headers=headers,
            expires=expires,
        )
        outcomes = await self.send_many(topic, [message], if_exists=if_exists)
        return outcomes.raise_for_refused()[0].id

    async def send_many(
        self, topic: str, messages: Iterable[ToSend], *, if_exists: str = "refuse"
    ) -> Outcomes:
        """Puts messages on a timeline, in as few frames as possible; returns an outcome for each.

        They are not one transaction: each is done or refused by itself. An invalid message raises
        `InvalidInput`, and nothing is sent. The first message of each moment that is fuller than the topic
        can deliver has a `warning`, which is logged too, at most once a minute for a topic.
        """
        if if_exists not in ("refuse", "replace"):
            raise InvalidInput(f'if_exists must be "refuse" or "replace", not {if_exists!r}')
        replace = if_exists == "replace"
        with span_of(TraceStep.SEND, str(topic), dict) as span:
            outgoing = outgoing_messages(messages)
            outcomes = await self._request(topic, Operation.CREATE, outgoing, replace=replace)
            if span is not None:
                describe_send(span, outgoing, outcomes)
        self._log_warnings(topic, outcomes)
        return Outcomes(outcomes)

    def _log_warnings(self, topic: str, outcomes: Sequence[Outcome]) -> None:
        warning = next((each.warning for each in outcomes if each.warning), None)
        if warning is None:
            return
        now_s = time.monotonic()
        if now_s >= self._warn_again_s.get(topic, now_s):
            self._warn_again_s = {
                topic: at for topic, at in self._warn_again_s.items() if at > now_s
            }
            self._warn_again_s[topic] = now_s + _WARN_EVERY_S
            logger.warning("%s", warning, extra={"action": "crowded", "topic": topic})

    async def reschedule(
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
        moved = await self.reschedule_many(topic, [id], due=due, delay=delay, expires=expires)
        moved.raise_for_refused()

    async def reschedule_many(
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
        if due is None and delay is None:
            raise InvalidInput("say when it is due: give due or delay; delay=0 means at once")
        to = when(due, delay)
        until_ms = None if expires is None else moment_ms(expires, "expires")
        group = self._producer.name
        changes = [
            Change(Operation.RESCHEDULE, each, group, to=to, expires=until_ms)
            for each in _checked_ids(ids)
        ]
        return Outcomes(await self._request(topic, Operation.RESCHEDULE, changes))

    async def cancel(self, topic: str, id: str) -> None:
        """Cancels a message of the own group. Raises `Refused` if it is leased, or another group owns it."""
        (await self.cancel_many(topic, [id])).raise_for_refused()

    async def cancel_many(self, topic: str, ids: Iterable[str]) -> Outcomes:
        """Cancels messages of the own group; returns an outcome for each. They are not one transaction."""
        group = self._producer.name
        changes = [Change(Operation.CANCEL, each, group) for each in _checked_ids(ids)]
        return Outcomes(await self._request(topic, Operation.CANCEL, changes))

    # Queries

    async def lookup(self, topic: str, id: str) -> Message | None:
        """A message without its body; None if it does not exist, or is deleted or dead."""
        _checked_ids([id])
        found = await self._ask_of(
            topic,
            "Carrier/Lookup",
            lambda uid: pb.LookupRequest(topic_uid=uid, ids=[id]),
            pb.Found,
        )
        return next((Message.from_wire(each) for each in found.messages), None)

    async def body(self, topic: str, id: str) -> bytes | None:
        """The body of a message of the own group. Raises `Refused`."""
        _checked_ids([id])
        group = self._producer.name
        found = await self._ask_of(
            topic,
            "Carrier/ReadBodies",
            lambda uid: pb.BodiesRequest(topic_uid=uid, ids=[id], producer_group=group),
            pb.BodiesFound,
        )
        raise_for_refused(outcomes_from_wire(found.refused))
        return next((each.body if each.HasField("body") else None for each in found.found), None)

    async def count(
        self, topic: str, start: datetime | None = None, end: datetime | None = None
    ) -> Forecast:
        """The number of messages between two moments, by status; without them, of all messages."""
        start_ms = 0 if start is None else to_ms(start, "start")
        end_ms = None if end is None else to_ms(end, "end")
        counts = await self._ask_of(
            topic,
            "Carrier/Count",
            lambda uid: pb.CountRequest(topic_uid=uid, start_ms=start_ms, end_ms=end_ms),
            pb.Counts,
        )
        return Forecast.from_wire(start_ms, counts)

    async def forecast(
        self, topic: str, start: datetime, end: datetime, step: Delay
    ) -> list[Forecast]:
        """The load ahead: counts by status for each step."""
        start_ms, end_ms = to_ms(start, "start"), to_ms(end, "end")
        step_ms = duration_ms(step, "step")
        found = await self._ask_of(
            topic,
            "Carrier/Forecast",
            lambda uid: pb.ForecastRequest(
                topic_uid=uid, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms
            ),
            pb.ForecastSteps,
        )
        return [Forecast.from_wire(each.start_ms, each.counts) for each in found.steps]

    # Dead letters

    async def dead_letters(
        self, topic: str, *, limit: int = 100, after: DeadLetter | None = None
    ) -> list[DeadLetter]:
        """The dead letters, oldest first; `after` is the last one of the previous page."""

        def asked(uid: int) -> pb.DeadLettersRequest:
            page = pb.DeadLettersRequest(topic_uid=uid, limit=limit)
            if after is not None:
                page.after_id, page.after_died_ms = after.message.id, to_ms(after.died)
            return page

        found = await self._ask_of(topic, "Carrier/DeadLetters", asked, pb.DeadLetterPage)
        return [DeadLetter.from_wire(each) for each in found.letters]

    async def redrive(
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
        at = when(due, delay)
        return await self._of_letters(
            topic,
            "Carrier/Redrive",
            ids,
            lambda uid, page: pb.RedriveRequest(
                topic_uid=uid,
                ids=page,
                producer_group=self._producer.name,
                due_ms=None if isinstance(at, After) else at,
                delay_ms=at.delay_ms if isinstance(at, After) else None,
            ),
        )

    async def discard(self, topic: str, ids: Iterable[str]) -> Outcomes:
        """Deletes dead letters of the own group; with the right to administer the topic, of any group."""
        return await self._of_letters(
            topic,
            "Carrier/Discard",
            ids,
            lambda uid, page: pb.DiscardRequest(
                topic_uid=uid, ids=page, producer_group=self._producer.name
            ),
        )

    # Schedules

    async def create_schedule(  # noqa: PLR0913 - a recurrence and a message
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
        if if_exists not in ("refuse", "replace"):
            raise InvalidInput(f'if_exists must be "refuse" or "replace", not {if_exists!r}')
        content, pairs = content_of(body, json, headers)
        given = CoreSchedule(
            name=name,
            topic_uid=0,
            recurrence=recurrence_of(cron, zone, every, start),
            catch_up=CatchUpRule.parse(catch_up),
            producer_group=self._producer.name,
            body=content,
            key=key,
            headers=pairs,
        )
        check_new_schedule(given)

        def asked(uid: int) -> pb.PutScheduleRequest:
            schedule = schedule_to_wire(replace(given, topic_uid=uid))
            return pb.PutScheduleRequest(
                schedule=schedule, replace=if_exists == "replace", dry_run=dry_run, times=times
            )

        found = await self._ask_of(topic, "Schedules/PutSchedule", asked, pb.Schedule)
        return Schedule.from_wire(found)

    async def schedule(self, name: str, *, times: int = 0) -> Schedule:
        """A schedule, with its next times. Raises `ScheduleNotFound`."""
        check_schedule_name(name)
        asked = pb.GetScheduleRequest(name=name, times=times)
        found = await self._ask("Schedules/GetSchedule", asked, pb.Schedule)
        return Schedule.from_wire(found)

    async def schedules(
        self, topic: str | None = None, *, limit: int = 100, after: str = ""
    ) -> list[Schedule]:
        """The schedules of a topic, or of all, by name; `after` is the last name of the previous page."""
        check_count("limit", limit)

        def asked(uid: int | None) -> pb.ListSchedulesRequest:
            return pb.ListSchedulesRequest(topic_uid=uid, after=after, limit=limit)

        method, answer = "Schedules/ListSchedules", pb.SchedulePage
        if topic is None:
            found = await self._ask(method, asked(None), answer)
        else:
            found = await self._ask_of(topic, method, asked, answer)
        return [Schedule.from_wire(each) for each in found.schedules]

    async def pause_schedule(self, name: str) -> Schedule:
        """Ends the occurrences of a schedule until it is resumed.

        The ones that were created ahead are cancelled, except those of the next second and leased ones.
        """
        return await self._change_schedule("PauseSchedule", name)

    async def resume_schedule(self, name: str) -> Schedule:
        """Goes on with a paused schedule; the occurrences of the pause are left out."""
        return await self._change_schedule("ResumeSchedule", name)

    async def delete_schedule(self, name: str) -> bool:
        """Deletes a schedule, and cancels as `pause_schedule` does; false if there is none."""
        check_schedule_name(name)
        asked = pb.ScheduleRef(name=name)
        return bool((await self._ask("Schedules/DeleteSchedule", asked, pb.Dropped)).dropped)

    async def _change_schedule(self, method: str, name: str) -> Schedule:
        check_schedule_name(name)
        asked = pb.ScheduleRef(name=name)
        return Schedule.from_wire(await self._ask(f"Schedules/{method}", asked, pb.Schedule))

    # Administration

    async def list_messages(
        self, topic: str, where: Selection = ALL_MESSAGES, *, limit: int = 100, after: str = ""
    ) -> MessagePage:
        """A page of the messages of a selection, without their bodies.

        They come by position, with a prefix alone by bucket and id. `after` is the `next` of the page before.
        """
        check_count("limit", limit)
        asked = where.to_wire()
        found = await self._ask_of(
            topic,
            "Carrier/List",
            lambda uid: pb.ListRequest(topic_uid=uid, filter=asked, limit=limit, after=after),
            pb.MessagePage,
        )
        return MessagePage.from_wire(found)

    async def state(self, topic: str, id: str) -> MessageState | None:
        """The state of a message, on its timeline or after it: see `MessageState.state`.

        None if nothing is known of it, or not any more: what was deleted is kept for the topic's `dedupe`.
        """
        _checked_ids([id])
        found = await self._ask_of(
            topic,
            "Carrier/States",
            lambda uid: pb.LookupRequest(topic_uid=uid, ids=[id]),
            pb.MessageStates,
        )
        return next((MessageState.from_wire(each) for each in found.states), None)

    async def change_matching(
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
        if operation not in KINDS:
            raise InvalidInput(f"operation must be one of {', '.join(KINDS)}, not {operation!r}")
        known = await self.topic(topic)
        result = BulkResult(next=after)
        at = None if due is None and delay is None else when(due, delay)
        asked = pb.ChangeMatchingRequest(
            topic_uid=known.uid, kind=KINDS[operation], filter=where.to_wire(), dry_run=dry_run
        )
        if isinstance(at, After):
            asked.delay_ms = at.delay_ms
        elif at is not None:
            asked.due_ms = at
        while True:
            asked.after = result.next
            # A topic of that name that was made meanwhile is another: nothing of it is changed.
            batch = await self._ask("Carrier/ChangeMatching", asked, pb.ChangedBatch)
            result = result.plus(batch)
            if asked.WhichOneof("when") == "delay_ms":
                asked.due_ms = batch.due_ms
            if progress is not None:
                progress(result)
            if not result.next:
                return result

    async def purge_topic(
        self, topic: str, *, dead_letters: bool = False, progress: Progress | None = None
    ) -> BulkResult:
        """Removes all messages of a topic that no consumer holds, and keeps the topic.

        With `dead_letters` it removes these too. Ids stay taken for the topic's `dedupe`, as after a cancel.
        """
        result = await self.change_matching(topic, "cancel", ALL_MESSAGES, progress=progress)
        if not dead_letters:
            return result
        letters = await self.change_matching(topic, "discard", ALL_MESSAGES, progress=progress)
        return replace(
            result,
            looked=result.looked + letters.looked,
            matched=result.matched + letters.matched,
            done=result.done + letters.done,
        )

    async def export_page(
        self, topic: str, *, dead_letters: bool = False, after: str = ""
    ) -> tuple[list[SavedMessage], str]:
        """Some messages of a topic with everything that can be imported, and the `after` of the next page.

        That is empty at the end. It takes the right to administer the topic.
        """
        found = await self._ask_of(
            topic,
            "Carrier/Export",
            lambda uid: pb.ExportRequest(topic_uid=uid, dead_letters=dead_letters, after=after),
            pb.ExportPage,
        )
        return [saved_from_wire(each) for each in found.messages], found.next

    async def import_messages(self, topic: str, messages: Sequence[SavedMessage]) -> Outcomes:
        """Creates messages and dead letters as an export saved them, in one transaction.

        An id that is taken is refused as `exists`, so an import can be repeated. It takes the right to
        administer the topic. At most 500 messages, and 4 MiB, are a good batch.
        """
        saved = [saved_to_wire(each) for each in messages]
        found = await self._ask_of(
            topic,
            "Carrier/Import",
            lambda uid: pb.ImportRequest(topic_uid=uid, messages=saved),
            pb.Outcomes,
        )
        return Outcomes(outcomes_from_wire(found.outcomes))

    # Consuming

    async def consume(
        self,
        topic: str,
        *,
        consumer: str | None = None,
        lease: Delay | None = None,
        prefetch: int = DEFAULT_PREFETCH,
    ) -> AsyncGenerator[AsyncLease, None]:
        """Yields messages, each when it is due, until the caller stops.

        Settle each with `ack`, `retry`, `release` or `bury`. `consumer` is a name that a restarted process
        uses again, to get its live leases back; without it the SDK makes one. `lease` is the duration of each
        lease; by default the topic's. `prefetch` is the number of messages that may be held at a time,
        including those that wait here, whose leases are renewed until they are handed over. Messages that the
        caller holds when it stops can still be settled, until their lease or the client ends.
        """
        stream = await self.subscribe([topic], consumer=consumer, lease=lease, prefetch=prefetch)
        try:
            while True:
                yield await stream.next()
        finally:
            await self.unsubscribe(stream)

    async def subscribe(
        self,
        topics: Iterable[str],
        *,
        consumer: str | None = None,
        lease: Delay | None = None,
        prefetch: int = DEFAULT_PREFETCH,
        renew_in_hand: bool = False,
    ) -> ConsumerStream:
        """A stream of leases of several topics, for code that builds on the SDK.

        With `renew_in_hand` leases are renewed after the hand-over too, until they are settled.
        """
        names = _listed("topics", topics)
        check_count("prefetch", prefetch)
        if consumer is not None:
            _check_name("consumer", consumer)
        lease_ms = 0 if lease is None else lease_length_ms(lease)
        stream = ConsumerStream(self._brokers, consumer or "", timeout_s=self._timeout_s)
        self._consumers[stream] = asyncio.create_task(renew(stream, in_hand=renew_in_hand))
        try:
            for name in names:
                await stream.subscribe(await self.topic(name), lease_ms=lease_ms, prefetch=prefetch)
        except BaseException:
            await self.unsubscribe(stream)
            raise
        return stream

    async def unsubscribe(self, stream: ConsumerStream) -> None:
        """Gives back messages that were not handed over; the others can still be settled."""
        await stream.unsubscribe_all()
        if not stream.held:
            await self._end(stream)
            return
        self._lingering.start(self._linger(stream))

    # Internals

    async def _linger(self, stream: ConsumerStream) -> None:
        await stream.all_settled()
        await self._end(stream)

    async def _end(self, stream: ConsumerStream) -> None:
        renewing = self._consumers.pop(stream, None)
        if renewing is not None:
            renewing.cancel()
        await stream.close()

    async def _ask(self, method: str, asked: Any, answer: Any, *, repeatable: bool = True) -> Any:
        return await self._brokers.ask(
            method, asked, answer.FromString, self._timeout_s, repeatable=repeatable
        )

    async def _ask_of(
        self,
        topic: str,
        method: str,
        asked: Callable[[int], Any],
        answer: Any,
        *,
        repeatable: bool = True,
    ) -> Any:
        """Sends a unary call about a topic."""

        async def ask(uid: int) -> Any:
            return await self._ask(method, asked(uid), answer, repeatable=repeatable)

        return await self._on_topic(topic, ask)

    async def _of_letters(
        self,
        topic: str,
        method: str,
        ids: Iterable[str],
        asked: Callable[[int, Sequence[str]], Any],
    ) -> Outcomes:
        """Changes dead letters, a limited number at a time."""
        checked = _checked_ids(ids)
        outcomes = Outcomes()
        for begin in range(0, len(checked), _PAGE_IDS):
            page = checked[begin : begin + _PAGE_IDS]
            found = await self._ask_of(
                topic,
                method,
                lambda uid, page=page: asked(uid, page),  # type: ignore[misc]  # of this turn
                pb.Outcomes,
                repeatable=False,
            )
            outcomes += outcomes_from_wire(found.outcomes)
        return outcomes

    async def _request(
        self, topic: str, operation: Operation, items: Sequence[Any], *, replace: bool = False
    ) -> list[Outcome]:
        """Sends messages, or changes of them, on the producer's stream."""
        return await self._on_topic(
            topic, lambda uid: self._producer.request(RequestKind(operation, uid, replace), items)
        )

    def _remember(self, name: str, wire: pb.Topic) -> Topic:
        topic = Topic.of(topic_from_wire(wire))
        self._topics.put(name, topic)
        return topic

    async def _on_topic(self, name: str, work: Callable[[int], Awaitable[Result]]) -> Result:
        """Works on the topic with that name, also if it was deleted and created again since the last time."""
        _check_name("topic", name)
        known = self._topics.get(name)
        topic = known or await self.topic(name)
        try:
            return await work(topic.uid)
        except TopicNotFound:
            self._topics.pop(name)
            if known is None or (again := await self.topic(name)).uid == topic.uid:
                raise
            return await work(again.uid)


def _check_name(what: str, name: object) -> None:
    if problem := name_problem(what, name):
        raise InvalidInput(problem)


def _checked_ids(ids: Iterable[str]) -> list[str]:
    """The ids as a list. Raises `InvalidInput` for an invalid one."""
    checked = _listed("ids", ids)
    for each in checked:
        if problem := id_problem(each):
            raise InvalidInput(problem)
    return checked


def _listed(what: str, given: Iterable[str]) -> list[str]:
    """An iterable as a list, since an iterator can be read only once. A text is no list of its characters."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidInput(f"{what} must be a list of texts, not {type(given).__name__}")
    return list(given)
