"""The tables at the head of the page of benchmarks."""

from typing import Any

from chronoline_bench.pipe.glance import glance


def row(case: str, metric: str, value: float, unit: str, reference: float | None = None) -> Any:
    return {
        "case": case,
        "metric": metric,
        "value": value,
        "unit": unit,
        "reference_value": reference,
    }


def test_runs_and_faults_have_a_line_each() -> None:
    run, fault = "from outside: 1,000/s for 600 s", "Kafka away, 1,000/s"
    reports = [
        {
            "rows": [
                row(run, "late, p50 of all", 1.5, "ms"),
                row(run, "late, p99 of all", 9, "ms", 1.2),
                row(run, "processor, all of these", 1.62, "cores"),
                row(f"{run}, each 10 s", "0–10 s, p99", 9, "ms"),
                row(f"{run}, beside a queue", "late, p50", 1.5, "ms", 60),
                row(f"{run}, beside a queue", "late, p99", 9, "ms", 110),
            ]
        },
        {
            "rows": [
                row(fault, "came twice", 12, "messages"),
                row(fault, "on time again after the fault within", 3.25, "s"),
                row(fault, "the latest of all", 13_000, "ms"),
            ]
        },
    ]
    runs, faults = glance(reports).split("\n\n")
    lines = runs.splitlines()
    assert lines[0].startswith("| load | p50 | p99 | p99.9 | max |")
    cells = [cell.strip() for cell in lines[2].strip("|").split("|")]
    assert cells == ["1,000/s for 600 s", "1.50 ms", "9.00 ms", *"–––", "1.62 cores", "1.20 ms"]
    cells = [cell.strip() for cell in lines[3].strip("|").split("|")]
    assert cells == ["a queue", "60.0 ms", "110 ms", *"–––––"]
    assert len(lines) == 4
    cells = [cell.strip() for cell in faults.splitlines()[2].strip("|").split("|")]
    assert cells == [fault, "–", "3.25 s", "–", "–", "13,000 ms", "12"]
