"""Progress of long work, on stderr, for people."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

LONG_S = 1.0
"""Work that ends sooner shows nothing."""

Advance = Callable[[int], None]
"""Adds to the finished work."""


@contextmanager
def showing(
    title: str,
    total: int | None = None,
    *,
    console: Console | None = None,
    after_s: float = LONG_S,
) -> Iterator[Advance]:
    """Shows the progress until the block ends. Without a `total` it shows a count."""
    console = console or Console(stderr=True)
    columns: list[ProgressColumn] = (
        [TextColumn("{task.completed:,}")] if total is None else [BarColumn(), MofNCompleteColumn()]
    )
    progress = Progress(
        TextColumn("{task.description}"),
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = progress.add_task(title, total=total)
    began = time.monotonic()

    def advance(done: int) -> None:
        progress.advance(task, done)
        if not progress.live.is_started and time.monotonic() - began >= after_s:
            progress.start()

    try:
        yield advance
    finally:
        progress.stop()
