"""Appends from many writers: one by one, pipelined, and in batches, beside one object per event."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from chronoline.log import Log, NewEvent, Position
from chronoline_bench.log.events import PARTITIONS, Book, Found, Place, make_events
from chronoline_bench.log.object_per_event import Item, ObjectPerEvent
from chronoline_bench.log.operations import (
    REFERENCE,
    Operations,
    count_operations,
    report_operations,
)
from chronoline_bench.report import Wanted
from chronoline_bench.rounds import at_once, in_turn, medians
from chronoline_bench.session import Session

WRITERS = 64
BATCH = 100
UNDER_WAY = 100
"""The appends that a pipelining writer has in flight."""
LINGER_MS = 50
"""For pipelining: no writer waits for an answer, so a commit may wait for more events."""
MANY_FLOOR = Wanted(at_least=20)
SINGLES_FLOOR = Wanted(at_least=5)
OBJECT_FLOOR = Wanted(at_least=1_000)

Append = Callable[[Sequence[NewEvent]], Sequence[Place]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendSizes:
    """The events appended in each round, by way of appending: multiples of the number of writers."""

    rounds: int
    later: int
    many: int
    single: int
    reference: int


def measure_appends(session: Session, sizes: AppendSizes) -> None:
    with (
        Log(f"file://{session.folder}/pipelined", linger_ms=LINGER_MS) as lingering,
        Log(f"file://{session.folder}/appends") as log,
        ObjectPerEvent(
            session.folder / "reference", partitions=PARTITIONS, clock=session.clock
        ) as reference,
    ):
        ways = {
            "later": _log_way(session, lingering, "later", _append_later, sizes.later),
            "many": _log_way(session, log, "many", append_many, sizes.many),
            "single": _log_way(session, log, "single", append_singles, sizes.single),
            "reference": Way(
                session,
                partial(append_each, reference),
                lambda: reference.read("check"),
                sizes.reference,
            ),
        }
        measures = {name: way.measure for name, way in ways.items()}
        rates = medians(in_turn(session, "appends", sizes.rounds, measures))
    _report_rates(session, rates)
    _report_objects(session, ways)
    operations = {name: way.operations for name, way in ways.items()}
    report_operations(session, "appended events", _METRICS, _OPERATIONS, operations)


class Way:
    """A way of appending, and the operations of its rounds."""

    def __init__(
        self,
        session: Session,
        append: Append,
        read_on: Callable[[], Iterable[Found]],
        events: int,
    ) -> None:
        self._append = append
        self._read_on = read_on
        self._events = events
        self._book = Book(session.tally)
        self.operations = Operations()

    def measure(self) -> float:
        """Appends events, then reads the acknowledged ones back."""
        with count_operations(self.operations):
            took_s = append_from_writers(self._book, self._append, self._events)
        self._book.check(self._read_on())
        self._book.turn()
        self.operations.events += self._events
        return self._events / took_s

    @property
    def events_per_object(self) -> float:
        return self.operations.events / self.operations.puts


def append_from_writers(book: Book, append: Append, events: int) -> float:
    """Appends prepared events from many threads; returns the seconds."""
    shares = [make_events(events // WRITERS) for _ in range(WRITERS)]
    answers: list[Sequence[Place]] = [() for _ in shares]

    def write(number: int) -> None:
        answers[number] = append(shares[number])

    took_s = at_once([partial(write, number) for number in range(WRITERS)])
    for share, places in zip(shares, answers, strict=True):
        book.note(share, places)
    return took_s


def append_singles(log: Log, topic: str, events: Sequence[NewEvent]) -> list[Position]:
    """Appends one event at a time, and waits for each answer."""
    return [log.append(topic, key=event.key, value=event.value) for event in events]


def append_many(log: Log, topic: str, events: Sequence[NewEvent]) -> list[Position]:
    places: list[Position] = []
    for start in range(0, len(events), BATCH):
        places += log.append_many(topic, events[start : start + BATCH])
    return places


def append_each(reference: ObjectPerEvent, events: Sequence[NewEvent]) -> list[Item]:
    return [reference.append(event.key or b"", event.value or b"") for event in events]


def _append_later(log: Log, topic: str, events: Sequence[NewEvent]) -> list[Position]:
    """Appends one event in each call, with many calls in flight."""
    places: list[Position] = []
    under_way: deque[Future[list[Position]]] = deque()
    for event in events:
        if len(under_way) == UNDER_WAY:
            places += under_way.popleft().result()
        under_way.append(log.append_later(topic, [event]))
    for answer in under_way:
        places += answer.result()
    return places


def _log_way(
    session: Session,
    log: Log,
    topic: str,
    append: Callable[[Log, str, Sequence[NewEvent]], Sequence[Place]],
    events: int,
) -> Way:
    log.create_topic(topic, partitions=PARTITIONS)
    return Way(
        session,
        partial(append, log, topic),
        lambda: log.read(topic, group="check", follow=False),
        events,
    )


_METRICS = {
    "later": f"append_later, one event each, {UNDER_WAY} under way",
    "many": f"append_many, batches of {BATCH}",
    "single": "append, each waits for its answer",
}
_OPERATIONS = {"objects": "puts", "index transactions": "transactions"}
_FLOORS = {"later": MANY_FLOOR, "many": MANY_FLOOR, "single": SINGLES_FLOOR}


def _report_rates(session: Session, rates: dict[str, float]) -> None:
    for name, metric in _METRICS.items():
        session.add(
            f"appends, {WRITERS} writers",
            metric,
            rates[name],
            "events/s",
            beside=(REFERENCE, rates["reference"]),
            wanted=_FLOORS[name],
        )


def _report_objects(session: Session, ways: dict[str, Way]) -> None:
    for name, metric in _METRICS.items():
        session.add(
            "events in an object",
            metric,
            ways[name].events_per_object,
            "events/object",
            beside=(REFERENCE, ways["reference"].events_per_object),
            wanted=None if name == "single" else OBJECT_FLOOR,
        )
