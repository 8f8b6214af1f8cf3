"""`chronoline pipe run` and `chronoline pipe check`."""

from __future__ import annotations

import itertools
import logging
import queue
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from chronoline.cli.pipe.options import heading, sets_a_pipe
from chronoline.cli.pipe.status import progress_line
from chronoline.core.errors import ChronolineError, InvalidInput
from chronoline.pipe.checks import check_before_spark, check_pipe
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.extras import needs
from chronoline.runtime.signals import stop_on_signal
from chronoline.runtime.terminal_text import printable

if TYPE_CHECKING:
    from chronoline.pipe.spark.pipe import Pipe

logger = logging.getLogger(__name__)

_LOOKS_A_SECOND = 5
_LOOK_EVERY_S = 1 / _LOOKS_A_SECOND
"""The longest delay of a stop by the store; a signal stops at once."""
_LOG_EVERY_S = 10
"""The interval of lines without a terminal; a terminal shows one each second."""


@sets_a_pipe
def run(settings: PipeSettings) -> None:
    """Run a pipe until Ctrl-C, SIGTERM, or `chronoline pipe stop`.

    chronoline pipe run --config pipe.toml
    chronoline pipe run --name first --input in@./log --output out@./log --delay 5s

    When it stops, it fires due messages and gives back the others, which
    takes some seconds. A second Ctrl-C or SIGTERM ends it at once; another
    process fires the held messages after hold_ms. Problems of the store or
    of topics are reported before Spark starts.
    """
    _log_to_stderr()
    console = Console(stderr=True)
    console.print(heading(settings), soft_wrap=True)
    _check_places(settings)
    pipe_class = _import_pipe()
    console.print(
        "starting Spark, which takes some 20 seconds; records wait in the input meanwhile … "
        "(Ctrl-C ends the pipe after that, a second one at once)",
        soft_wrap=True,
    )
    # A signal raises no exception: in the middle of a start it would leave Spark's two halves at odds.
    stop: queue.SimpleQueue[None] = queue.SimpleQueue()
    with stop_on_signal(lambda: stop.put(None)), _open(pipe_class, settings) as pipe:
        console.print(f"running as node {pipe.node}; Ctrl-C stops it", highlight=False)
        _watch(console, pipe, stop)
        console.print("stopping: firing due messages, giving back the others …")
    console.print(progress_line(pipe.counters))
    if pipe.failed:
        raise ChronolineError(f"{pipe.failed}; start the pipe again")


def _check_places(settings: PipeSettings) -> None:
    """Refuse a wrong topic within a second: Spark starts slowly, and its errors are less clear."""
    wrong = []
    for finding in check_before_spark(settings):
        if finding.bearable:
            logger.warning("starting all the same: %s: %s", finding.part, finding.words)
        elif not finding.fine:
            wrong.append(f"- {finding.part}: {finding.words}")
    if wrong:
        raise ChronolineError("\n".join(["the pipe cannot run:", *wrong]))


# Starting


def _import_pipe() -> type[Pipe]:
    with needs("a pipe", "spark"):
        from chronoline.pipe.spark.pipe import Pipe  # noqa: PLC0415 - Spark is optional, and slow to import
    return Pipe


def _open(pipe_class: type[Pipe], settings: PipeSettings) -> Pipe:
    try:
        return pipe_class(settings)
    except KeyboardInterrupt:  # by a handler that Spark has for a moment
        raise ChronolineError("ended while starting") from None


# Watching


def _watch(console: Console, pipe: Pipe, stop: queue.SimpleQueue[None]) -> None:
    if not console.is_terminal:
        for second in _seconds(pipe, stop):
            if second % _LOG_EVERY_S == 0:
                console.print(progress_line(pipe.counters))
        return
    with Live(Text(""), console=console, transient=True, auto_refresh=False) as live:
        for _ in _seconds(pipe, stop):
            live.update(progress_line(pipe.counters), refresh=True)


def _seconds(pipe: Pipe, stop: queue.SimpleQueue[None]) -> Iterator[int]:
    """Yields every second until the pipe is stopped, here or in the store, or has failed."""
    for look in itertools.count(1):
        if _is_asked(stop) or pipe.stopped.is_set():
            return
        if look % _LOOKS_A_SECOND == 0:
            yield look // _LOOKS_A_SECOND


def _is_asked(stop: queue.SimpleQueue[None]) -> bool:
    """Waits for a signal until the next look."""
    try:
        stop.get(timeout=_LOOK_EVERY_S)
    except queue.Empty:
        return False
    return True


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("chronoline").setLevel(logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """Silences Spark's gateway, which logs a Ctrl-C as an error with a traceback."""
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


# Checking


@sets_a_pipe
def check(settings: PipeSettings) -> None:
    """Check the settings, the connections and Spark's slots. Nothing is sent or read.

    chronoline pipe check --config pipe.toml

    It creates no folder and no file, but lists those that a run would create.
    To count the slots it starts Spark, which takes some 20 seconds, if all
    else is fine. `chronoline doctor --pipe pipe.toml` does not start Spark.
    """
    logging.getLogger("chronoline").addHandler(logging.NullHandler())  # the findings have it
    console = Console()
    console.print(heading(settings), soft_wrap=True)
    wrong = 0
    for finding in check_pipe(settings, lambda: _check_spark(settings)):
        console.print("[green]✓[/]" if finding.fine else "[red]✗[/]", end=" ")
        line = printable(f"{finding.part}: {finding.words}")
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        wrong += not finding.fine
    if wrong:
        raise typer.Exit(1)


def _check_spark(settings: PipeSettings) -> str:
    """Starts the session of the pipe, and checks it."""
    Console(stderr=True).print("starting Spark, to count its slots …")
    with needs("a pipe", "spark"):
        from chronoline.pipe.spark.session import (  # noqa: PLC0415 - Spark is optional, and slow to import
            build_session,
            count_slots,
            session_problems,
            slots_needed,
        )
    spark, is_own = build_session(settings)
    try:
        problems = session_problems(spark, settings)
        if problems:
            raise InvalidInput("; ".join(problems))
        needed = slots_needed(settings)
        slots = count_slots(spark, needed)
        return f"{spark.version}, {slots} slots, of which the pipe needs {needed}"
    finally:
        if is_own:
            spark.stop()
