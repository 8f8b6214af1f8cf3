"""`chronoline log` in this process, and as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner, Result

from chronoline.cli.log import app
from chronoline.core.errors import ChronolineError

COMMAND = (sys.executable, "-m", "chronoline", "log")


class Command:
    """Runs commands on one log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *arguments: str, input: bytes | str | None = None) -> str:
        """Run a command that succeeds; returns its stdout."""
        return self.raw(*arguments, input=input).decode()

    def raw(self, *arguments: str, input: bytes | str | None = None) -> bytes:
        result = self.invoke(arguments, input)
        assert result.exit_code == 0, result.exception or result.stderr
        return result.stdout_bytes

    def warning(self, *arguments: str) -> str:
        """Run a command that succeeds; returns its stderr."""
        result = self.invoke(arguments, None)
        assert result.exit_code == 0, result.exception
        return result.stderr

    def refusal(self, *arguments: str, input: bytes | str | None = None) -> str:
        """Run a command that Chronoline refuses; returns the error text."""
        result = self.invoke(arguments, input)
        assert isinstance(result.exception, ChronolineError), (result.exception, result.output)
        assert result.stdout == ""
        return str(result.exception)

    def misuse(self, *arguments: str) -> str:
        """Run a command with a wrong syntax; returns the error text."""
        result = self.invoke(arguments, None)
        assert result.exit_code == 2
        return result.stderr

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*COMMAND, *arguments, "--log", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def invoke(self, arguments: Sequence[str], input: bytes | str | None) -> Result:
        env = {"CHRONOLINE_LOG": str(self.folder), "COLUMNS": "200"}
        return CliRunner().invoke(app, arguments, input=input, env=env)
