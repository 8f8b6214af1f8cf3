"""`chronoline log`: partitioned, append-only topics by hand."""

from __future__ import annotations

import typer

from chronoline.cli.log import events, topics, upkeep

app = typer.Typer(
    name="log",
    help="""Append events to partitioned topics, and read them.

    chronoline log create orders
    chronoline log append orders hello --key user-1
    chronoline log read orders

    The option --log, or the environment variable CHRONOLINE_LOG, names the
    log by its URL or folder. Without both it is the folder chronoline-log
    in the current one.
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command()(topics.init)
app.command()(topics.create)
app.command()(events.append)
app.command()(events.read)
app.command()(events.tail)
app.command()(topics.topics)
app.command()(topics.groups)
app.command()(topics.seek)
app.command()(topics.skip_to_end)
app.command()(topics.delete)
app.command()(topics.delete_group)
app.command(name="import")(upkeep.import_log)
app.command(rich_help_panel="Upkeep")(upkeep.compact)
app.command(rich_help_panel="Upkeep")(upkeep.retain)
app.command(rich_help_panel="Upkeep")(upkeep.sweep)
