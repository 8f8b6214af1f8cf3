"""The examples run as they are, and print what their comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chronoline.testing.postgres import PostgresServer

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, folder: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.fixture
def postgres_url(tmp_path: Path) -> Iterator[str]:
    with PostgresServer(tmp_path / "postgres") as server:
        yield server.create_database("example")


def test_every_example_has_a_test() -> None:
    tested = {"reminders.py", "by_hand.py", "postgres_outbox.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == tested


def test_reminders_are_served_in_order_each_time(tmp_path: Path) -> None:
    for _ in range(2):
        lines = run("reminders.py", tmp_path)
        shown = [re.sub(r", \d+\.\d ms late$", "", line) for line in lines]
        assert shown == ["remember the milk", "remember the bread", "remember the cake"]


def test_by_hand_prints_what_its_comments_say(tmp_path: Path) -> None:
    source = (EXAMPLES / "by_hand.py").read_text()
    said = re.findall(r"print\(.*\)  # ([^:\n]+)", source)
    assert len(said) == source.count("print(")
    assert run("by_hand.py", tmp_path) == said


def test_the_outbox_keeps_what_was_committed(tmp_path: Path, postgres_url: str) -> None:
    assert run("postgres_outbox.py", tmp_path, postgres_url) == [
        "rolled back: the payment was declined",
        "['welcome-ada']",
    ]


def test_the_program_of_the_guide_to_the_log(tmp_path: Path) -> None:
    guide = (EXAMPLES.parent / "docs" / "log.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    (tmp_path / "first.py").write_text(
        program.replace("/tmp/chronoline-log", str(tmp_path / "log"))
    )
    lines = run(str(tmp_path / "first.py"), tmp_path)
    assert sorted(line.split()[-1] for line in lines) == ["b'one'", "b'two'"]
    assert run(str(tmp_path / "first.py"), tmp_path)[0].split()[1] == "1"


def test_the_first_program_of_the_readme(tmp_path: Path) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert len(programs) == 1
    (tmp_path / "first.py").write_text(programs[0])
    (line,) = run(str(tmp_path / "first.py"), tmp_path)
    assert re.fullmatch(r"The tea is ready\. \d+\.\d ms late", line)
