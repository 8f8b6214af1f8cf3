"""The `chronoline` command."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated, Any

import typer
from rich.console import Console

from chronoline import __version__
from chronoline.cli.dead import app as dead
from chronoline.cli.forecast import forecast
from chronoline.cli.log import app as log
from chronoline.cli.messages import cancel, reschedule, send, show
from chronoline.cli.receive import receive
from chronoline.cli.status import status
from chronoline.cli.timers import app as timers
from chronoline.cli.topics import app as topic
from chronoline.core.errors import ChronolineError, MissingExtra

app = typer.Typer(
    name="chronoline",
    help="Put a message on a timeline, get it back at its millisecond.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
_BROKER = "A broker, and its settings"
_MESSAGES = "Messages on timelines, through a broker"


def _add(name: str, load: Callable[[], Any], install: str, panel: str | None = None) -> None:
    """Add a command or a group; if its libraries are missing, one that prints how to install them."""

    def missing(context: typer.Context) -> None:
        raise MissingExtra(f"`chronoline {name}` needs: pip install {install}")

    try:
        found = load()
    except ImportError as error:
        if not isinstance(error, MissingExtra) and (error.name or "").startswith("chronoline."):
            raise  # a defect
        missing.__doc__ = f"Needs: pip install {install}"
        ignored = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(name, rich_help_panel=panel, context_settings=ignored)(missing)
        return
    if isinstance(found, typer.Typer):
        app.add_typer(found, rich_help_panel=panel)
    else:
        app.command(name, rich_help_panel=panel)(found)


def _part(place: str, name: str) -> Callable[[], Any]:
    """A function that imports a command, or a group of commands, of this package."""
    return lambda: getattr(import_module(f"chronoline.cli.{place}"), name)


_SERVER = "'chronoline[server]'"
_SPARK = "'chronoline[spark]'"
_add("demo", _part("demo", "demo"), _SPARK)
# Commands of other distributions: `bench`, which is listed even if it is not installed.
_others = {each.name: each.load for each in entry_points(group="chronoline.commands")}
_others.setdefault("bench", lambda: import_module("chronoline_bench"))
for _name, _load in _others.items():
    _add(_name, _load, f"chronoline-{_name}")
app.add_typer(log)
_add("pipe", _part("pipe", "app"), _SPARK)
app.add_typer(timers)
_add("up", _part("node", "up"), _SERVER, _BROKER)
app.command(rich_help_panel=_BROKER)(status)
_add("config", _part("config", "app"), _SERVER, _BROKER)
_add("token", _part("tokens", "app"), _SERVER, _BROKER)
app.add_typer(topic, rich_help_panel=_MESSAGES)
for command in (send, receive, show, reschedule, cancel, forecast):
    app.command(rich_help_panel=_MESSAGES)(command)
app.add_typer(dead, rich_help_panel=_MESSAGES)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"chronoline {__version__}")
        raise typer.Exit


@app.callback()
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
    try:
        app()
    except ChronolineError as error:
        Console(stderr=True).print(
            f"chronoline: {error}", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
