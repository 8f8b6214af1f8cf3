"""Measures the code: the size of the wheel, its names, its repeated lines, and the path of a message.

python -m scripts.house                                        prints a table: before and now
python -m scripts.house --write                                writes it into docs/design/figures.md
python -m scripts.house --json > now.json                      prints the figures alone

`scripts/house_before.json` has the figures of the earlier layout, counted in the same way.
`scripts/house_noted.json` has the figures that no script counts: the files of a new operation (the list in
CONTRIBUTING.md), and the seconds of `make test` on an idle machine. It also names the commit that adds an
operation which the wire had.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("chronoline", "pyspark_chronoline", "pyspark_chronoline_log")
BEFORE = ROOT / "scripts" / "house_before.json"
NOTED = ROOT / "scripts" / "house_noted.json"
PAGE = ROOT / "docs" / "design" / "figures.md"
BEGIN, END = "<!-- house: begin -->", "<!-- house: end -->"

_SMALL_LINES = 30
_RUN_LINES = 6
_MADE = ("_pb2.py", "client/sync.py")
_ING = re.compile(r"ing$")
_IMPORTS = (ast.Import, ast.ImportFrom)
_NOUNS = {"string", "ring", "setting"}

FIGURES = {
    "files": "files in the wheel",
    "lines": "lines in the wheel",
    "ing": "modules named in *-ing*",
    "small": f"files under {_SMALL_LINES} lines",
    "repeated": f"lines in runs of {_RUN_LINES} that occur elsewhere too",
    "names": "names at the top level",
    "library": "path of the library: files / functions",
    "broker": "path of the broker: files / functions",
    "timers": "path of the timers: files / functions",
    "log": "path of the log: files / functions",
    "pipe": "path of the pipe: files / functions",
    "operation": "files to change for a new operation",
    "known_operation": "files to change for one that the wire has (batch cancel)",
    "test_seconds": "seconds of `make test`",
}


def modules(root: Path) -> Iterator[Path]:
    """Yields the hand-written modules of the wheel, without `__init__`."""
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            if path.name != "__init__.py" and not path.as_posix().endswith(_MADE):
                yield path


def code_lines(path: Path) -> list[str]:
    """Returns the compared lines of code: no comments, imports, docstrings or lone punctuation."""
    text = path.read_text("utf-8")
    passed_over: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (is_text or isinstance(node, _IMPORTS)):
            passed_over.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = (
        re.sub(r"\s+#.*", "", line).strip()
        for number, line in enumerate(text.splitlines(), 1)
        if number not in passed_over
    )
    return [line for line in lines if re.search(r"\w", line) and not line.startswith("#")]


def repeated_lines(files: list[list[str]]) -> int:
    """Counts the lines in runs of `_RUN_LINES` that occur in a second place."""
    runs: Counter[tuple[str, ...]] = Counter()
    for lines in files:
        runs.update(tuple(lines[at : at + _RUN_LINES]) for at in range(len(lines) - _RUN_LINES + 1))
    count = 0
    for lines in files:
        marked: set[int] = set()
        for at in range(len(lines) - _RUN_LINES + 1):
            if runs[tuple(lines[at : at + _RUN_LINES])] > 1:
                marked.update(range(at, at + _RUN_LINES))
        count += len(marked)
    return count


def top_level_names(root: Path) -> int:
    tree = ast.parse((root / "chronoline" / "__init__.py").read_text("utf-8"))
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            assert isinstance(node, ast.Assign)
            return len([name for name in ast.literal_eval(node.value) if not name.startswith("__")])
    return 0


def static_figures(root: Path) -> dict[str, object]:
    paths = list(modules(root))
    lengths = [len(path.read_text("utf-8").splitlines()) for path in paths]
    return {
        "files": len(paths),
        "lines": sum(lengths),
        "ing": sum(bool(_ING.search(path.stem)) and path.stem not in _NOUNS for path in paths),
        "small": sum(length < _SMALL_LINES for length in lengths),
        "repeated": repeated_lines([code_lines(path) for path in paths]),
        "names": top_level_names(root),
    }


def path_figures() -> dict[str, object]:
    """Counts the files and functions of each path: the fewest of three runs, since other work may run too."""
    command = [sys.executable, "-m", "scripts.message_paths"]
    runs = [
        json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
        for _ in range(3)
    ]
    return {
        name: [min(run[name][kind] for run in runs) for kind in ("files", "functions")]
        for name in runs[0]
    }


def noted_figures() -> dict[str, object]:
    noted: dict[str, object] = json.loads(NOTED.read_text("utf-8"))
    return noted | {"known_operation": changed_files(str(noted["known_operation"]))}


def changed_files(commit: str) -> int:
    """Counts the hand-written files of the product that a commit changes."""
    shown = subprocess.run(
        ["git", "show", "--name-only", "--format=", commit],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return sum(name.startswith(PACKAGES) and not name.endswith(_MADE) for name in shown)


def table(before: dict[str, object], now: dict[str, object]) -> str:
    rows = ["| | before | now |", "| --- | ---: | ---: |"]
    rows += [
        f"| {title} | {_shown(before.get(key))} | {_shown(now.get(key))} |"
        for key, title in FIGURES.items()
    ]
    return "\n".join(rows)


def _shown(value: object) -> str:
    if isinstance(value, list):
        return " / ".join(str(each) for each in value)
    return f"{value:,}" if isinstance(value, int) else "–"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/design/figures.md"
    )
    asked = parser.parse_args()
    now = static_figures(ROOT) | path_figures() | noted_figures()
    if asked.json:
        print(json.dumps(now, indent=2))
        return
    made = table(json.loads(BEFORE.read_text("utf-8")), now)
    if asked.write:
        head, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        tail = rest.partition(END)[2]
        PAGE.write_text(f"{head}{BEGIN}\n{made}\n{END}{tail}", "utf-8")
    print(made)


if __name__ == "__main__":
    main()
