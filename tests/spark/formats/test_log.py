"""Topics of the log are read and written from Spark, byte for byte, as a batch and as a stream."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import CaseInsensitiveDict

from chronoline.core.errors import ChronolineError
from chronoline.log import Event, Log, NewEvent
from chronoline.spark.log import LogSource
from chronoline.spark.log_options import ReadSettings, WriteSettings
from tests.log.internals import index_of, objects_of

EVERY_BYTE = bytes(range(256))
HEADERS = (("b", b"1"), ("a", EVERY_BYTE), ("b", None), ("", b""), ("ä", b"2"))


@pytest.fixture(scope="session")
def session(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(LogSource)
    return spark


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'log'}"


@pytest.fixture
def log(url: str) -> Iterator[Log]:
    with Log(url) as log:
        log.create_topic("in", partitions=3)
        log.create_topic("out", partitions=3)
        yield log


def fill(log: Log, count: int, first: int = 0, topic: str = "in") -> None:
    log.append_many(
        topic,
        [NewEvent(value=b"%d" % n, partition=n % 3, ts=n) for n in range(first, first + count)],
    )


def read(session: SparkSession, url: str, **options: object) -> DataFrame:
    reader = session.read.format("chronoline_log").option("log", url).option("topic", "in")
    return reader.options(**options).load()  # type: ignore[arg-type]


def read_stream(session: SparkSession, url: str, **options: object) -> DataFrame:
    reader = session.readStream.format("chronoline_log").option("log", url).option("topic", "in")
    return reader.options(**{"startingOffsets": "earliest", **options}).load()  # type: ignore[arg-type]


def numbers(rows: Any) -> list[int]:
    return sorted(int(row.value) for row in rows)


def out(log: Log) -> list[Event]:
    return list(log.read("out", follow=False))


def run(frame: DataFrame, url: str, checkpoint: Path, **options: object) -> list[Any]:
    """Everything that is there now, written to the topic `out`; the progress of each batch."""
    query = (
        frame.writeStream.format("chronoline_log")
        .option("log", url)
        .option("topic", "out")
        .option("checkpointLocation", str(checkpoint))
        .options(**options)  # type: ignore[arg-type]
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return list(query.recentProgress)


# Reading a batch


def test_events_have_the_columns_of_kafka(session: SparkSession, log: Log, url: str) -> None:
    log.append("in", key=EVERY_BYTE, value=EVERY_BYTE, headers=HEADERS, partition=1, ts=1_234_567)
    log.append("in", key=None, value=None, partition=1, ts=7)
    frame = read(session, url)
    assert [f"{field.name} {field.dataType.simpleString()}" for field in frame.schema] == [
        "key binary",
        "value binary",
        "topic string",
        "partition int",
        "offset bigint",
        "timestamp timestamp",
        "headers array<struct<key:string,value:binary>>",
    ]
    first, second = frame.withColumn("ms", f.unix_millis("timestamp")).orderBy("offset").collect()
    assert (first.key, first.value, first.ms) == (EVERY_BYTE, EVERY_BYTE, 1_234_567)
    assert (first.topic, first.partition, first.offset) == ("in", 1, 0)
    assert tuple((header.key, header.value) for header in first.headers) == HEADERS
    assert (second.key, second.value, second.headers, second.offset) == (None, None, [], 1)


def test_a_topic_is_read_in_ranges(session: SparkSession, log: Log, url: str) -> None:
    assert read(session, url).collect() == []
    fill(log, 30)
    assert read(session, url).rdd.getNumPartitions() == 3
    frame = read(session, url, maxRecordsPerPartition=4)
    assert frame.rdd.getNumPartitions() == 9
    assert numbers(frame.collect()) == list(range(30))


def test_a_part_is_read_by_partitions_and_offsets(
    session: SparkSession, log: Log, url: str
) -> None:
    fill(log, 30)
    assert numbers(read(session, url, partitions="0,2").collect()) == [
        n for n in range(30) if n % 3 != 1
    ]
    part = read(
        session,
        url,
        partitions="2",
        startingOffsets=json.dumps({"2": 3}),
        endingOffsets=json.dumps({"2": 5}),
    )
    assert numbers(part.collect()) == [11, 14]
    ends = {"0": -1, "1": 1, "2": -1}
    assert read(session, url, endingOffsets=json.dumps(ends)).count() == 21


def test_only_the_columns_that_are_asked_for(session: SparkSession, log: Log, url: str) -> None:
    fill(log, 3)
    reader = session.read.format("chronoline_log").schema("offset BIGINT, value BINARY")
    rows = reader.option("log", url).option("topic", "in").load().collect()
    assert sorted(tuple(row) for row in rows) == [(0, b"0"), (0, b"1"), (0, b"2")]
    wrong = session.read.format("chronoline_log").schema("value STRING")
    with pytest.raises(PySparkException, match="no column 'value' of type string"):
        wrong.option("log", url).option("topic", "in").load().collect()


def test_dropped_events_fail_or_are_skipped(session: SparkSession, log: Log, url: str) -> None:
    for n in range(4):
        fill(log, 3, first=3 * n)
    for partition in range(3):
        index_of(log).trim(log.topic("in").uid, partition, before_sequence=2)
    assert numbers(read(session, url).collect()) == list(range(6, 12))
    start = json.dumps({"0": 0, "1": 2, "2": 2})
    with pytest.raises(
        PySparkException, match="events 0 to 1 of topic 'in', partition 0, were deleted"
    ):
        read(session, url, startingOffsets=start).collect()
    rest = read(session, url, startingOffsets=start, failOnDataLoss="false")
    assert numbers(rest.collect()) == list(range(6, 12))


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"topic": "nowhere"}, "no topic named 'nowhere'"),
        ({"topic": ""}, "needs the option 'topic'"),
        ({"partitions": "0,7"}, "the partitions 0 to 2, not 7"),
        ({"partitions": "all"}, "write their numbers: 0,2"),
        ({"startingOffsets": "latest"}, "a batch cannot begin at latest"),
        ({"startingOffsets": '{"0": "x"}'}, "a sequence for each partition"),
        ({"startingOffsets": "soon"}, "a sequence for each partition"),
        ({"startingOffsets": '{"0": 1}'}, "names the partitions .0., but .0, 1, 2. are read"),
        ({"endingOffsets": "earliest"}, "nothing can end at earliest"),
        ({"endingOffsets": '{"0": 9, "1": 0, "2": 0}'}, "partition 0 of topic 'in' ends at 0"),
        ({"maxOffsetsPerTrigger": "5"}, "no option 'maxoffsetspertrigger' here"),
        ({"failOnDataLoss": "perhaps"}, "write true or false"),
        ({"log": "chronoline-log"}, "there is no log at file:///.*/chronoline-log"),
    ],
)
def test_bad_options_are_refused(
    session: SparkSession, log: Log, url: str, options: dict[str, str], problem: str
) -> None:
    """Without a query; that Spark shows such errors is seen where columns are asked for."""
    given = CaseInsensitiveDict({"log": url, "topic": "in", **options})
    schema = session.createDataFrame([], LogSource(given).schema()).schema
    with pytest.raises(ChronolineError, match=problem):
        LogSource(given).reader(schema).partitions()


def test_folder_names_a_log_as_its_url_does(url: str) -> None:
    given = CaseInsensitiveDict({"log": url.removeprefix("file://"), "topic": "in"})
    assert ReadSettings.of_batch(given).log == url
    assert WriteSettings.of_batch(given).log == url


# Writing a batch


def test_written_events_round_trip(session: SparkSession, log: Log, url: str) -> None:
    log.append("in", key=EVERY_BYTE, value=EVERY_BYTE, headers=HEADERS, partition=2, ts=1_234_567)
    log.append("in", key=b"k", value=None, ts=8)
    frame = read(session, url).drop("topic", "offset")
    write(frame, url)
    expected = [
        (event.partition, event.key, event.value, event.headers, event.ts)
        for event in log.read("in", follow=False)
    ]
    assert [(e.partition, e.key, e.value, e.headers, e.ts) for e in out(log)] == expected


def write(frame: DataFrame, url: str, mode: str = "append") -> None:
    writer = frame.write.format("chronoline_log").mode(mode)
    writer.option("log", url).option("topic", "out").save()


def test_text_is_written_and_keys_decide_the_partition(
    session: SparkSession, log: Log, url: str
) -> None:
    frame = session.range(30).select(
        f.concat(f.lit("k"), f.col("id") % 5).alias("key"),
        f.col("id").cast("string").alias("value"),
    )
    write(frame, url)
    assert sorted(int(event.value or b"") for event in out(log)) == list(range(30))
    places = {(event.key, event.partition) for event in out(log)}
    assert len(places) == 5
    write(session.range(30).selectExpr("cast(id as string) value"), url)
    assert len(out(log)) == 60


@pytest.mark.parametrize(
    ("columns", "mode", "problem"),
    [
        ("id", "append", "no column 'value' among id"),
        ("'a' value, id", "append", "a column 'id' is not written; select some of: value, key,"),
        ("id value", "append", "column 'value' must be binary or string, not bigint"),
        ("'a' value", "overwrite", "can only be appended to"),
        ("'a' value, 9 partition", "append", "partition 9 is not one of 0 to 2"),
    ],
)
def test_invalid_columns_or_mode_are_refused(  # noqa: PLR0917 - fixtures, and what is tried
    session: SparkSession, log: Log, url: str, columns: str, mode: str, problem: str
) -> None:
    with pytest.raises(PySparkException, match=problem):
        write(session.range(1).selectExpr(*columns.split(", ")), url, mode)
    assert out(log) == []


# Streams


def test_a_stream_goes_on_where_it_was(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    frame = read_stream(session, url).select("value", "partition")
    for first in (0, 10, 20):
        fill(log, 10, first=first)
        run(frame, url, tmp_path / "checkpoint")
        assert numbers(out(log)) == list(range(first + 10))
    run(frame, url, tmp_path / "checkpoint")
    assert len(out(log)) == 30


def test_a_trigger_reads_no_more_than_it_may(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    fill(log, 20)
    frame = read_stream(session, url, maxOffsetsPerTrigger=7).select("value")
    progress = run(frame, url, tmp_path / "checkpoint")
    assert [each.numInputRows for each in progress if each.numInputRows] == [7, 7, 6]
    assert numbers(out(log)) == list(range(20))


def test_a_stream_follows_from_latest(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    fill(log, 10)
    query = (
        read_stream(session, url, startingOffsets="latest")
        .select("value")
        .writeStream.format("chronoline_log")
        .option("log", url)
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        query.processAllAvailable()
        fill(log, 5, first=10)
        query.processAllAvailable()
        assert numbers(out(log)) == list(range(10, 15))
        progress = query.lastProgress
        assert progress is not None
        assert json.loads(progress.sources[0].endOffset) == {"0": 5, "1": 5, "2": 5}
    finally:
        query.stop()


def test_a_stream_that_lost_events_fails_or_goes_on(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    fill(log, 3)
    run(read_stream(session, url).select("value"), url, tmp_path / "checkpoint")
    fill(log, 3, first=3)
    fill(log, 3, first=6)
    index_of(log).trim(log.topic("in").uid, 0, before_sequence=2)
    with pytest.raises(PySparkException, match="events 1 to 1 of topic 'in', partition 0, were"):
        run(read_stream(session, url).select("value"), url, tmp_path / "checkpoint")
    frame = read_stream(session, url, failOnDataLoss="false").select("value")
    run(frame, url, tmp_path / "checkpoint")
    assert numbers(out(log)) == [0, 1, 2, 4, 5, 6, 7, 8]


# A micro-batch that runs again


def last(folder: Path) -> Path:
    found = (path for path in folder.iterdir() if path.name.isdigit())
    return max(found, key=lambda path: int(path.name))


def forget(folder: Path) -> None:
    """Removes the last entry of one of a checkpoint's logs."""
    path = last(folder)
    path.unlink()
    (folder / f".{path.name}.crc").unlink()


def cut_commit(checkpoint: Path) -> None:
    forget(checkpoint / "commits")


Frames = Callable[[DataFrame], DataFrame]
DEALS: dict[str, Frames] = {
    "as it was": lambda frame: frame,
    "in one task": lambda frame: frame.coalesce(1),
    "in other tasks": lambda frame: frame.repartition(4, f.col("value")),
}


def test_a_batch_that_runs_again_adds_nothing(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = read_stream(session, url, maxOffsetsPerTrigger=10).select("value")
    fill(log, 20)
    run(frame, url, checkpoint)
    before = [(event.partition, event.sequence, event.value) for event in out(log)]
    for name, deal in DEALS.items():
        cut_commit(checkpoint)
        run(deal(frame), url, checkpoint)
        after = [(event.partition, event.sequence, event.value) for event in out(log)]
        assert after == before, name
    fill(log, 10, first=20)
    run(frame, url, checkpoint)
    assert numbers(out(log)) == list(range(30))


def test_a_batch_that_runs_again_after_compaction_adds_nothing(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    frame = read_stream(session, url, maxOffsetsPerTrigger=10).select("value")
    fill(log, 20)
    run(frame, url, tmp_path / "checkpoint")
    log.compact("out")
    log.sweep(grace_ms=0)
    for _ in range(2):
        cut_commit(tmp_path / "checkpoint")
        run(frame, url, tmp_path / "checkpoint")
    assert numbers(out(log)) == list(range(20))


def test_a_large_batch_that_runs_again_adds_nothing(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    filler = f.lit("x" * 3_000)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        frame = read_stream(session, url).select(f.concat(f.col("value"), filler).alias("value"))
        fill(log, 12_000)
        run(frame, url, tmp_path / "checkpoint")
        written = len(out(log))
        objects = {
            chunk.object_name
            for chunk in index_of(log).chunks(log.topic("out").uid, 0, from_sequence=0, limit=99)
        }
        cut_commit(tmp_path / "checkpoint")
        run(frame, url, tmp_path / "checkpoint")
    finally:
        session.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(objects) > 3
    assert [written, len(out(log))] == [12_000, 12_000]


def test_without_its_checkpoint_a_query_is_another_one(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    frame = read_stream(session, url).select("value")
    fill(log, 10)
    for _ in range(2):
        run(frame, url, tmp_path / "checkpoint")
        shutil.rmtree(tmp_path / "checkpoint")
    assert numbers(out(log)) == sorted([*range(10), *range(10)])


def test_other_batch_of_the_same_number_is_refused(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    frame = read_stream(session, url).select("value")
    fill(log, 10)
    run(frame, url, checkpoint)
    fill(log, 10, first=10)
    run(frame, url, checkpoint)
    forget(checkpoint / "offsets")
    cut_commit(checkpoint)
    fill(log, 5, first=20)
    with pytest.raises(
        PySparkException, match="used before to append 10 events, and now comes with 15"
    ):
        run(frame, url, checkpoint)
    run(frame, url, checkpoint, failOnDataLoss="false")
    assert numbers(out(log)) == list(range(20))


def test_next_query_finishes_an_interrupted_commit(
    session: SparkSession, log: Log, url: str, tmp_path: Path
) -> None:
    """Its object is there, and its commit is not."""
    frame = read_stream(session, url).select("value")
    fill(log, 10)
    index = sqlite3.connect(tmp_path / "log" / "index.db", isolation_level=None)
    with closing(index):
        index.execute(
            "CREATE TRIGGER stop BEFORE INSERT ON chunks BEGIN SELECT RAISE(ABORT, 'not today'); END"
        )
        before = len(list(objects_of(log).list()))
        with pytest.raises(PySparkException, match="not today"):
            run(frame, url, tmp_path / "checkpoint")
        assert len(list(objects_of(log).list())) == before + 1
        index.execute("DROP TRIGGER stop")
    assert out(log) == []
    run(frame, url, tmp_path / "checkpoint")
    assert numbers(out(log)) == list(range(10))
