"""`--help` teaches: every command shows how it is written."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from chronoline.cli.main import app

COMMANDS = {
    "init",
    "create",
    "append",
    "read",
    "tail",
    "topics",
    "groups",
    "seek",
    "skip-to-end",
    "delete",
    "delete-group",
    "import",
    "compact",
    "retain",
    "sweep",
}


def help_of(*names: str) -> str:
    result = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    return result.stdout


def test_the_commands_are_listed_with_where_the_log_is() -> None:
    shown = help_of("log")
    assert all(f" {name} " in shown for name in COMMANDS)
    assert "CHRONOLINE_LOG" in shown
    assert "chronoline-log" in shown


def test_no_command_is_missing_here() -> None:
    log = get_command(app).commands["log"]  # type: ignore[attr-defined]  # it is a group
    assert set(log.commands) == COMMANDS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_each_command_shows_an_example(name: str) -> None:
    shown = help_of("log", name)
    assert f"\n chronoline log {name}" in shown
    assert "CHRONOLINE_LOG" in shown
