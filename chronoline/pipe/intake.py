"""The intake of records: each Arrow batch becomes one transaction of the store.

The rows are those of `chronoline.pipe.spark.expressions.read_records`. A rejected record becomes a
dead letter with the whole record, and with its reason and origin in further headers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chronoline.core.errors import InvalidInput
from chronoline.core.limits import MAX_BODY_BYTES, id_problem, message_problem
from chronoline.core.message import Header, NewMessage
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import MAX_BATCH, Store
from chronoline.stores.inputs import (
    Cancel,
    Entry,
    InputClaim,
    InputRecord,
    Intake,
    Rejected,
    Reschedule,
    TakenIn,
    Tally,
)

if TYPE_CHECKING:
    import pyarrow as pa  # slow to import, and commands import this module for its headers

logger = logging.getLogger(__name__)

REASON_HEADER = "chronosDeadLetterReason"
ORIGIN_HEADER = "chronosDeadLetterOrigin"
"""Topic, partition and offset of the record, with a slash between them."""
_MOST_LOGGED = 10
"""The rejected records of a batch that are logged one by one; one line names the others."""


class PipeIntake:
    """Takes in batches for one pipe, under its claims."""

    def __init__(
        self,
        store: Store,
        topic_uid: int,
        claims: Mapping[int, InputClaim],
        *,
        producer_group: str,
        source_topic: str,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._topic_uid = topic_uid
        self._claims = claims
        self._producer_group = producer_group
        self._source_topic = source_topic
        self._now_ms = now_ms

    def take_in(self, batch: pa.RecordBatch) -> Tally:
        """Takes in a batch in one transaction. Raises `ClaimLost` as the store does.

        A batch that is larger than a transaction of the store is split.
        """
        tally = Tally()
        for start in range(0, batch.num_rows, MAX_BATCH):
            tally += self._take_in(list(_rows(batch.slice(start, MAX_BATCH))))
        return tally

    def _take_in(self, rows: Sequence[dict[str, Any]]) -> Tally:
        try:
            taken = self._ask(rows)
        except InvalidInput:
            # The store has limits that the contract lacks: only the offending records are rejected.
            if not self._reject_invalid(rows):
                raise
            taken = self._ask(rows)
        self._log([row for row in rows if row["action"] == "reject"])
        return sum((each.tally for each in taken), Tally())

    def _ask(self, rows: Sequence[dict[str, Any]]) -> list[TakenIn]:
        now_ms = self._now_ms()
        records: dict[int, list[InputRecord]] = {}
        for row in rows:
            record = InputRecord(row["offset"], self._entry(row, now_ms))
            records.setdefault(row["partition"], []).append(record)
        return self._store.take_in(
            self._topic_uid,
            [
                Intake(claim := self._claims[partition], some, claim.position, some[-1].offset + 1)
                for partition, some in records.items()
            ],
            producer_group=self._producer_group,
            now_ms=now_ms,
        )

    def _reject_invalid(self, rows: Sequence[dict[str, Any]]) -> int:
        """Rejects rows for which the store would refuse the whole batch, and returns their number."""
        largest_bytes = self._store.get_topic(self._topic_uid).settings.largest_body_bytes
        rejected = 0
        for row in rows:
            entry = self._entry(row, 0)
            if isinstance(entry, NewMessage):
                problem = message_problem(entry, largest_bytes)
            elif isinstance(entry, Cancel | Reschedule):
                problem = id_problem(entry.id)
            elif len(row["value"] or b"") > MAX_BODY_BYTES:
                problem = f"{row['reason']}; the value is not kept"
                row["value"] = None
            else:
                continue
            if problem:
                row |= {"action": "reject", "reason": problem}
                rejected += 1
        return rejected

    def _entry(self, row: dict[str, Any], now_ms: int) -> Entry:
        match row["action"]:
            case "cancel":
                return Cancel(row["id"])
            case "reschedule":
                return Reschedule(row["id"], row["due"])
            case "reject":
                return Rejected(self._letter(row, now_ms))
        return NewMessage(
            id=row["id"],
            due=row["due"],
            body=row["value"],
            key=row["key"],
            headers=_headers(row["headers"]),
            producer_group=self._producer_group,
        )

    def _letter(self, row: dict[str, Any], now_ms: int) -> NewMessage:
        origin = self._origin(row)
        return NewMessage(
            id=new_id(),  # the record's own id may be missing, or taken
            due=now_ms,
            body=row["value"],
            key=row["key"],
            headers=(
                *_headers(row["headers"]),
                (REASON_HEADER, row["reason"].encode()),
                (ORIGIN_HEADER, origin.encode()),
            ),
            producer_group=self._producer_group,
        )

    def _origin(self, row: dict[str, Any]) -> str:
        return f"{self._source_topic}/{row['partition']}/{row['offset']}"

    def _log(self, rejected: Sequence[dict[str, Any]]) -> None:
        for row in rejected[:_MOST_LOGGED]:
            logger.error("the record %s is malformed: %s", self._origin(row), row["reason"])
        more = rejected[_MOST_LOGGED:]
        if more:
            logger.error("%d more records are malformed: %s", len(more), self._origins(more))

    def _origins(self, rows: Sequence[dict[str, Any]]) -> str:
        """The origins of the rows; consecutive offsets are joined into ranges."""
        runs: list[tuple[int, int, int]] = []
        for partition, offset in sorted((row["partition"], row["offset"]) for row in rows):
            if runs and (partition, offset) == (runs[-1][0], runs[-1][2] + 1):
                runs[-1] = (partition, runs[-1][1], offset)
            else:
                runs.append((partition, offset, offset))
        return ", ".join(
            f"{self._source_topic}/{partition}/{first}" + (f"-{last}" if last > first else "")
            for partition, first, last in runs
        )


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [batch.column(name).to_pylist() for name in names]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _headers(found: list[dict[str, Any]] | None) -> tuple[Header, ...]:
    return tuple((each["key"], each["value"]) for each in found or ())
