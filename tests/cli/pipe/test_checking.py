"""`check` changes nothing, and says what a run would make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.pipe.command import pipe


def test_what_is_not_there_is_not_there_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--name=p", "--input=in@mistyped", "--output=out@log"]
    answer = pipe("check", *arguments, JAVA_HOME=str(tmp_path))
    assert answer.exit_code == 1
    file = tmp_path / "chronoline-data" / "pipe.db"
    lines = answer.stdout.splitlines()
    assert lines[:2] == [
        "p: in (log) → sqlite → out (log)",
        f"✓ store: '{file}' is not there yet: the pipe will make it, and its folder",
    ]
    assert lines[2] == (
        f"✗ input: there is no '{tmp_path}/mistyped', and so there is no topic 'in' in the log; "
        f"create it: chronoline log create in --log {(tmp_path / 'mistyped').as_uri()}"
    )
    assert lines[3].startswith("✗ output: there is no ")
    assert list(tmp_path.iterdir()) == []
