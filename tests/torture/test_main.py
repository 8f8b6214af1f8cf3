"""The runner: it finds scenes, counts events, and fails on a violation."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from tests.torture import __main__ as runner
from tests.torture.__main__ import Report, main, table
from tests.torture.history import DONE, REFUSED, Event, Recorder, Violation, read_history


def _run(folder: Path, *, seconds: float, seed: int, report: Report) -> None:
    recorder = Recorder(folder, "one")
    recorder.outcome(recorder.call("send", seed=seed), DONE)
    report(f"sent for {seconds:g} s")
    recorder.close()


def _judge(events: Sequence[Event]) -> list[Violation]:
    return [Violation("6 lost", "the message") for event in events if event.get("seed") == 13]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scene that breaks a rule if its seed is 13."""
    played, judged = ModuleType("scene"), ModuleType("judge")
    vars(played)["run"], vars(judged)["judge"] = _run, _judge
    monkeypatch.setitem(sys.modules, "tests.torture.made_up.scene", played)
    monkeypatch.setitem(sys.modules, "tests.torture.made_up.judge", judged)
    monkeypatch.setattr(runner, "scenes", lambda: ["made_up"])


@pytest.mark.usefixtures("scene")
def test_violation_fails_and_says_how_to_run_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--seconds", "3", "--seed", "13", "--keep", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "VIOLATION of 6 lost: 1" in said
    assert f"the history lies in {tmp_path / 'made_up'}" in said
    assert "python -m tests.torture made_up --seconds 3 --seed 13" in said
    assert main(["made_up", "--judge", str(tmp_path)]) == 1


@pytest.mark.usefixtures("scene")
def test_run_without_violation_succeeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["made_up", "--seconds", "3", "--seed", "12"]) == 0
    assert "sent for 3 s" in capsys.readouterr().out


def test_table_counts_calls_by_outcome(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "one")
    recorder.outcome(recorder.call("ack"), REFUSED, "lapsed")
    recorder.call("ack")
    recorder.fault("kill -9 broker")
    recorder.record("delivery", id="a")
    rows = [line.split() for line in table(read_history(tmp_path), []).splitlines()]
    assert rows == [
        ["calls", "2"],
        ["ack", "no", "answer", "recorded", "1"],
        ["ack", "refused", "lapsed", "1"],
        ["deliveries", "1"],
        ["faults", "1"],
        ["kill", "-9", "broker", "1"],
        ["violations", "0"],
    ]


def test_unknown_scene_is_refused() -> None:
    with pytest.raises(SystemExit):
        main(["no_such_scene"])
