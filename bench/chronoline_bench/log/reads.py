"""Reads by a group that stores its progress, beside one object per event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count

from chronoline.log import Log
from chronoline_bench.log.appends import (
    BATCH,
    Append,
    append_each,
    append_from_writers,
    append_many,
    append_singles,
)
from chronoline_bench.log.events import PARTITIONS, Book, Found
from chronoline_bench.log.object_per_event import ObjectPerEvent
from chronoline_bench.log.operations import (
    REFERENCE,
    Operations,
    count_operations,
    report_operations,
)
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import at_once, in_turn, medians
from chronoline_bench.session import Session

Read = Callable[[str], Sequence[Iterable[Found]]]
"""Returns the events for a group in parts; one thread reads each part."""

READ_FLOOR = Wanted(at_least=10)
_METRICS = {
    "many": f"what append_many in batches of {BATCH} left",
    "single": "what single appends left",
    "compacted": "what compaction left",
}
_OPERATIONS = {
    "object reads": "gets",
    "index transactions": "transactions",
    "looks at the index": "looks",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSizes:
    """The events read in each round, by the way of appending.

    Events that are compacted first are appended like `many`.
    """

    rounds: int
    many: int
    single: int
    reference: int


def measure_reads(session: Session, sizes: ReadSizes) -> None:
    with (
        Log(f"file://{session.folder}/reading") as log,
        ObjectPerEvent(
            session.folder / "reference_reads", partitions=PARTITIONS, clock=session.clock
        ) as reference,
    ):
        readings = {topic: _Reading(session, _by_group(log, topic)) for topic in _METRICS}
        readings["reference"] = _Reading(session, _by_consumer(reference))
        for topic in _METRICS:
            log.create_topic(topic, partitions=PARTITIONS)
        readings["many"].fill(partial(append_many, log, "many"), sizes.many)
        readings["single"].fill(partial(append_singles, log, "single"), sizes.single)
        readings["compacted"].fill(partial(append_many, log, "compacted"), sizes.many)
        log.compact("compacted")
        readings["reference"].fill(partial(append_each, reference), sizes.reference)
        measures = {name: reading.measure for name, reading in readings.items()}
        rates = medians(in_turn(session, "reading back", sizes.rounds, measures))
    _report(session, rates, readings)


class _Reading:
    """Reads the same events in each round, as a new group."""

    def __init__(self, session: Session, read: Read) -> None:
        self._read = read
        self._book = Book(session.tally)
        self._groups = count()
        self.operations = Operations()

    def fill(self, append: Append, events: int) -> None:
        append_from_writers(self._book, append, events)

    def measure(self) -> float:
        parts = self._read(f"group-{next(self._groups)}")
        found: list[list[Found]] = [[] for _ in parts]

        def read(number: int) -> None:
            found[number] = list(parts[number])

        with count_operations(self.operations):
            took_s = at_once([partial(read, number) for number in range(len(parts))])
        self._book.check(chain.from_iterable(found))
        events = sum(map(len, found))
        self.operations.events += events
        return events / took_s


def _by_group(log: Log, topic: str) -> Read:
    return lambda group: [log.read(topic, group=group, follow=False)]


def _by_consumer(reference: ObjectPerEvent) -> Read:
    """Returns a part for each partition."""
    return lambda consumer: [
        reference.read_partition(consumer, partition) for partition in range(reference.partitions)
    ]


def _report(session: Session, rates: dict[str, float], readings: dict[str, _Reading]) -> None:
    for name, metric in _METRICS.items():
        session.add(
            "reading back by a group, with its progress noted",
            metric,
            rates[name],
            "events/s",
            beside=(REFERENCE, rates["reference"]),
            wanted=READ_FLOOR,
        )
    operations = {name: reading.operations for name, reading in readings.items()}
    report_operations(session, "events read back", _METRICS, _OPERATIONS, operations)
