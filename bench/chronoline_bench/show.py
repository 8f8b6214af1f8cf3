"""Progress of long work, on stderr, for people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Advance = Callable[[int], None]
"""Says that so much more is done."""


class Show:
    """Shows one bar for the work at hand; a quiet one shows nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=2,  # in our own process: it must not disturb what is measured
            disable=quiet,
        )

    @contextmanager
    def work(self, title: str, total: int) -> Iterator[Advance]:
        """A bar for a piece of work that has `total` parts; it disappears when the block ends."""
        task = self._progress.add_task(title, total=total)
        try:
            yield lambda done: self._progress.advance(task, done)
        finally:
            self._progress.remove_task(task)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
