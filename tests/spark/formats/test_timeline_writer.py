"""Writing to a timeline: what arrives, what is refused, and that repetition adds nothing."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from chronoline.core.errors import InvalidInput, OutcomeUnknown, StoreBusy
from chronoline.core.message import NewMessage
from chronoline.core.outcome import Outcome
from chronoline.spark.options import Options
from chronoline.spark.timeline_reader import TimelineTarget
from chronoline.spark.timeline_writer import (
    WritePlan,
    Written,
    plan_writing,
    write_task,
)
from chronoline.stores.contract import Store
from chronoline.stores.factory import open_store
from tests.spark.formats.timelines import HEADERS, HOUR_MS, Timeline, moment

SCHEMA = f"id STRING, due TIMESTAMP, key BINARY, value BINARY, headers {HEADERS}"
TIME = pa.timestamp("us", tz="UTC")


def rows(timeline: Timeline, *ids: str, value: bytes = b"v") -> list[tuple[Any, ...]]:
    due = moment(timeline.now + HOUR_MS)
    return [(each, due, None, value, None) for each in ids]


def frame(spark: SparkSession, some: Sequence[tuple[Any, ...]], schema: str = SCHEMA) -> DataFrame:
    return spark.createDataFrame(list(some), schema)


# Batches


def test_a_campaign_arrives_byte_for_byte(spark: SparkSession, any_timeline: Timeline) -> None:
    line = any_timeline
    due = line.now + HOUR_MS
    headers = [("a", b"\xff"), ("a", None), ("", b"")]
    some = [
        ("full", moment(due, 1), b"k", b"\0body", headers),
        ("empty", moment(due), b"", b"", []),
        ("nulls", moment(due - 1, 999), None, None, None),
    ]
    line.write(frame(spark, some), producerGroup="campaign")
    full, empty, nulls = (line.message(each) for each in ("full", "empty", "nulls"))
    # Never early: fractions of a millisecond are rounded up.
    assert (full.due, empty.due, nulls.due) == (due + 1, due, due)
    assert (full.key, line.body("full"), full.headers) == (b"k", b"\0body", tuple(headers))
    assert (empty.key, line.body("empty"), empty.headers) == (b"", b"", ())
    assert (nulls.key, line.body("nulls"), nulls.headers) == (None, None, ())
    assert full.producer_group == "campaign"


def test_more_rows_than_a_call_takes(spark: SparkSession, any_timeline: Timeline) -> None:
    many = spark.range(0, 25_000, 1, 2).select(
        F.concat(F.lit("m"), "id").alias("id"),
        F.timestamp_millis(F.lit(any_timeline.now + HOUR_MS)).alias("due"),
        F.lit("text").alias("value"),
    )
    any_timeline.write(many)
    read = any_timeline.read(spark).schema("id STRING").load()
    assert (read.count(), read.distinct().count()) == (25_000, 25_000)
    assert any_timeline.body("m24999") == b"text"


def test_columns_that_are_missing(spark: SparkSession, timeline: Timeline) -> None:
    timeline.write(frame(spark, [("a", moment(timeline.now))], "id STRING, due TIMESTAMP"))
    assert (timeline.message("a").key, timeline.body("a")) == (None, None)


def test_expires(spark: SparkSession, timeline: Timeline) -> None:
    some = [("a", moment(timeline.now), moment(timeline.now + 9))]
    timeline.write(frame(spark, some, "id STRING, due TIMESTAMP, expires TIMESTAMP"))
    assert timeline.message("a").expires == timeline.now + 9


def test_a_delay_for_rows_without_a_due(spark: SparkSession, timeline: Timeline) -> None:
    given = moment(timeline.now + 5)
    timeline.write(
        frame(spark, [("a", None), ("b", given)], "id STRING, due TIMESTAMP"), delay="2h"
    )
    assert timeline.message("a").due >= timeline.now + 2 * HOUR_MS
    assert timeline.message("b").due == timeline.now + 5


def test_generated_ids_distinguish_equal_rows(spark: SparkSession, timeline: Timeline) -> None:
    due = moment(timeline.now)
    some = [(None, due, b"x")] * 3 + [(None, due, b"y"), ("own", due, b"x")]
    timeline.write(frame(spark, some, "id STRING, due TIMESTAMP, value BINARY"), ids="made")
    assert len(timeline.ids()) == 5
    assert "own" in timeline.ids()
    assert sorted(timeline.body(each) or b"" for each in timeline.ids()) == [b"x"] * 4 + [b"y"]


# Repetition and refusals


def test_repeated_write_adds_nothing(spark: SparkSession, any_timeline: Timeline) -> None:
    some = frame(spark, rows(any_timeline, "a", "b", "b"))
    any_timeline.write(some)
    versions = [any_timeline.message(each).version for each in ("a", "b")]
    any_timeline.write(some)
    assert [any_timeline.message(each).version for each in ("a", "b")] == versions


def test_job_with_a_refused_row_fails_and_names_it(
    spark: SparkSession, any_timeline: Timeline
) -> None:
    any_timeline.write(frame(spark, rows(any_timeline, "a")))
    other = rows(any_timeline, "a", value=b"other") + rows(any_timeline, "new")
    with pytest.raises(Exception, match="refused: 'a': a message with this id exists") as failed:
        any_timeline.write(frame(spark, other))
    assert "1 created, 0 repeated, 0 ignored, 1 refused" in str(failed.value)
    assert any_timeline.ids() == {"a", "new"}
    assert any_timeline.body("a") == b"v"


def test_refusals_in_a_table(spark: SparkSession, any_timeline: Timeline, tmp_path: Path) -> None:
    folder = tmp_path / "refused"
    line = any_timeline
    line.write(frame(spark, rows(line, "a")), refusals=folder)
    assert spark.read.parquet(str(folder)).count() == 0
    due = moment(line.now)
    some = [
        ("a", due, None, b"other", [("h", b"1")]),
        (None, due, None, b"", None),
        ("undated", None, b"k", b"", None),
        ("", due, None, b"", None),
        ("good", due, None, b"", None),
    ]
    line.write(frame(spark, some), refusals=folder)
    found = spark.read.parquet(str(folder)).collect()
    assert {(row.id, row.refusal, row.reason) for row in found} == {
        (
            "a",
            "exists",
            "a message with this id exists, or existed within the dedupe time; use another id, or replace it",
        ),
        (None, "invalid", "id must be text, not NoneType"),
        ("undated", "invalid", "due must be whole milliseconds since 1970, not NoneType"),
        ("", "invalid", "id is empty"),
    }
    (exists,) = (row for row in found if row.id == "a")
    assert (exists.value, exists.headers[0].key, exists.headers[0].value) == (b"other", "h", b"1")
    assert line.ids() == {"a", "good"}


def test_replace_and_ignore(spark: SparkSession, any_timeline: Timeline) -> None:
    any_timeline.write(frame(spark, rows(any_timeline, "a")))
    other = frame(spark, rows(any_timeline, "a", "b", value=b"other"))
    any_timeline.write(other, ifExists="ignore")
    assert [any_timeline.body(each) for each in "ab"] == [b"v", b"other"]
    any_timeline.write(other, ifExists="replace")
    assert [any_timeline.body(each) for each in "ab"] == [b"other", b"other"]


# Tasks, one by one


def batch(timeline: Timeline, *ids: str | None, value: bytes = b"v") -> pa.RecordBatch:
    dues = [moment(timeline.now)] * len(ids)
    columns = {
        "id": pa.array(ids, pa.string()),
        "due": pa.array(dues, TIME),
        "value": pa.array([value] * len(ids), pa.binary()),
    }
    return pa.record_batch(columns)


def plan(timeline: Timeline, *, streaming: bool = False, **options: str) -> WritePlan:
    given = Options("chronoline", timeline.options | options)
    schema = from_arrow_schema(batch(timeline).schema)
    return plan_writing(given, schema, False, streaming=streaming)


def fire_all(timeline: Timeline) -> None:
    grant = timeline.store.reserve(
        timeline.topic.uid,
        timeline.topic.all_buckets,
        consumer="c",
        limit=100,
        lease_ms=HOUR_MS,
        now_ms=timeline.now,
    )
    leases = [each.lease for each in grant.leased]
    done = timeline.store.ack(timeline.topic.uid, leases, now_ms=timeline.now)
    assert leases
    assert all(each.done for each in done)


def test_repeated_task_generates_the_same_ids(timeline: Timeline) -> None:
    made = plan(timeline, ids="made")
    assert write_task(made, iter([batch(timeline, None, None, None)])) == Written(created=3)
    # The same rows, cut otherwise.
    again = iter([batch(timeline, None), batch(timeline, None, None)])
    assert write_task(made, again) == Written(repeated=3)
    assert write_task(plan(timeline, ids="made"), iter([batch(timeline, None)])).created == 1


@pytest.mark.parametrize("streaming", [False, True])
def test_delivered_messages_are_repeated_not_refused(timeline: Timeline, streaming: bool) -> None:
    write_task(plan(timeline, streaming=streaming), iter([batch(timeline, "a", "b")]))
    fire_all(timeline)
    again = plan(timeline, streaming=streaming)
    assert write_task(again, iter([batch(timeline, "a", "b", "c")])) == Written(
        created=1, repeated=2
    )
    assert timeline.ids() == {"c"}


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("fired", [False, True])
def test_another_message_under_a_taken_id_is_refused(
    timeline: Timeline, streaming: bool, fired: bool
) -> None:
    write_task(plan(timeline, streaming=streaming), iter([batch(timeline, "a")]))
    if fired:
        fire_all(timeline)
    other = batch(timeline, "a", value=b"other")
    later = batch(dataclasses.replace(timeline, now=timeline.now + 1), "a")
    for each in (other, later):
        again = write_task(plan(timeline, streaming=streaming), iter([each]))
        assert (again.repeated, again.refused) == (0, 1)
        assert [each.refusal for each in again.shown] == ["exists"]


def test_another_message_in_the_same_batch_is_refused(timeline: Timeline) -> None:
    both = pa.concat_batches([batch(timeline, "a", "a"), batch(timeline, "a", value=b"other")])
    done = write_task(plan(timeline, streaming=True), iter([both]))
    assert (done.created, done.repeated, done.refused) == (1, 1, 1)


def test_a_due_from_the_time_of_the_write_makes_no_other_message(timeline: Timeline) -> None:
    undated = pa.record_batch({"id": ["a"], "due": pa.array([None], TIME)})
    for streaming, expected in ((True, Written(created=1)), (True, Written(repeated=1))):
        delayed = plan(timeline, streaming=streaming, delay="1h")
        assert write_task(delayed, iter([undated])) == expected


def test_equal_message_that_came_another_way_is_repeated(timeline: Timeline) -> None:
    timeline.put(NewMessage(id="a", due=timeline.now, body=b"v"))
    done = write_task(plan(timeline), iter([batch(timeline, "a")]))
    assert done == Written(repeated=1)


def test_repeated_replacement_of_a_leased_message_succeeds(timeline: Timeline) -> None:
    planned = plan(timeline, ifExists="replace")
    write_task(planned, iter([batch(timeline, "a")]))
    grant = timeline.store.reserve(
        timeline.topic.uid,
        timeline.topic.all_buckets,
        consumer="c",
        limit=1,
        lease_ms=HOUR_MS,
        now_ms=timeline.now,
    )
    assert len(grant.leased) == 1
    assert write_task(planned, iter([batch(timeline, "a")])) == Written(repeated=1)


class Moody:
    """A store whose creates fail a few times, before or after they are done."""

    def __init__(self, store: Store, moods: list[str]) -> None:
        self._store = store
        self._moods = moods

    def create(self, uid: int, messages: Sequence[NewMessage], **named: Any) -> list[Outcome]:
        mood = self._moods.pop(0) if self._moods else ""
        if mood == "busy":
            raise StoreBusy
        outcomes = self._store.create(uid, messages, **named)
        if mood == "unknown":
            raise OutcomeUnknown
        return outcomes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def __enter__(self) -> "Moody":
        return self

    def __exit__(self, *_: object) -> None:
        self._store.close()


def test_task_retries_a_busy_or_silent_store(
    timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    moods = ["busy", "unknown", "busy"]
    monkeypatch.setattr(TimelineTarget, "open", lambda target: Moody(open_store(target.url), moods))
    done = write_task(plan(timeline), iter([batch(timeline, "a", "b")]))
    assert (done, moods) == (Written(repeated=2), [])
    assert timeline.ids() == {"a", "b"}


def test_a_task_that_fails_leaves_no_half_table(timeline: Timeline, tmp_path: Path) -> None:
    planned = plan(timeline, refusals=str(tmp_path / "refused"))

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(timeline, "")
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        write_task(planned, failing())
    assert list((tmp_path / "refused").iterdir()) == []
    for _ in range(2):
        write_task(planned, iter([batch(timeline, "", "a")]))
    (file,) = (tmp_path / "refused").iterdir()
    assert pa.parquet.read_table(file).column("id").to_pylist() == [""]


# Streams


@pytest.fixture
def source(spark: SparkSession, timeline: Timeline, tmp_path: Path) -> Path:
    """A folder that a stream reads."""
    folder = tmp_path / "source"
    frame(spark, rows(timeline, "a", "b")).write.parquet(str(folder))
    return folder


def stream(
    spark: SparkSession, timeline: Timeline, source: Path, checkpoint: Path, **options: str
) -> None:
    query = (
        spark.readStream.schema(SCHEMA)
        .parquet(str(source))
        .writeStream.format("chronoline")
        .options(**timeline.options, **options)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def test_a_stream_goes_on_where_it_stopped(
    spark: SparkSession, timeline: Timeline, source: Path, tmp_path: Path
) -> None:
    stream(spark, timeline, source, tmp_path / "checkpoint")
    assert timeline.ids() == {"a", "b"}
    frame(spark, rows(timeline, "c")).write.mode("append").parquet(str(source))
    stream(spark, timeline, source, tmp_path / "checkpoint")
    assert timeline.ids() == {"a", "b", "c"}


def test_a_stream_that_lost_its_checkpoint_adds_nothing(
    spark: SparkSession, timeline: Timeline, source: Path, tmp_path: Path
) -> None:
    stream(spark, timeline, source, tmp_path / "first")
    timeline.store.cancel(timeline.topic.uid, ["b"], producer_group="default", now_ms=timeline.now)
    version = timeline.message("a").version
    stream(spark, timeline, source, tmp_path / "second")
    assert (timeline.ids(), timeline.message("a").version) == ({"a"}, version)


def test_a_stream_fails_if_another_message_has_a_delivered_id(
    spark: SparkSession, timeline: Timeline, source: Path, tmp_path: Path
) -> None:
    stream(spark, timeline, source, tmp_path / "checkpoint")
    timeline.store.cancel(
        timeline.topic.uid, ["a", "b"], producer_group="default", now_ms=timeline.now
    )
    other = frame(spark, rows(timeline, "a", value=b"other"))
    other.write.mode("append").parquet(str(source))
    with pytest.raises(StreamingQueryException, match="refused: 'a': a message with this id"):
        stream(spark, timeline, source, tmp_path / "checkpoint")


def test_counts_of_each_write_are_a_table(
    spark: SparkSession, timeline: Timeline, tmp_path: Path
) -> None:
    folder = str(tmp_path / "counts")
    timeline.write(frame(spark, rows(timeline, "a", "b")), counts=folder)
    other = frame(spark, [*rows(timeline, "b", "c"), *rows(timeline, "a", value=b"other")])
    with pytest.raises(PySparkException, match="refused: 'a'"):
        timeline.write(other, counts=folder)
    found = spark.read.json(folder).orderBy("created").collect()
    assert [(row.created, row.repeated, row.ignored, row.refused) for row in found] == [
        (1, 1, 0, 1),
        (2, 0, 0, 0),
    ]
    assert len({row.write for row in found}) == 2


def test_counts_of_a_stream_have_a_row_for_each_batch(
    spark: SparkSession, timeline: Timeline, source: Path, tmp_path: Path
) -> None:
    folder = str(tmp_path / "counts")
    stream(spark, timeline, source, tmp_path / "checkpoint", counts=folder)
    frame(spark, rows(timeline, "c")).write.mode("append").parquet(str(source))
    stream(spark, timeline, source, tmp_path / "checkpoint", counts=folder)
    found = {row.write.rpartition("-")[2]: row.created for row in spark.read.json(folder).collect()}
    assert found == {"0": 2, "1": 1}


# Refusals on the driver


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ("due TIMESTAMP", {}, "no column 'id': give each message an id of its own"),
        ("id STRING", {}, "no column 'due', and no option 'delay'"),
        (
            "id STRING, due TIMESTAMP_NTZ",
            {},
            "'due' must be timestamp, not .*_ntz; it must know its",
        ),
        ("id STRING, due STRING", {}, "column 'due' must be timestamp, not string"),
        (
            "id STRING, due TIMESTAMP, ts TIMESTAMP",
            {},
            "'ts' cannot be written .*: select among id",
        ),
        (
            "id STRING, due TIMESTAMP",
            {"ifExists": "skip"},
            "'ifExists' .*: refuse, replace, ignore",
        ),
        (
            "id STRING, due TIMESTAMP",
            {"delay": "soon"},
            "option 'delay' .* write a duration: 250ms",
        ),
        ("id STRING, due TIMESTAMP", {"refusals": "x://y"}, "option 'refusals' cannot be 'x://y'"),
        ("id STRING, due TIMESTAMP", {"group": "g"}, "has no option 'group' here"),
    ],
)
def test_invalid_columns_or_options_are_refused(
    spark: SparkSession, timeline: Timeline, columns: str, options: dict[str, str], words: str
) -> None:
    empty = spark.createDataFrame([], columns)
    with pytest.raises(InvalidInput, match=words):
        plan_writing(Options("chronoline", timeline.options | options), empty.schema, False)


def test_a_timeline_is_not_overwritten(spark: SparkSession, timeline: Timeline) -> None:
    some = frame(spark, rows(timeline, "a"))
    with pytest.raises(AnalysisException, match="a timeline is not overwritten: write with mode"):
        some.write.format("chronoline").options(**timeline.options).mode("overwrite").save()


def _save_as_table(some: DataFrame, options: dict[str, Any]) -> None:
    some.write.format("chronoline").options(**options).saveAsTable("lost")


def _create(some: DataFrame, options: dict[str, Any]) -> None:
    some.writeTo("lost").using("chronoline").options(**options).create()


@pytest.mark.parametrize("make", [_save_as_table, _create])
def test_a_table_of_the_catalog_is_refused_and_not_left_behind(
    spark: SparkSession,
    timeline: Timeline,
    make: Callable[[DataFrame, dict[str, Any]], None],
) -> None:
    some = frame(spark, rows(timeline, "a"))
    with pytest.raises(PySparkException, match="cannot be a table of Spark's catalog"):
        make(some, timeline.options)
    assert timeline.ids() == set()
    assert not spark.catalog.tableExists("lost")


def test_batches_of_a_stream_are_written_by_hand(
    spark: SparkSession, timeline: Timeline, source: Path, tmp_path: Path
) -> None:
    """Spark runs the write of such a batch inside another execution, as it does for a table."""
    streamed = spark.readStream.schema(SCHEMA).parquet(str(source))

    def write(batch: DataFrame, _: int) -> None:
        timeline.write(batch)

    query = streamed.writeStream.foreachBatch(write).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    assert query.trigger(availableNow=True).start().awaitTermination(60)
    assert timeline.ids() == {"a", "b"}


def test_moments_are_rounded_up_to_the_millisecond(timeline: Timeline) -> None:
    at = datetime.fromisoformat("2026-01-01T00:00:00.000001Z")
    one = pa.record_batch({"id": ["a"], "due": pa.array([at], TIME)})
    write_task(plan(timeline), iter([one]))
    assert timeline.message("a").due == 1_767_225_600_001
