"""`chronoline demo` on this machine, as users run it, and the rule by which it begins."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from chronoline.cli.demo import Warmth
from chronoline.runtime.child_process import LineProcess
from tests.node.processes import COMMAND
from tests.spark.environment import environment, python_of_workers


def warmth(late_ms: Iterable[float], *, warm_ms: int = 300) -> Warmth:
    """The state after probes that fell due every 100 ms."""
    found = Warmth(warm_ms)
    for number, each in enumerate(late_ms):
        found.note(number * 100, each)
    return found


@pytest.mark.parametrize(
    ("late_ms", "warm"),
    [
        ([], False),
        ([1, 1, 1], False),
        ([1, 1, 1, 1], True),
        ([1, 1, 50, 50], True),
        ([900, 1, 1, 1], False),
        ([900, 1, 1, 1, 1], True),
        # A late one in between begins anew.
        ([1, 1, 51, 1, 1, 1], False),
        ([1, 1, 51, 1, 1, 1, 1], True),
    ],
)
def test_lanes_are_warm_after_some_time_on_time(late_ms: list[float], warm: bool) -> None:
    assert warmth(late_ms).reached.is_set() is warm


def test_late_probe_has_come_too() -> None:
    assert not warmth([]).came.is_set()
    assert warmth([900]).came.is_set()


@pytest.mark.timeout(300)
def test_demo_begins_with_warm_lanes_and_loses_nothing(tmp_path: Path) -> None:
    own = environment(tmp_path, PYSPARK_PYTHON=python_of_workers(tmp_path))
    with LineProcess(
        [*COMMAND, "demo", "--messages=100", "--seconds=1"],
        environment=own,
        cwd=tmp_path,
        reads_errors=True,
    ) as demo:
        code = demo.wait(240)
        said = "\n".join(demo.read_rest())
    assert code == 0, said
    assert re.search(r"The pipe runs after [0-9.]+ s\.", said)
    # A machine that is busy with other tests may not be on time at all.
    assert "The lanes are warm after another" in said or "The lanes are not on time" in said
    assert "Every message came once" in said
