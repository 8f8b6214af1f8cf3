"""The base of the SQL engines: queries that both have, with the same values and columns, and their rows."""

from __future__ import annotations

import dataclasses
import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import lru_cache
from typing import Any

from chronoline.core.errors import StoreError
from chronoline.core.headers import pack_headers, unpack_headers
from chronoline.core.limits import MAX_TIME_MS, MIN_LEASE_MS
from chronoline.core.message import DeadLetter, Message
from chronoline.core.schedule import CatchUpRule, Recurrence, Schedule
from chronoline.core.topic import Pause, Topic, TopicSettings
from chronoline.stores.engine import (
    Connection,
    Engine,
    Ids,
    InputMove,
    LeaseRequest,
    Partition,
    ResumeRequest,
    ScheduleMove,
    Span,
)
from chronoline.stores.guards import taken_until
from chronoline.stores.inputs import InputAccount, InputClaim, Tally
from chronoline.stores.members import Member
from chronoline.stores.schedules import SchedulePlace
from chronoline.stores.stripes import Cell

MESSAGE_WIDTH = 11
"""How many columns of a row are the message's."""


class SqlEngine(Engine[Connection]):
    """Topics, pages, inputs, members and schedules by named queries. Small batches travel as JSON."""

    @abstractmethod
    def _read(
        self, query: str, values: dict[str, Any], connection: Connection | None = None
    ) -> Sequence[Sequence[Any]]:
        """The rows of a query that changes nothing, by its name."""

    @abstractmethod
    def _write(
        self, query: str, values: dict[str, Any], connection: Connection | None = None
    ) -> Sequence[Sequence[Any]]:
        """The rows of a query that changes something, by its name."""

    # Topics

    def is_name_taken(self, name: str) -> bool:
        return bool(self._read("name_taken", {"name": name}))

    def fetch_topic(self, connection: Connection | None, uid: int) -> Topic | None:
        return next(iter(self._read_topics("topic", {"uid": uid}, connection)), None)

    def find_topic(self, name: str) -> Topic | None:
        return next(iter(self._read_topics("topic_named", {"name": name})), None)

    def list_topics(self) -> list[Topic]:
        return self._read_topics("topics", {})

    def changed_topics(self) -> list[Topic]:
        return self._read_topics("changed_topics", {})

    def deleted_topics(self) -> list[Topic]:
        return self._read_topics("unfinished_drops", {})

    def identity(self) -> str:
        return str(self._read("identity", {})[0][0])

    def _read_topics(
        self, query: str, values: dict[str, Any], connection: Connection | None = None
    ) -> list[Topic]:
        return [read_topic(row) for row in self._read(query, values, connection)]

    def change_topic(self, topic: Topic) -> bool:
        return bool(self._write("change_topic", changed_topic_values(topic)))

    # Pages

    def select_held(
        self, topic: Topic, consumer: str, session: str | None, ids: Ids, limit: int
    ) -> list[Message]:
        values = {
            "topic": topic.uid,
            "consumer": consumer,
            "session": session,
            "after": ids.after,
            "first": ids.first,
            "limit": limit,
        }
        return [read_message(row) for row in self._read("select_held", values)]

    def select_owned(
        self, topic: Topic, producer_group: str, ids: Ids, limit: int
    ) -> list[Message]:
        values = {
            "topic": topic.uid,
            "producer_group": producer_group,
            "after": ids.after,
            "first": ids.first,
            "limit": limit,
        }
        return [read_message(row) for row in self._read("select_owned", values)]

    def next_group(self, topic: Topic, after: str) -> str | None:
        values = {"topic": topic.uid, "after": after}
        return next((group for (group,) in self._read("next_group", values)), None)

    def count_owned(self, topic: Topic, producer_group: str, most: int) -> int:
        values = {"topic": topic.uid, "producer_group": producer_group, "most": most}
        ((count,),) = self._read("count_owned", values)
        return int(count)

    def scan(
        self, topic: Topic, cell: Cell, after: tuple[int, str], end: int, limit: int
    ) -> list[Message]:
        ts, last_id = after
        values = {"topic": topic.uid, "from": ts, "after": last_id, "end": end, "limit": limit}
        return [read_message(row) for row in self._read("scan", values | cell._asdict())]

    def scan_held(self, topic: Topic, after: tuple[str, str], limit: int) -> list[Message]:
        consumer, last_id = after
        values = {"topic": topic.uid, "consumer": consumer, "after": last_id, "limit": limit}
        return [read_message(row) for row in self._read("scan_held", values)]

    def dead_letters(self, topic: Topic, after: tuple[int, str], limit: int) -> list[DeadLetter]:
        died, last_id = after
        values = {"topic": topic.uid, "died": died, "after": last_id, "limit": limit}
        return [
            DeadLetter(message=read_message(row), reason=row[MESSAGE_WIDTH], died=row[1])
            for row in self._read("dead_letters", values)
        ]

    # Inputs

    def claim_inputs(
        self, source: str, starts: Mapping[int, int], holder: str, until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        values = {
            "source": source,
            "starts": json.dumps(sorted(starts.items())),
            "holder": holder,
            "until": until_ms,
            "now": now_ms,
        }
        rows = self._write("claim_inputs", values)
        return [
            InputClaim(source, partition, holder, fence, until_ms, position)
            for partition, fence, position in sorted(map(tuple, rows))
        ]

    def renew_claims(
        self, claims: Sequence[InputClaim], until_ms: int, now_ms: int
    ) -> list[InputClaim]:
        values = {"claims": json.dumps(claims), "until": until_ms, "now": now_ms}
        positions = {tuple(row[:2]): row[2] for row in self._write("renew_claims", values)}
        return [
            claim._replace(until_ms=until_ms, position=positions[claim[:2]])
            for claim in claims
            if claim[:2] in positions
        ]

    def release_claims(self, claims: Sequence[InputClaim]) -> None:
        if claims:
            self._write("release_claims", {"claims": json.dumps(claims)})

    def positions(
        self, connection: Connection | None, claims: Sequence[InputClaim], now_ms: int
    ) -> dict[Partition, int]:
        values = {"claims": json.dumps(claims), "now": now_ms}
        rows = self._write("positions", values, connection)
        return {(source, partition): position for source, partition, position in rows}

    def move_inputs(self, connection: Connection | None, moves: Sequence[InputMove]) -> None:
        rows = [[*move.partition, move.upto, *astuple(move.tally)] for move in moves]
        self._write("move_inputs", {"moves": json.dumps(rows)}, connection)

    def input_accounts(self, source: str) -> list[InputAccount]:
        return [
            InputAccount(
                partition=partition,
                position=position,
                holder=holder,
                until_ms=until_ms if holder is not None else None,
                fence=fence,
                tally=Tally(*counts),
            )
            for partition, position, holder, until_ms, fence, *counts in self._read(
                "input_accounts", {"source": source}
            )
        ]

    def forget_inputs(self, source: str, now_ms: int) -> int:
        return len(self._write("forget_inputs", {"source": source, "now": now_ms}))

    # Members

    def beat(self, group: str, name: str, until_ms: int, details: str, forgotten_ms: int) -> None:
        values = {"group": group, "name": name, "until": until_ms, "details": details}
        self._write("beat", values)
        self._write("forget_members", {"before": forgotten_ms})

    def members(self, group: str) -> list[Member]:
        return [
            Member(name=name, until_ms=until_ms, stopping=bool(stopping), details=details)
            for name, until_ms, stopping, details in self._read("members", {"group": group})
        ]

    def live_groups(self, now_ms: int) -> frozenset[str]:
        return frozenset(group for (group,) in self._read("live_groups", {"now": now_ms}))

    def ask_to_stop(self, group: str, name: str | None) -> int:
        return len(self._write("ask_to_stop", {"group": group, "name": name}))

    def leave(self, group: str, name: str) -> None:
        self._write("leave", {"group": group, "name": name})

    # Schedules

    def insert_schedule(self, connection: Connection | None, schedule: Schedule) -> bool:
        return bool(self._write("insert_schedule", _schedule_values(schedule), connection))

    def replace_schedule(
        self, connection: Connection | None, schedule: Schedule, instead_of: Schedule
    ) -> bool:
        values = {"was_uid": instead_of.uid, "was_version": instead_of.version}
        return bool(
            self._write("replace_schedule", _schedule_values(schedule) | values, connection)
        )

    def remove_schedule(
        self, connection: Connection | None, schedule: Schedule, floor_ms: int
    ) -> bool:
        state = {"name": schedule.name, "uid": schedule.uid, "version": schedule.version}
        return bool(self._write("remove_schedule", state | {"floor": floor_ms}, connection))

    def schedule_floor_ms(self, name: str) -> int:
        return next((floor for (floor,) in self._read("schedule_floor", {"name": name})), 0)

    def move_schedules(
        self, connection: Connection | None, moves: Sequence[ScheduleMove]
    ) -> set[str]:
        rows = self._write("move_schedules", {"moves": json.dumps(sorted(moves))}, connection)
        return {name for (name,) in rows}

    def find_schedule(self, name: str) -> Schedule | None:
        return next(map(_read_schedule, self._read("schedule_named", {"name": name})), None)

    def list_schedules(self, topic_uid: int | None, after: str, limit: int) -> list[Schedule]:
        values = {"topic": topic_uid, "after": after, "limit": limit}
        return [_read_schedule(row) for row in self._read("schedules", values)]

    def count_schedules(self, topic_uid: int, most: int) -> int:
        ((found,),) = self._read("count_schedules", {"topic": topic_uid, "most": most})
        return int(found)

    def due_schedules(self, before_ms: int, after: SchedulePlace, limit: int) -> list[Schedule]:
        values = {
            "before": before_ms,
            "after_ms": after.next_ms,
            "after": after.name,
            "limit": limit,
        }
        return [_read_schedule(row) for row in self._read("due_schedules", values)]

    def next_schedule_ms(self, after_ms: int) -> int | None:
        found = self._read("next_schedule", {"after_ms": after_ms})
        return int(found[0][0]) if found else None


def topic_values(topic: Topic) -> dict[str, Any]:
    """The values of the query `insert_topic`."""
    return {"uid": topic.uid, "name": topic.name, "settings": pack_settings(topic.settings)}


def changed_topic_values(topic: Topic) -> dict[str, Any]:
    """The values of the query `change_topic`; the topic has the revision that is changed."""
    pause = topic.pause
    return {
        "uid": topic.uid,
        "settings": pack_settings(topic.settings),
        "revision": topic.revision,
        "paused_at": None if pause is None else pause.since,
        "paused_by": None if pause is None else pause.by,
        "pause_reason": None if pause is None else pause.reason,
    }


def read_topic(row: Sequence[Any]) -> Topic:
    """A topic from its row."""
    uid, name, settings, revision, paused_at, paused_by, reason = row
    pause = None
    if paused_at is not None:
        pause = Pause(since=paused_at, by=paused_by or "", reason=reason or "")
    return Topic(
        uid=uid, name=name, settings=unpack_settings(settings), revision=revision, pause=pause
    )


def lease_values(topic: Topic, request: LeaseRequest) -> dict[str, Any]:
    """The values of queries for leases."""
    return {
        "topic": topic.uid,
        "now": request.now_ms,
        "horizon": request.now_ms + request.reserve_ahead_ms,
        "since": request.since_ms,
        "consumer": request.consumer,
        "session": request.session,
        "lease_ms": request.lease_ms,
        "max_attempts": topic.settings.max_attempts,
        "max_lateness_ms": topic.settings.max_lateness_ms,
    }


def resume_values(topic: Topic, request: ResumeRequest) -> dict[str, Any]:
    """The values of queries for resumed leases."""
    values = request._asdict()
    return {"topic": topic.uid, "now": values.pop("now_ms"), **values}


def change_values(topic: Topic, now_ms: int) -> dict[str, Any]:
    """The values of queries for changes, apart from those of the change itself."""
    return {
        "topic": topic.uid,
        "now": now_ms,
        "min_lease_ms": MIN_LEASE_MS,
        "max_attempts": topic.settings.max_attempts,
        "until": taken_until(topic, now_ms),
    }


def span_values(topic: Topic, span: Span) -> dict[str, int]:
    """The values of the query `forecast`, apart from the cells."""
    return {
        "topic": topic.uid,
        "from": span.start,
        "end": span.end,
        "step_ms": span.step_ms,
        "now": span.now_ms,
    }


def read_message(row: Sequence[Any]) -> Message:
    """A message from the first columns of a row."""
    return Message(
        id=row[0],
        ts=row[1],
        due=row[2],
        bucket=row[3],
        producer_group=row[4],
        lock_consumer=row[5],
        version=row[6],
        attempts=row[7],
        expires=row[8],
        key=row[9],
        headers=unpack_headers(row[10]),
    )


def _schedule_values(schedule: Schedule) -> dict[str, Any]:
    return {
        "name": schedule.name,
        "uid": schedule.uid,
        "topic": schedule.topic_uid,
        "version": schedule.version,
        "next_ms": schedule.next_ms,
        "paused": schedule.paused,
        "producer_group": schedule.producer_group,
        "rule": _pack_rule(schedule),
        "key": schedule.key,
        "headers": pack_headers(schedule.headers),
        "body": schedule.body,
    }


def _pack_rule(schedule: Schedule) -> str:
    """Recurrence and catch-up as JSON, without what is None, as for the settings of a topic."""
    recurrence = dataclasses.asdict(schedule.recurrence)
    rule = {name: value for name, value in recurrence.items() if value is not None}
    rule |= {"catch_up": schedule.catch_up.value, "made_ms": schedule.made_ms}
    return json.dumps(rule, sort_keys=True)


def _read_schedule(row: Sequence[Any]) -> Schedule:
    name, uid, topic, version, next_ms, paused, producer_group, packed, key, headers, body = row
    problem = ""
    try:
        rule = json.loads(packed)
        catch_up, made_ms = CatchUpRule(rule.pop("catch_up")), int(rule.pop("made_ms"))
        recurrence = Recurrence(**rule)
    except (KeyError, TypeError, ValueError) as error:
        problem = (
            f"its rule cannot be read; a later version may have written it, use that one: {error}"
        )
        catch_up, made_ms, recurrence = CatchUpRule.NONE, 0, Recurrence(every_ms=MAX_TIME_MS)
    return Schedule(
        name=name,
        uid=uid,
        topic_uid=topic,
        version=version,
        next_ms=next_ms,
        paused=bool(paused),
        producer_group=producer_group,
        recurrence=recurrence,
        catch_up=catch_up,
        made_ms=made_ms,
        key=key,
        headers=unpack_headers(headers),
        body=body,
        problem=problem,
    )


def pack_settings(settings: TopicSettings) -> str:
    """The settings as JSON, without those that are None: an older version need not know them."""
    given = {
        name: value for name, value in dataclasses.asdict(settings).items() if value is not None
    }
    return json.dumps(given, sort_keys=True)


@lru_cache(maxsize=1_000)
def unpack_settings(packed: str) -> TopicSettings:
    """The settings from JSON. Settings that a later version added are refused: they might matter."""
    try:
        return TopicSettings(**json.loads(packed))
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"the stored settings of a topic cannot be read; a later version may have written them, use "
            f"that one: {error}"
        ) from error
