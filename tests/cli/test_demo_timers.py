"""`chronoline demo --timers` on this machine, as users run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.node.processes import run


def test_a_cluster_grows_and_shrinks_and_loses_nothing() -> None:
    command = [sys.executable, "-m", "chronoline", "demo", "--timers"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
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
    assert refused.returncode == 1
    assert "are not for --timers" in refused.stderr
