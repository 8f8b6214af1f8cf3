"""The environment of Spark processes under test, and the settings of their session."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Returns our environment without the settings of Spark; Spark keeps its files in the folder."""
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_"))
    }
    return ours | {
        # Functions of test modules travel to the workers by name.
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder),
        **more,
    }


def python_of_workers(folder: Path) -> str:
    """For `PYSPARK_PYTHON`: our Python, which reads pyspark where it is installed.

    Spark's own path begins with a copy of it in a zip file: each process would compile that anew. Workers are
    forked by `tests.spark.daemon`, also those that plan for a data source, for which Spark has no setting.
    """
    program = folder / "python"
    if program.exists():  # perhaps it is being started
        return str(program)
    client, python = ROOT / "tests" / "spark" / "fork_client.py", shlex.quote(sys.executable)
    program.write_text(
        "#!/bin/sh\n"
        f"export PYTHONPATH={shlex.quote(str(ROOT))} OPENBLAS_NUM_THREADS=1\n"
        'case "$1 $2" in "-m pyspark.daemon" | "-m pyspark.sql.streaming.python_streaming_source_runner")\n'
        f'  shift; exec {python} -I -S {shlex.quote(str(client))} "$(dirname "$0")/$PPID" {python} "$@"\n'
        "esac\n"
        f'exec {python} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


@contextmanager
def setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """Changes a setting of the shared session for the time of a block."""
    before = spark.conf.get(name) or ""
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)
