"""The Spark session of a pipe, and the checks of a session."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from chronoline.core.errors import InvalidInput
from chronoline.pipe.properties import java_properties
from chronoline.pipe.settings import PipeSettings

_SPARE_SLOTS = 1
_EXECUTORS_S = 60.0
_LOOK_FOR_EXECUTORS_S = 0.1
_LOG4J = Path(__file__).with_name("log4j2.properties")


def slots_needed(settings: PipeSettings) -> int:
    """The number of tasks that a pipe runs at once: those of every lane, and those of the intake."""
    return settings.lanes * settings.ranges + settings.intakes


def build_session(settings: PipeSettings) -> SparkSession:
    """Creates a session for this pipe; on one machine unless the settings name a master."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    slots = slots_needed(settings) + _SPARE_SLOTS
    local = settings.spark.master is None
    master = f"local[{slots},4]" if local else settings.spark.master
    conf: dict[str, str] = {
        "spark.app.name": f"chronoline pipe {settings.name}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    }
    options = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # All processes share a few cores: this collector and this compiler use few threads.
        options += " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    conf["spark.driver.extraJavaOptions"] = options
    conf |= java_properties(settings.spark.conf)
    builder = SparkSession.builder.master(str(master)).config(map=dict(conf))
    try:
        with _handlers_kept():
            return builder.getOrCreate()
    except Exception as error:  # errors of the JVM and of the gateway have no common base
        raise InvalidInput(f"Spark does not start: {str(error).splitlines()[0]}") from error


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Restores the signal handlers that Spark replaces.

    In the main thread a new context installs a handler of SIGINT that raises KeyboardInterrupt, which may
    interrupt any statement. But the caller has its own handlers, for example to stop the pipe. Only Spark's
    handlers are replaced: a handler that ran meanwhile may have installed another one.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may change handlers, so Spark does not
        return
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            if handler is not None and _is_of_spark(signal.getsignal(each)):
                signal.signal(each, handler)


def _is_of_spark(handler: object) -> bool:
    return str(getattr(handler, "__module__", "")).startswith("pyspark.")


def is_stopped(spark: SparkSession) -> bool:
    """Whether the context has ended, also while the JVM lives; a stop in this process sets it to None."""
    jvm_context: Any = spark.sparkContext._jsc
    return jvm_context is None or bool(jvm_context.sc().isStopped())


def count_slots(spark: SparkSession, needed: int) -> int:
    """The number of tasks that Spark can run at once.

    A cluster's executors start after the session: it waits for them while there are too few.
    """
    context = spark.sparkContext
    jvm_context = context._jsc.sc()
    profile = jvm_context.resourceProfileManager().defaultResourceProfile()
    is_local = (context.master or "").startswith("local")
    give_up_s = time.monotonic() + (0 if is_local else _EXECUTORS_S)
    while True:
        slots = int(jvm_context.maxNumConcurrentTasks(profile))
        if slots >= needed or time.monotonic() >= give_up_s:
            return slots
        time.sleep(_LOOK_FOR_EXECUTORS_S)  # Python gets no event when one registers


def session_problems(spark: SparkSession, settings: PipeSettings) -> list[str]:
    """The problems that keep a session from serving this pipe."""
    if is_stopped(spark):
        return ["its session was stopped"]
    problems = []
    conf = spark.sparkContext.getConf()
    needed = slots_needed(settings)
    slots = count_slots(spark, needed)
    if slots < needed:
        problems.append(
            f"Spark has {slots} slots, and this pipe needs {needed}: {settings.lanes} lanes × "
            f"{settings.ranges} ranges, and {settings.intakes} for the input. Give it more cores, or fewer "
            "ranges"
        )
    if conf.get("spark.speculation", "false") == "true":
        problems.append("spark.speculation must be off: a second attempt would fire as well")
    if conf.get("spark.python.worker.reuse", "true") == "false":
        problems.append("spark.python.worker.reuse must be on: new processes come too late")
    dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    if dynamic and int(conf.get("spark.dynamicAllocation.minExecutors", "0") or 0) < 1:
        problems.append(
            "spark.dynamicAllocation needs minExecutors: lanes cannot wait for executors"
        )
    return problems
