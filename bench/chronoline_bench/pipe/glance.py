"""The tables at the head of docs/benchmarks.md: the pipe from outside, a line for each run.

`python -m chronoline_bench.pipe.glance report.json …` prints them from reports that `--json` printed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from chronoline_bench.table import shown

Rows = Mapping[str, dict[str, Any]]
"""The rows of a case by metric."""

_RUNS = {
    "p50": "late, p50 of all",
    "p99": "late, p99 of all",
    "p99.9": "late, p99.9 of all",
    "max": "late, max of all",
    "p99 of the worst 10 s": "late, p99 of the worst 10 s",
    "cores": "processor, all of these",
}
_FAULTS = {
    "the fault took": "the fault took",
    "on time again within": "on time again after the fault within",
    "what waited came within": "the last delayed message that waited",
    "new input came within": "the last delayed message that was published later",
    "the latest": "the latest of all",
    "came twice": "came twice",
}
_CONTROL = "late, p99 of all"
_BESIDE = ", beside "


def glance(reports: Sequence[Mapping[str, Any]]) -> str:
    """Returns two Markdown tables: runs under a steady load, and faults."""
    cases: dict[str, dict[str, dict[str, Any]]] = {}
    for report in reports:
        for row in report["rows"]:
            cases.setdefault(row["case"], {})[row["metric"]] = row
    runs: dict[str, Rows] = {}
    for name, rows in cases.items():
        if _RUNS["p50"] in rows:
            runs[name] = rows
        elif _BESIDE in name:
            runs[name.partition(_BESIDE)[2]] = _reference(rows)
    faults = {name: rows for name, rows in cases.items() if _FAULTS["the latest"] in rows}
    lines = [*_table("load", runs, _RUNS, "control, p99"), "", *_table("fault", faults, _FAULTS)]
    return "\n".join(lines) + "\n"


def _table(
    head: str, cases: Mapping[str, Rows], columns: Mapping[str, str], control: str | None = None
) -> Iterator[str]:
    names = [head, *columns, *([control] if control else [])]
    yield f"| {' | '.join(names)} |"
    yield f"| --- |{' ---: |' * (len(names) - 1)}"
    for case, rows in cases.items():
        cells = [_cell(rows.get(metric)) for metric in columns.values()]
        if control:
            cells.append(shown(rows[_CONTROL]["reference_value"], "ms") or "–")
        yield f"| {' | '.join([case.removeprefix('from outside: '), *cells])} |"


def _reference(rows: Rows) -> Rows:
    """Returns the figures of a reference as those of a run."""
    return {
        f"{metric} of all": {**row, "value": row["reference_value"], "reference_value": None}
        for metric, row in rows.items()
    }


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "–"
    return f"{row['value']:g}" if row["unit"] == "messages" else shown(row["value"], row["unit"])


if __name__ == "__main__":
    print(glance([json.loads(Path(name).read_text("utf-8")) for name in sys.argv[1:]]))
