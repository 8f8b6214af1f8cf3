"""`chronoline timers`: looking at a cluster of timers, and growing and shrinking it."""

from __future__ import annotations

import typer

from chronoline.cli.timers.listening import listen
from chronoline.cli.timers.looking import list_timers, nodes, show
from chronoline.cli.timers.moving import reload, resync, scale_down, scale_up

app = typer.Typer(
    name="timers",
    help="""Timers over HTTP: look at a cluster, and change it.

    chronoline up --roles timers              a node
    chronoline up --roles timers --nodes 3    a cluster to play with
    chronoline timers nodes
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command(name="list")(list_timers)
app.command()(show)
app.command()(nodes)
app.command()(reload)
app.command()(resync)
app.command(name="scale-up")(scale_up)
app.command(name="scale-down")(scale_down)
app.command()(listen)
