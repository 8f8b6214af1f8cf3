"""The recorder and the reader: no recorded event is lost, and a torn line is omitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.history import DONE, Recorder, read_history


def test_events_of_all_processes_come_in_order(tmp_path: Path) -> None:
    first, second = Recorder(tmp_path, "first"), Recorder(tmp_path, "second")
    call = first.call("send", id="a")
    second.fault("kill -9 broker", broker=1)
    first.outcome(call, DONE, version=1)
    events = read_history(tmp_path)
    assert [(event.process, event.kind) for event in events] == [
        ("first", "call"),
        ("second", "fault"),
        ("first", "outcome"),
    ]
    assert events[2]["call"] == events[0]["call"]
    assert events[2]["version"] == 1
    assert events[0].wall_ms <= events[2].wall_ms


def test_torn_last_line_is_left_out(tmp_path: Path) -> None:
    Recorder(tmp_path, "killed").record("delivery", id="a")
    path = tmp_path / "killed.jsonl"
    path.write_bytes(path.read_bytes() + b'{"kind":"deliv')
    assert [event["id"] for event in read_history(tmp_path)] == ["a"]


def test_torn_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "damaged.jsonl").write_bytes(b'{"kind":"deliv\n{}\n')
    with pytest.raises(ValueError, match="Unterminated"):
        read_history(tmp_path)
