"""Checks of what `chronoline pipe run` would use, without starting Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from chronoline.cli.doctor.checks import Check, Diagnosis, ok, problem, warning
from chronoline.cli.doctor.machine import check_disk, check_extra, check_extras
from chronoline.cli.doctor.node import store_checks
from chronoline.runtime.store_url import POSTGRES, scheme_of

if TYPE_CHECKING:
    from chronoline.pipe.places import Place
    from chronoline.pipe.settings import PipeSettings

_CORE_JAR = "spark-core_"
_JAR_LISTS = ("spark.jars", "spark.driver.extraClassPath", "spark.executor.extraClassPath")


def pipe_checks(settings: PipeSettings) -> Iterator[Check]:
    """The checks that these settings ask for."""
    yield Check("pipe", lambda: check_libraries(settings))
    bound_ms = settings.clock_bound_ms
    for check in store_checks(settings.store, clock_bound_ms=bound_ms):
        yield Check(f"pipe's {check.part}", check.look)
    yield Check("input", lambda: _check_input(settings))
    yield Check("output", lambda: _check_output(settings, settings.output))
    if settings.dead_letters is not None:
        dead_letters = settings.dead_letters
        yield Check("dead letters", lambda: _check_output(settings, dead_letters))
    if settings.receipts is not None and "://" not in settings.receipts:
        folder = Path(settings.receipts)
        yield Check("receipts", lambda: check_disk(folder, "the receipts"))
    yield Check("Java", _check_java)
    yield Check("Spark", check_spark)
    yield Check("Spark's jars", lambda: check_jars(settings))


def check_libraries(settings: PipeSettings) -> Diagnosis:
    """Checks for the libraries that the settings need."""
    needed = {"spark": f"the pipe {settings.name!r} runs on Spark"}
    if any(each.kind == "kafka" for each in _places(settings)):
        needed["kafka"] = "a topic is on Kafka"
    if scheme_of(settings.store) in POSTGRES:
        needed["postgres"] = "the store is PostgreSQL"
    found = check_extras(needed)
    return ok(f"{settings.name}: its libraries are installed") if found.state == "ok" else found


def _places(settings: PipeSettings) -> Iterator[Place]:
    yield from (settings.input, settings.output)
    if settings.dead_letters is not None:
        yield settings.dead_letters


def _check_input(settings: PipeSettings) -> Diagnosis:
    from chronoline.pipe.checks import check_input  # noqa: PLC0415 - its libraries are optional

    return ok(check_input(settings))


def _check_output(settings: PipeSettings, place: Place) -> Diagnosis:
    from chronoline.pipe.checks import check_output  # noqa: PLC0415 - its libraries are optional

    return ok(check_output(settings, place))


def _check_java() -> Diagnosis:
    from chronoline.pipe.checks import check_java  # noqa: PLC0415 - see above

    return ok(check_java())


def check_spark() -> Diagnosis:
    """Checks that Spark's Python library and its jars are of one version. Spark is not started."""
    found = check_extra("spark", "a pipe runs on Spark")
    if found.state != "ok":
        return found
    import pyspark  # noqa: PLC0415 - it is optional
    from pyspark.find_spark_home import _find_spark_home  # noqa: PLC0415 - see above

    home = Path(os.environ.get("SPARK_HOME") or _find_spark_home())
    words = f"pyspark {pyspark.__version__}, jars in {str(home)!r}"
    versions = [each.stem.rpartition("-")[2] for each in home.glob(f"jars/{_CORE_JAR}*.jar")]
    if not versions:
        return problem(
            f"{words}: there are none",
            "unset SPARK_HOME to use pyspark's own, or name a folder of Spark with jars/",
        )
    if versions[0] != pyspark.__version__:
        return problem(
            f"{words} are of version {versions[0]}",
            f"pip install pyspark=={versions[0]}, or unset SPARK_HOME",
        )
    return ok(words)


def check_jars(settings: PipeSettings) -> Diagnosis:
    """Checks the jars that the settings add to Spark. A pipe itself needs none."""
    conf = {name: str(value) for name, value in settings.spark.conf.items()}
    named = [each for name in _JAR_LISTS for each in conf.get(name, "").split(",") if each]
    local = [
        each.removeprefix("file://") for each in named if "://" not in each.removeprefix("file://")
    ]
    missing = [each for each in local if "*" not in each and not Path(each).exists()]
    if missing:
        return problem(
            f"spark.conf names {missing[0]!r}, which is not there",
            "correct the path, or remove it: a pipe needs no jars, also for Kafka",
        )
    if packages := conf.get("spark.jars.packages"):
        return warning(
            f"spark.jars.packages asks Maven for {packages} at each start",
            "remove it, unless code of your own needs it: a pipe needs no jars, also for Kafka",
        )
    return ok(f"{len(named)} named in spark.conf, all there" if named else "none needed")
