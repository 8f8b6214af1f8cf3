"""The tables of failures in `docs/delivery.md`: each line names its tests."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "delivery.md"
_TEST = re.compile(r"`tests/[\w/]+\.py::test_\w+`")


def test_every_failure_in_the_tables_names_a_test() -> None:
    page = _PAGE.read_text("utf-8")
    tables = page[page.index("## The list of failures") : page.index("## Can a producer know")]
    lines = [line for line in tables.splitlines() if line.startswith("| ")]
    failures = [line for line in lines if not line.startswith(("| ---", "| failure"))]
    assert len(failures) > 20
    assert [line for line in failures if not _TEST.search(line)] == []
