"""What is wrong with settings, in words: which setting, from where, what is wrong, and what to do.

pydantic finds what is wrong with single settings; its own words are not used, since they repeat values, and a
value may be a password.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from chronoline.core.errors import InvalidInput
from chronoline.runtime.settings.sources import Gathered, SettingPath
from chronoline.runtime.settings.types import shown

_AFTER_OTHERS = "default_factory_not_called"  # a default that depends on a setting that is wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """The settings that there are."""

    owner: str
    """Whose they are, such as `a pipe`."""
    tables: Mapping[SettingPath, type[BaseModel]]
    """The settings of each table; of the outermost at ()."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """What to write for a setting that has to be there."""


class Problem(NamedTuple):
    path: SettingPath
    words: str


def problems_of(errors: Iterable[ErrorDetails], known: Known) -> list[Problem]:
    """One problem for each error."""
    problems = []
    for error in errors:
        if error["type"] == _AFTER_OTHERS:
            continue
        path = tuple(str(name) for name in error["loc"])
        problems.append(Problem(path, _words(error, path, known)))
    return problems


def refuse(problems: Sequence[Problem], gathered: Gathered) -> InvalidInput:
    """An error that names them all."""
    lines = [_line(problem, gathered) for problem in problems]
    many = "one setting is" if len(lines) == 1 else f"{len(lines)} settings are"
    return InvalidInput("\n".join([f"{many} wrong:", *(f"- {line}" for line in lines)]))


def _line(problem: Problem, gathered: Gathered) -> str:
    origin = gathered.origin(problem.path)
    return f"{'.'.join(problem.path)}{f' ({origin})' if origin else ''}: {problem.words}"


def _words(error: ErrorDetails, path: SettingPath, known: Known) -> str:
    context = error.get("ctx", {})
    words = {
        "value_error": "{error}",
        "missing": f"is missing; {known.missing.get(path[-1], 'it has to be given')}",
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
    if error["type"] == "extra_forbidden":
        return f"is no setting; {_hint(path, known)}"
    pattern = words.get(error["type"], "is not what this setting takes")
    return pattern.format(**{**context, "input": shown(error["input"])})


def _hint(path: SettingPath, known: Known) -> str:
    names = [info.alias or name for name, info in known.tables[path[:-1]].model_fields.items()]
    near = difflib.get_close_matches(path[-1], names, n=1)
    if near:
        return f"did you mean {near[0]}?"
    within = f"[{'.'.join(path[:-1])}]" if path[:-1] else known.owner
    return f"those of {within} are {', '.join(names)}"
