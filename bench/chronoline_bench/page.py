"""Reports as Markdown, for docs/benchmarks.md: `python -m chronoline_bench.page report.json …`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from chronoline_bench.table import shown, shown_ratio


def to_markdown(report: dict[str, Any]) -> str:
    """One table for each report, from the object that `--json` prints."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: dict[str, Any]) -> Iterator[str]:
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
            yield f"| {' | '.join(_cells(row))} |"


def _cells(row: dict[str, Any]) -> Sequence[str]:
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
