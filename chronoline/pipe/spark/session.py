"""The Spark session of a pipe, and the checks of a session."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pyspark import SparkConf, SparkContext
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from chronoline.core.errors import InvalidInput, MissingExtra
from chronoline.pipe.properties import java_properties
from chronoline.pipe.settings import PipeSettings, master_problem
from chronoline.runtime.store_url import without_password

_SPARE_SLOTS = 1
_EXECUTORS_S = 60.0
_LOOK_FOR_EXECUTORS_S = 0.1
_LOG4J = Path(__file__).with_name("log4j2.properties")
_LOG4J_OF_SPARK = "org/apache/spark/log4j2-defaults.properties"
_GATEWAY = "PYSPARK_GATEWAY_PORT"
"""The variable that `spark-submit` sets for the Python process that it starts."""
_UNNAMED = "local[*]"
"""The master that `spark-submit` chooses if nobody names one."""
_CONNECT = "pyspark.sql.connect"
_LIBRARIES = ("numpy", "pandas", "pyarrow")
"""Spark asks for them only when a query with a Python function starts."""


def slots_needed(settings: PipeSettings) -> int:
    """The number of tasks that a pipe runs at once: those of every lane, and those of the intake."""
    return settings.lanes * settings.ranges + settings.intakes


class PipeSession(NamedTuple):
    spark: SparkSession
    is_own: bool
    """Whether it was made for the pipe, which stops it."""


def build_session(settings: PipeSettings) -> PipeSession:
    """Returns the session of this process, or makes one; on one machine if nobody names a master.

    A master that `spark-submit` or Spark's own settings name is used. Raises `InvalidInput` if the pipe's
    settings name another, and for Spark Connect; `MissingExtra` if Spark lacks a library.
    """
    missing = [each for each in _LIBRARIES if find_spec(each) is None]
    if missing:
        raise MissingExtra(f"Spark needs {' and '.join(missing)}: pip install 'chronoline[spark]'")
    connect = connect_problem(settings, os.environ)
    if connect:
        raise InvalidInput(connect)
    if SparkContext._active_spark_context is not None:
        return PipeSession(SparkSession.builder.getOrCreate(), is_own=False)
    try:
        with _handlers_kept():
            return PipeSession(_make_session(settings), is_own=True)
    except InvalidInput:
        raise
    except Exception as error:  # errors of the JVM and of the gateway have no common base
        raise InvalidInput(f"Spark does not start: {str(error).splitlines()[0]}") from error


def _make_session(settings: PipeSettings) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    is_submitted = _GATEWAY in os.environ
    named = _master_of_submit() if is_submitted else master_of_arguments(os.environ)
    default = None if is_submitted else _default_master(os.environ)
    master = choose_master(settings, named, default)
    is_local = master.startswith("local")
    conf = _own_conf(settings, is_local=is_local)
    if is_submitted:  # its arguments take precedence over the pipe's defaults
        given = SparkConf()
        conf = {name: value for name, value in conf.items() if not given.contains(name)}
    elif is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf |= java_properties(settings.spark.conf)
    if is_submitted:
        _be_quiet()
    else:
        _launch(conf | {"spark.master": master})
    return SparkSession.builder.master(master).config(map=dict(conf)).getOrCreate()


def _launch(conf: Mapping[str, str]) -> None:
    """Starts the JVM in a process group of its own; it ends with this process.

    A signal to the group of the pipe, as a shell or a supervisor sends it, would end the JVM first: held
    messages would lapse, and Spark would log each task at length.
    """
    if SparkContext._gateway is None:
        given = SparkConf().setAll(list(conf.items()))
        options = {"process_group": 0}
        gateway = launch_gateway(given, popen_kwargs=options)  # type: ignore[no-untyped-call]  # Spark's
        SparkContext._ensure_initialized(gateway=gateway)


def _own_conf(settings: PipeSettings, *, is_local: bool) -> dict[str, str]:
    options = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    if is_local:
        # All processes share a few cores: this collector and this compiler use few threads, and loading
        # classes at the start causes no full collections.
        options += " -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
    return {
        "spark.app.name": f"chronoline pipe {settings.name}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.speculation": "false",
        "spark.python.worker.reuse": "true",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
        "spark.driver.extraJavaOptions": options,
    }


def _be_quiet() -> None:
    """Lets Spark log errors alone, as in a JVM of our own, unless its logging is configured.

    `spark-submit` has started the JVM: the pipe's lines would drown in those of Spark.
    """
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    jvm.org.apache.spark.SparkConf().initializeLogIfNecessary(
        False, True
    )  # or it would do so later
    log4j = jvm.org.apache.logging.log4j
    used = log4j.LogManager.getContext(False).getConfiguration().getConfigurationSource()
    if str(used.getLocation()).endswith(_LOG4J_OF_SPARK):
        log4j.core.config.Configurator.reconfigure(jvm.java.net.URI(_LOG4J.as_uri()))


# The master


def choose_master(settings: PipeSettings, named: str | None, default: str | None) -> str:
    """The master of a new session: `named` by `spark-submit`, of the settings, or Spark's own `default`."""
    own = settings.spark.master
    if own is not None and named is not None and own != named:
        raise InvalidInput(
            f"spark.master is {without_password(own)!r}, and spark-submit names "
            f"{without_password(named)!r}: leave one of them out"
        )
    slots = slots_needed(settings) + _SPARE_SLOTS
    return own or named or default or f"local[{slots},4]"


def _master_of_submit() -> str | None:
    """The master of the `spark-submit` that started this process; None if nobody named one."""
    SparkContext._ensure_initialized()
    system = SparkContext._jvm.java.lang.System  # type: ignore[union-attr]  # it is initialized
    master: str | None = system.getProperty("spark.master")
    command: str = system.getProperty("sun.java.command") or ""
    return None if master == _UNNAMED and _UNNAMED not in command else master


def master_of_arguments(environ: Mapping[str, str]) -> str | None:
    """The master in `PYSPARK_SUBMIT_ARGS`, with which Spark's Python library starts `spark-submit`."""
    words = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    found: dict[str, str] = {}
    for word, after in pairwise([*words, ""]):
        option, is_joined, value = word.partition("=")
        value = value if is_joined else after
        if option == "--master":
            found["--master"] = value
        elif option in ("--conf", "-c") and value.startswith("spark.master="):
            found["--conf"] = value.removeprefix("spark.master=")
    return found.get("--master") or found.get("--conf")


def _default_master(environ: Mapping[str, str]) -> str | None:
    """The master of `spark-defaults.conf`, or of the variable `MASTER`."""
    folder = environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    path = Path(folder) / "spark-defaults.conf"
    lines = path.read_text().splitlines() if path.is_file() else []
    for line in lines:
        name, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if name == "spark.master":
            return value.strip()
    return environ.get("MASTER") or None


def connect_problem(
    settings: PipeSettings, environ: Mapping[str, str], spark: object = None
) -> str | None:
    """Spark Connect has no driver in this process, which supervises the queries of a pipe."""
    remote = {
        f"spark.master is {settings.spark.master!r}": (settings.spark.master or "").startswith(
            "sc:"
        ),
        "spark.conf has spark.remote": "spark.remote" in settings.spark.conf,
        "SPARK_REMOTE is set": spark is None and bool(environ.get("SPARK_REMOTE")),
        "the session is one of Spark Connect": type(spark).__module__.startswith(_CONNECT),
    }
    for words, is_so in remote.items():
        if is_so:
            return (
                f"{words}: a pipe cannot run over Spark Connect, since it supervises its queries in the "
                "driver. Start it with spark-submit, or name a master"
            )
    return None


# Signals


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


# Checks of a session


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
    connect = connect_problem(settings, {}, spark)
    if connect:
        return [connect]
    if is_stopped(spark):
        return ["its session was stopped"]
    problems = []
    conf = spark.sparkContext.getConf()
    master = spark.sparkContext.master
    if settings.spark.master not in (None, master):
        problems.append(
            f"spark.master is {settings.spark.master!r}, and its session has {master!r}"
        )
    if problem := master_problem(settings, master):
        problems.append(problem)
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
