"""`read` and `tail`."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chronoline.cli.log.events import read, tailed
from chronoline.log import Event, Log, NewEvent
from tests.cli.log.command import Command


def lines(printed: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.split("\n") if line]


def values(printed: str) -> list[str]:
    return [line["value"] for line in lines(printed)]


def fill(log: Log, partition: int, *texts: str) -> None:
    log.append_many("t", [NewEvent(value=each.encode(), partition=partition) for each in texts])


def test_each_event_is_a_line(command: Command, log: Log) -> None:
    log.append("t", value=b"v", key=b"\xff", headers=[("a", None)], partition=2, ts=7)
    assert lines(command("read", "t")) == [
        {
            "topic": "t",
            "partition": 2,
            "sequence": 0,
            "ts": "1970-01-01T00:00:00.007Z",
            "key": {"base64": "/w=="},
            "value": "v",
            "headers": [["a", None]],
        }
    ]


def test_empty_topic_prints_nothing(command: Command, log: Log) -> None:
    assert command("read", "t") == ""


def test_from_chooses_the_first_event(command: Command, log: Log) -> None:
    fill(log, 0, "a", "b", "c")
    fill(log, 1, "d")
    assert values(command("read", "t", "--from", "earliest")) == ["a", "b", "c", "d"]
    assert values(command("read", "t", "--from", "latest")) == []
    assert values(command("read", "t", "--from", "1")) == ["b", "c"]
    assert values(command("read", "t", "--partition", "0", "--from", "2")) == ["c"]
    assert values(command("read", "t", "--from", "-10m")) == ["a", "b", "c", "d"]
    assert values(command("read", "t", "--from", "2020-01-01T00:00:00+01:00", "--limit", "2")) == [
        "a",
        "b",
    ]
    assert values(command("read", "t", "--from", "9000-01-01T00:00:00Z")) == []
    assert values(command("read", "t", "--limit", "0")) == []


def test_values_format_prints_only_values(command: Command, log: Log) -> None:
    log.append_many("t", [NewEvent(value=each, partition=0) for each in (b"a", None, b"\xff")])
    assert command.raw("read", "t", "--format", "values") == b"a\n\n\xff\n"


def test_group_continues_at_its_progress(command: Command, log: Log) -> None:
    fill(log, 0, "a", "b", "c")
    assert values(command("read", "t", "--group", "g", "--limit", "2")) == ["a", "b"]
    assert values(command("read", "t", "--group", "g")) == ["c"]
    assert values(command("read", "t", "--group", "g")) == []
    assert values(command("read", "t", "--group", "h")) == ["a", "b", "c"]


def test_group_may_read_one_partition(command: Command, log: Log) -> None:
    fill(log, 0, "a")
    fill(log, 1, "b", "c")
    assert values(command("read", "t", "--group", "g", "--partition", "1")) == ["b", "c"]
    assert command.warning("read", "t", "--group", "g", "--partition", "1") == ""
    assert values(command("read", "t", "--group", "g")) == ["a"]


def test_future_sequence_is_warned_of(command: Command, log: Log) -> None:
    fill(log, 0, "a", "b")
    assert command.warning("read", "t", "--from", "50") == (
        "chronoline: there is no sequence 50 yet: the next event gets 2 at most\n"
    )
    assert "gets 0 at most" in command.warning("read", "t", "--from", "1", "--partition", "3")
    assert command.warning("read", "t", "--from", "2") == ""
    assert command.warning("read", "t", "--from", "50", "--limit", "0") == ""


def test_follow_ends_at_its_limit(command: Command, log: Log) -> None:
    fill(log, 0, "a", "b")
    assert values(command("read", "t", "--follow", "--limit", "2")) == ["a", "b"]
    assert values(command("read", "t", "-f", "--group", "g", "--limit", "2")) == ["a", "b"]


def test_events_held_by_another_reader_are_warned_of(command: Command, log: Log) -> None:
    fill(log, 0, "a", "b")
    other = log.read("t", group="g")
    assert next(other).value == b"a"
    assert command.warning("read", "t", "--group", "g") == (
        "chronoline: 2 events left to other readers of the group, or until their holds end: "
        "see `chronoline log groups t`\n"
    )
    assert command.warning("read", "t", "--group", "g", "--limit", "0") == ""


def test_bad_input_is_refused(command: Command, log: Log) -> None:
    assert "no topic named 'x'" in command.refusal("read", "x")
    assert "partition 4 is not one of 0 to 3" in command.refusal("read", "t", "--partition", "4")
    assert "is not a start" in command.refusal("read", "t", "--from", "monday")
    for start in ("3", "earliest"):
        refusal = command.refusal("read", "t", "--group", "g", "--from", start)
        assert "`chronoline log seek`" in refusal
    refusal = command.refusal("read", "t", "--from", "1700000000000")
    assert "looks like a time in milliseconds" in refusal
    assert "partition 4" in command.refusal("read", "t", "--group", "g", "--partition", "4")
    assert "group is empty" in command.refusal("read", "t", "--group", "")
    assert "--limit" in command.misuse("read", "t", "--limit", "-1")
    assert "'xml' is not" in command.misuse("read", "t", "--format", "xml")
    assert "no topic named 'x'" in command.refusal("tail", "x")
    assert "partition 4" in command.refusal("tail", "t", "--partition", "4")
    assert "--last" in command.misuse("tail", "t", "--last", "-1")


# Tail


def show(events: Iterator[Event], count: int) -> list[str]:
    return [
        f"{event.partition}/{(event.value or b'').decode()}"
        for event in itertools.islice(events, count)
    ]


def test_tail_begins_with_the_last_events(log: Log) -> None:
    fill(log, 0, "a", "b", "c")
    fill(log, 1, "d")
    events = tailed(log, "t", None, 2)
    assert show(events, 3) == ["0/b", "0/c", "1/d"]
    fill(log, 3, "e")
    assert show(events, 1) == ["3/e"]


@pytest.mark.parametrize("last", [0, 1])
def test_tail_shows_events_during_its_start_once(log: Log, last: int) -> None:
    fill(log, 0, "a")
    fill(log, 1, "b")
    events = tailed(log, "t", None, last)
    fill(log, 0, "c")
    before = ["0/a", "0/c", "1/b"] if last else ["0/c"]
    assert show(events, len(before)) == before
    fill(log, 0, "d")
    fill(log, 1, "e")
    assert sorted(show(events, 2)) == ["0/d", "1/e"]


def test_tail_shows_events_between_its_queries(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(log, 0, "a")
    heads = log.heads("t")
    monkeypatch.setattr(log, "heads", lambda topic: heads)
    fill(log, 0, "b")
    assert show(tailed(log, "t", None, 0), 1) == ["0/b"]


def test_tail_may_show_one_partition(log: Log) -> None:
    fill(log, 0, "a")
    fill(log, 1, "b")
    events = tailed(log, "t", 1, 0)
    fill(log, 0, "c")
    fill(log, 1, "d", "e")
    assert show(events, 2) == ["1/d", "1/e"]


# Progress is noted after what was printed is out


class Pipe(io.BytesIO):
    """Stdout whose reader goes away after some lines."""

    def __init__(self, log: Log, spare: int, most: int = sys.maxsize) -> None:
        super().__init__()
        self.buffer = self
        self.out = 0
        """How many lines were flushed."""
        self.premature = 0
        """How many lines counted as processed before they were flushed."""
        self._log = log
        self._spare = spare
        self._most = most

    def flush(self) -> None:
        if self.getvalue().count(b"\n") > self._most:
            raise BrokenPipeError
        noted = sum(each.sequence for each in self._log.groups("t"))
        self.premature = max(self.premature, noted - self.out)
        self.out = self.getvalue().count(b"\n")

    def fileno(self) -> int:
        return self._spare


@pytest.fixture
def spare(tmp_path: Path) -> Iterator[int]:
    with (tmp_path / "spare").open("wb") as file:
        yield file.fileno()


def test_progress_follows_the_flushed_lines(
    command: Command, log: Log, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 0, *map(str, range(1_200)))
    pipe = Pipe(log, spare)
    monkeypatch.setattr(sys, "stdout", pipe)
    read("t", group="g", place=str(command.folder))
    assert pipe.out == 1_200
    assert pipe.premature == 0


def test_unprinted_events_are_read_again(
    command: Command, log: Log, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(log, 0, *map(str, range(1_200)))
    pipe = Pipe(log, spare, most=700)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", pipe)
        read("t", group="g", place=str(command.folder))
    assert pipe.out == 700
    again = values(command("read", "t", "--group", "g"))
    assert again == [str(number) for number in range(700, 1_200)]
