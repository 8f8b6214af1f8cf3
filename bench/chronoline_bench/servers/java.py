"""Java for tests and benchmarks: its program, and an archive of classes with which Spark starts faster.

A JVM with the archive does not read and verify each of Spark's classes: Spark starts with a third less work.
The archive fits one Java and one location of pyspark's jars, so it lies in the same environment, and its name
has both versions. A JVM that it does not fit ignores it. It is made once:
`python -m chronoline_bench.servers.java`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from chronoline.core.errors import ChronolineError, MissingExtra

ON_FEW_CORES = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A garbage collector and a compiler that use few threads."""

_ROWS = 10
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
    if archive.exists():
        # A JVM that it does not fit would print a warning on its standard output.
        chosen += [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"]
    return shlex.join(chosen)


def archive_path() -> Path:
    """Returns the path of this environment's archive, which may not exist."""
    java = Path(find_java("Spark")).resolve()
    release = java.parents[1] / "release"
    said = _VERSION.search(release.read_text("utf-8")) if release.exists() else None
    try:
        name = f"spark-{version('pyspark')}-java-{said[1] if said else 'unknown'}.jsa"
    except PackageNotFoundError:
        raise MissingExtra("Spark is not installed: pip install 'chronoline[spark]'") from None
    return Path(sys.prefix, "share", "chronoline", name)


def make_archive() -> Path:
    """Makes the archive if it is missing, atomically; removes those of other versions."""
    archive = archive_path()
    if not archive.exists():
        print("archiving Spark's classes, once; this takes half a minute", file=sys.stderr)
        archive.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
            made = Path(folder, archive.name)
            _run_spark(f"-XX:ArchiveClassesAtExit={made}", Path(folder))
            if not made.exists():
                raise ChronolineError("Java made no archive of Spark's classes")
            made.rename(archive)
        for other in archive.parent.glob("spark-*.jsa"):
            if other != archive:
                other.unlink(missing_ok=True)
    return archive


def _run_spark(option: str, folder: Path) -> None:
    """Runs a small Spark job on a JVM with this option; the JVM has ended when this returns."""
    from pyspark import SparkContext  # noqa: PLC0415 - slow, and needed only here
    from pyspark.sql import SparkSession  # noqa: PLC0415 - likewise

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
    spark.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    process = gateway.proc
    process.stdin.close()
    process.wait()


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
