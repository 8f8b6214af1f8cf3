"""What is wrong with settings, in words: which setting, from where, what is wrong, and what to do.

pydantic finds what is wrong with single settings; its own words are not used, since they repeat values, and a
value may be a password.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from chronoline.core.errors import InvalidInput
from chronoline.pipe.setting_sources import Gathered, SettingPath
from chronoline.pipe.setting_types import shown

Tables = Mapping[SettingPath, type[BaseModel]]
"""The settings of each table; of the outermost at ()."""


_AFTER_OTHERS = "default_factory_not_called"  # a default that depends on a setting that is wrong


class Problem(NamedTuple):
    path: SettingPath
    words: str


def problems_of(
    errors: Iterable[ErrorDetails], tables: Tables, missing: Mapping[str, str]
) -> list[Problem]:
    """One problem for each error. `missing` says what to write for a setting that has to be there."""
    problems = []
    for error in errors:
        if error["type"] == _AFTER_OTHERS:
            continue
        path = tuple(str(name) for name in error["loc"])
        problems.append(Problem(path, _words(error, path, tables, missing)))
    return problems


def refuse(problems: Sequence[Problem], gathered: Gathered) -> InvalidInput:
    """An error that names them all."""
    lines = [_line(problem, gathered) for problem in problems]
    many = "one setting is" if len(lines) == 1 else f"{len(lines)} settings are"
    return InvalidInput("\n".join([f"{many} wrong:", *(f"- {line}" for line in lines)]))


def _line(problem: Problem, gathered: Gathered) -> str:
    origin = gathered.origin(problem.path)
    return f"{'.'.join(problem.path)}{f' ({origin})' if origin else ''}: {problem.words}"


def _words(
    error: ErrorDetails, path: SettingPath, tables: Tables, missing: Mapping[str, str]
) -> str:
    context = error.get("ctx", {})
    words = {
        "value_error": "{error}",
        "missing": f"is missing; {missing.get(path[-1], 'it has to be given')}",
        "greater_than_equal": "must be at least {ge}, not {input}",
        "less_than_equal": "must be at most {le}, not {input}",
        "literal_error": "must be {expected}, not {input}",
        "string_type": "must be text",
        "model_type": "must be a table",
        "dict_type": "must be a table",
        "tuple_type": "must be a list of texts",
    }
    if error["type"] == "extra_forbidden":
        return f"is no setting; {_hint(path, tables)}"
    pattern = words.get(error["type"], "is not what this setting takes")
    return pattern.format(**{**context, "input": shown(error["input"])})


def _hint(path: SettingPath, tables: Tables) -> str:
    known = [info.alias or name for name, info in tables[path[:-1]].model_fields.items()]
    near = difflib.get_close_matches(path[-1], known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    within = f"[{'.'.join(path[:-1])}]" if path[:-1] else "a pipe"
    return f"those of {within} are {', '.join(known)}"
