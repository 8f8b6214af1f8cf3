"""The importer of logs with an object `events/PARTITION/SEQUENCE` for each event, and an index table.

The table has an item for each partition, `partitionId` and `sequenceNumber`, the number that its next event
gets. A number is taken before its event is written, so a producer that died leaves one without an event.
Here an event without a value, with the header `chronoline-import: missing`, takes its place: every event
keeps its sequence, and what consumers have noted stays right.

It begins where the topic ends, and each batch is appended once under its first sequence. So an interrupted
import continues, a second run adds nothing, and two at once add everything once. A topic that has
other events is refused: the last event is compared before anything is added.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from chronoline.core.errors import InvalidInput, StoreUnavailable, TopicExists, TopicNotFound
from chronoline.log.contract import MAX_PARTITIONS, ObjectMissing
from chronoline.log.events import MAX_VALUE_BYTES, NewEvent
from chronoline.log.factory import items_of_table, open_foreign_bucket
from chronoline.log.once_writer import Numbered
from chronoline.log.upkeep import Progress, unwatched
from chronoline.runtime.store_url import split_url

if TYPE_CHECKING:
    from chronoline.log.log import Log

MISSING = ("chronoline-import", b"missing")
"""The header of an event that was never written."""

_EVENTS = "events"
_BATCH_EVENTS = 1_000
_BATCH_BYTES = 8 * 1024 * 1024
_READERS = 16


class Stored(NamedTuple):
    """An event as the layout keeps it."""

    value: bytes
    written_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The counts of an import."""

    events: int
    """Events that were added, the missing ones among them."""
    missing: int
    """Numbers without an event."""
    partitions: int
    groups: int
    """Consumers whose progress was taken over."""


def import_events(
    log: Log,
    topic: str,
    source: str,
    *,
    table: str,
    consumers: str | None = None,
    progress: Progress = unwatched,
) -> Imported:
    """Copies a log that is laid out as `events/PARTITION/SEQUENCE` into a topic; sequences stay as they are.

    `source` is `file:///folder` or `s3://bucket/prefix`, without `events`. `table` is `dynamodb://table`,
    or a file with one item of it as JSON in each line. `consumers` is the same of the table of consumers
    (`consumerId`, `partitionId`, `sequenceNumber`): each becomes a group that goes on where it was, unless
    the topic has such a group. The topic is made if there is none. No other process may append to the source
    or the topic meanwhile. `progress` is called with the number of further events that are done, including
    those that are there already.

    Raises `InvalidInput` if source and tables do not fit each other or the topic; nothing was added then.
    """
    ends = _ends(_items(table))
    numbers = _partition_numbers(ends)
    progresses = list(_items(consumers)) if consumers else []
    _check_progresses(progresses, ends)
    events = missing = 0
    with closing(_open_source(source)) as stored:
        _check_there(stored, ends, source)
        _make_topic(log, topic, max(numbers.values(), default=0) + 1)
        partitions = [
            _Partition(log, topic, stored, identifier, number=number, end=ends[identifier])
            for identifier, number in numbers.items()
        ]
        for partition in partitions:
            partition.check()
        for partition in partitions:
            for batch in partition.copy(progress):
                events += len(batch)
                missing += sum(each.headers == (MISSING,) for each in batch)
    groups = _take_over(log, topic, numbers, progresses)
    return Imported(events=events, missing=missing, partitions=len(numbers), groups=groups)


# The source


class _Source(ABC):
    """Where events lie."""

    @abstractmethod
    def read(self, partition: str, sequence: int) -> Stored | None:
        """One event; None if there is none."""

    @abstractmethod
    def has(self, partition: str) -> bool:
        """Whether there is any event of a partition."""

    @abstractmethod
    def close(self) -> None: ...


class _Folder(_Source):
    def __init__(self, folder: Path) -> None:
        self._events = folder / _EVENTS
        if not self._events.is_dir():
            raise InvalidInput(f"there is no folder {str(self._events)!r}")

    def read(self, partition: str, sequence: int) -> Stored | None:
        path = self._events / partition / str(sequence)
        try:
            return Stored(path.read_bytes(), path.stat().st_mtime_ns // 1_000_000)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreUnavailable(f"{str(path)!r} cannot be read: {error}") from error

    def has(self, partition: str) -> bool:
        return (self._events / partition).is_dir()

    def close(self) -> None:
        pass


class _Bucket(_Source):
    def __init__(self, url: str) -> None:
        self._objects = open_foreign_bucket(url)

    def read(self, partition: str, sequence: int) -> Stored | None:
        try:
            return Stored(*self._objects.get_whole(f"{_EVENTS}/{partition}/{sequence}"))
        except ObjectMissing:
            return None

    def has(self, partition: str) -> bool:
        return self._objects.has_any(f"{_EVENTS}/{partition}")

    def close(self) -> None:
        self._objects.close()


def _open_source(url: str) -> _Source:
    scheme, host, path, _ = split_url(url)
    if scheme != "file":
        return _Bucket(url)
    if host:
        raise InvalidInput(f"{url!r} names no folder; write file:///folder, with three slashes")
    return _Folder(Path(path))


# Its tables


def _items(table: str) -> Iterator[Mapping[str, Any]]:
    """The items of a table, or of a file that has one in each line."""
    if table.startswith("dynamodb://"):
        yield from items_of_table(table)
        return
    try:
        with Path(table).open(encoding="utf-8") as lines:
            yield from (json.loads(line) for line in lines if line.strip())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"the table {table!r} cannot be read: {error}") from error


def _ends(items: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    ends = {_text(item, "partitionId"): _whole(item, "sequenceNumber") for item in items}
    if not ends:
        raise InvalidInput(
            "the table has no partitions: name the table of the log that is imported"
        )
    return ends


def _text(item: Any, name: str) -> str:
    value = item.get(name) if isinstance(item, Mapping) else None
    text = str(value)
    if not isinstance(value, str | int) or text in ("", ".", "..") or "/" in text or "\0" in text:
        raise InvalidInput(f"an item of the table has no {name} that can be used: {item!r}")
    return text


def _whole(item: Mapping[str, Any], name: str) -> int:
    try:
        number = int(item[name])
    except (KeyError, TypeError, ValueError):
        number = -1
    if number < 0:
        raise InvalidInput(f"an item of the table has no {name} from 0 on: {item!r}")
    return number


def _partition_numbers(identifiers: Iterable[str]) -> dict[str, int]:
    """Ids that are numbers stay as they are; others are numbered by their order."""
    ordered = sorted(identifiers)
    if all(each.isdecimal() and int(each) < MAX_PARTITIONS for each in ordered):
        numbers = {each: int(each) for each in ordered}
        if len(set(numbers.values())) == len(ordered):
            return numbers
    if len(ordered) > MAX_PARTITIONS:
        raise InvalidInput(f"{len(ordered)} partitions are more than {MAX_PARTITIONS}")
    return {each: number for number, each in enumerate(ordered)}


def _check_there(source: _Source, ends: Mapping[str, int], place: str) -> None:
    """Raises `InvalidInput` for a partition without any event: its id or the source is a wrong one."""
    for partition, end in ends.items():
        if end and not source.has(partition):
            raise InvalidInput(
                f"the table has the partition {partition!r}, whose next event is {end}, and there is no "
                f"{_EVENTS}/{partition} in {place}; nothing was added"
            )


def _check_progresses(items: Iterable[Mapping[str, Any]], ends: Mapping[str, int]) -> None:
    for item in items:
        group, partition = _text(item, "consumerId"), _text(item, "partitionId")
        if partition not in ends:
            raise InvalidInput(
                f"the table of consumers has progress of {group!r} in the partition {partition!r}, which the "
                "table of partitions does not have; nothing was added"
            )


# The topic


def _make_topic(log: Log, topic: str, partitions: int) -> None:
    try:
        found = log.topic(topic)
    except TopicNotFound:
        with suppress(TopicExists):  # another import was faster
            log.create_topic(topic, partitions=partitions)
        found = log.topic(topic)
    if found.partitions != partitions:
        raise InvalidInput(
            f"topic {topic!r} has {found.partitions} partitions, and the log that is imported {partitions}; "
            "name another topic"
        )


class _Partition:
    """One partition on its way into the topic."""

    def __init__(
        self, log: Log, topic: str, source: _Source, identifier: str, *, number: int, end: int
    ) -> None:
        self._log = log
        self._topic = topic
        self._source = source
        self._identifier = identifier
        self._number = number
        # Where numbers begin with 1, the last event has the table's.
        self._end = end + (source.read(identifier, end) is not None)

    def copy(self, progress: Progress) -> Iterator[list[NewEvent]]:
        """Appends what the topic does not have yet, and answers it batch by batch."""
        sequence = self._begin()
        progress(sequence)
        with ThreadPoolExecutor(_READERS) as readers:
            while sequence < self._end:
                wanted = range(sequence, min(self._end, sequence + _BATCH_EVENTS))
                batch = self._fitting(readers.map(self._event, wanted))
                self._append(sequence, batch)
                sequence += len(batch)
                progress(len(batch))
                yield batch

    def _event(self, sequence: int) -> NewEvent:
        stored = self._source.read(self._identifier, sequence)
        if stored is None:
            return NewEvent(value=None, headers=(MISSING,), partition=self._number)
        if len(stored.value) > MAX_VALUE_BYTES:
            raise InvalidInput(
                f"event {sequence} of partition {self._identifier!r} has {len(stored.value)} bytes; "
                f"a value has at most {MAX_VALUE_BYTES}"
            )
        return NewEvent(value=stored.value, partition=self._number, ts=stored.written_ms)

    def _fitting(self, events: Iterator[NewEvent]) -> list[NewEvent]:
        batch: list[NewEvent] = []
        size_bytes = 0
        for event in events:
            batch.append(event)
            size_bytes += len(event.value or b"")
            if size_bytes >= _BATCH_BYTES:
                break
        return batch

    def _append(self, sequence: int, batch: list[NewEvent]) -> None:
        key = f"import/{self._number}/{sequence}"
        packed = self._log.pack(self._topic, batch)
        numbered = Numbered(f"import/{self._number}", sequence)
        self._log.append_once(self._topic, packed, key=key, numbered=numbered)
        if self._begin() < sequence + len(batch):
            raise InvalidInput(
                f"topic {self._topic!r} has other events than the import's; name another topic"
            )

    def _begin(self) -> int:
        return self._log.heads(self._topic)[self._number].next_sequence

    def check(self) -> None:
        """The last event of the topic must be the source's; deleted events are not compared."""
        sequence = self._begin()
        last = [event for events in self._last(sequence) for event in events]
        mine = self._event(sequence - 1).value if last and sequence <= self._end else None
        if sequence > self._end or (last and last[0].value != mine):
            raise InvalidInput(
                f"topic {self._topic!r} has other events in partition {self._number} than the log that is "
                "imported; name another topic"
            )

    def _last(self, sequence: int) -> Iterator[list[Any]]:
        return self._log.read_range(self._topic, self._number, max(0, sequence - 1), sequence)


def _take_over(
    log: Log, topic: str, numbers: Mapping[str, int], items: Iterable[Mapping[str, Any]]
) -> int:
    """Lets groups go on where consumers were."""
    known = {each.group for each in log.groups(topic)}
    ends = {head.partition: head.next_sequence for head in log.heads(topic)}
    groups = set()
    for item in items:
        group, partition = _text(item, "consumerId"), _text(item, "partitionId")
        if group not in known:
            number = numbers[partition]
            sequence = min(_whole(item, "sequenceNumber"), ends[number])
            log.seek(topic, group, sequence, partition=number)
            groups.add(group)
    return len(groups)
