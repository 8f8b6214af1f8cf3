"""`chronoline config show`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel

from chronoline.cli.node import sets_a_node
from chronoline.cli.output import quiet_when_nobody_reads
from chronoline.node.settings import NodeSettings
from chronoline.runtime.settings.loader import SettingPath
from chronoline.runtime.terminal_text import json_text

app = typer.Typer(
    name="config",
    help="""The settings of a node.

    chronoline config show
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
)


@app.command()
@sets_a_node
def show(
    settings: NodeSettings,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the settings of `chronoline up` with the same options, and the source of each value.

    chronoline config show
    chronoline config show --config node.toml --grpc 0.0.0.0:7400

    The output is TOML, and can be the start of a file for --config.
    Passwords are not shown.
    """
    with quiet_when_nobody_reads():
        if as_json:
            found = {".".join(one.path): _as_json(one) for one in _all(settings)}
            print(json_text(found, indent=2))
        else:
            print("\n".join(_lines(list(_all(settings)))))


class _Shown(NamedTuple):
    path: SettingPath
    value: Any
    kind: str
    """default, file, variable or flag."""
    origin: str
    """The name of the file, variable or flag."""


def _all(settings: NodeSettings) -> Iterator[_Shown]:
    """Every setting, those of tables last."""
    tables: list[tuple[str, dict[str, Any]]] = []
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            tables.append((name, value.model_dump()))
        elif isinstance(value, dict):
            tables.append((name, value))
        else:
            shown = {"store": settings.shown_store, "coordination": settings.shown_coordination}
            yield _shown(settings, (name,), shown.get(name, value))
    for table, values in tables:
        inside = {name: value for name, value in values.items() if isinstance(value, dict)}
        for name, value in values.items():
            if name not in inside:
                yield _shown(settings, (table, name), value)
        for name, named in inside.items():
            for each, value in named.items():
                yield _shown(settings, (table, name, each), value)


def _shown(settings: NodeSettings, path: SettingPath, value: Any) -> _Shown:
    plain = list(value) if isinstance(value, tuple) else value
    plain = plain if isinstance(plain, int | list | None) else str(plain)
    origin = settings.origin(path)
    if origin is None:
        return _Shown(path, plain, "default", "default")
    return _Shown(path, plain, origin.kind, str(origin))


def _as_json(one: _Shown) -> dict[str, Any]:
    return {"value": one.value, "from": one.kind, "origin": one.origin}


def _lines(settings: list[_Shown]) -> Iterator[str]:
    written = [_assignment(one) for one in settings]
    width = max(map(len, written))
    table: SettingPath = ()
    for one, text in zip(settings, written, strict=True):
        if one.path[:-1] != table:
            table = one.path[:-1]
            yield f"\n[{'.'.join(table)}]"
        yield f"{text.ljust(width)}  # {one.origin}"


def _assignment(one: _Shown) -> str:
    """A setting without a value is a comment: TOML has no null."""
    if one.value is None:
        return f"# {one.path[-1]} is not set"
    return f"{one.path[-1]} = {json.dumps(one.value, ensure_ascii=False)}"
