"""`chronoline doctor` in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chronoline.cli.main import command_line


class Doctor:
    """Runs the command, and answers with its findings by part."""

    def __call__(self, *arguments: str) -> dict[str, dict[str, Any]]:
        result = CliRunner().invoke(command_line(["doctor"]), ["doctor", *arguments, "--json"])
        found = json.loads(result.stdout)
        states = [each["state"] for each in found["checks"]]
        assert result.exit_code == (1 if "problem" in states else 0), result.output
        assert found["ok"] == ("problem" not in states)
        return {each["part"]: each for each in found["checks"]}


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Doctor:
    monkeypatch.setenv("CHRONOLINE_NODE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("CHRONOLINE_NODE_GRPC", "127.0.0.1:0")
    monkeypatch.setenv("CHRONOLINE_NODE_HTTP", "127.0.0.1:0")
    return Doctor()
