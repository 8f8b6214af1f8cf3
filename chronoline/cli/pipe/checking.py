"""`chronoline pipe check`."""

from __future__ import annotations

import logging

import typer
from rich.console import Console

from chronoline.cli.pipe.options import (
    Config,
    DeadLetterPlace,
    Delay,
    InputPlace,
    Metrics,
    Name,
    OutputPlace,
    Receipts,
    Setting,
    StoreUrl,
    load,
)
from chronoline.cli.pipe.showing import heading
from chronoline.core.errors import InvalidInput, MissingExtra
from chronoline.pipe.checks import check_pipe
from chronoline.pipe.settings import PipeSettings


def check(
    config: Config = None,
    *,
    name: Name = None,
    store: StoreUrl = None,
    input_place: InputPlace = None,
    output_place: OutputPlace = None,
    dead_letters: DeadLetterPlace = None,
    delay: Delay = None,
    receipts: Receipts = None,
    metrics: Metrics = None,
    setting: Setting = None,
) -> None:
    """Check the settings, that everything can be reached, and Spark's slots. Nothing is sent or taken in.

    chronoline pipe check --config pipe.toml

    No folder and no file is made: what a run would make is said.
    """
    settings = load(
        config,
        setting,
        name=name,
        store=store,
        input=input_place,
        output=output_place,
        dead_letters=dead_letters,
        delay=delay,
        receipts=receipts,
        metrics=metrics,
    )
    logging.getLogger("chronoline").addHandler(logging.NullHandler())  # the findings say it
    console = Console()
    console.print(heading(settings), soft_wrap=True)
    wrong = 0
    for finding in check_pipe(settings, lambda: _spark(settings)):
        console.print("[green]✓[/]" if finding.fine else "[red]✗[/]", end=" ")
        line = f"{finding.part}: {finding.words}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        wrong += not finding.fine
    if wrong:
        raise typer.Exit(1)


def _spark(settings: PipeSettings) -> str:
    """Starts the session that the pipe would have, and looks at it."""
    try:
        from chronoline.pipe.spark.session import (  # noqa: PLC0415 - Spark is optional, and slow to import
            build_session,
            count_slots,
            session_problems,
            slots_needed,
        )
    except ModuleNotFoundError as error:
        raise MissingExtra("a pipe runs on Spark: pip install 'chronoline[spark]'") from error
    spark = build_session(settings)
    try:
        problems = session_problems(spark, settings)
        if problems:
            raise InvalidInput("; ".join(problems))
        needed = slots_needed(settings)
        slots = count_slots(spark, needed)
        return f"{spark.version}, {slots} slots, of which the pipe needs {needed}"
    finally:
        spark.stop()
