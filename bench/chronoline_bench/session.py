"""A run of a bench: its folder, its progress bar, the control beside it, and its report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from chronoline.core.errors import ChronolineError
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.control import Control
from chronoline_bench.plot import Plot
from chronoline_bench.report import Machine, Report, Row, Wanted
from chronoline_bench.tally import Tally

Advance = Callable[[int], None]
"""Advances the progress bar by a number of parts."""


class Show:
    """A progress bar on stderr; a quiet one shows nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
            refresh_per_second=2,  # it runs in the measured process
            disable=quiet,
        )

    @contextmanager
    def work(self, title: str, total: int) -> Iterator[Advance]:
        """Shows a bar for work of `total` parts; it disappears when the block ends."""
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


@dataclass(slots=True, kw_only=True)
class Session:
    """One run of a bench: its options, its folder, and its findings so far."""

    folder: Path
    """An empty folder, which is removed after the run."""
    quick: bool = False
    cases: tuple[str, ...] = ()
    """The names of the chosen cases; if empty, the bench runs its usual ones."""
    seconds: float | None = None
    """The duration of loads from outside, if another one is chosen."""
    plots: Path | None = None
    """The folder for plots; without it none are drawn."""
    show: Show = field(default_factory=lambda: Show(quiet=True))
    clock: Clock = field(default_factory=SystemClock)
    tally: Tally = field(default_factory=Tally)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Cases that failed, and why; the other cases are still measured."""

    def measure_cases(
        self,
        cases: Mapping[str, Callable[[], None]],
        *,
        after_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Measures the chosen cases in order; all if none is chosen."""
        for name, measure in cases.items():
            if name in (self.cases or cases):
                self.measure_case(name, measure, after_failure=after_failure)

    def measure_case(
        self,
        name: str,
        measure: Callable[[], None],
        *,
        after_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Measures a case; if it fails, the cases before and after it still count."""
        try:
            measure()
        except (ChronolineError, OSError) as error:
            self.failures.append(f"case {name} failed: {error}")
            after_failure()

    def write_plot(self, name: str, plot: Plot) -> None:
        """Writes a plot into the folder for plots, if there is one."""
        if self.plots is not None:
            self.plots.mkdir(parents=True, exist_ok=True)
            self.plots.joinpath(f"{name}.svg").write_text(plot.svg(), "utf-8")

    def add(
        self,
        case: str,
        metric: str,
        value: float,
        unit: str,
        *,
        beside: tuple[str, float | None] | None = None,
        wanted: Wanted | None = None,
    ) -> None:
        """Adds a row: a figure beside its reference, which may be unavailable (None)."""
        reference, reference_value = beside or (None, None)
        if reference is not None and reference_value is None:
            reference, wanted = f"{reference} (not available)", None
        self.rows.append(
            Row(
                case=case,
                metric=metric,
                value=value,
                unit=unit,
                reference=reference,
                reference_value=reference_value,
                wanted=wanted,
            )
        )


def run_bench(
    name: str,
    measure: Callable[[Session], None],
    *,
    quick: bool = False,
    cases: tuple[str, ...] = (),
    seconds: float | None = None,
    plots: Path | None = None,
    show: Show | None = None,
) -> Report:
    """Runs a bench beside the control; returns its report."""
    with tempfile.TemporaryDirectory(prefix="chronoline-bench-") as folder:
        Path(folder).chmod(0o755)  # a server that we start may run as another user
        session = Session(
            folder=Path(folder),
            quick=quick,
            cases=cases,
            seconds=seconds,
            plots=plots,
            show=show or Show(quiet=True),
        )
        with session.show, Control() as control:
            measure(session)
    return Report(
        bench=name,
        machine=Machine(cores=os.cpu_count() or 1, control=control.lateness),
        rows=tuple(session.rows),
        tally=session.tally,
        notes=tuple(session.notes),
        failures=tuple(session.failures),
    )
