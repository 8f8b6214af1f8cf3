"""The `chronoline` command."""

from __future__ import annotations

import os
import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer
from rich.console import Console

from chronoline import __version__
from chronoline.cli.config import app as config
from chronoline.cli.dead import app as dead
from chronoline.cli.demo import demo
from chronoline.cli.forecast import forecast
from chronoline.cli.log import app as log
from chronoline.cli.messages import cancel, reschedule, send, show
from chronoline.cli.node import up
from chronoline.cli.pipe import app as pipe
from chronoline.cli.receive import receive
from chronoline.cli.status import status
from chronoline.cli.timers import app as timers
from chronoline.cli.tokens import app as token
from chronoline.cli.topics import app as topic
from chronoline.core.errors import ChronolineError, MissingExtra


def bench(context: typer.Context) -> None:
    """Measure Chronoline on this machine, beside references. Needs the package chronoline-bench."""
    raise MissingExtra("`chronoline bench` is a package of its own: pip install chronoline-bench")


def _commands_of_others() -> None:
    """Add the commands that other distributions register, and say how to get `bench` if it is missing."""
    found = {entry.name: entry for entry in entry_points(group="chronoline.commands")}
    if "bench" not in found:
        ignored = {"allow_extra_args": True, "ignore_unknown_options": True}
        app.command(context_settings=ignored)(bench)
    for name, entry in found.items():
        app.command(name)(entry.load())


app = typer.Typer(
    name="chronoline",
    help="Put a message on a timeline, get it back at its millisecond.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
_BROKER = "A broker, and its settings"
_MESSAGES = "Messages on timelines, through a broker"
app.command()(demo)
_commands_of_others()
app.add_typer(log)
app.add_typer(pipe)
app.add_typer(timers)
app.command(rich_help_panel=_BROKER)(up)
app.command(rich_help_panel=_BROKER)(status)
app.add_typer(config, rich_help_panel=_BROKER)
app.add_typer(token, rich_help_panel=_BROKER)
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
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the command says in a line what fails
    try:
        app()
    except ChronolineError as error:
        Console(stderr=True).print(
            f"chronoline: {error}", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
