"""`chronoline pipe` in this process, and the store that it works on."""

from __future__ import annotations

import time
from pathlib import Path

from typer.testing import CliRunner, Result

from chronoline.cli.pipe import app
from chronoline.core.errors import ChronolineError


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def store_url(folder: Path) -> str:
    return f"sqlite:///{folder}/pipe.db"


def pipe(*arguments: str, **env: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", **env})


def printed(*arguments: str, **env: str) -> str:
    """Run a command that succeeds; returns its stdout."""
    result = pipe(*arguments, **env)
    assert result.exit_code == 0, result.exception or result.output
    return result.stdout


def refusal(*arguments: str, **env: str) -> str:
    """Run a command that Chronoline refuses with exit code 1; returns the error text."""
    result = pipe(*arguments, **env)
    assert isinstance(result.exception, ChronolineError), (result.exception, result.output)
    assert result.stdout == ""
    return str(result.exception)
