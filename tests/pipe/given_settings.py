"""Settings of pipes for tests, and their problems."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.core.errors import InvalidInput
from chronoline.pipe.settings import PipeSettings, PlaceTable, SparkTable

LEAST: dict[str, object] = {
    "name": "p",
    "input": {"topic": "in", "log": "file:///tmp/log"},
    "output": {"topic": "out", "log": "file:///tmp/log"},
}
KAFKA = {"kafka": {"bootstrap.servers": "a:1,b:2"}}

ON_KAFKA: dict[str, object] = {"topic": "t", **KAFKA}


def load(**flags: object) -> PipeSettings:
    return PipeSettings.load(None, {}, {**LEAST, **flags})


def problems(**flags: object) -> list[str]:
    return problems_of({}, {**LEAST, **flags})


def problems_of(
    environ: dict[str, str], flags: dict[str, object], path: Path | None = None
) -> list[str]:
    with pytest.raises(InvalidInput) as refused:
        PipeSettings.load(path, environ, flags)
    return [line.removeprefix("- ") for line in str(refused.value).splitlines()[1:]]


def write(folder: Path, text: str) -> Path:
    path = folder / "pipe.toml"
    path.write_text(text, "utf-8")
    return path


def names_of(table: type[PipeSettings | PlaceTable | SparkTable]) -> list[str]:
    return [info.alias or name for name, info in table.model_fields.items()]
