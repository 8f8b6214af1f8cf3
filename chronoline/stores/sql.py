"""What the SQL engines share: queries that have the same names, values and columns in both."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

from chronoline.core.message import DeadLetter, Message
from chronoline.core.topic import Topic
from chronoline.stores.inputs import InputAccount, InputClaim, Tally
from chronoline.stores.intake import Move, Partition, TakesIn
from chronoline.stores.members import Member
from chronoline.stores.rows import MESSAGE_WIDTH, pack_settings, read_message, unpack_settings
from chronoline.stores.stripes import Cell


class SqlStore(TakesIn):
    """Looks, inputs and members by named queries. Batches of these are few, and travel as JSON."""

    @abstractmethod
    def _read(self, query: str, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of a query that changes nothing, by its name."""

    @abstractmethod
    def _write(self, query: str, values: dict[str, Any]) -> Sequence[Sequence[Any]]:
        """The rows of a query that changes something, by its name."""

    # Topics

    def _is_name_taken(self, name: str) -> bool:
        return bool(self._read("name_taken", {"name": name}))

    def _fetch_topic(self, uid: int) -> Topic | None:
        return next(iter(self._read_topics("topic", {"uid": uid})), None)

    def _find_topic(self, name: str) -> Topic | None:
        return next(iter(self._read_topics("topic_named", {"name": name})), None)

    def list_topics(self) -> list[Topic]:
        return self._read_topics("topics", {})

    def _read_topics(self, query: str, values: dict[str, Any]) -> list[Topic]:
        return [
            Topic(uid=uid, name=name, settings=unpack_settings(settings))
            for uid, name, settings in self._read(query, values)
        ]

    # Pages

    def _select_held(
        self, topic: Topic, consumer: str, session: str | None, after: str, limit: int
    ) -> list[Message]:
        values = {
            "topic": topic.uid,
            "consumer": consumer,
            "session": session,
            "after": after,
            "limit": limit,
        }
        return [read_message(row) for row in self._read("select_held", values)]

    def _select_owned(
        self, topic: Topic, producer_group: str, after: str, limit: int
    ) -> list[Message]:
        values = {
            "topic": topic.uid,
            "producer_group": producer_group,
            "after": after,
            "limit": limit,
        }
        return [read_message(row) for row in self._read("select_owned", values)]

    def _scan(
        self, topic: Topic, cell: Cell, after: tuple[int, str], end: int, limit: int
    ) -> list[Message]:
        ts, last_id = after
        values = {"topic": topic.uid, "from": ts, "after": last_id, "end": end, "limit": limit}
        return [read_message(row) for row in self._read("scan", values | cell._asdict())]

    def _dead_letters(self, topic: Topic, after: tuple[int, str], limit: int) -> list[DeadLetter]:
        died, last_id = after
        values = {"topic": topic.uid, "died": died, "after": last_id, "limit": limit}
        return [
            DeadLetter(message=read_message(row), reason=row[MESSAGE_WIDTH], died=row[1])
            for row in self._read("dead_letters", values)
        ]

    # Inputs

    def _claim_inputs(
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

    def _renew_claims(
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

    def _positions(self, claims: Sequence[InputClaim], now_ms: int) -> dict[Partition, int]:
        rows = self._write("positions", {"claims": json.dumps(claims), "now": now_ms})
        return {(source, partition): position for source, partition, position in rows}

    def _move_inputs(self, moves: Sequence[Move]) -> None:
        rows = [[*move.partition, move.upto, *astuple(move.tally)] for move in moves]
        self._write("move_inputs", {"moves": json.dumps(rows)})

    def input_accounts(self, source: str) -> list[InputAccount]:
        return [
            InputAccount(
                partition=partition,
                position=position,
                holder=holder,
                until_ms=until_ms if holder is not None else None,
                tally=Tally(*counts),
            )
            for partition, position, holder, until_ms, *counts in self._read(
                "input_accounts", {"source": source}
            )
        ]

    def forget_inputs(self, source: str, *, now_ms: int) -> int:
        return len(self._write("forget_inputs", {"source": source, "now": now_ms}))

    # Members

    def _beat(self, group: str, name: str, until_ms: int, details: str, forgotten_ms: int) -> None:
        values = {"group": group, "name": name, "until": until_ms, "details": details}
        self._write("beat", values)
        self._write("forget_members", {"before": forgotten_ms})

    def members(self, group: str) -> list[Member]:
        return [
            Member(name=name, until_ms=until_ms, stopping=bool(stopping), details=details)
            for name, until_ms, stopping, details in self._read("members", {"group": group})
        ]

    def live_groups(self, *, now_ms: int) -> frozenset[str]:
        return frozenset(group for (group,) in self._read("live_groups", {"now": now_ms}))

    def ask_to_stop(self, group: str, name: str | None = None) -> int:
        return len(self._write("ask_to_stop", {"group": group, "name": name}))

    def leave(self, group: str, name: str) -> None:
        self._write("leave", {"group": group, "name": name})


def topic_values(topic: Topic) -> dict[str, Any]:
    """What the query `insert_topic` wants to know."""
    return {"uid": topic.uid, "name": topic.name, "settings": pack_settings(topic.settings)}
