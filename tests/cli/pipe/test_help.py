"""`--help` teaches: every command shows how it is written."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from chronoline.cli.main import app

COMMANDS = {"run", "check", "status", "stop", "dead"}


def help_of(*names: str) -> str:
    result = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    return result.stdout


def test_the_commands_are_listed() -> None:
    shown = help_of("pipe")
    assert all(f" {name} " in shown for name in COMMANDS)
    assert "CHRONOLINE_PIPE_" in shown


def test_no_command_is_missing_here() -> None:
    pipe = get_command(app).commands["pipe"]  # type: ignore[attr-defined]  # it is a group
    assert set(pipe.commands) == COMMANDS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_shows_an_example(name: str) -> None:
    shown = help_of("pipe", name)
    assert f"\n chronoline pipe {name} --config pipe.toml" in shown
