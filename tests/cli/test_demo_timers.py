"""`chronoline demo --timers` on this machine, as users run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.cli import demo_timers as demo
from tests.node.processes import call, run


def test_cluster_grows_and_shrinks_without_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Users see timers pop between the steps; a test need not.
    monkeypatch.setattr(demo, "_BETWEEN_S", 0.5)
    # No setting: the test does not wait for the usual time.
    monkeypatch.setattr(demo, "_INTERVALS_MS", (500, 2_000))
    ended = call(tmp_path, "demo", "--timers")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    table = {
        cells[0].strip(): cells[1].strip()
        for line in ended.stdout.splitlines()
        if len(cells := line.strip("│ ").split("│")) == 2
    }
    assert table["lost"] == table["early"] == table["refused"] == "0"
    assert table["popped"] == table["asked for"]


def test_options_of_the_other_demo_are_refused(tmp_path: Path) -> None:
    refused = run(tmp_path, "demo", "--timers", "--messages=1")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("chronoline: ")
    assert "do not apply to --timers" in refused.stderr
