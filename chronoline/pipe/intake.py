"""The intake of records: what a reader gathered becomes one transaction of the store.

A malformed record becomes a dead letter with the whole record, and with its reason and origin in further
headers. A value or headers that no store can keep are left out, and the reason says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from chronoline.core.errors import InvalidInput, RowsLocked
from chronoline.core.headers import packing_problem
from chronoline.core.limits import MAX_BODY_BYTES, id_problem, message_problem
from chronoline.core.message import NewMessage
from chronoline.pipe.contract import Contract, Malformed, SourceRecord
from chronoline.pipe.readers import ReadRange
from chronoline.runtime.message_ids import new_id
from chronoline.stores.contract import Store
from chronoline.stores.inputs import (
    Cancel,
    InputClaim,
    InputRecord,
    Intake,
    Rejected,
    Reschedule,
    Tally,
)

logger = logging.getLogger(__name__)

REASON_HEADER = "chronosDeadLetterReason"
ORIGIN_HEADER = "chronosDeadLetterOrigin"
"""Topic, partition and offset of the record, with a slash between them."""
_MOST_LOGGED = 10
"""The rejected records of a batch that are logged one by one; one line names the others."""
_OWN_BYTES = 64 * 1024
"""Room for the headers that a dead letter gets beside those of its record."""


@dataclass(slots=True)
class _Read:
    """A record, and what it asks for by the contract."""

    record: SourceRecord
    asked: NewMessage | Cancel | Reschedule | Malformed

    def drop_unkept(self) -> bool:
        """Drops from a malformed record what no dead letter can keep; returns whether it did."""
        if not isinstance(self.asked, Malformed):
            return False
        record, reason = self.record, self.asked.reason
        if len(record.value or b"") > MAX_BODY_BYTES:
            self.record = self.record._replace(value=None)
            reason += "; the value is not kept"
        if packing_problem(record.headers, MAX_BODY_BYTES - _OWN_BYTES):
            self.record = self.record._replace(headers=())
            reason += "; the headers are not kept"
        self.asked = Malformed(reason)
        return self.record is not record


class PipeIntake:
    """Takes in the records of one pipe."""

    def __init__(
        self, store: Store, topic_uid: int, contract: Contract, *, now_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._topic_uid = topic_uid
        self._contract = contract
        self._now_ms = now_ms
        self._held: set[int] = set()
        """Partitions with a message that another transaction held when it was last tried."""

    def take_in(self, claims: Mapping[int, InputClaim], ranges: Sequence[ReadRange]) -> Tally:
        """Takes in what was read, in one transaction. Raises `ClaimLost` and `InputGap` as the store does.

        If other transactions hold a message, each partition gets a transaction of its own, and those that
        are held again the next time. Raises `RowsLocked` at the end; all others were taken in then.
        """
        apart = [each for each in ranges if each.partition in self._held]
        together = [each for each in ranges if each.partition not in self._held]
        tally = Tally()
        try:
            if together:
                tally = self._take_in(claims, together)
        except RowsLocked:
            apart = [*together, *apart]
        return tally + self._take_in_apart(claims, apart)

    def _take_in_apart(
        self, claims: Mapping[int, InputClaim], ranges: Sequence[ReadRange]
    ) -> Tally:
        tally, locked = Tally(), None
        for each in ranges:
            try:
                tally += self._take_in(claims, [each])
                self._held.discard(each.partition)
            except RowsLocked as error:
                self._held.add(each.partition)
                locked = error
        if locked is not None:
            raise locked
        return tally

    def _take_in(self, claims: Mapping[int, InputClaim], ranges: Sequence[ReadRange]) -> Tally:
        read = self._contract.read
        found = {
            each.partition: [_Read(record, read(record)) for record in each.records]
            for each in ranges
        }
        records = [each for some in found.values() for each in some]
        try:
            tally = self._ask(claims, ranges, found)
        except InvalidInput:
            # The store has limits that the contract lacks: only the offending records are rejected.
            if not self._reject_invalid(records):
                raise
            tally = self._ask(claims, ranges, found)
        self._log(records)
        return tally

    def _ask(
        self,
        claims: Mapping[int, InputClaim],
        ranges: Sequence[ReadRange],
        found: Mapping[int, Sequence[_Read]],
    ) -> Tally:
        now_ms = self._now_ms()
        intakes = [
            Intake(
                claims[partition],
                [
                    InputRecord(each.record.offset, self._entry(each, now_ms))
                    for each in found[partition]
                ],
                first,
                upto,
            )
            for partition, first, upto, _ in ranges
        ]
        group = self._contract.producer_group
        taken = self._store.take_in(self._topic_uid, intakes, producer_group=group, now_ms=now_ms)
        return sum((each.tally for each in taken), Tally())

    def _reject_invalid(self, records: Iterable[_Read]) -> int:
        """Changes records for which the store would refuse the whole batch, and returns their number."""
        largest_bytes = self._store.get_topic(self._topic_uid).settings.largest_body_bytes
        changed = 0
        for each in records:
            problem = None
            match each.asked:
                case NewMessage():
                    problem = message_problem(each.asked, largest_bytes)
                case Cancel(name) | Reschedule(name, _):
                    problem = id_problem(name)
            if problem:
                each.asked = Malformed(problem)
            if each.drop_unkept() or problem:
                changed += 1
        return changed

    def _entry(self, read: _Read, now_ms: int) -> NewMessage | Cancel | Reschedule | Rejected:
        if isinstance(read.asked, Malformed):
            return Rejected(self._letter(read.record, read.asked.reason, now_ms))
        return read.asked

    def _letter(self, record: SourceRecord, reason: str, now_ms: int) -> NewMessage:
        return NewMessage(
            id=new_id(),  # the record's own id may be missing, or taken
            due=now_ms,
            body=record.value,
            key=record.key,
            headers=(
                *record.headers,
                (REASON_HEADER, reason.encode()),
                (ORIGIN_HEADER, self._origin(record).encode()),
            ),
            producer_group=self._contract.producer_group,
        )

    def _origin(self, record: SourceRecord) -> str:
        return f"{self._contract.topic}/{record.partition}/{record.offset}"

    def _log(self, records: Iterable[_Read]) -> None:
        rejected = [
            (each.record, each.asked.reason)
            for each in records
            if isinstance(each.asked, Malformed)
        ]
        for record, reason in rejected[:_MOST_LOGGED]:
            logger.error("the record %s is malformed: %s", self._origin(record), reason)
        more = [record for record, _ in rejected[_MOST_LOGGED:]]
        if more:
            logger.error("%d more records are malformed: %s", len(more), self._origins(more))

    def _origins(self, records: Iterable[SourceRecord]) -> str:
        """The origins of the records; consecutive offsets are joined into ranges."""
        runs: list[tuple[int, int, int]] = []
        for partition, offset in sorted(record[:2] for record in records):
            if runs and (partition, offset) == (runs[-1][0], runs[-1][2] + 1):
                runs[-1] = (partition, runs[-1][1], offset)
            else:
                runs.append((partition, offset, offset))
        return ", ".join(
            f"{self._contract.topic}/{partition}/{first}" + (f"-{last}" if last > first else "")
            for partition, first, last in runs
        )
