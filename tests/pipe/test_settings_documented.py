"""The examples and the documentation teach the settings that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from chronoline.pipe.settings import PipeSettings, PlaceTable, SparkTable
from tests.pipe.given_settings import load, names_of, write

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def uncommented(text: str) -> str:
    """With every setting that is commented out."""
    return re.sub(r'^#(?=[\w"]+(?:\.[\w"]+)* = |"[^"]+" = |\[)', "", text, flags=re.M)


@pytest.mark.parametrize("name", ["pipe-kafka.toml", "pipe-embedded.toml"])
def test_examples_load_with_and_without_comments(tmp_path: Path, name: str) -> None:
    settings = PipeSettings.load(EXAMPLES / name, {}, {})
    assert settings.input.topic != settings.output.topic
    full = write(tmp_path, uncommented((EXAMPLES / name).read_text("utf-8")))
    assert PipeSettings.load(full, {}, {}).dead_letters is not None


def test_kafka_example_names_every_setting_and_default() -> None:
    text = (EXAMPLES / "pipe-kafka.toml").read_text("utf-8")
    said = tomllib.loads(uncommented(text))
    assert said.keys() == set(names_of(PipeSettings))
    assert said["spark"].keys() == set(names_of(SparkTable))
    assert said["output"].keys() | {"log"} == set(names_of(PlaceTable))
    # A commented setting shows its default, except those of `without`.
    without = {"name", "store", "input", "output", "dead_letters", "spark"}
    without |= {"delay", "receipts", "metrics"}
    told = load(**{name: value for name, value in said.items() if name not in without})
    assert told == load()


def test_the_reference_explains_every_setting() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w.]+)` \| [^|]* \| [^|]+ \|$", page.partition("## A pipe")[2], re.M)
    places = ("input", "output", "dead_letters")
    expected = [
        *(name for name in names_of(PipeSettings) if name not in (*places, "spark")),
        *(f"{place}.{name}" for place in places for name in names_of(PlaceTable)),
        *(f"spark.{name}" for name in names_of(SparkTable)),
    ]
    assert sorted(rows) == sorted(expected)
