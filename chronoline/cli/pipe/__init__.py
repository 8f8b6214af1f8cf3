"""`chronoline pipe`: delay topics."""

from __future__ import annotations

import typer

from chronoline.cli.pipe import run, status

app = typer.Typer(
    name="pipe",
    help="""Delay topics: a message goes in with a deadline, and comes out at its deadline.

    chronoline pipe check --config pipe.toml
    chronoline pipe run --config pipe.toml
    chronoline pipe status --config pipe.toml

    Settings come from the file, then from CHRONOLINE_PIPE_… in the environment,
    then from the options; examples/pipe-kafka.toml and
    examples/pipe-embedded.toml explain all of them. Start the same command on
    several machines, and they share the work.
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)
app.command()(run.run)
app.command()(run.check)
app.command()(status.status)
app.command()(status.stop)
app.command()(status.dead)
