"""Appends from many writers: one by one, pipelined, and in batches, beside Safya's way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from chronoline.log import Log, NewEvent, Position
from chronoline_bench.counting import Operations, counting
from chronoline_bench.events import PARTITIONS, Book, Found, Place, make_events
from chronoline_bench.report import Row, Wanted
from chronoline_bench.rounds import interleave, medians
from chronoline_bench.safya import Item, Safya
from chronoline_bench.session import Session
from chronoline_bench.threads import at_once

WRITERS = 64
BATCH = 100
UNDER_WAY = 100
"""So many appends each writer has on their way when it pipelines."""
LINGER_MS = 50
"""For pipelining: nobody waits for an answer, so a commit may wait for company."""
MANY_FLOOR = Wanted(at_least=20)
SINGLES_FLOOR = Wanted(at_least=5)
OBJECT_FLOOR = Wanted(at_least=1_000)
REFERENCE = "Safya's way"
MILLION = 1_000_000

Append = Callable[[Sequence[NewEvent]], Sequence[Place]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendSizes:
    """How many events are appended in each round, in each way: multiples of the number of writers."""

    rounds: int
    later: int
    many: int
    single: int
    safya: int


def measure_appends(session: Session, sizes: AppendSizes) -> None:
    with (
        Log(f"file://{session.folder}/pipelined", linger_ms=LINGER_MS) as lingering,
        Log(f"file://{session.folder}/appends") as log,
        Safya(session.folder / "safya", partitions=PARTITIONS, clock=session.clock) as safya,
    ):
        ways = {
            "later": _log_way(session, lingering, "later", _append_later, sizes.later),
            "many": _log_way(session, log, "many", append_many, sizes.many),
            "single": _log_way(session, log, "single", append_singles, sizes.single),
            "safya": Way(
                session, partial(append_safya, safya), lambda: safya.read("check"), sizes.safya
            ),
        }
        measures = {name: way.measure for name, way in ways.items()}
        with session.show.work("appends", (sizes.rounds + 1) * len(measures)) as advance:
            rates = medians(interleave(sizes.rounds, measures, after_each=lambda: advance(1)))
    _report_rates(session, rates)
    _report_objects(session, ways)
    _report_operations(session, ways)


class Way:
    """One way to append, its rounds, and what they cost."""

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
        self.appended = 0

    def measure(self) -> float:
        """Appends; then reads back what was acknowledged."""
        with counting(self.operations):
            took_s = append_from_writers(self._book, self._append, self._events)
        self._book.check(self._read_on())
        self._book.turn()
        self.appended += self._events
        return self._events / took_s

    @property
    def events_per_object(self) -> float:
        return self.appended / self.operations.puts

    def per_million(self, operations: int) -> float:
        return operations * MILLION / self.appended


def append_from_writers(book: Book, append: Append, events: int) -> float:
    """The seconds until all writers have appended their shares, which were made before."""
    shares = [make_events(events // WRITERS) for _ in range(WRITERS)]
    answers: list[Sequence[Place]] = [() for _ in shares]

    def write(number: int) -> None:
        answers[number] = append(shares[number])

    took_s = at_once([partial(write, number) for number in range(WRITERS)])
    for share, places in zip(shares, answers, strict=True):
        book.note(share, places)
    return took_s


def append_singles(log: Log, topic: str, events: Sequence[NewEvent]) -> list[Position]:
    """Each waits for its answer before the next."""
    return [log.append(topic, key=event.key, value=event.value) for event in events]


def append_many(log: Log, topic: str, events: Sequence[NewEvent]) -> list[Position]:
    places: list[Position] = []
    for start in range(0, len(events), BATCH):
        places += log.append_many(topic, events[start : start + BATCH])
    return places


def append_safya(safya: Safya, events: Sequence[NewEvent]) -> list[Item]:
    return [safya.append(event.key or b"", event.value or b"") for event in events]


def _append_later(log: Log, topic: str, events: Sequence[NewEvent]) -> list[Position]:
    """One event in each call, and many calls on their way."""
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
_OPERATIONS: dict[str, Callable[[Operations], int]] = {
    "objects": lambda operations: operations.puts,
    "index transactions": lambda operations: operations.transactions,
}
_FLOORS = {"later": MANY_FLOOR, "many": MANY_FLOOR, "single": SINGLES_FLOOR}


def _report_rates(session: Session, rates: dict[str, float]) -> None:
    for name, metric in _METRICS.items():
        session.rows.append(
            Row(
                case=f"appends, {WRITERS} writers",
                metric=metric,
                value=rates[name],
                unit="events/s",
                reference=REFERENCE,
                reference_value=rates["safya"],
                wanted=_FLOORS[name],
            )
        )


def _report_objects(session: Session, ways: dict[str, Way]) -> None:
    for name, metric in _METRICS.items():
        session.rows.append(
            Row(
                case="events in an object",
                metric=metric,
                value=ways[name].events_per_object,
                unit="events/object",
                reference=REFERENCE,
                reference_value=ways["safya"].events_per_object,
                wanted=None if name == "single" else OBJECT_FLOOR,
            )
        )


def _report_operations(session: Session, ways: dict[str, Way]) -> None:
    safya = ways["safya"]
    for what, asked in _OPERATIONS.items():
        for name, metric in _METRICS.items():
            session.rows.append(
                Row(
                    case=f"{what} for a million appended events",
                    metric=metric,
                    value=ways[name].per_million(asked(ways[name].operations)),
                    unit="per million events",
                    reference=REFERENCE,
                    reference_value=safya.per_million(asked(safya.operations)),
                )
            )
