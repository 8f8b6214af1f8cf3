"""Load settings from a TOML file, the environment and flags, in rising order.

Each source is brought into the same shape, nested tables with the names of the file, and laid over those
before it, setting by setting. The origin of each setting is kept: errors and `config show` name it.

Tables of properties (such as `kafka`) have dotted names. In TOML `bootstrap.servers = …` without quotes makes
tables within tables: they are put together again, so that both ways of writing mean the same.

pydantic checks single settings. Its own error texts are not used: they repeat values, and a value may be a
password.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError
from pydantic_core import ErrorDetails

from chronoline.core.errors import InvalidInput
from chronoline.runtime.settings.types import shown
from chronoline.runtime.store_url import without_password

Table = dict[str, Any]
SettingPath = tuple[str, ...]


# Sources


class Origin(NamedTuple):
    """The source of a setting: a file or a variable by its name, a flag by its setting's name."""

    kind: Literal["file", "variable", "flag"]
    name: str

    def __str__(self) -> str:
        return f"flag {self.name}" if self.kind == "flag" else self.name


@dataclass(slots=True)
class Gathered:
    """The settings as given, not yet checked."""

    property_tables: tuple[str, ...] = ()
    # Settings are equal if their values are, whatever the origins.
    table: Table = field(default_factory=dict, compare=False)
    origins: dict[SettingPath, Origin] = field(default_factory=dict, compare=False)

    def lay(self, path: SettingPath, value: object, origin: Origin) -> None:
        """Puts a setting over an earlier one; a table is laid setting by setting."""
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
        """The origin of a setting, or of the table around it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.origins:
                return self.origins[path[:length]]
        return None

    def without(self, paths: set[SettingPath]) -> Table:
        """The settings, without some of them."""
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
    """The names of settings of one kind in the environment, and their tables of properties."""

    prefix: str
    """The prefix of variables, such as `CHRONOLINE_PIPE_`."""
    property_tables: tuple[str, ...] = ()

    @property
    def config_variable(self) -> str:
        """The variable that names the file by default."""
        return f"{self.prefix}CONFIG"

    def gather(
        self, path: str | Path | None, environ: Mapping[str, str], flags: Mapping[str, object]
    ) -> Gathered:
        """All given settings. Raises `InvalidInput` if the file cannot be read."""
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
        """An environment that gives the same settings."""
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
    """The text itself; a whole table can be given as an inline table of TOML."""
    if text.lstrip().startswith("{"):
        try:
            return tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            pass  # then it is text, and refused if a table is needed
    return text


def _text(value: object) -> str:
    """The reverse of `_value`."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return value if isinstance(value, str) else _toml(value)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{_toml(name)} = {_toml(each)}" for name, each in value.items())
        return f"{{{inside}}}"
    return json.dumps(value, ensure_ascii=False)


def _flat(table: Mapping[str, Any], before: str = "") -> Table:
    """Tables within tables as dotted names; lists joined with commas; `kafka.` means nothing."""
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


# Tables


class SettingsTable(BaseModel):
    """A table of settings: frozen, and strict about names."""

    # Inputs are left out of pydantic's own errors, in case one is shown: they may hold a password.
    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, hide_input_in_errors=True
    )


class SettingsProblem(NamedTuple):
    """A wrong setting, and the reason."""

    path: SettingPath
    words: str


class Rule(NamedTuple):
    """A condition between settings."""

    of: tuple[str, ...]
    """The settings that it needs, tables by their first name. A problem is reported for the first."""
    problem: Callable[[Any], str | None]
    """Returns how settings break it, as text."""


class Settings(SettingsTable):
    """The outermost table: loads itself, and knows the origin of each setting."""

    sources: ClassVar[Sources]
    owner: ClassVar[str]
    """Such as `a pipe`, for errors."""
    tables: ClassVar[Mapping[str, type[SettingsTable]]]
    """The tables inside, by name."""
    missing: ClassVar[Mapping[str, str]] = {}
    """A hint for each setting that has no default."""
    fillers: ClassVar[Table] = {}
    """Values for settings without a default, so that the others can be checked without them."""
    _gathered: Gathered = PrivateAttr(default_factory=Gathered)

    @classmethod
    def rules(cls) -> Sequence[Rule]:
        """The conditions between settings."""
        return ()

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, object] | None = None,
    ) -> Self:
        """Load a file, the environment and flags; later ones win, setting by setting.

        With the prefix `CHRONOLINE_NODE_`, `grpc` is `CHRONOLINE_NODE_GRPC` in the environment, and `batch`
        of `[limits]` is `CHRONOLINE_NODE_LIMITS__BATCH`. A flag is named as in the file, with a dot between
        table and setting; None stands for a flag that was not given. Raises `InvalidInput`, which names every
        wrong setting.
        """
        return cls.checked(cls.gather(path, environ, flags))

    @classmethod
    def gather(
        cls,
        path: str | Path | None,
        environ: Mapping[str, str] | None,
        flags: Mapping[str, object] | None,
    ) -> Gathered:
        """The settings of all sources, unchecked."""
        return cls.sources.gather(path, os.environ if environ is None else environ, flags or {})

    @classmethod
    def checked(cls, gathered: Gathered, ignored: Iterable[str] = ()) -> Self:
        """Check settings, without the rules that need one of `ignored`. Raises `InvalidInput`."""
        unusable: set[SettingPath] = {(name,) for name in ignored}
        try:
            settings = cls.model_validate(gathered.table)
        except ValidationError as error:
            problems = cls._problems_of(error.errors(include_url=False))
            wrong = {problem.path for problem in problems}
            problems += cls._other_problems(gathered.without(wrong), wrong | unusable)
        else:
            problems = settings._broken_rules(unusable)
            if not problems:
                settings._gathered = gathered
                return settings
        raise _refusal(problems, gathered) from None  # pydantic's own error may show a secret

    def origin(self, path: SettingPath) -> Origin | None:
        """The origin of a setting, not of the table around it; None if it has its default."""
        return self._gathered.origins.get(path)

    def variables(self) -> dict[str, str]:
        """The settings that were given, secrets too, as an environment for another process."""
        return self.sources.variables(self._gathered)

    @classmethod
    def _problems_of(cls, errors: Iterable[ErrorDetails]) -> list[SettingsProblem]:
        paths = ((tuple(str(name) for name in error["loc"]), error) for error in errors)
        return [
            SettingsProblem(path, cls._words(error, path))
            for path, error in paths
            if error["type"] != "default_factory_not_called"  # it depends on a wrong setting
        ]

    @classmethod
    def _words(cls, error: ErrorDetails, path: SettingPath) -> str:
        if error["type"] == "extra_forbidden":
            return f"is no setting; {cls._hint(path)}"
        if error["type"] == "missing":
            return f"is missing; {cls.missing.get(path[-1], 'it is required')}"
        pattern = _WORDS.get(error["type"], "has an invalid value")
        return pattern.format(**{**error.get("ctx", {}), "input": shown(error["input"])})

    @classmethod
    def _hint(cls, path: SettingPath) -> str:
        table = cls.tables[path[-2]] if path[:-1] else cls
        names = [info.alias or name for name, info in table.model_fields.items()]
        near = difflib.get_close_matches(path[-1], names, n=1)
        if near:
            return f"did you mean {near[0]}?"
        within = f"[{'.'.join(path[:-1])}]" if path[:-1] else cls.owner
        return f"the settings of {within} are {', '.join(names)}"

    @classmethod
    def _other_problems(cls, table: Table, wrong: set[SettingPath]) -> list[SettingsProblem]:
        """The broken rules between settings that are valid by themselves."""
        wrong = wrong | {(name,) for name in cls.fillers if name not in table}
        usable = {name: value for name, value in table.items() if not _touches(wrong, name)}
        try:
            settings = cls.model_validate(cls.fillers | usable)
        except ValidationError:
            return []
        return settings._broken_rules(wrong)

    def _broken_rules(self, wrong: set[SettingPath]) -> list[SettingsProblem]:
        problems = []
        for rule in self.rules():
            if any(_touches(wrong, name.partition(".")[0]) for name in rule.of):
                continue
            if words := rule.problem(self):
                problems.append(SettingsProblem(tuple(rule.of[0].split(".")), words))
        return problems

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, without_password(value) if name in _URLS else value


_URLS = ("store", "coordination")
"""Settings that may hold a password."""
_WORDS = {
    "value_error": "{error}",
    "greater_than_equal": "must be at least {ge}, not {input}",
    "less_than_equal": "must be at most {le}, not {input}",
    "literal_error": "must be {expected}, not {input}",
    "string_type": "must be text",
    "bool_parsing": "must be true or false, not {input}",
    "bool_type": "must be true or false",
    "model_type": "must be a table",
    "dict_type": "must be a table",
    "tuple_type": "must be a list of texts",
}


def _touches(wrong: Iterable[SettingPath], name: str) -> bool:
    return any(path[0] == name for path in wrong)


def _refusal(problems: Sequence[SettingsProblem], gathered: Gathered) -> InvalidInput:
    """An error that names all problems, with their origins."""
    count = "one setting is" if len(problems) == 1 else f"{len(problems)} settings are"
    lines = [f"{count} wrong:"]
    for path, words in problems:
        origin = gathered.origin(path)
        lines.append(f"- {'.'.join(path)}{f' ({origin})' if origin else ''}: {words}")
    return InvalidInput("\n".join(lines))
