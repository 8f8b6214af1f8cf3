import io
import json

import pytest
from rich.console import Console

from chronoline.core.lateness import Lateness
from chronoline_bench.report import Machine, Report, Row, Wanted, rounded
from chronoline_bench.table import render, shown_ratio, to_markdown
from chronoline_bench.tally import Tally

SLOWER = Wanted(at_most=1.5)
FASTER = Wanted(at_least=0.5)


def row(value: float, reference_value: float | None, unit: str, wanted: Wanted | None) -> Row:
    return Row(
        case="sqlite: batches",
        metric="create",
        value=value,
        unit=unit,
        reference=None if reference_value is None else "raw",
        reference_value=reference_value,
        wanted=wanted,
    )


def report(*rows: Row, tally: Tally | None = None) -> Report:
    return Report(
        bench="store",
        machine=Machine(cores=2, control=Lateness.of([0.25, 1.23456])),
        rows=rows,
        tally=tally or Tally(),
        notes=("a note",),
    )


def test_json_has_exactly_the_documented_form() -> None:
    made = report(row(50_000.4, 80_000, "messages/s", FASTER), row(516.12, None, "bytes", None))
    assert json.loads(json.dumps(made.to_json(), allow_nan=False)) == {
        "bench": "store",
        "machine": {"cores": 2, "control_p99_ms": 1.235},
        "rows": [
            {
                "case": "sqlite: batches",
                "metric": "create",
                "value": 50000,
                "unit": "messages/s",
                "reference": "raw",
                "reference_value": 80000,
                "ratio": 0.625,
            },
            {
                "case": "sqlite: batches",
                "metric": "create",
                "value": 516.1,
                "unit": "bytes",
                "reference": None,
                "reference_value": None,
                "ratio": None,
            },
        ],
        "lost": 0,
        "duplicated": 0,
        "early": 0,
    }


@pytest.mark.parametrize(
    ("one", "holds"),
    [
        (row(50, 100, "messages/s", FASTER), True),
        (row(49, 100, "messages/s", FASTER), False),
        (row(15, 10, "ms", SLOWER), True),
        (row(15.1, 10, "ms", SLOWER), False),
        # A difference of less than 2 ms counts as equal, whatever the ratio.
        (row(2.4, 0.5, "ms", SLOWER), True),
        (row(2.6, 0.5, "ms", SLOWER), False),
        (row(2.4, 0.5, "bytes", SLOWER), False),
        (row(15, 10, "ms", None), None),
        # A bound on the value is exact.
        (row(15, 10, "ms", Wanted(value_at_most=15)), True),
        (row(15.1, 15, "ms", Wanted(value_at_most=15)), False),
        (row(15, None, "messages/s", Wanted(value_at_least=15)), True),
        (row(14, None, "messages/s", Wanted(value_at_least=15)), False),
        (row(0, None, "messages", Wanted(value_at_most=0)), True),
        (row(15, None, "ms", SLOWER), None),
        (row(15, 0, "ms", SLOWER), None),
    ],
)
def test_bound_on_a_ratio(one: Row, holds: bool | None) -> None:
    assert one.holds is holds


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted(at_least=0.5), "≥ 0.5"),
        (Wanted(at_most=1 / 3), "≤ 0.333"),
        (Wanted(value_at_least=10_000), "value ≥ 10,000"),
        (Wanted(value_at_most=3), "value ≤ 3"),
    ],
)
def test_a_bound_says_what_it_bounds(wanted: Wanted, said: str) -> None:
    assert str(wanted) == said


@pytest.mark.parametrize(
    ("value", "short"),
    [(None, None), (0, 0), (123_456.7, 123_457), (12.3456, 12.35), (0.00123456, 0.001235)],
)
def test_four_digits_are_enough(value: float | None, short: float | None) -> None:
    assert rounded(value) == short


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (None, ""),
        (0, "0.00"),
        (0.0003, "< 0.01"),
        (0.01, "0.01"),
        (14.256, "14.26"),
        (3103, "3,103"),
    ],
)
def test_ratio_has_the_digits_it_needs(ratio: float | None, said: str) -> None:
    assert shown_ratio(ratio) == said


def shown(made: Report) -> str:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(render(made))
    return console.export_text()


def test_table_shows_figures_verdicts_counts_and_notes() -> None:
    text = shown(
        report(
            row(50_000, 80_000, "messages/s", FASTER),
            row(30, 10, "ms", SLOWER),
            tally=Tally(lost=3),
        )
    )
    for piece in (
        "sqlite: batches",
        "50,000/s",
        "raw: 80,000/s",
        "0.62",
        "≥ 0.5 ✓",
        "30.0 ms",
        "3.00",
        "≤ 1.5 ✗",
        "lost 3, duplicated 0, early 0",
        "2 cores",
        "p99 1.23",
        "a note",
    ):
        assert piece in text
    assert text.count("sqlite: batches") == 1


def test_page_is_made_from_the_json() -> None:
    made = report(row(50_000, 80_000, "messages/s", FASTER), row(516, None, "bytes/message", None))
    assert to_markdown(made.to_json()).splitlines() == [
        "2 cores; control p99 1.24 ms; lost 0, duplicated 0, early 0.",
        "",
        "**sqlite: batches**",
        "",
        "| measured | value | reference | its value | ratio |",
        "| --- | ---: | --- | ---: | ---: |",
        "| create | 50,000/s | raw | 80,000/s | 0.62 |",
        "| create | 516 B |  |  |  |",
    ]
