"""`chronoline bench`: measurements, each beside a reference from the same run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from chronoline.runtime.signals import exit_on_sigterm
from chronoline_bench.registry import BENCHES, find_bench
from chronoline_bench.session import Show, run_bench
from chronoline_bench.table import render

_NAMES = "\n\n".join(f"[bold]{each.name}[/]: {each.summary}." for each in BENCHES.values())

_CASES = " ".join(
    f"{each.name} has: {', '.join(each.cases)}." for each in BENCHES.values() if each.cases
)


def bench(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help=f"The bench to run.\n\n{_NAMES}", show_default=False),
    ],
    *,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            metavar="CASE",
            help=f"Only this case; may be repeated. {_CASES}",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller: ends within about a minute.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=1,
            max=3_600,
            help="The duration of loads from outside, instead of ten minutes.",
            show_default=False,
        ),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write plots of lateness over time into this folder, as SVG.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object instead of a table, without progress.")
    ] = False,
) -> None:
    """Measure Chronoline on this machine, beside references.

    Starts the servers that it needs, with their files in the folder for
    temporary files (set TMPDIR for another). Warms up, then measures in
    rounds in which the reference takes its turn, so that a busy machine
    slows both. Figures are medians; compare their ratios.

    The control, a process that only sleeps and wakes, runs beside it: its
    lateness shows how busy the machine was. Lost, duplicated and early
    messages are counted every time. The exit code is 1 if there were any,
    or if a case failed.
    """
    chosen = find_bench(name)
    cases = chosen.choose(case or ())
    chosen.check_options(seconds=seconds, plots=plots)
    with exit_on_sigterm():
        report = run_bench(
            name,
            chosen.load(),
            quick=quick,
            cases=cases,
            seconds=seconds,
            plots=plots,
            show=Show(quiet=as_json),
        )
    if as_json:
        print(json.dumps(report.to_json(), indent=2))
        for failure in report.failures:
            print(failure, file=sys.stderr)
    else:
        Console().print(render(report))
    if not report.tally.clean or report.failures:
        raise typer.Exit(1)
