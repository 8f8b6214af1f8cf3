"""`--help` teaches: every command shows an example, and where its broker, log or settings are."""

from __future__ import annotations

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from chronoline.cli.main import command_line

OF_A_BROKER = {
    ("cancel",),
    ("dead", "discard"),
    ("dead", "list"),
    ("dead", "redrive"),
    ("cluster",),
    ("forecast",),
    ("receive",),
    ("reschedule",),
    *(
        ("schedule", name)
        for name in ("create", "delete", "list", "next", "pause", "resume", "show")
    ),
    ("send",),
    ("bulk", "cancel"),
    ("bulk", "discard"),
    ("bulk", "redrive"),
    ("bulk", "reschedule"),
    ("export",),
    ("import",),
    ("list",),
    ("show",),
    ("status",),
    ("topic", "create"),
    ("topic", "delete"),
    ("topic", "list"),
    ("topic", "pause"),
    ("topic", "purge"),
    ("topic", "resume"),
    ("topic", "set"),
    ("topic", "show"),
}
OF_A_NODE = {
    ("config", "show"),
    ("backup",),
    ("doctor",),
    ("restore",),
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
OF_A_LOG = {
    ("log", name)
    for name in (
        "append",
        "compact",
        "create",
        "delete",
        "delete-group",
        "groups",
        "import",
        "init",
        "read",
        "retain",
        "seek",
        "skip-to-end",
        "sweep",
        "tail",
        "topics",
    )
}
OF_A_PIPE = {("pipe", name) for name in ("check", "dead", "run", "status", "stop")}
WITHOUT_EXAMPLE = {"bench", "demo"}
NARROW = 78


def help_of(*names: str) -> str:
    result = CliRunner().invoke(command_line(), [*names, "--help"], env={"COLUMNS": "80"})
    assert result.exit_code == 0
    return result.stdout


def all_commands() -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for name, command in get_command(command_line()).commands.items():  # type: ignore[attr-defined]  # it is a group
        if name not in WITHOUT_EXAMPLE:
            inner = getattr(command, "commands", None)
            found |= {(name, each) for each in inner} if inner else {(name,)}
    return found


def test_every_command_is_covered() -> None:
    assert all_commands() == OF_A_BROKER | OF_A_NODE | OF_A_LOG | OF_A_PIPE


@pytest.mark.parametrize("names", sorted(OF_A_BROKER | OF_A_NODE), ids=" ".join)
def test_each_command_shows_an_example(names: tuple[str, ...]) -> None:
    assert f"\n chronoline {' '.join(names)}" in help_of(*names)


@pytest.mark.parametrize("names", sorted(OF_A_LOG), ids=" ".join)
def test_each_log_command_names_the_log(names: tuple[str, ...]) -> None:
    shown = help_of(*names)
    assert f"\n chronoline {' '.join(names)}" in shown
    assert "CHRONOLINE_LOG" in shown


@pytest.mark.parametrize("names", sorted(OF_A_PIPE), ids=" ".join)
def test_each_pipe_command_names_the_settings(names: tuple[str, ...]) -> None:
    assert f"\n chronoline {' '.join(names)} --config pipe.toml" in help_of(*names)


@pytest.mark.parametrize(
    ("group", "words"),
    [("log", ["CHRONOLINE_LOG", "chronoline-log"]), ("pipe", ["CHRONOLINE_PIPE_"])],
)
def test_group_lists_its_commands(group: str, words: list[str]) -> None:
    shown = help_of(group)
    names = [f" {name} " for of, name in OF_A_LOG | OF_A_PIPE if of == group]
    assert all(each in shown for each in (*names, *words))


@pytest.mark.parametrize("names", sorted(OF_A_BROKER), ids=" ".join)
def test_each_broker_command_shows_the_connection_options(names: tuple[str, ...]) -> None:
    shown = help_of(*names)
    assert all(
        word in shown
        for word in ("--address", "CHRONOLINE_ADDRESS", "127.0.0.1:7400", "--token-file", "--ca")
    )
    assert "--token " not in shown


@pytest.mark.parametrize("names", sorted(OF_A_BROKER | OF_A_NODE), ids=" ".join)
def test_description_fits_a_terminal(names: tuple[str, ...]) -> None:
    command = get_command(command_line())
    for name in names:
        command = command.commands[name]  # type: ignore[attr-defined]  # it is a group
    _, *lines = (command.help or "").splitlines()
    assert all(len(line) <= NARROW for line in lines), lines
