"""The options of `chronoline pipe`, which override environment and file, and a one-line summary of a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.text import Text

from chronoline.cli.options import Config, parse_settings, sharing
from chronoline.core.errors import InvalidInput
from chronoline.log.factory import url_of
from chronoline.pipe.places import Place
from chronoline.pipe.settings import PipeSettings

_KAFKA = "kafka://"
_PLACES = ("input", "output", "dead_letters")
_TABLES = {**dict.fromkeys(_PLACES, "topic"), "spark": "master"}
"""Tables, and a setting inside each."""
_PLACE_HELP = "kafka://HOST:PORT,HOST:PORT/TOPIC, or TOPIC@LOG with a log's URL or folder."

Name = Annotated[str | None, typer.Option(help="The name of the pipe and of its timeline.")]
StoreUrl = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="URL", help="The store of messages: sqlite:///… or postgresql://…"
    ),
]
InputPlace = Annotated[
    str | None, typer.Option("--input", metavar="PLACE", help=f"The input topic: {_PLACE_HELP}")
]
OutputPlace = Annotated[
    str | None, typer.Option("--output", metavar="PLACE", help=f"The output topic: {_PLACE_HELP}")
]
DeadLetterPlace = Annotated[
    str | None,
    typer.Option(
        metavar="PLACE", help="The topic for dead letters; without it the store keeps them."
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="The delay of records without headers, such as 5s."),
]
Receipts = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Keep a receipt of each message, as Parquet.")
]
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="The address of metrics for Prometheus.")
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as hold_ms=8000."),
]


def load(
    config: Config,
    setting: list[str] | None = None,
    *,
    unneeded: Iterable[str] = (),
    optional: Iterable[str] = (),
    **flags: str | None,
) -> PipeSettings:
    """The settings of a command. Flags are named as the settings; places are written in one word.

    `unneeded` and `optional` are those of `PipeSettings.load`. `--set` changes places of flags, too.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    places = {name: _place(given.pop(name)) for name in _PLACES if name in given}
    laid: dict[str, object] = {**places, **parse_settings(setting, _TABLES), **given}
    return PipeSettings.load(config, os.environ, laid, unneeded=unneeded, optional=optional)


def _load_all(
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
) -> PipeSettings:
    return load(
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


sets_a_pipe = sharing(_load_all)


def _place(text: str) -> dict[str, Any]:
    if text.startswith(_KAFKA):
        servers, slash, topic = text.removeprefix(_KAFKA).rpartition("/")
        if not slash or not servers or not topic:
            raise InvalidInput(f"{text!r} is not of the form kafka://HOST:PORT,HOST:PORT/TOPIC")
        return {"topic": topic, "kafka": {"bootstrap.servers": servers}}
    topic, at, log = text.partition("@")
    if not at or not topic or not log:
        raise InvalidInput(f"{text!r} names no topic: {_PLACE_HELP}")
    return {"topic": topic, "log": url_of(log)}


def heading(settings: PipeSettings) -> Text:
    """The name of a pipe, its input, its store and its output, in one line."""
    stops = [settings.store.partition(":")[0]]
    if "input" not in settings.left_out:
        stops.insert(0, _shown(settings.input))
    if "output" not in settings.left_out:
        stops.append(_shown(settings.output))
    return Text.assemble((settings.name, "bold"), ": ", " → ".join(stops))


def _shown(place: Place) -> str:
    where = place.bootstrap if place.kind == "kafka" else "log"
    return f"{place.topic} ({where})"
