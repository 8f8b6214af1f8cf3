"""Readers of a timeline: the driver plans, each task pages through its bucket ranges.

All tasks derive the status at one moment, that of the planning. A message that is moved while its range is
read may come twice, under different versions, or not at all; a message that keeps its place comes once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.message import DeadLetter, Header, Message
from chronoline.core.permissions import System
from chronoline.core.ranges import BucketRange, merge_ranges
from chronoline.core.status import Status, status_of
from chronoline.core.topic import Topic
from chronoline.runtime.store_url import scheme_of, sqlite_path
from chronoline.spark.locality import check_local
from chronoline.spark.options import Options
from chronoline.spark.python_worker import ended_quietly
from chronoline.spark.timeline_filters import Wanted, narrow, split
from chronoline.spark.timeline_schema import VIEWS, check_read, schema_of
from chronoline.stores.contract import ForecastStep, Page, Store
from chronoline.stores.factory import open_store

PAGE_ROWS = 10_000
_FIRST_PAGE_ROWS = 200
_PAGE_BYTES = 16 * 1024 * 1024
"""About this many bytes of bodies are held at once."""
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_STAMP = pa.timestamp("ms", tz="UTC")
_DEAD = "dead"
"""The status of dead letters, as `chronoline show` calls it."""

OPTIONS = {
    "store": "The URL of the store.",
    "topic": "The topic, which is a timeline.",
    "view": "`messages`, `forecast` (the future load), or `dead` (the dead letters).",
    "columns": "The columns to read, such as `id,due`. By default all, with the bodies: Spark does not tell a"
    " format in Python which columns a query needs.",
    "buckets": "The buckets to read, such as `0-31` or `0-7,16-23`; the last is included. By default all.",
    "from": "The start of the forecast, by default `now`.",
    "to": "The end of the forecast, by default `+1h`.",
    "step": "The length of a row of the forecast, by default `1m`.",
    "start": "Messages with a `ts` at or after this time: the due time, or the end of the lease.",
    "end": "Messages with a `ts` before this time.",
    "dueFrom": "Messages that are due at or after this time.",
    "dueTo": "Messages that are due before this time.",
    "id": "One message.",
    "status": "Some of `available`, `processing`, `waiting`, with commas. By default all.",
    "partitions": "The number of tasks, by default the cluster's cores, at least 2. Without `register` the"
    " driver's cores are counted.",
}
"""The meaning of each option, for the reference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineTarget:
    """A topic of a store, as tasks find it."""

    url: str
    topic: Topic

    def open(self) -> Store:
        """Opens the store inside a task."""
        if scheme_of(self.url) == "sqlite":
            check_local(f"the store {self.url}", "use postgresql://…")
        return open_store(self.url)


def find_target(options: Options) -> TimelineTarget:
    """The topic that the options name, looked up once on the driver."""
    url = options.required("store", "postgresql://user@host/database")
    name = options.required("topic", "reminders")
    if scheme_of(url) == "memory":
        raise InvalidInput(
            "a store in memory lives in one process, and tasks run in others:"
            " use sqlite:///… or postgresql://…"
        )
    if scheme_of(url) == "sqlite" and not Path(sqlite_path(url)).exists():
        raise InvalidInput(
            f"there is no store at {url}: check the option 'store', or make the topic first:"
            " open_store(url).create_topic(…) of chronoline.store"
        )
    with open_store(url) as store:
        topic = store.find_topic(name)
    if topic is None:
        raise TopicNotFound(f"the store has no topic {name!r}: create it before its messages")
    return TimelineTarget(url=url, topic=topic)


def find_view(options: Options) -> str:
    return options.choice("view", tuple(VIEWS), "messages")


def find_schema(options: Options) -> StructType:
    """The columns of a read that names no schema."""
    view = find_view(options)
    text = options.optional("columns")
    if text is None:
        return schema_of(view, VIEWS[view])
    names = [name.strip() for name in text.split(",")]
    if not set(names) <= set(VIEWS[view]) or len(set(names)) < len(names):
        known = ", ".join(VIEWS[view])
        raise options.problem("columns", text, f"write some of: {known}, each once")
    return schema_of(view, names)


def make_reader(
    options: Options, schema: StructType, now_ms: int, cores: int = 1
) -> DataSourceReader:
    """The reader of the view that the options ask for; by default it has a task for each core."""
    view = find_view(options)
    options.optional("columns")  # the schema has followed it
    check_read(schema, view)
    target = find_target(options)
    wanted = _chosen_buckets(options, target.topic)
    if view == "dead":
        options.finish()
        return DeadReader(target, schema, now_ms)
    if view == "forecast":
        start = options.moment_ms("from", now_ms, now_ms=now_ms)
        end = options.moment_ms("to", now_ms + _HOUR_MS, now_ms=now_ms)
        step_ms = options.duration_ms("step", _MINUTE_MS, low_ms=1)
        options.finish()
        if end < start:
            raise InvalidInput("option 'to' lies before option 'from'")
        return ForecastReader(
            target, schema, wanted.between(start, end), step_ms=step_ms, now_ms=now_ms
        )
    wanted = wanted.between(
        options.moment_ms("start", 0, now_ms=now_ms),
        options.moment_ms("end", None, now_ms=now_ms),
    )
    wanted = wanted.due_between(
        options.moment_ms("dueFrom", 0, now_ms=now_ms),
        options.moment_ms("dueTo", None, now_ms=now_ms),
    )
    message_id = options.optional("id")
    if message_id is not None:
        wanted = wanted.named([message_id])
    wanted = wanted.having(_statuses(options), now_ms)
    partitions = options.whole("partitions", max(2, cores), low=1, high=65_536)
    options.finish()
    return MessagesReader(target, schema, wanted, partitions=partitions, now_ms=now_ms)


def _chosen_buckets(options: Options, topic: Topic) -> Wanted:
    buckets = topic.settings.buckets
    text = options.optional("buckets")
    if text is None:
        return Wanted(buckets=buckets, ranges=topic.all_buckets)
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first = int(match[1]) if match else 1
        last = int(match[2] or first) if match else 0
        if not first <= last < buckets:
            raise options.problem(
                "buckets",
                text,
                f"write the first and the last, such as 0-31 or 0-7,16-23; there are {buckets}",
            )
        found.append(BucketRange(first, last + 1))
    return Wanted(buckets=buckets, ranges=tuple(merge_ranges(found, buckets)))


def _statuses(options: Options) -> list[Status]:
    text = options.optional("status")
    names = [each.strip().lower() for each in text.split(",")] if text else list(Status)
    known = {each.value: each for each in Status}
    if not all(name in known for name in names):
        raise options.problem("status", text or "", f"write one or several of: {', '.join(known)}")
    return [known[name] for name in names]


class RangesPartition(InputPartition):
    """Some bucket ranges, for one task."""

    def __init__(self, ranges: tuple[BucketRange, ...]) -> None:
        super().__init__(ranges)
        self.ranges = ranges


class HeldPartition(InputPartition):
    """All messages that name a holder, for one task."""

    def __init__(self) -> None:
        super().__init__(None)


class IdsPartition(InputPartition):
    """Some ids, for one task."""

    def __init__(self, ids: tuple[str, ...]) -> None:
        super().__init__(ids)
        self.ids = ids


class _FilterPushdown:
    """`pushFilters` of a reader, whether Spark pushes filters or not.

    Spark refuses a reader that implements it while `spark.sql.python.filterPushdown.enabled` is off, and does
    not tell readers how that is set. It looks at `__func__` to see whether the method is its own.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: MessagesReader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> list[Filter]:
        """Returns all filters: Spark checks them again."""
        for each in filters:
            self._reader.wanted = narrow(self._reader.wanted, each, self._reader.now_ms)
        return filters


class MessagesReader(DataSourceReader):
    """The messages on the timeline, bodies only if they are asked for."""

    def __init__(
        self,
        target: TimelineTarget,
        schema: StructType,
        wanted: Wanted,
        *,
        partitions: int,
        now_ms: int,
    ) -> None:
        self.wanted = wanted
        self.now_ms = now_ms
        self.pushFilters = _FilterPushdown(self)  # type: ignore[method-assign]  # see there
        self._target = target
        self._schema = schema
        self._partitions = partitions

    def partitions(self) -> Sequence[InputPartition]:
        wanted = self.wanted
        if wanted.is_empty:
            return []
        if wanted.ids is not None:
            return [IdsPartition(tuple(sorted(wanted.ids)))]
        held = [HeldPartition()] if wanted.with_held else []
        if wanted.scan_end is not None and wanted.scan_end <= wanted.start:
            return held  # all that can be wanted lies behind the scan
        return [*(RangesPartition(part) for part in split(wanted.ranges, self._partitions)), *held]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return ended_quietly(self._read(partition))

    def _read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with_bodies = "value" in self._schema.fieldNames()
        limit = _FIRST_PAGE_ROWS if with_bodies else PAGE_ROWS
        with self._target.open() as store:
            for page in self._pages(store, partition):
                left = [each for each in page if self.wanted.matches(each, self.now_ms)]
                while left:
                    some, left = left[:limit], left[limit:]
                    rows = _with_bodies(store, self._target.topic, some, self.now_ms, with_bodies)
                    if rows:
                        yield _batch(self._schema, rows, self._columns())
                    if with_bodies:
                        limit = _next_limit(limit, rows)

    def _pages(self, store: Store, partition: InputPartition) -> Iterator[Sequence[Message]]:
        """The messages of a partition, and perhaps others."""
        uid, wanted = self._target.topic.uid, self.wanted
        match partition:
            case IdsPartition():
                for start in range(0, len(partition.ids), PAGE_ROWS):
                    ids = partition.ids[start : start + PAGE_ROWS]
                    yield list(store.lookup(uid, ids).values())
            case HeldPartition():
                scanned = wanted.scan_end or 0
                for page in _follow(partial(store.scan_held, uid)):
                    yield [each for each in page if each.ts >= scanned]  # others are in the ranges
            case RangesPartition():
                ranges, start, end = partition.ranges, wanted.start, wanted.scan_end
                yield from _follow(partial(store.scan, uid, ranges, start=start, end=end))
        # Anything else is Spark's way to say that there are no partitions.

    def _status(self, message: Message) -> Status:
        return status_of(message.ts, message.lock_consumer is not None, self.now_ms)

    def _columns(self) -> dict[str, Callable[[_Row], Any]]:
        return {
            **_MESSAGE_COLUMNS,
            "status": lambda row: self._status(row.message).value,
        }


def _follow(read: Callable[..., Page]) -> Iterator[Sequence[Message]]:
    """All pages of a scan."""
    page = read(limit=PAGE_ROWS)
    yield page.messages
    while page.more:
        page = read(after=page.messages[-1], limit=PAGE_ROWS)
        yield page.messages


class ForecastReader(DataSourceReader):
    """The future load, counted in the store: one row for each step."""

    def __init__(
        self,
        target: TimelineTarget,
        schema: StructType,
        wanted: Wanted,
        *,
        step_ms: int,
        now_ms: int,
    ) -> None:
        self._target = target
        self._schema = schema
        self._wanted = wanted
        self._step_ms = step_ms
        self._now_ms = now_ms

    def partitions(self) -> Sequence[InputPartition]:
        return [RangesPartition(self._wanted.ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with self._target.open() as store:
            steps = store.forecast(
                self._target.topic.uid,
                self._wanted.ranges,
                start=self._wanted.start,
                end=self._wanted.end or 0,
                step_ms=self._step_ms,
                now_ms=self._now_ms,
            )
        if steps:
            yield _batch(self._schema, steps, _FORECAST_COLUMNS)


class DeadReader(DataSourceReader):
    """The dead letters, oldest first, by one task."""

    def __init__(self, target: TimelineTarget, schema: StructType, now_ms: int) -> None:
        self._target = target
        self._schema = schema
        self._now_ms = now_ms

    def partitions(self) -> Sequence[InputPartition]:
        return [RangesPartition(self._target.topic.all_buckets)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return ended_quietly(self._read())

    def _read(self) -> Iterator[pa.RecordBatch]:
        topic, last = self._target.topic, None
        with_bodies = "value" in self._schema.fieldNames()
        with self._target.open() as store:
            while letters := store.dead_letters(topic.uid, after=last, limit=_FIRST_PAGE_ROWS):
                last = letters[-1]
                dead = {each.message.id: each for each in letters}
                messages = [each.message for each in letters]
                rows = _with_bodies(store, topic, messages, self._now_ms, with_bodies)
                if rows:
                    yield _batch(self._schema, rows, _dead_columns(dead))


@dataclass(frozen=True, slots=True)
class _Row:
    message: Message
    body: bytes | None = None


def _with_bodies(
    store: Store, topic: Topic, messages: Sequence[Message], now_ms: int, with_bodies: bool
) -> list[_Row]:
    """The messages as rows, without those that have left the timeline since they were listed."""
    if not with_bodies:
        return [_Row(each) for each in messages]
    ids = [each.id for each in messages]
    found = store.bodies(topic.uid, ids, actor=System(), now_ms=now_ms).found
    return [_Row(each, found[each.id]) for each in messages if each.id in found]


def _next_limit(limit: int, rows: Sequence[_Row]) -> int:
    """The number of rows of the next page, if their bodies are as large as these."""
    mean_bytes = sum(len(row.body or b"") for row in rows) / len(rows) if rows else 0
    fitting = int(_PAGE_BYTES / mean_bytes) if mean_bytes else PAGE_ROWS
    return max(1, min(fitting, 4 * limit, PAGE_ROWS))


def _batch(
    schema: StructType, rows: Sequence[Any], columns: dict[str, Callable[[Any], Any]]
) -> pa.RecordBatch:
    """The rows as Spark wants them: the columns of the schema, and times in UTC."""
    arrow = to_arrow_schema(schema, timezone="UTC")
    arrays = []
    for field in arrow:
        values = [columns[field.name](row) for row in rows]
        if pa.types.is_timestamp(field.type):
            arrays.append(pa.array(values, _STAMP).cast(field.type))
        else:
            arrays.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=arrow)


def _shown_headers(headers: Sequence[Header]) -> list[dict[str, object]]:
    return [{"key": name, "value": value} for name, value in headers]


_MESSAGE_COLUMNS: dict[str, Callable[[_Row], Any]] = {
    "ts": lambda row: row.message.ts,
    "lock_consumer": lambda row: row.message.lock_consumer,
    "id": lambda row: row.message.id,
    "due": lambda row: row.message.due,
    "key": lambda row: row.message.key,
    "value": lambda row: row.body,
    "headers": lambda row: _shown_headers(row.message.headers),
    "bucket": lambda row: row.message.bucket,
    "attempts": lambda row: row.message.attempts,
    "producer_group": lambda row: row.message.producer_group,
    "version": lambda row: row.message.version,
}
_FORECAST_COLUMNS: dict[str, Callable[[ForecastStep], Any]] = {
    "start": lambda step: step.start,
    "available": lambda step: step.counts.available,
    "processing": lambda step: step.counts.processing,
    "waiting": lambda step: step.counts.waiting,
}


def _dead_columns(dead: dict[str, DeadLetter]) -> dict[str, Callable[[_Row], Any]]:
    return {
        **_MESSAGE_COLUMNS,
        "status": lambda _: _DEAD,
        "died": lambda row: dead[row.message.id].died,
        "reason": lambda row: dead[row.message.id].reason,
    }
