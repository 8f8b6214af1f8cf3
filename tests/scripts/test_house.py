"""The figures of the house: each is counted as its title says."""

import json
import re
from pathlib import Path

import pytest

from scripts.house import (
    BEFORE,
    FIGURES,
    NOTED,
    ROOT,
    code_lines,
    repeated_lines,
    static_figures,
    table,
)

RUN = [f"call({n})" for n in range(6)]


def test_runs_of_six_lines_count_in_both_places() -> None:
    assert repeated_lines([["a", *RUN, "b"], [*RUN, "c"]]) == 12


def test_shorter_runs_do_not_count() -> None:
    assert repeated_lines([RUN[:5], RUN[:5]]) == 0


def test_comments_imports_and_docstrings_are_no_code(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Words."""\n\nimport os\n\n# Why.\nx = (\n    1  # one\n)\n')
    assert code_lines(path) == ["x = (", "1"]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    package = tmp_path / "chronoline"
    package.mkdir()
    (package / "__init__.py").write_text('__all__ = ["Client", "__version__"]\n')
    (package / "serving.py").write_text("x = 1\n")
    (package / "settings.py").write_text("x = 1\n" * 30)
    (package / "some_pb2.py").write_text("made = 1\n")
    return tmp_path


def test_made_modules_and_packages_are_left_out(wheel: Path) -> None:
    figures = static_figures(wheel)
    assert (figures["files"], figures["lines"]) == (2, 31)
    assert (figures["ing"], figures["small"], figures["names"]) == (1, 1, 1)


def test_the_table_has_a_row_for_each_figure() -> None:
    shown = table({"files": 1234, "broker": [64, 344]}, {"files": 7})
    assert "| files in the wheel | 1,234 | 7 |" in shown
    assert "| 64 / 344 | – |" in shown
    assert len(shown.splitlines()) == len(FIGURES) + 2
    assert BEFORE.exists()


def test_noted_figures_are_those_of_the_list() -> None:
    noted = json.loads(NOTED.read_text("utf-8"))
    listed = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| `", listed, re.M)
    assert [int(row) for row in rows] == list(range(1, noted["operation"] + 1))
    assert set(noted) <= set(FIGURES)
