"""Where settings come from: a TOML file, the environment, flags, in rising order.

Each source is brought into the same shape, nested tables with the names of the file, and laid over those
before it, setting by setting. Which source a setting came from is remembered, so that an error can say it.

Tables of properties (such as `kafka`) have dotted names. In TOML `bootstrap.servers = …` without quotes makes
tables within tables: they are put together again, so that both ways of writing mean the same.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from chronoline.core.errors import InvalidInput

Table = dict[str, Any]
SettingPath = tuple[str, ...]


class Origin(NamedTuple):
    """What gave a setting: a file or a variable by its name, a flag by the setting that it is for."""

    kind: Literal["file", "variable", "flag"]
    name: str

    def __str__(self) -> str:
        return f"flag {self.name}" if self.kind == "flag" else self.name


@dataclass(slots=True)
class Gathered:
    """The settings as they were given, not yet looked at."""

    property_tables: tuple[str, ...] = ()
    table: Table = field(default_factory=dict)
    origins: dict[SettingPath, Origin] = field(default_factory=dict)

    def lay(self, path: SettingPath, value: object, origin: Origin) -> None:
        """Puts a setting over what was there; a table is laid setting by setting."""
        if path and path[-1] in self.property_tables and isinstance(value, Mapping):
            value = _flat(value)
        if isinstance(value, Mapping):
            self._table(path)
            for name, each in value.items():
                self.lay((*path, name), each, origin)
        else:
            self._table(path[:-1])[path[-1]] = value
        self.origins[path] = origin

    def origin(self, path: SettingPath) -> Origin | None:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """How settings of one kind are named in the environment, and which of their tables hold properties."""

    prefix: str
    """Of variables, such as `CHRONOLINE_PIPE_`."""
    property_tables: tuple[str, ...] = ()

    @property
    def config_variable(self) -> str:
        """Names the file where none is given."""
        return f"{self.prefix}CONFIG"

    def gather(
        self, path: str | Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
    ) -> Gathered:
        """Everything that is given. Raises `InvalidInput` if the file cannot be read."""
        gathered = Gathered(self.property_tables)
        path = path or environ.get(self.config_variable) or None
        if path is not None:
            origin = Origin("file", Path(path).name)
            for name, value in _file(Path(path)).items():
                gathered.lay((name,), value, origin)
        for variable in sorted(environ):
            if variable.startswith(self.prefix) and variable != self.config_variable:
                origin = Origin("variable", variable)
                gathered.lay(self._variable_path(variable), _value(environ[variable]), origin)
        for flag, given in flags.items():
            if given is not None:
                gathered.lay(self._dotted_path(flag), given, Origin("flag", flag))
        return gathered

    def variables(self, gathered: Gathered) -> dict[str, str]:
        """An environment that gives the same by itself."""
        return {
            f"{self.prefix}{name.upper()}": _text(each) for name, each in gathered.table.items()
        }

    def _variable_path(self, variable: str) -> SettingPath:
        """`CHRONOLINE_PIPE_INPUT__KAFKA__BOOTSTRAP_SERVERS` is `bootstrap.servers` in `[input.kafka]`."""
        names = variable.removeprefix(self.prefix).lower().split("__")
        for place, name in enumerate(names[:-1]):
            if name in self.property_tables:
                return (*names[: place + 1], ".".join(names[place + 1 :]).replace("_", "."))
        return tuple(names)

    def _dotted_path(self, flag: str) -> SettingPath:
        """`input.kafka.bootstrap.servers` is `bootstrap.servers` in `[input.kafka]`."""
        names = flag.split(".")
        for place, name in enumerate(names[:-1]):
            if name in self.property_tables:
                return (*names[: place + 1], ".".join(names[place + 1 :]).removeprefix("kafka."))
        return tuple(name.replace("-", "_") for name in names)


def _file(path: Path) -> Table:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidInput(f"the settings {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"the settings {str(path)!r} are not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"the settings {str(path)!r} are no TOML: {error}") from None


def _value(text: str) -> object:
    """The text itself; a whole table can be given as TOML writes one in a line."""
    if text.lstrip().startswith("{"):
        try:
            return tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            pass  # then it is text, and refused where a table belongs
    return text


def _text(value: object) -> str:
    """What `_value` and those who look at it then take for the same."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else _toml(value)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{{inside}}}"
    return json.dumps(value, ensure_ascii=False)


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
