"""`chronoline log`: partitioned, append-only topics by hand."""

from __future__ import annotations

import typer

from chronoline.cli.log.appending import append
from chronoline.cli.log.deletions import delete, delete_group
from chronoline.cli.log.importer import import_log
from chronoline.cli.log.looking import groups, topics
from chronoline.cli.log.reading import read, tail
from chronoline.cli.log.seeking import seek, skip_to_end
from chronoline.cli.log.setup import create, init
from chronoline.cli.log.upkeep import compact, retain, sweep

app = typer.Typer(
    name="log",
    help="""Append events to partitioned topics, and read them.

    chronoline log create orders
    chronoline log append orders hello --key user-1
    chronoline log read orders

    The option --log names the log by its URL or folder; the environment
    variable CHRONOLINE_LOG stands for it. Without both it is the folder
    chronoline-log in the current one.
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command()(init)
app.command()(create)
app.command()(append)
app.command()(read)
app.command()(tail)
app.command()(topics)
app.command()(groups)
app.command()(seek)
app.command()(skip_to_end)
app.command()(delete)
app.command()(delete_group)
app.command(name="import")(import_log)
app.command(rich_help_panel="Upkeep")(compact)
app.command(rich_help_panel="Upkeep")(retain)
app.command(rich_help_panel="Upkeep")(sweep)
