"""Options that are written once are options of every command that shares them."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from chronoline.cli.options import default, sharing

COLOUR = Annotated[
    str | None, typer.Option(help=f"Which. {default('red')}", rich_help_panel="Paint")
]


def _paint(*, colour: COLOUR = None, coats: Annotated[int, typer.Option(min=1)] = 1) -> str:
    return f"{colour or 'red'} × {coats}"


paints = sharing(_paint)
app = typer.Typer()


@app.command()
@paints
def fence(paint: str, name: Annotated[str, typer.Argument()], long: bool = False) -> None:
    """Paint a fence."""
    print(f"{name}: {paint}{', long' if long else ''}")


@app.command()
@paints
def door(paint: str) -> None:
    """Paint a door."""
    print(paint)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (["fence", "f"], "f: red × 1"),
        (["fence", "f", "--colour", "blue", "--long", "--coats", "2"], "f: blue × 2, long"),
        (["door", "--colour", "green"], "green × 1"),
    ],
)
def test_shared_options_are_built_before_the_command(arguments: list[str], printed: str) -> None:
    assert CliRunner().invoke(app, arguments).stdout == f"{printed}\n"


def test_help_has_all_options_and_defaults() -> None:
    shown = CliRunner().invoke(app, ["fence", "--help"], env={"COLUMNS": "100"}).stdout
    assert "Paint a fence." in shown
    assert all(name in shown for name in ("--long", "--coats", "─ Paint ─", "[default: red]"))


def test_bad_shared_option_is_refused() -> None:
    assert CliRunner().invoke(app, ["door", "--coats", "0"]).exit_code == 2
