"""What a bench works with, and the frame around a run: a folder, the control, the report."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from chronoline.core.errors import ChronolineError
from chronoline.runtime.clock import Clock, SystemClock
from chronoline.runtime.control import Control
from chronoline_bench.report import Machine, Report, Row, Wanted
from chronoline_bench.show import Show
from chronoline_bench.tally import Tally


@dataclass(slots=True, kw_only=True)
class Session:
    """One run of a bench: what it was asked, where it works, and what it has found so far."""

    folder: Path
    """Empty, and removed after the run."""
    quick: bool = False
    cases: tuple[str, ...] = ()
    """The cases that were asked for, by name, where a bench has names for them; none means its usual ones."""
    show: Show = field(default_factory=lambda: Show(quiet=True))
    clock: Clock = field(default_factory=SystemClock)
    tally: Tally = field(default_factory=Tally)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    """Cases that could not be measured, and why: in a long run the others are measured all the same."""

    def measure_cases(
        self,
        cases: Mapping[str, Callable[[], None]],
        *,
        after_failure: Callable[[], None] = lambda: None,
    ) -> None:
        """Those that were asked for, in the order in which they stand; all if none was."""
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
        """What was measured before is not lost if a case fails, nor are those after it."""
        try:
            measure()
        except (ChronolineError, OSError) as error:
            self.failures.append(f"case {name} failed: {error}")
            after_failure()

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
        """A figure, beside that of a reference, or of one that could not be had."""
        reference, reference_value = beside or (None, None)
        if reference is not None and reference_value is None:
            reference, wanted = f"{reference} (not to be had)", None
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
    show: Show | None = None,
) -> Report:
    """Runs a bench beside the control and reports what it found."""
    with tempfile.TemporaryDirectory(prefix="chronoline-bench-") as folder:
        Path(folder).chmod(0o755)  # a server that we start may run as another user
        session = Session(
            folder=Path(folder), quick=quick, cases=cases, show=show or Show(quiet=True)
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
