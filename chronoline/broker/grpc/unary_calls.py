"""Calls with one request and one reply: topics, reads of messages, dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from chronoline.broker.bulk_changes import BulkRequest, change_matching, check_bulk_change
from chronoline.broker.cluster_info import BrokerInfo, SubscriberInfo, cluster_info
from chronoline.broker.context import BrokerContext
from chronoline.broker.limits import check_batch
from chronoline.broker.message_states import MOST_STATES, known_states
from chronoline.broker.principals import (
    Principal,
    allowed_topic,
    check_actor,
    check_browse,
    check_look,
    letter_group,
    may_see,
    may_see_group,
    visible_letters,
    visible_topic,
)
from chronoline.core.change import letter_changes
from chronoline.core.errors import InvalidInput, TooMuch
from chronoline.core.filters import ListPlace
from chronoline.core.message import DEFAULT_PRODUCER_GROUP, After, DeadLetter, LeaseTime
from chronoline.core.permissions import Actor, Consumer, Operation, Producer
from chronoline.core.ranges import BucketRange
from chronoline.core.rights import RightKind
from chronoline.core.selector import ClientKind
from chronoline.core.topic import Topic
from chronoline.runtime import audit
from chronoline.stores.browse import browse
from chronoline.stores.contract import Counts
from chronoline.stores.transfer import export_page
from chronoline.wire.codec import (
    changed_settings,
    filter_from_wire,
    letter_to_wire,
    message_to_wire,
    outcomes_to_wire,
    saved_from_wire,
    saved_to_wire,
    settings_from_wire,
    topic_to_wire,
)
from chronoline.wire.v1 import chronoline_pb2 as pb

_MOST_LETTERS = 1_000
_MOST_LISTED = 1_000
_BULK_OPERATIONS: dict[int, Operation] = {
    pb.ChangeMatchingRequest.KIND_CANCEL: Operation.CANCEL,
    pb.ChangeMatchingRequest.KIND_RESCHEDULE: Operation.RESCHEDULE,
    pb.ChangeMatchingRequest.KIND_REDRIVE: Operation.REDRIVE,
    pb.ChangeMatchingRequest.KIND_DISCARD: Operation.DISCARD,
}
_BODIES_AT_ONCE = 100
"""The most bodies that are read before the size of the answer is checked."""
_READERS = 4
"""The most calls that read bodies at a time, since each holds about two answers. Others wait."""


class UnaryCalls:
    """One method for each call with one request and one reply, under its name in the protocol."""

    def __init__(self, parts: BrokerContext) -> None:
        self._parts = parts
        self._reading = asyncio.Semaphore(_READERS)

    def _command(self, name: str) -> AbstractContextManager[None]:
        """Counts a call. The carrier counts those of messages."""
        return self._parts.metrics.command(name, "")

    async def _check(self, principal: Principal, kind: RightKind, topic_uid: int) -> Topic:
        """Raises `Forbidden`, and `TopicNotFound`."""
        return await self._allowed(principal, topic_uid, partial(principal.check, kind))

    async def _allowed(
        self, principal: Principal, topic_uid: int, check: Callable[[str], object]
    ) -> Topic:
        return await allowed_topic(self._parts.topics, principal, topic_uid, check)

    # Overseer

    async def Info(self, _: pb.InfoRequest, principal: Principal) -> pb.Cluster:
        principal.check(RightKind.OBSERVE)
        with self._command("info"):
            return await self._info(principal)

    async def _info(self, principal: Principal) -> pb.Cluster:
        parts = self._parts
        info = await cluster_info(parts)
        return pb.Cluster(
            now_us=parts.timekeeper.stamp()[0],
            brokers=[_broker_to_wire(each) for each in info.brokers],
            subscribers=[
                _subscriber_to_wire(each)
                for each in info.subscribers
                if principal.may(RightKind.OBSERVE, each.topic)
            ],
            store_problem=parts.degradation.store_problem,
            degradations=[
                pb.Degradation(type=each.type.value, reason=each.reason)
                for each in info.degradations
            ],
            answered_by=parts.broker,
            coordination_problem=info.coordination_problem,
        )

    async def Prefer(self, asked: pb.PreferRequest, principal: Principal) -> pb.PreferredBrokers:
        principal.check_touches_any()
        is_producer = asked.kind == pb.PreferRequest.KIND_PRODUCER
        kind = ClientKind.PRODUCER if is_producer else ClientKind.CONSUMER
        with self._command("prefer"):
            if asked.only_look:  # a client leaves a degraded broker only for one that surely is not
                await self._parts.degradation.refresh()
            found = self._parts.overseer.prefer(
                asked.topic_uid, kind, asked.rack, only_look=asked.only_look
            )
        brokers = [
            pb.Broker(
                id=each.record.name,
                address=each.record.address,
                rack=each.record.rack,
                health=each.health.value,
            )
            for each in found
        ]
        return pb.PreferredBrokers(brokers=brokers, answered_by=self._parts.broker)

    async def CreateTopic(self, asked: pb.CreateTopicRequest, principal: Principal) -> pb.Topic:
        principal.check(RightKind.ADMINISTER, asked.name)
        with self._command("create_topic"):
            settings = settings_from_wire(asked.settings)
            topic = await self._parts.topics.create(
                asked.name, settings, if_missing=asked.if_missing
            )
        return topic_to_wire(topic)

    async def DropTopic(self, asked: pb.TopicRef, principal: Principal) -> pb.Dropped:
        await self._check(principal, RightKind.ADMINISTER, asked.uid)
        with self._command("drop_topic"):
            return pb.Dropped(dropped=await self._parts.topics.delete(asked.uid))

    async def GetTopic(self, asked: pb.GetTopicRequest, principal: Principal) -> pb.Topic:
        principal.check_touches(asked.name)
        with self._command("get_topic"):
            topic = await self._parts.topics.find(asked.name)
        return topic_to_wire(visible_topic(principal, topic))

    async def ListTopics(self, _: pb.ListTopicsRequest, principal: Principal) -> pb.Topics:
        with self._command("list_topics"):
            topics = await self._parts.topics.list()
        return pb.Topics(
            topics=[
                topic_to_wire(visible_topic(principal, topic))
                for topic in topics
                if principal.rights.touches(topic.name)
            ]
        )

    async def PauseTopic(self, asked: pb.PauseTopicRequest, principal: Principal) -> pb.Topic:
        await self._check(principal, RightKind.ADMINISTER, asked.uid)
        with self._command("pause_topic"):
            topic = await self._parts.topics.pause(
                asked.uid, by=principal.name, reason=asked.reason
            )
        return topic_to_wire(topic)

    async def ResumeTopic(self, asked: pb.TopicRef, principal: Principal) -> pb.Topic:
        await self._check(principal, RightKind.ADMINISTER, asked.uid)
        with self._command("resume_topic"):
            return topic_to_wire(await self._parts.topics.resume(asked.uid))

    async def ChangeTopic(self, asked: pb.ChangeTopicRequest, principal: Principal) -> pb.Topic:
        await self._check(principal, RightKind.ADMINISTER, asked.uid)
        revision = asked.revision if asked.HasField("revision") else None
        with self._command("change_topic"):
            topic = await self._parts.topics.change(
                asked.uid,
                lambda before: changed_settings(before, asked.settings, asked.unset),
                revision=revision,
            )
        return topic_to_wire(topic)

    # Carrier

    async def Lookup(self, asked: pb.LookupRequest, principal: Principal) -> pb.Found:
        check_batch(len(asked.ids), self._parts.limits)
        topic = await self._allowed(principal, asked.topic_uid, partial(check_look, principal))
        found = await self._parts.carrier.lookup(asked.topic_uid, list(asked.ids))
        seen = (each for each in found.values() if may_see(principal, topic.name, each))
        return pb.Found(messages=[message_to_wire(each) for each in seen])

    async def ReadBodies(self, asked: pb.BodiesRequest, principal: Principal) -> pb.BodiesFound:
        check_batch(len(asked.ids), self._parts.limits)
        actor: Actor = Producer(asked.producer_group)
        if asked.WhichOneof("actor") == "consumer":
            actor = Consumer(asked.consumer)

        def check(topic: str) -> None:
            check_actor(principal, topic, actor)

        await self._allowed(principal, asked.topic_uid, check)
        async with self._reading:
            return await self._read_bodies(asked, actor)

    async def _read_bodies(self, asked: pb.BodiesRequest, actor: Actor) -> pb.BodiesFound:
        topic = await self._parts.topics.get(asked.topic_uid)
        most_bytes, answer = self._parts.limits.frame_bytes, pb.BodiesFound()
        fit = most_bytes // max(topic.settings.largest_body_bytes, 1)
        at_once = max(1, min(_BODIES_AT_ONCE, fit))
        for begin in range(0, len(asked.ids), at_once):
            ids = asked.ids[begin : begin + at_once]
            bodies = await self._parts.carrier.bodies(topic.uid, ids, actor)
            answer.found.extend(pb.Body(id=id, body=body) for id, body in bodies.found.items())
            answer.refused.extend(outcomes_to_wire(bodies.refused))
            if answer.ByteSize() > most_bytes:
                raise TooMuch(
                    f"the bodies have more than {most_bytes} bytes: ask for fewer at once"
                )
        return answer

    async def Count(self, asked: pb.CountRequest, principal: Principal) -> pb.Counts:
        await self._check(principal, RightKind.OBSERVE, asked.topic_uid)
        end = asked.end_ms if asked.HasField("end_ms") else None
        return _counts(
            await self._parts.carrier.count(asked.topic_uid, start=asked.start_ms, end=end)
        )

    async def Forecast(self, asked: pb.ForecastRequest, principal: Principal) -> pb.ForecastSteps:
        await self._check(principal, RightKind.OBSERVE, asked.topic_uid)
        steps = await self._parts.carrier.forecast(
            asked.topic_uid, start=asked.start_ms, end=asked.end_ms, step_ms=asked.step_ms
        )
        return pb.ForecastSteps(
            steps=[
                pb.ForecastStep(start_ms=each.start, counts=_counts(each.counts)) for each in steps
            ]
        )

    async def DeadLetters(
        self, asked: pb.DeadLettersRequest, principal: Principal
    ) -> pb.DeadLetterPage:
        after = None
        if asked.HasField("after_id"):
            after = DeadLetter.place(asked.after_id, asked.after_died_ms)
        letters = await visible_letters(
            self._parts.carrier,
            principal,
            await self._allowed(principal, asked.topic_uid, partial(check_look, principal)),
            after=after,
            limit=min(asked.limit or _MOST_LETTERS, _MOST_LETTERS),
        )
        return pb.DeadLetterPage(letters=[letter_to_wire(each) for each in letters])

    async def Redrive(self, asked: pb.RedriveRequest, principal: Principal) -> pb.Outcomes:
        check_batch(len(asked.ids), self._parts.limits)
        due = asked.due_ms if asked.HasField("due_ms") else After(asked.delay_ms)
        group = await self._letter_group(principal, asked.topic_uid, asked.producer_group)
        changes = letter_changes(Operation.REDRIVE, asked.ids, due, producer_group=group)
        outcomes = await self._parts.carrier.change(asked.topic_uid, changes)
        audit.note_outcomes(outcomes)
        return pb.Outcomes(outcomes=outcomes_to_wire(outcomes))

    async def Discard(self, asked: pb.DiscardRequest, principal: Principal) -> pb.Outcomes:
        check_batch(len(asked.ids), self._parts.limits)
        group = await self._letter_group(principal, asked.topic_uid, asked.producer_group)
        changes = letter_changes(Operation.DISCARD, asked.ids, producer_group=group)
        outcomes = await self._parts.carrier.change(asked.topic_uid, changes)
        audit.note_outcomes(outcomes)
        return pb.Outcomes(outcomes=outcomes_to_wire(outcomes))

    # Administration

    async def List(self, asked: pb.ListRequest, principal: Principal) -> pb.MessagePage:
        wanted = filter_from_wire(asked.filter)

        def check(topic: str) -> None:
            check_browse(principal, topic, wanted.producer_group)

        topic = await self._allowed(principal, asked.topic_uid, check)
        after, now_ms = ListPlace.from_text(asked.after), self._parts.clock.now_ms()
        limit = min(asked.limit or _MOST_LISTED, _MOST_LISTED)
        found = await self._parts.carrier.read(
            "list",
            topic.uid,
            lambda store: browse(store, topic.uid, wanted, after=after, limit=limit, now_ms=now_ms),
        )
        return pb.MessagePage(
            messages=[message_to_wire(each) for each in found.items],
            next="" if found.next is None else found.next.to_text(),
        )

    async def States(self, asked: pb.LookupRequest, principal: Principal) -> pb.MessageStates:
        check_batch(len(asked.ids), self._parts.limits)
        if len(asked.ids) > MOST_STATES:
            raise TooMuch(f"a request has at most {MOST_STATES:,} ids: ask for fewer at once")
        topic = await self._allowed(principal, asked.topic_uid, partial(check_look, principal))
        now_ms, ids = self._parts.clock.now_ms(), list(asked.ids)
        found = await self._parts.carrier.read(
            "states", topic.uid, lambda store: known_states(store, topic.uid, ids, now_ms=now_ms)
        )
        return pb.MessageStates(
            states=[
                pb.MessageState(
                    id=each.id,
                    state=each.state,
                    message=None if each.message is None else message_to_wire(each.message),
                    consumer=each.consumer,
                    until_ms=each.until,
                    died_ms=each.died,
                    reason=each.reason,
                    producer_group=each.producer_group,
                )
                for each in found
                if may_see_group(principal, topic.name, each.producer_group)
            ]
        )

    async def ChangeMatching(
        self, asked: pb.ChangeMatchingRequest, principal: Principal
    ) -> pb.ChangedBatch:
        if asked.kind not in _BULK_OPERATIONS:
            raise InvalidInput("the kind of the change is not known")
        to: LeaseTime | None = None
        if asked.HasField("due_ms"):
            to = asked.due_ms
        elif asked.HasField("delay_ms"):
            to = After(asked.delay_ms)
        request = BulkRequest(
            operation=_BULK_OPERATIONS[asked.kind],
            wanted=filter_from_wire(asked.filter),
            to=to,
            dry_run=asked.dry_run,
            after=ListPlace.from_text(asked.after),
            limit=asked.limit,
        )

        def check(topic: str) -> None:
            check_bulk_change(principal, topic, request.wanted)

        topic = await self._allowed(principal, asked.topic_uid, check)
        answer = await change_matching(self._parts, principal, topic, request)
        return pb.ChangedBatch(
            looked=answer.looked,
            matched=answer.matched,
            done=answer.done,
            refused=answer.refused,
            sample=answer.sample,
            next="" if answer.next is None else answer.next.to_text(),
            due_ms=answer.due or 0,
        )

    async def Export(self, asked: pb.ExportRequest, principal: Principal) -> pb.ExportPage:
        topic = await self._check(principal, RightKind.ADMINISTER, asked.topic_uid)
        after, now_ms = ListPlace.from_text(asked.after), self._parts.clock.now_ms()
        limit = min(asked.limit or _MOST_LISTED, _MOST_LISTED)
        most_bytes = self._parts.limits.frame_bytes // 4
        async with self._reading:
            saved, place = await self._parts.carrier.read(
                "export",
                topic.uid,
                lambda store: export_page(
                    store,
                    topic.uid,
                    dead_letters=asked.dead_letters,
                    after=after,
                    limit=limit,
                    most_bytes=most_bytes,
                    now_ms=now_ms,
                ),
            )
        return pb.ExportPage(
            messages=[saved_to_wire(each) for each in saved],
            next="" if place is None else place.to_text(),
        )

    async def Import(self, asked: pb.ImportRequest, principal: Principal) -> pb.Outcomes:
        check_batch(len(asked.messages), self._parts.limits)
        topic = await self._check(principal, RightKind.ADMINISTER, asked.topic_uid)
        outcomes = await self._parts.carrier.restore(
            topic.uid, [saved_from_wire(each) for each in asked.messages]
        )
        audit.note_outcomes(outcomes)
        return pb.Outcomes(outcomes=outcomes_to_wire(outcomes))

    async def _letter_group(self, principal: Principal, topic_uid: int, group: str) -> str:
        """Raises as `letter_group`, and `TopicNotFound`."""
        allowed: list[str] = []

        def check(topic: str) -> None:
            allowed.append(letter_group(principal, topic, group or DEFAULT_PRODUCER_GROUP))

        await self._allowed(principal, topic_uid, check)
        return allowed[0]


def _broker_to_wire(info: BrokerInfo) -> pb.Broker:
    record, ahead_ms = info.record, info.clock_ahead_ms
    return pb.Broker(
        id=record.name,
        version=record.version,
        roles=record.roles,
        address=record.address,
        rack=record.rack,
        health=info.health.value,
        problems=info.problems,
        notices=info.notices,
        topics=record.load.topics,
        consumers=record.load.consumers,
        messages_per_s=record.load.messages_per_s,
        load_percent=record.load.core_percent,
        clock_ahead_us=None if ahead_ms is None else round(ahead_ms * 1000),
    )


def _subscriber_to_wire(info: SubscriberInfo) -> pb.Subscriber:
    first = next(iter(info.share.own), BucketRange(0, 0))
    return pb.Subscriber(
        consumer=info.consumer,
        topic_uid=info.topic_uid,
        topic=info.topic,
        start_bucket=first.start,
        stop_bucket=first.stop,
        busy=info.busy,
        broker=info.broker,
        rack=info.rack,
        own=[pb.Buckets(start=each.start, stop=each.stop) for each in info.share.own],
        backups=[pb.Buckets(start=each.start, stop=each.stop) for each in info.share.backups],
    )


def _counts(counts: Counts) -> pb.Counts:
    return pb.Counts(
        available=counts.available, processing=counts.processing, waiting=counts.waiting
    )
