"""The `chronoline` command."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from rich.markup import escape

from chronoline import __version__
from chronoline.cli.output import print_to_stderr
from chronoline.core.errors import ChronolineError, MissingExtra
from chronoline.core.permissions import TRAITS, Role
from chronoline.runtime.terminal_text import TextLines

_BROKER = "A broker, and its settings"
_MESSAGES = "Messages on timelines, through a broker"
_BASE = "chronoline"
_SERVER = "'chronoline[server]'"
_SPARK = "'chronoline[spark]'"


@dataclass(frozen=True)
class _Command:
    """A command, or a group of commands, that is imported when it is asked for."""

    load: Callable[[], Any]
    install: str
    """The argument of `pip install` that brings its libraries."""
    panel: str | None = None


def _ours(module: str, name: str, install: str = _BASE, panel: str | None = None) -> _Command:
    """A command of this package."""
    return _Command(
        lambda: getattr(import_module(f"chronoline.cli.{module}"), name), install, panel
    )


def _of_others() -> dict[str, _Command]:
    """Commands of other distributions: `bench`, which is listed even if it is not installed."""
    found = {each.name: each.load for each in entry_points(group="chronoline.commands")}
    found.setdefault("bench", _missing)
    return {name: _Command(load, f"chronoline-{name}") for name, load in found.items()}


def _missing() -> Any:
    raise MissingExtra("it is not installed")


_COMMANDS = {
    "demo": _ours("demo", "demo", _SPARK),
    **_of_others(),
    "log": _ours("log", "app"),
    "pipe": _ours("pipe", "app", _SPARK),
    "timers": _ours("timers", "app"),
    "up": _ours("node", "up", _SERVER, _BROKER),
    "status": _ours("status", "status", _BASE, _BROKER),
    "cluster": _ours("cluster", "cluster", _BASE, _BROKER),
    "config": _ours("config", "app", _SERVER, _BROKER),
    "token": _ours("tokens", "app", _SERVER, _BROKER),
    "doctor": _ours("doctor", "doctor", _BASE, _BROKER),
    "backup": _ours("backup", "backup", _SERVER, _BROKER),
    "restore": _ours("backup", "restore", _SERVER, _BROKER),
    "topic": _ours("topics", "app", _BASE, _MESSAGES),
    "send": _ours("messages", "send", _BASE, _MESSAGES),
    "receive": _ours("receive", "receive", _BASE, _MESSAGES),
    "show": _ours("messages", "show", _BASE, _MESSAGES),
    # Each change that owners make is a command of its name.
    **{
        each.value: _ours("messages", each.value, _BASE, _MESSAGES)
        for each, traits in TRAITS.items()
        if traits.role is Role.OWNER
    },
    "list": _ours("browse", "list_messages", _BASE, _MESSAGES),
    "bulk": _ours("bulk", "app", _BASE, _MESSAGES),
    "export": _ours("transfer", "export", _BASE, _MESSAGES),
    "import": _ours("transfer", "import_file", _BASE, _MESSAGES),
    "forecast": _ours("forecast", "forecast", _BASE, _MESSAGES),
    "dead": _ours("dead", "app", _BASE, _MESSAGES),
    "schedule": _ours("schedules", "app", _BASE, _MESSAGES),
}


def command_line(names: Iterable[str] = _COMMANDS) -> typer.Typer:
    """The command with these subcommands."""
    app = typer.Typer(
        name="chronoline",
        help="Put a message on a timeline, get it back at its millisecond.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
    )
    app.callback()(_options)
    for name in names:
        _add(app, name, _COMMANDS[name])
    return app


def _add(app: typer.Typer, name: str, command: _Command) -> None:
    """Add a command; if its libraries are missing, one that prints how to install them."""
    needs = f"pip install {command.install}"

    def missing(context: typer.Context) -> None:
        raise MissingExtra(f"`chronoline {name}` needs: {needs}")

    try:
        found = command.load()
    except ImportError as error:
        if not isinstance(error, MissingExtra) and (error.name or "").startswith("chronoline."):
            raise  # a defect
        if command.install == _BASE:
            raise  # likewise: `pip install chronoline` would bring nothing
        missing.__doc__ = f"Needs: {escape(needs)}"
        ignored = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, rich_help_panel=command.panel, context_settings=ignored)(missing)
        return
    if isinstance(found, typer.Typer):
        app.add_typer(found, rich_help_panel=command.panel)
    else:
        app.command(name, rich_help_panel=command.panel)(found)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"chronoline {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Put a message on a timeline, get it back at its millisecond."""


def run() -> None:
    """The entry point. An error of Chronoline is one line on stderr, without a trace."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the command prints the error in one line
    if logging.lastResort is not None:  # where a command sets up no logs of its own
        logging.lastResort.setFormatter(TextLines("%(message)s"))
    asked = set(sys.argv[1:2])
    try:
        # A command is imported without the others; help and a wrong name need all of them.
        command_line(asked if asked & _COMMANDS.keys() else _COMMANDS)()
    except ChronolineError as error:
        print_to_stderr(f"chronoline: {error}")
        sys.exit(1)
