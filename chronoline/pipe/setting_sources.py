"""Where settings come from: a TOML file, the environment, flags, in rising order.

Each source is brought into the same shape, nested tables with the names of the file, and laid over those
before it, setting by setting. Which source a setting came from is remembered, so that an error can say it.

Tables of properties (`kafka`, `producer`, `conf`) have dotted names. In TOML `bootstrap.servers = …` without
quotes makes tables within tables: they are put together again, so that both ways of writing mean the same.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chronoline.core.errors import InvalidInput

PREFIX = "CHRONOLINE_PIPE_"
CONFIG_VARIABLE = f"{PREFIX}CONFIG"
"""Names the file where none is given."""
PROPERTY_TABLES = ("kafka", "producer", "conf")

Table = dict[str, Any]
SettingPath = tuple[str, ...]


@dataclass(slots=True)
class Gathered:
    """The settings as they were given, not yet looked at."""

    table: Table = field(default_factory=dict)
    origins: dict[SettingPath, str] = field(default_factory=dict)

    def lay(self, path: SettingPath, value: object, origin: str) -> None:
        """Puts a setting over what was there; a table is laid setting by setting."""
        if path and path[-1] in PROPERTY_TABLES and isinstance(value, Mapping):
            value = _flat(value)
        if isinstance(value, Mapping):
            self._table(path)
            for name, each in value.items():
                self.lay((*path, name), each, origin)
        else:
            self._table(path[:-1])[path[-1]] = value
        self.origins[path] = origin

    def origin(self, path: SettingPath) -> str | None:
        """What gave a setting, or the table around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return None

    def without(self, paths: set[SettingPath]) -> Table:
        """The settings, less some of them."""
        return _without(self.table, (), paths)

    def _table(self, path: SettingPath) -> Table:
        table = self.table
        for name in path:
            inner = table.get(name)
            if not isinstance(inner, dict):
                inner = table[name] = {}
            table = inner
        return table


def gather(
    path: str | Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
) -> Gathered:
    """Everything that is given. Raises `InvalidInput` if the file cannot be read."""
    gathered = Gathered()
    path = path or environ.get(CONFIG_VARIABLE) or None
    if path is not None:
        for name, value in _file(Path(path)).items():
            gathered.lay((name,), value, Path(path).name)
    for variable in sorted(environ):
        if variable.startswith(PREFIX) and variable != CONFIG_VARIABLE:
            gathered.lay(_variable_path(variable), _value(environ[variable]), variable)
    for flag, given in flags.items():
        if given is not None:
            gathered.lay(_dotted_path(flag), given, f"flag {flag}")
    return gathered


def _file(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"the settings {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"the settings {str(path)!r} are not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"the settings {str(path)!r} are no TOML: {error}") from None


def _variable_path(variable: str) -> SettingPath:
    """`CHRONOLINE_PIPE_INPUT__KAFKA__BOOTSTRAP_SERVERS` is `bootstrap.servers` in `[input.kafka]`."""
    names = variable.removeprefix(PREFIX).lower().split("__")
    for place, name in enumerate(names[:-1]):
        if name in PROPERTY_TABLES:
            return (*names[: place + 1], ".".join(names[place + 1 :]).replace("_", "."))
    return tuple(names)


def _dotted_path(flag: str) -> SettingPath:
    """`input.kafka.bootstrap.servers` is `bootstrap.servers` in `[input.kafka]`."""
    names = flag.split(".")
    for place, name in enumerate(names[:-1]):
        if name in PROPERTY_TABLES:
            return (*names[: place + 1], ".".join(names[place + 1 :]))
    return tuple(name.replace("-", "_") for name in names)


def _value(text: str) -> object:
    """The text itself; a whole table can be given as TOML writes one in a line."""
    if text.lstrip().startswith("{"):
        try:
            return tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            pass  # then it is text, and refused where a table belongs
    return text


def _flat(table: Mapping[str, Any], before: str = "") -> Table:
    """Tables within tables as dotted names; lists with commas between; `kafka.` means nothing."""
    flat: Table = {}
    for name, value in table.items():
        dotted = f"{before}{name}"
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{dotted}.")
        else:
            listed = isinstance(value, list) and all(isinstance(each, str) for each in value)
            flat[dotted.removeprefix("kafka.")] = ",".join(value) if listed else value
    return flat


def _without(table: Table, at: SettingPath, paths: set[SettingPath]) -> Table:
    kept = {name: value for name, value in table.items() if (*at, name) not in paths}
    return {
        name: _without(value, (*at, name), paths) if isinstance(value, dict) else value
        for name, value in kept.items()
    }
