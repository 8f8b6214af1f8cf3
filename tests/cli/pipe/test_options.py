"""Flags and `--set` go together, and what does not is refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.cli.pipe.options import load
from chronoline.core.errors import InvalidInput
from chronoline.pipe.settings import PipeSettings


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def settings(*given: str, **flags: str) -> PipeSettings:
    return load(None, list(given), **{"name": "p", "input": "in@log", "output": "out@log", **flags})


def test_set_adds_to_the_table_of_a_flag() -> None:
    found = settings(
        "input.topic=other",
        "input.kafka.client.id=me",
        "input.kafka.kafka.linger.ms=5",
        "hold-ms=7s",
        input="kafka://a:1,b:2/in",
    )
    assert (found.input.topic, found.input.bootstrap, found.hold_ms) == ("other", "a:1,b:2", 7_000)
    assert found.input.properties == {"client.id": "me", "linger.ms": "5"}


def test_property_may_be_a_prefix_of_another() -> None:
    found = settings(
        "spark.conf.spark.speculation=false", "spark.conf.spark.speculation.interval=1s"
    )
    assert found.spark.conf == {"spark.speculation": "false", "spark.speculation.interval": "1s"}


def test_flag_wins_over_set() -> None:
    assert settings("name=q").name == "p"


@pytest.mark.parametrize(
    "given", [["input=x"], ["input.topic=y", "input=x"], ["input=x", "input.y=z"]]
)
def test_text_instead_of_a_table_is_refused(given: list[str]) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings(*given)
    assert str(refused.value) == (
        "--set input=… names a table; name a setting in it, such as input.topic"
    )


@pytest.mark.parametrize("given", ["hold_ms", "=1"])
def test_set_needs_a_name_and_a_value(given: str) -> None:
    with pytest.raises(InvalidInput, match="--set takes NAME=VALUE, not"):
        settings(given)
