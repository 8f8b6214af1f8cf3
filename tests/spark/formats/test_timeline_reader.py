"""Reading a timeline: what Spark sees of it, and what reaches the store."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual

from chronoline.core.errors import InvalidInput, TopicNotFound
from chronoline.core.message import NewMessage
from chronoline.spark import register
from chronoline.spark.options import Options
from chronoline.spark.timeline_reader import MessagesReader, find_schema, make_reader
from chronoline.spark.timeline_schema import VIEWS, schema_of
from chronoline.stores.contract import Page
from chronoline.stores.timeline import Timeline as StoredTimeline
from tests.spark.formats.timelines import HOUR_MS, Timeline, moment


def ms(value: datetime) -> int:
    """A time that Spark showed, in milliseconds."""
    assert value.microsecond % 1_000 == 0
    return round(value.timestamp() * 1_000)


def reader(timeline: Timeline, **options: Any) -> MessagesReader:
    """Returns the reader that the driver makes from these options."""
    given = Options("chronoline", timeline.options | options)
    made = make_reader(given, schema_of("messages", VIEWS["messages"]), timeline.now)
    assert isinstance(made, MessagesReader)
    return made


def test_format_is_found_and_shows_every_column(
    spark: SparkSession, any_timeline: Timeline
) -> None:
    due = any_timeline.now + HOUR_MS
    headers = (("a", b"\xff"), ("a", None), ("", b""))
    any_timeline.put(
        NewMessage(id="full", due=due, body=b"\0body", key=b"k", headers=headers),
        NewMessage(id="bare", due=0, body=None, producer_group="others"),
    )
    rows = {row.id: row.asDict() for row in any_timeline.read(spark).load().collect()}
    full, bare = rows["full"], rows["bare"]
    assert ms(full.pop("due")) == ms(full.pop("ts")) == due
    assert [(h.key, h.value) for h in full.pop("headers")] == list(headers)
    stored = any_timeline.message("full")
    assert full == {
        "id": "full",
        "key": b"k",
        "value": b"\0body",
        "status": "waiting",
        "bucket": stored.bucket,
        "attempts": 0,
        "producer_group": "default",
        "lock_consumer": None,
        "version": stored.version,
    }
    shown = (bare["key"], bare["value"], bare["headers"], bare["status"], bare["producer_group"])
    assert shown == (None, None, [], "available", "others")


def test_registering_by_hand_and_again(spark: SparkSession, timeline: Timeline) -> None:
    timeline.put_many(3)
    for _ in range(2):
        register(spark)
        assert timeline.read(spark).load().count() == 3


def test_reading_is_split_by_bucket_ranges(spark: SparkSession, any_timeline: Timeline) -> None:
    ids = any_timeline.put_many(500)
    frame = any_timeline.read(spark, partitions=3).load()
    parts = frame.select("id", "bucket", F.spark_partition_id().alias("part")).collect()
    assert sorted(row.id for row in parts) == sorted(ids)
    buckets: dict[int, set[int]] = {}
    for row in parts:
        buckets.setdefault(row.part, set()).add(row.bucket)
    assert [(min(each), max(each)) for each in buckets.values()] == [(0, 20), (21, 41), (42, 63)]


def test_a_schema_of_some_columns_reads_no_bodies(spark: SparkSession, timeline: Timeline) -> None:
    timeline.put_many(5)
    frame = timeline.read(spark).schema("due TIMESTAMP, id STRING").load()
    assert frame.columns == ["due", "id"]
    assert sorted(row.id for row in frame.collect()) == ["m0", "m1", "m2", "m3", "m4"]


def test_columns_are_named_without_their_types(spark: SparkSession, timeline: Timeline) -> None:
    timeline.put_many(3)
    frame = timeline.read(spark, columns="due, id").load()
    assert frame.columns == ["due", "id"]
    assert sorted(row.id for row in frame.collect()) == ["m0", "m1", "m2"]


def test_messages_in_processing_are_found_without_reading_those_that_wait(
    any_timeline: Timeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = any_timeline
    line.put(*(NewMessage(id=name, due=line.now) for name in ("taken", "lapsed", "late")))
    for name, lease_ms in (("taken", HOUR_MS), ("lapsed", 10)):
        line.store.lease(
            line.topic.uid, [(name, line.now)], consumer="c", lease_ms=lease_ms, now_ms=line.now
        )
    line.put_many(100)
    read: list[str] = []
    for name in ("scan", "scan_held"):
        original = getattr(StoredTimeline, name)

        def noted(*given: Any, _original: Any = original, **options: Any) -> Page:
            page: Page = _original(*given, **options)
            read.extend(message.id for message in page.messages)
            return page

        monkeypatch.setattr(StoredTimeline, name, noted)

    def found(statuses: str) -> list[str]:
        read.clear()
        given = Options("chronoline", {**line.options, "status": statuses, "columns": "id"})
        made = make_reader(given, find_schema(given), line.now + 1_000)
        names: list[str] = []
        for part in made.partitions():
            for batch in made.read(part):
                assert isinstance(batch, pa.RecordBatch)
                names += batch.column("id").to_pylist()
        return sorted(names)

    assert found("processing") == ["taken"]
    assert sorted(read) == ["lapsed", "taken"]
    assert found("processing,available") == ["lapsed", "late", "taken"]
    assert not {message_id for message_id in read if message_id.startswith("m")}
    assert len(found("processing,waiting")) == 101


def test_status_and_time_and_buckets_as_options(
    spark: SparkSession, any_timeline: Timeline
) -> None:
    line = any_timeline
    line.put(*(NewMessage(id=each, due=line.now) for each in ("late", "taken")))
    leased = line.store.lease(
        line.topic.uid, [("taken", line.now)], consumer="c", lease_ms=HOUR_MS, now_ms=line.now
    )
    assert len(leased.leased) == 1
    line.put_many(100)

    def found(**options: Any) -> set[str]:
        rows = line.read(spark, **options).schema("id STRING").load().collect()
        assert len(rows) == len({row.id for row in rows})
        return {row.id for row in rows}

    assert found(status="available") == {"late"}
    assert found(status="processing") == {"taken"}
    assert found(status="Available, processing") == {"late", "taken"}
    assert len(found(status="waiting")) == 100
    start, end = moment(line.now + HOUR_MS + 2_000), moment(line.now + HOUR_MS + 4_000)
    between = found(status="waiting", start=start.isoformat(), end=end.isoformat())
    assert between == {"m2", "m3"}
    some = {each for each in line.ids() if line.message(each).bucket in (0, 1, 2, 63)}
    assert found(buckets="0-2, 63") == some
    assert found(buckets="0-2", start="+300d") == set()


def test_id_and_due_as_options(spark: SparkSession, any_timeline: Timeline) -> None:
    line = any_timeline
    line.put_many(20)
    line.put(NewMessage(id="taken", due=line.now), NewMessage(id="late", due=line.now + 1))
    line.store.lease(
        line.topic.uid, [("taken", line.now)], consumer="c", lease_ms=9 * HOUR_MS, now_ms=line.now
    )

    def found(**options: Any) -> list[str]:
        frame = line.read(spark, **options).schema("id STRING, value BINARY").load()
        return sorted(row.id for row in frame.collect())

    assert found(id="m7") == ["m7"]
    assert found(id="m7", status="available") == []
    assert found(id="m") == []
    assert found(dueTo=moment(line.now + 1).isoformat()) == ["taken"]
    assert found(dueTo="+30m", status="processing") == ["taken"]
    assert found(dueTo="-1h", status="processing") == []  # the scan would end before its start
    second = moment(line.now + HOUR_MS + 2_000)
    assert found(dueFrom="-1h", dueTo=second.isoformat()) == ["late", "m0", "m1", "taken"]
    end = moment(line.now + HOUR_MS).isoformat()
    assert found(dueTo=second.isoformat(), end=end) == ["late"]


def test_registered_format_has_a_task_for_each_core(
    spark: SparkSession, timeline: Timeline
) -> None:
    timeline.put_many(100)
    session = spark.newSession()
    for cores in (None, "5"):
        if cores:
            session.conf.set("spark.sql.leafNodeDefaultParallelism", cores)
        register(session)
        read = timeline.read(session).load()
        wanted = int(cores or spark.conf.get("spark.sql.leafNodeDefaultParallelism") or 0)
        assert read.rdd.getNumPartitions() == wanted


def test_registering_pushes_conditions_unless_that_is_set(spark: SparkSession) -> None:
    setting = "spark.sql.python.filterPushdown.enabled"
    fresh, given = spark.newSession(), spark.newSession()
    given.conf.set(setting, "false")
    for session in (fresh, given):
        register(session)
    assert [each.conf.get(setting) for each in (fresh, given)] == ["true", "false"]


@pytest.mark.parametrize("pushed", [True, False])
def test_conditions_find_the_same_pushed_or_not(
    spark: SparkSession, timeline: Timeline, pushed: bool
) -> None:
    timeline.put_many(50)
    version = timeline.message("m0").version
    timeline.store.lease(
        timeline.topic.uid,
        [("m0", version)],
        consumer="c",
        lease_ms=HOUR_MS,
        now_ms=timeline.now + HOUR_MS,
    )
    third = moment(timeline.now + HOUR_MS + 3_000)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        columns = "id STRING, due TIMESTAMP, ts TIMESTAMP, status STRING"
        frame = timeline.read(spark).schema(columns).load()
        due = frame.where(F.col("due") <= F.lit(third)).collect()
        assert sorted(row.id for row in due) == ["m0", "m1", "m2", "m3"]
        assert [row.id for row in frame.where("id = 'm7'").collect()] == ["m7"]
        early = frame.where((F.col("ts") <= F.lit(third)) & (F.col("status") == "waiting"))
        assert sorted(row.id for row in early.collect()) == ["m1", "m2", "m3"]
        assert frame.where("status = 'available'").count() == 0
        assert frame.where("id = 'm7' AND id = 'm8'").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_the_forecast_is_counted_in_the_store(spark: SparkSession, any_timeline: Timeline) -> None:
    any_timeline.put_many(90)
    start = moment(any_timeline.now + HOUR_MS)
    end = moment(any_timeline.now + HOUR_MS + 120_000)
    options = {"from": start.isoformat(), "to": end.isoformat(), "step": "1m"}
    rows = any_timeline.read(spark, view="forecast", **options).load().collect()
    assert [(ms(row.start), row.available, row.processing, row.waiting) for row in rows] == [
        (any_timeline.now + HOUR_MS, 0, 0, 60),
        (any_timeline.now + HOUR_MS + 60_000, 0, 0, 30),
    ]


def test_the_forecast_of_the_next_hour_is_the_default(
    spark: SparkSession, timeline: Timeline
) -> None:
    timeline.put(NewMessage(id="soon", due=timeline.now + 1_800_000))
    rows = timeline.read(spark, view="forecast").load().collect()
    assert len(rows) == 60
    assert sum(row.waiting for row in rows) == 1


def test_dead_letters(spark: SparkSession, timeline: Timeline) -> None:
    line = timeline
    line.put(NewMessage(id="dead", due=0, body=b"late", expires=1), NewMessage(id="good", due=0))
    line.store.reserve(
        line.topic.uid, line.topic.all_buckets, consumer="c", limit=9, lease_ms=10, now_ms=line.now
    )
    (row,) = line.read(spark, view="dead").load().collect()
    assert (row.id, row.value, row.reason, ms(row.died)) == ("dead", b"late", "expired", line.now)
    assert (row.status, ms(row.ts), row.lock_consumer) == ("dead", line.now, None)
    both = (
        line.read(spark)
        .load()
        .unionByName(line.read(spark, view="dead").load().drop("died", "reason"))
    )
    assert sorted((row.id, row.status) for row in both.collect()) == [
        ("dead", "dead"),
        ("good", "available"),
    ]


def test_an_empty_topic(spark: SparkSession, timeline: Timeline) -> None:
    assert timeline.read(spark).load().collect() == []
    assert timeline.read(spark, view="dead").load().collect() == []


def test_large_bodies_come_in_small_pages(timeline: Timeline) -> None:
    size = 500_000
    dues = range(250)
    timeline.put(*(NewMessage(id=f"m{n}", due=n, body=b"x" * size) for n in dues))
    made = reader(timeline, partitions="1")
    (partition,) = made.partitions()
    sizes = [batch.num_rows for batch in made.read(partition)]
    assert sum(sizes) == 250
    assert all(rows * size <= 16 * 1024 * 1024 for rows in sizes[1:])


# Refusals on the driver


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"store": ""}, "needs the option 'store', such as .option"),
        ({"topic": ""}, "needs the option 'topic'"),
        (
            {"view": "all"},
            "option 'view' of format chronoline cannot be 'all': write one of: messages",
        ),
        ({"status": "waiting,gone"}, "option 'status' .* one or several of: available"),
        ({"buckets": "0-64"}, "option 'buckets' .* such as 0-31 or 0-7,16-23; there are 64"),
        ({"buckets": "5-2"}, "option 'buckets'"),
        ({"buckets": "all"}, "option 'buckets'"),
        ({"partitions": "0"}, "option 'partitions' .* a whole number from 1"),
        ({"start": "2026-01-01T00:00:00"}, "option 'start' .* a time with its zone"),
        ({"strat": "now"}, "has no option 'strat' here; it has: buckets, columns, dueFrom, dueTo"),
        ({"store": "memory:"}, "lives in one process"),
        ({"view": "forecast", "step": "0s"}, "option 'step' .* at least 1 ms"),
        ({"view": "forecast", "from": "+2h"}, "'to' lies before option 'from'"),
    ],
)
def test_invalid_options_are_refused(
    timeline: Timeline, options: dict[str, str], words: str
) -> None:
    given = Options("chronoline", timeline.options | options)
    view = "forecast" if options.get("view") == "forecast" else "messages"
    with pytest.raises(InvalidInput, match=words):
        make_reader(given, schema_of(view, VIEWS[view]), timeline.now)


@pytest.mark.parametrize("columns", ["id,size", "id,id", "id,"])
def test_columns_are_known_and_named_once(columns: str) -> None:
    with pytest.raises(InvalidInput, match=r"'columns' .* some of: id, due, key, .* once"):
        find_schema(Options("chronoline", {"columns": columns}))


def test_missing_topic_is_refused(timeline: Timeline) -> None:
    with pytest.raises(TopicNotFound, match="no topic 'nothing': create it"):
        reader(timeline, topic="nothing")


def test_missing_store_is_refused_and_not_made(timeline: Timeline, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no store at .*: check the option 'store'"):
        reader(timeline, store=f"sqlite:///{tmp_path}/mistyped.db")
    assert not (tmp_path / "mistyped.db").exists()


def test_read_stream_names_what_to_use_instead(spark: SparkSession, timeline: Timeline) -> None:
    streamed = spark.readStream.format("chronoline").options(**timeline.options).load()
    query = streamed.writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException) as caught:
        query.processAllAvailable()
    said = str(caught.value)
    assert "not read as a stream: a pipe publishes" in said
    assert "UnboundLocalError" not in said


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("id STRING, size INT", "view 'messages' has no column 'size'; it has: id, due, key"),
        ("id STRING, due STRING", "column 'due' is timestamp, not string"),
    ],
)
def test_invalid_schema_is_refused(
    spark: SparkSession, timeline: Timeline, schema: str, words: str
) -> None:
    with pytest.raises(AnalysisException, match=words):
        timeline.read(spark).schema(schema).load().collect()


def test_conditions_narrow_what_the_tasks_read(timeline: Timeline) -> None:
    made = reader(timeline)
    conditions = [
        EqualTo(("id",), "m7"),
        GreaterThanOrEqual(("ts",), moment(timeline.now + 5)),
    ]
    assert list(made.pushFilters(conditions)) == conditions
    assert [each.value for each in made.partitions()] == [("m7",)]
    assert made.wanted.start == timeline.now + 5
