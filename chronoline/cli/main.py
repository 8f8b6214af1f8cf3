"""The `chronoline` command."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.console import Console

from chronoline import __version__
from chronoline.cli.bench import bench
from chronoline.cli.demo import demo
from chronoline.cli.log import app as log
from chronoline.cli.pipe import app as pipe
from chronoline.core.errors import ChronolineError

app = typer.Typer(
    name="chronoline",
    help="Put a message on a timeline, get it back at its millisecond.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)
app.command()(demo)
app.command()(bench)
app.add_typer(log)
app.add_typer(pipe)


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
    """The entry point: errors that Chronoline knows are told in a line, without a trace."""
    try:
        app()
    except ChronolineError as error:
        Console(stderr=True).print(
            f"chronoline: {error}", markup=False, highlight=False, soft_wrap=True
        )
        sys.exit(1)
