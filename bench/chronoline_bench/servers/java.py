"""Java for tests and benchmarks: its program, and archives of classes with which its programs start faster.

A JVM with an archive does not read and verify each class: Spark, and likewise Kafka, starts with half of the
work. An archive holds the classes of a short run, in which Spark does everything that tests do. It fits one
Java and one location of the jars, so it lies in the same environment, and its name has both versions. A JVM
that it does not fit ignores it. It is made once: `python -m chronoline_bench.servers.java` for Spark, and
`python -m chronoline_bench.servers.kafka` for Kafka.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from chronoline.core.errors import ChronolineError, MissingExtra

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

ON_FEW_CORES = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MetaspaceSize=256m")
"""A garbage collector and a compiler that use few threads; no collection because classes were loaded."""

_ROWS = 10
_LOOK_EVERY_S = 0.05
_PATIENCE_S = 120.0
_VERSION = re.compile(r'^JAVA_RUNTIME_VERSION="?([\w.+-]+)', re.MULTILINE)


def find_java(who: str) -> str:
    """Returns the path of Java, found as Spark does. The error names the part that needs it."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home, "bin")) if home else None)
    if java is None:
        raise MissingExtra(f"{who} needs Java 17 or newer: install it, or set JAVA_HOME")
    return java


def options() -> str:
    """Returns `JAVA_TOOL_OPTIONS`: options for small JVMs, and the archive if it exists."""
    chosen = list(ON_FEW_CORES)
    try:
        archive = archive_path()
    except MissingExtra:
        return " ".join(chosen)  # the part that needs it raises an error
    return shlex.join([*chosen, *archive_options(archive)])


def archive_options(archive: Path) -> list[str]:
    """Returns the options for a JVM to use this archive; none if it does not exist."""
    # A JVM that it does not fit would print a warning on its standard output.
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.exists() else []


def archive_path() -> Path:
    """Returns the path of this environment's archive of Spark, which may not exist."""
    find_java("Spark")
    try:
        return path_of_archive(f"spark-{version('pyspark')}")
    except PackageNotFoundError:
        raise MissingExtra("Spark is not installed: pip install 'chronoline[spark]'") from None


def path_of_archive(program: str) -> Path:
    """Returns the path of this environment's archive for a program, named with its version."""
    java = Path(find_java(program)).resolve()
    release = java.parents[1] / "release"
    said = _VERSION.search(release.read_text("utf-8")) if release.exists() else None
    name = f"{program}-java-{said[1] if said else 'unknown'}.jsa"
    return Path(sys.prefix, "share", "chronoline", name)


def make_archive() -> Path:
    """Makes the archive of Spark if it is missing, atomically; removes those of other versions."""
    return make_archive_at(archive_path(), _run_spark)


def make_archive_at(archive: Path, run: Callable[[str, Path], None]) -> Path:
    """Makes an archive if it is missing, atomically; removes those of other versions.

    `run` runs the program on a JVM with an option, in a folder; the JVM has ended when it returns.
    """
    program = archive.name.partition("-")[0]
    if not archive.exists():
        print(f"archiving the classes of {program}, once; this may take a minute", file=sys.stderr)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            made = Path(folder, archive.name)
            run(f"-XX:ArchiveClassesAtExit={made}", Path(folder))
            if not made.exists():
                raise ChronolineError(f"Java made no archive of the classes of {program}")
            made.rename(archive)
        for other in archive.parent.glob(f"{program}-*.jsa"):
            if other != archive:
                other.unlink(missing_ok=True)
    return archive


def _run_spark(option: str, folder: Path) -> None:
    """Runs small jobs of Spark on a JVM with this option."""
    from pyspark import SparkContext  # noqa: PLC0415 - slow, and needed only here
    from pyspark.sql import SparkSession  # noqa: PLC0415 - likewise

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.driver.extraJavaOptions": shlex.join([*ON_FEW_CORES, option, "-Xlog:disable"]),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[2]").config(map=dict(settings)).getOrCreate()
    table = str(folder / "table")
    spark.range(0, _ROWS, 1, 1).groupBy("id").count().orderBy("id").write.parquet(table)
    assert spark.read.parquet(table).count() == _ROWS
    _run_stream(spark, folder / "checkpoint")
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait()


def _run_stream(spark: SparkSession, checkpoint: Path) -> None:
    """Runs two micro-batches through Python processes, as a pipe does."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    rows = source.select("value").mapInArrow(pass_on, "value BIGINT")
    written = rows.writeStream.option("checkpointLocation", checkpoint.as_uri()).format("noop")
    query = written.start()
    give_up_s = time.monotonic() + _PATIENCE_S
    while query.isActive and (query.lastProgress is None or query.lastProgress.batchId < 1):
        if time.monotonic() >= give_up_s:
            raise ChronolineError("Spark runs no micro-batches")
        time.sleep(_LOOK_EVERY_S)  # Spark reports progress only on request
    query.stop()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m chronoline_bench.servers.java",
        description="Archives Spark's classes, so that Spark starts faster in tests, and prints the path.",
    )
    parser.parse_args(arguments)
    print(make_archive())


if __name__ == "__main__":
    try:
        main()
    except ChronolineError as error:
        sys.exit(f"chronoline: {error}")
