"""A pipe's topics and its store, what was published, and what became of it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from chronoline.core.errors import StoreUnavailable
from chronoline.core.limits import MAX_TIME_MS
from chronoline.core.message import DeadLetter
from chronoline.core.topic import Topic
from chronoline.pipe.claims import source_name
from chronoline.pipe.inputs import open_input
from chronoline.pipe.settings import PipeSettings
from chronoline.pipe.status import PipeStatus, read_status
from chronoline.runtime.service import Closable
from chronoline.stores.factory import open_store
from chronoline.stores.inputs import InputAccount, Tally
from tests.spark.pipes.places import PATIENCE_S, Header, Place, Record, numbers

ID, DEADLINE, ACTION = "chronosMessageId", "chronosDeadline", "chronosAction"
TAG = "tag"
"""Each record that a test publishes has a tag of its own, as its last header."""
HOUR_MS = 3_600_000
_LOOK_EVERY_S = 0.05
_CONTROLS = ((ACTION, b"cancel"), (ACTION, b"reschedule"))

QUICK = {
    "window_ms": 2_000,
    "failure_detection_interval_ms": 250,
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rfc_3339(moment_ms: int) -> bytes:
    moment = datetime.fromtimestamp(moment_ms // 1_000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment_ms % 1_000:03}Z".encode()


def until(condition: Callable[[], object], what: str, patience_s: float = PATIENCE_S) -> None:
    """Polls until a condition holds; an unavailable store is asked again."""
    give_up_s = time.monotonic() + patience_s
    while True:
        with suppress(StoreUnavailable):
            if condition():
                return
        assert time.monotonic() < give_up_s, f"still not so: {what}"
        time.sleep(_LOOK_EVERY_S)


def tag_of(headers: Sequence[Header]) -> str:
    return next((value or b"").decode() for name, value in headers if name == TAG)


class Scene(Closable):
    """The topics, the store and the records of one pipe."""

    def __init__(
        self, place: Place, *, partitions: int = 2, output: dict[str, str] | None = None
    ) -> None:
        self.place = place
        self.name = f"pipe-{next(numbers)}"
        self.input, self.output = f"{self.name}-in", f"{self.name}-out"
        self.dead_letters = f"{self.name}-dead"
        self.sent: dict[str, Record] = {}
        """By tag."""
        self.controls: set[str] = set()
        """Tags of those that ask for something to be done to another."""
        self.ignored: set[str] = set()
        self.cancelled: set[str] = set()
        """Tags that never come out, as tests know."""
        self.fired: list[Record] = []
        self._exits = ExitStack()
        place.create_topic(self.input, partitions)
        place.create_topic(self.output, partitions, **(output or {}))
        place.create_topic(self.dead_letters, 1)
        self.store = self._exits.enter_context(open_store(place.store))
        self._out = self._exits.enter_context(place.reader(self.output))
        self._dead = self._exits.enter_context(place.reader(self.dead_letters))
        self._relayed: list[Record] = []

    def flags(self, **more: Any) -> dict[str, Any]:
        """The settings of the pipe, as flags give them."""
        return {
            "name": self.name,
            "store": self.place.store,
            "input": self.place.table(self.input),
            "output": self.place.table(self.output),
            **QUICK,
            **more,
        }

    def settings(self, **more: Any) -> PipeSettings:
        return PipeSettings.load(None, {}, self.flags(**more))

    def close(self) -> None:
        self._exits.close()

    # Publishing

    def send(self, id: str | None = None, due_ms: int | None = None, **more: Any) -> str:
        """Publishes a record, and answers its tag. Missing arguments leave out their headers."""
        return self.send_all([self.record(id, due_ms, **more)])[0]

    def record(
        self,
        id: str | None = None,
        due_ms: int | None = None,
        *,
        action: bytes | None = None,
        headers: Iterable[Header] = (),
        key: bytes | None = None,
        value: bytes | None = None,
        partition: int | None = None,
    ) -> Record:
        own: list[Header] = []
        if id is not None:
            own.append((ID, id.encode()))
        if due_ms is not None:
            own.append((DEADLINE, rfc_3339(due_ms)))
        if action is not None:
            own.append((ACTION, action))
        return Record((*own, *headers), key, value, partition)

    def send_all(self, records: Iterable[Record]) -> list[str]:
        tagged = {}
        for each in records:
            tag = f"t{next(numbers)}"
            tagged[tag] = each._replace(headers=(*each.headers, (TAG, tag.encode())))
            if any(header in each.headers for header in _CONTROLS):
                self.controls.add(tag)
        self.sent |= tagged
        self.place.publish(self.input, list(tagged.values()))
        return list(tagged)

    # Reads

    @property
    def topic(self) -> Topic:
        found = self.store.find_topic(self.name)
        assert found is not None
        return found

    def status(self, **more: Any) -> PipeStatus:
        return read_status(self.settings(**more), self.store, now_ms())

    @cached_property
    def _source(self) -> str:
        """The name of the input in the store. A status asks the input each time, which opens a client."""
        settings = self.settings()
        with open_input(settings.input, self.name) as source:
            return source_name(settings, source.identity())

    def _accounts(self) -> list[InputAccount]:
        return self.store.input_accounts(self._source)

    @property
    def tally(self) -> Tally:
        return sum((each.tally for each in self._accounts()), Tally())

    def holders(self) -> set[str | None]:
        """The nodes that take in its partitions, and None if one is nobody's."""
        return {each.holder for each in self._accounts()}

    def waiting(self) -> dict[str, str]:
        """Ids by tag, of what is on the timeline."""
        topic = self.topic
        page = self.store.select(topic.uid, topic.all_buckets, limit=10_000, max_ts=MAX_TIME_MS)
        assert not page.more
        return {tag_of(each.headers): each.id for each in page.messages}

    def held(self) -> int:
        """Returns the number of reserved messages."""
        topic = self.topic
        return self.store.count(
            topic.uid, topic.all_buckets, start=0, end=MAX_TIME_MS, now_ms=now_ms()
        ).processing

    def letters(self) -> list[DeadLetter]:
        """Dead letters that are in the store."""
        return self.store.dead_letters(self.topic.uid, limit=1_000)

    def relayed(self) -> dict[str, Record]:
        """Dead letters that are in their topic, by tag."""
        self._relayed += self._dead.poll()
        return {tag_of(each.headers): each for each in self._relayed}

    def out(self) -> Counter[str]:
        """How often each came out so far, by tag."""
        self.fired += self._out.poll()
        return Counter(tag_of(each.headers) for each in self.fired)

    def fired_as(self, tag: str) -> Record:
        (found,) = [each for each in self.fired if tag_of(each.headers) == tag]
        return found

    # Waiting

    def wait_out(self, tags: Iterable[str]) -> None:
        """Until all of these came out."""
        left = set(tags)

        def all_out() -> bool:
            left.difference_update(self.out())
            return not left

        until(all_out, f"{sorted(left)[:3]} of {len(left)} came out")

    def wait_taken_in(self) -> None:
        """Until everything that was published has been taken in."""
        until(lambda: self.tally.total >= len(self.sent), f"{len(self.sent)} are taken in")

    # Accounting

    def account(self) -> Counter[str]:
        """That every record is somewhere, by its tag: fired, a dead letter, waiting, cancelled or ignored.

        Answers how often more than once each was fired.
        """
        self.wait_taken_in()
        # The next pipe deletes the messages that a killed pipe fired.
        until(lambda: self.out().keys().isdisjoint(self.waiting()), "what was fired is deleted")
        fired = self.out()
        dead = {*self.relayed(), *(tag_of(each.message.headers) for each in self.letters())}
        places = [set(fired), dead, set(self.waiting())]
        assert sum(map(len, places)) == len(set.union(*places)), "some are in two places"
        missing = self.sent.keys() - set.union(*places) - self.controls
        assert missing == self.ignored | self.cancelled
        assert set.union(*places) <= self.sent.keys()
        tally = self.tally
        assert tally.total == len(self.sent)
        assert tally.ignored == len(self.ignored)
        assert tally.cancelled == len(self.cancelled)
        assert tally.rejected <= len(dead)
        assert tally.cancelled + tally.rescheduled + tally.missed == len(self.controls)
        self._check_positions()
        return fired - Counter(fired.keys())

    def _check_positions(self) -> None:
        settings = self.settings()
        with open_input(settings.input, self.name) as source:
            latest = source.latest()
        positions = {each.partition: each.position for each in self._accounts()}
        assert positions == latest


def over(ms: int, count: int) -> list[int]:
    """Moments that lie evenly in a time that begins soon."""
    start_ms = now_ms() + 1_500
    return [start_ms + ms * number // count for number in range(count)]


def spread(scene: Scene, prefix: str, dues_ms: Iterable[int]) -> Iterator[Record]:
    """A message for each due time."""
    for number, due_ms in enumerate(dues_ms):
        yield scene.record(f"{prefix}{number}", due_ms, value=b"%d" % number)
