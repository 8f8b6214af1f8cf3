"""`chronoline pipe run`."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from chronoline.cli.pipe.options import (
    Config,
    DeadLetterPlace,
    Delay,
    InputPlace,
    Metrics,
    Name,
    OutputPlace,
    Receipts,
    Setting,
    StoreUrl,
    load,
)
from chronoline.cli.pipe.showing import place_line, progress_line
from chronoline.core.errors import ChronolineError, MissingExtra

if TYPE_CHECKING:
    from chronoline.pipe.settings import PipeSettings
    from chronoline.spark.pipe import Pipe

_SHOW_EVERY_S = 1.0
_LOG_EVERY = 10
"""Without a terminal every so many of these a line is printed."""


def run(
    config: Config = None,
    *,
    name: Name = None,
    store: StoreUrl = None,
    input_place: InputPlace = None,
    output_place: OutputPlace = None,
    dead_letters: DeadLetterPlace = None,
    delay: Delay = None,
    receipts: Receipts = None,
    metrics: Metrics = None,
    setting: Setting = None,
) -> None:
    """Run a pipe until it is told to stop: Ctrl-C, SIGTERM, or `chronoline pipe stop`.

    chronoline pipe run --config pipe.toml
    chronoline pipe run --name first --input in@./log --output out@./log --delay 5s
    """
    settings = load(
        config,
        setting,
        name=name,
        store=store,
        input=input_place,
        output=output_place,
        dead_letters=dead_letters,
        delay=delay,
        receipts=receipts,
        metrics=metrics,
    )
    _log_to_stderr()
    console = Console(stderr=True)
    console.print(f"[bold]{settings.name}[/]: {place_line(settings)}", highlight=False)
    console.print("starting Spark …")
    told = _Told()
    # Twice: Spark puts a handler of its own in place when it starts.
    with _asking(told), _open(settings) as pipe, _asking(told):
        told.tell(pipe)
        console.print(f"running as node {pipe.node}; Ctrl-C ends it", highlight=False)
        _watch(console, pipe)
        console.print("ending: what is due is fired, the rest given back …")
    console.print(progress_line(pipe.counters))
    if pipe.failed:
        raise ChronolineError(f"{pipe.failed}; start the pipe again")


def _open(settings: PipeSettings) -> Pipe:
    try:
        from chronoline.spark.pipe import Pipe  # noqa: PLC0415 - Spark is optional, and slow to import
    except ModuleNotFoundError as error:
        raise MissingExtra("a pipe runs on Spark: pip install 'chronoline[spark]'") from error
    try:
        return Pipe(settings)
    except KeyboardInterrupt:  # by Spark's own handler
        raise ChronolineError("ended while starting; nothing was begun") from None


class _Told:
    """Whether a signal asked for the end; the pipe hears of it as soon as there is one.

    An exception in the middle of a start would leave Spark's two halves at odds: a start goes on to its end.
    """

    def __init__(self) -> None:
        self._asked = False
        self._pipe: Pipe | None = None

    def ask(self) -> None:
        self._asked = True
        if self._pipe is not None:
            self._pipe.stopped.set()

    def tell(self, pipe: Pipe) -> None:
        self._pipe = pipe
        if self._asked:
            pipe.stopped.set()


@contextmanager
def _asking(told: _Told) -> Iterator[None]:
    """Both signals ask the pipe to stop; a second one ends the process as usual."""
    before: dict[int, Any] = {}

    def end(number: int, _: object) -> None:
        told.ask()
        signal.signal(number, before[number])

    for number in (signal.SIGTERM, signal.SIGINT):
        before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _watch(console: Console, pipe: Pipe) -> None:
    if not console.is_terminal:
        ticks = 0
        while not pipe.stopped.wait(_SHOW_EVERY_S):
            ticks += 1
            if ticks % _LOG_EVERY == 0:
                console.print(progress_line(pipe.counters))
        return
    with Live(Text(""), console=console, transient=True, auto_refresh=False) as live:
        while not pipe.stopped.wait(_SHOW_EVERY_S):
            live.update(progress_line(pipe.counters), refresh=True)


def _log_to_stderr() -> None:
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("chronoline").setLevel(logging.INFO)
