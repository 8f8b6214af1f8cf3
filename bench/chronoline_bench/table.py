"""A report as a table: on the terminal, or in Markdown for docs/benchmarks.md.

`python -m chronoline_bench.table report.json …` prints the Markdown of reports that `--json` printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from chronoline_bench.report import Report, Row

_UNITS = {
    "messages/s": "/s",
    "events/s": "/s",
    "timers/s": "/s",
    "bytes/message": " B",
    "bytes/timer": " B",
    "events/object": "",
    "per million events": "",
}
_MARKS = {True: "[green]✓[/]", False: "[red]✗[/]", None: ""}


def render(report: Report) -> RenderableType:
    """Renders the rows by case, then the counts, the machine and the notes."""
    table = Table(title=f"bench {report.bench}", title_justify="left")
    table.add_column("measured", ratio=3)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("reference", ratio=2)
    for name in ("ratio", "wanted"):
        table.add_column(name, justify="right", no_wrap=True)
    for case, rows in groupby(report.rows, key=lambda row: row.case):
        table.add_section()
        table.add_row(Text(case, style="bold"))
        for row in rows:
            table.add_row(*_cells(row))
    return Group(
        table,
        _counts(report),
        _machine(report),
        *(f"· {note}" for note in report.notes),
        *(Text(failure, style="bold red") for failure in report.failures),
    )


def shown(value: float | None, unit: str) -> str:
    """Formats a figure with at least three digits, and its unit."""
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2  # noqa: PLR2004  # digits, no rule
    return f"{value:,.{digits}f}{_UNITS.get(unit, f' {unit}')}"


def shown_ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    if 0 < ratio < 0.01:  # noqa: PLR2004  # digits, no rule
        return "< 0.01"
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.2f}"  # noqa: PLR2004  # digits, no rule


def _cells(row: Row) -> list[str]:
    reference = ""
    if row.reference is not None:
        reference = f"{row.reference}: {shown(row.reference_value, row.unit)}"
    wanted = f"{row.wanted or ''} {_MARKS[row.holds]}".strip()
    return [
        f"  {row.metric}",
        shown(row.value, row.unit),
        reference,
        shown_ratio(row.ratio),
        wanted,
    ]


def _counts(report: Report) -> Text:
    tally = report.tally
    text = f"lost {tally.lost:,}, duplicated {tally.duplicated:,}, early {tally.early:,}"
    return Text(text, style="green" if tally.clean else "bold red")


def _machine(report: Report) -> str:
    control = report.machine.control
    return (
        f"{report.machine.cores} cores; the control, which only sleeps, woke late by"
        f" p50 {control.p50_ms:.2f}, p99 {control.p99_ms:.2f}, p99.9 {control.p999_ms:.2f},"
        f" max {control.max_ms:.2f} ms ({control.count:,} times)"
    )


def to_markdown(report: dict[str, Any]) -> str:
    """Returns one Markdown table for each case, from the object that `--json` prints."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: dict[str, Any]) -> Iterator[str]:
    machine = report["machine"]
    yield (
        f"{machine['cores']} cores; control p99 {machine['control_p99_ms']:.2f} ms; lost {report['lost']},"
        f" duplicated {report['duplicated']}, early {report['early']}."
    )
    for case, rows in groupby(report["rows"], key=lambda row: str(row["case"])):
        yield from ("", f"**{case}**", "")
        yield "| measured | value | reference | its value | ratio |"
        yield "| --- | ---: | --- | ---: | ---: |"
        for row in rows:
            yield f"| {' | '.join(_markdown_cells(row))} |"


def _markdown_cells(row: dict[str, Any]) -> Sequence[str]:
    return (
        row["metric"],
        shown(row["value"], row["unit"]),
        row["reference"] or "",
        shown(row["reference_value"], row["unit"]),
        shown_ratio(row["ratio"]),
    )


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(to_markdown(json.loads(Path(name).read_text("utf-8"))))
