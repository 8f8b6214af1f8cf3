"""The commands that speak with a broker, or with a node of timers, in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from typer.testing import CliRunner, Result

from chronoline.cli.main import command_line
from chronoline.core.errors import ChronolineError


class Command:
    """Runs commands against one of them."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.token = ""

    def __call__(self, *arguments: str, input: bytes | str | None = None) -> str:
        """Run a command that succeeds; returns its stdout."""
        return self.result(*arguments, input=input).stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json"))

    def result(self, *arguments: str, input: bytes | str | None = None) -> Result:
        """Run a command that succeeds; returns its result."""
        result = self._invoke(arguments, input)
        assert result.exit_code == 0, (result.exception, result.output)
        return result

    def refusal(self, *arguments: str, input: bytes | str | None = None) -> str:
        """Run a command that Chronoline refuses; returns the error text."""
        return str(self.failed(*arguments, input=input).exception)

    def failed(self, *arguments: str, input: bytes | str | None = None) -> Result:
        """Run a command that ends with an error of Chronoline; returns its result."""
        result = self._invoke(arguments, input)
        assert isinstance(result.exception, ChronolineError), (result.exception, result.output)
        return result

    def unhappy(self, *arguments: str) -> Result:
        """Run a command that succeeds and reports a problem by exit code 1."""
        result = self._invoke(arguments, None)
        assert (result.exit_code, type(result.exception)) == (1, SystemExit), result.output
        return result

    def misuse(self, *arguments: str) -> str:
        """Run a command with a wrong syntax; returns the error text."""
        result = self._invoke(arguments, None)
        assert result.exit_code == 2
        return result.stderr

    def _invoke(self, arguments: Sequence[str], input: bytes | str | None) -> Result:
        env = {"CHRONOLINE_TOKEN": self.token, "COLUMNS": "200"}
        env |= dict.fromkeys(("CHRONOLINE_ADDRESS", "CHRONOLINE_TIMERS"), self.address)
        return CliRunner().invoke(command_line(), arguments, input=input, env=env)
