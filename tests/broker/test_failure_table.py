"""The table of failures in `docs/delivery.md`: each line links to its tests, by file and name."""

from __future__ import annotations

import re
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "delivery.md"
_TEST = re.compile(r"\]\((\.\./tests/[\w/]+\.py) \"(test_\w+)\"\)")


def test_every_failure_of_the_table_links_to_a_test() -> None:
    page = _PAGE.read_text("utf-8")
    table = page[page.index("## The list of failures") : page.index("## Can a producer know")]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    failures = [line for line in lines if not line.startswith(("| ---", "| failure"))]
    assert len(failures) > 20
    assert [line for line in failures if not _TEST.search(line)] == []
    assert [name for path, name in _TEST.findall(table) if not has_test(path, name)] == []


def has_test(path: str, name: str) -> bool:
    text = (_PAGE.parent / path).read_text("utf-8")
    return re.search(rf"^(?:async )?def {name}\(", text, re.M) is not None
