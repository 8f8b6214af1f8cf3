"""Checks before a pipe runs: each part is tested, and each problem is reported with its remedy.

A check creates no file and no folder. It only creates the tables of a PostgreSQL database.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from chronoline.core.errors import ChronolineError, InvalidInput, MissingExtra, StoreUnavailable
from chronoline.pipe.clock_offset import ClockOffset
from chronoline.pipe.inputs import open_input
from chronoline.pipe.outputs.factory import open_output
from chronoline.pipe.places import Place, check_log, missing_file
from chronoline.pipe.settings import PipeSettings, fixed_problem
from chronoline.runtime.clock import SystemClock
from chronoline.runtime.extras import beside_imports
from chronoline.runtime.message_ids import new_id
from chronoline.stores.factory import open_store

_OLDEST_JAVA = 17


class Bearable(ChronolineError):
    """A problem that does not stop a running pipe."""


class Finding(NamedTuple):
    part: str
    words: str
    fine: bool
    bearable: bool = False
    """A problem that does not prevent the start: an unreachable output, or a clock that differs."""


def check_pipe(settings: PipeSettings, slots: Callable[[], str]) -> Iterator[Finding]:
    """Checks all parts, and yields one finding for each; `slots` checks Spark.

    Spark takes many seconds to start, so it is tried only if nothing else prevents the pipe from running.
    """
    prevents = False
    for finding in check_before_spark(settings):
        prevents = prevents or not (finding.fine or finding.bearable)
        yield finding
    if not finding.fine:
        yield Finding("Spark", "not tried: it needs Java", False)
    elif prevents:
        yield Finding("Spark", "not tried: it starts slowly; mend the rest first", False)
    else:
        yield _try("Spark", slots)


def check_before_spark(settings: PipeSettings) -> Iterator[Finding]:
    """Runs the checks that take about a second: Spark takes many to start."""
    yield from _check_places(settings)
    yield _try("Java", check_java)


def _check_places(settings: PipeSettings) -> Iterator[Finding]:
    """Runs the checks at the same time: each one of an unreachable Kafka takes ten seconds."""
    checks = {
        "store": lambda: _check_store(settings),
        "input": lambda: check_input(settings),
        "output": lambda: check_output(settings, settings.output),
    }
    if settings.dead_letters is not None:
        dead_letters = settings.dead_letters
        checks["dead letters"] = lambda: check_output(settings, dead_letters)
    with ThreadPoolExecutor(len(checks)) as threads:
        yield from threads.map(_try, checks, checks.values())
    if settings.dead_letters is None:
        yield Finding("dead letters", "no topic is set: they are kept in the store", True)


def _try(part: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(part, beside_imports(check), True)
    except ChronolineError as error:
        return Finding(part, str(error), False, isinstance(error, Bearable))


# The store


def _check_store(settings: PipeSettings) -> str:
    """Checks that the store can be written, by a heartbeat, and its clock."""
    missing = missing_file(settings.store)
    if missing is not None:
        return _creatable(missing)
    with open_store(settings.store) as store:
        now_ms = SystemClock().now_ms()
        group, me = f"check of {settings.name}", new_id()
        store.beat(group, me, until_ms=now_ms + 1_000, now_ms=now_ms)
        store.leave(group, me)
        topic = store.find_topic(settings.name)
        if topic is not None and (problem := fixed_problem(settings, topic)):
            raise InvalidInput(problem)
        clock = ClockOffset("the store", store.clock_ms, bound_ms=settings.clock_bound_ms)
        offset_ms = clock.measure()
        if clock.bad:
            raise Bearable(clock.words(offset_ms))
        return "can be read and written" + (f", clock {offset_ms:+} ms" if offset_ms else "")


def _creatable(file: Path) -> str:
    there = next(folder for folder in file.parents if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise StoreUnavailable(f"{str(file)!r} cannot be made: {str(there)!r} cannot be written")
    folder = "" if there == file.parent else ", and its folder"
    return f"{str(file)!r} is not there yet: the pipe will make it{folder}"


# Topics


def check_input(settings: PipeSettings) -> str:
    check_log(settings.input)
    with open_input(settings.input, settings.name) as source:
        count = len(source.partitions())
        source.earliest()
    if settings.input.kind == "kafka":
        _check_rights(settings.input, read=True)
    return f"{settings.input.topic!r} has {count} {'partition' if count == 1 else 'partitions'}"


def check_output(settings: PipeSettings, place: Place) -> str:
    check_log(place)
    if place.kind == "kafka":
        _check_rights(place, read=False)
    try:
        open_output(place, delivery_timeout_ms=settings.delivery_timeout_ms).close()
    except StoreUnavailable as error:
        raise Bearable(str(error)) from error
    return f"{place.topic!r} is there"


def _check_rights(place: Place, *, read: bool) -> None:
    from chronoline.pipe.kafka import (  # noqa: PLC0415 - its library is optional
        KafkaTopic,
        KafkaUnavailable,
    )

    try:
        with KafkaTopic(place) as topic:
            topic.partitions()
            rights = topic.rights()
    except KafkaUnavailable as error:
        if read:
            raise
        raise Bearable(str(error)) from error
    if (rights.may_read if read else rights.may_write) is False:
        what = "read" if read else "write"
        raise InvalidInput(f"this user may not {what} the Kafka topic {place.topic!r}: grant it")


# Java


def check_java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise MissingExtra(
            f"Spark needs Java {_OLDEST_JAVA} or newer: install it, or set JAVA_HOME"
        )
    words = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = words.split('"')[1] if '"' in words else ""
    major = version.split(".")[0]
    if not major.isdecimal() or int(major) < _OLDEST_JAVA:
        raise MissingExtra(
            f"Spark needs Java {_OLDEST_JAVA} or newer, not {version or 'this one'}: set JAVA_HOME"
        )
    return version
