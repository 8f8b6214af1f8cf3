"""`--help` teaches: every command shows how it is written, and those for a broker how to reach it."""

from __future__ import annotations

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from chronoline.cli.main import app

OF_A_BROKER = {
    ("cancel",),
    ("dead", "discard"),
    ("dead", "list"),
    ("dead", "redrive"),
    ("forecast",),
    ("receive",),
    ("reschedule",),
    ("send",),
    ("show",),
    ("status",),
    ("topic", "create"),
    ("topic", "delete"),
    ("topic", "list"),
    ("topic", "show"),
}
OF_A_NODE = {
    ("config", "show"),
    *(
        ("timers", name)
        for name in (
            "list",
            "listen",
            "nodes",
            "reload",
            "resync",
            "scale-down",
            "scale-up",
            "show",
        )
    ),
    ("token", "create"),
    ("token", "list"),
    ("token", "revoke"),
    ("up",),
}
ELSEWHERE = {"bench", "demo", "log", "pipe"}
"""What other tests look at."""
NARROW = 78


def help_of(*names: str) -> str:
    result = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.stdout


def all_commands() -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]  # it is a group
        if name not in ELSEWHERE:
            inner = getattr(command, "commands", None)
            found |= {(name, each) for each in inner} if inner else {(name,)}
    return found


def test_no_command_is_missing_here() -> None:
    assert all_commands() == OF_A_BROKER | OF_A_NODE


@pytest.mark.parametrize("names", sorted(OF_A_BROKER | OF_A_NODE), ids=" ".join)
def test_each_command_shows_an_example(names: tuple[str, ...]) -> None:
    assert f"\n chronoline {' '.join(names)}" in help_of(*names)


@pytest.mark.parametrize("names", sorted(OF_A_BROKER), ids=" ".join)
def test_each_says_how_the_broker_is_reached(names: tuple[str, ...]) -> None:
    shown = help_of(*names)
    assert all(
        word in shown
        for word in ("--address", "CHRONOLINE_ADDRESS", "127.0.0.1:7400", "--token-file", "--ca")
    )
    assert "--token " not in shown


@pytest.mark.parametrize("names", sorted(OF_A_BROKER | OF_A_NODE), ids=" ".join)
def test_the_lines_of_a_description_fit_a_terminal(names: tuple[str, ...]) -> None:
    command = get_command(app)
    for name in names:
        command = command.commands[name]  # type: ignore[attr-defined]  # it is a group
    _, *lines = (command.help or "").splitlines()
    assert all(len(line) <= NARROW for line in lines), lines
