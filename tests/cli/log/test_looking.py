"""`topics` and `groups`."""

import itertools
import json

import pytest
from typer.testing import CliRunner

from chronoline.cli.log import app
from chronoline.cli.log.looking import _hold_end
from chronoline.log import Log, NewEvent
from chronoline.runtime.timestamps import show_moment
from tests.cli.log.command import Command


def cells(printed: str) -> list[list[str]]:
    """The rows of a table."""
    rows = [line for line in printed.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


def test_topics(command: Command, log: Log) -> None:
    log.create_topic("[bold]odd", partitions=1)
    log.append_many("t", [NewEvent(value=b"%d" % number, partition=0) for number in range(1_200)])
    log.append("t", value=b"newest", partition=0)
    log.retain("t", max_bytes=1)
    assert sorted(cells(command("topics"))) == [
        ["[bold]odd", "1", "0", "0", "0"],
        ["t", "4", "1", "1,200", "1,201"],
    ]


def test_topics_as_json(command: Command, log: Log) -> None:
    log.append("t", value=b"v", partition=2)
    (topic,) = json.loads(command("topics", "--json"))
    assert topic["topic"] == "t"
    assert topic["events"] == 1
    assert topic["partitions"][2] == {"partition": 2, "first_sequence": 0, "next_sequence": 1}
    assert len(topic["partitions"]) == 4


def test_groups(command: Command, log: Log) -> None:
    log.append("t", value=b"a", partition=1)
    log.append("t", value=b"b", partition=1)
    log.seek("t", "idle", "latest", partition=1)
    reader = log.read("t", group="busy")
    assert next(reader).value == b"a"
    rows = cells(command("groups", "t"))
    assert [row[:4] for row in rows] == [
        ["busy", "0", "0", "0"],
        ["busy", "1", "0", "2"],
        ["busy", "2", "0", "0"],
        ["busy", "3", "0", "0"],
        ["idle", "1", "2", "0"],
    ]
    *busy, idle = rows
    assert all(row[4] and row[5].endswith("Z") for row in busy)
    assert idle[4:] == ["", ""]


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
def test_a_table_loses_nothing_where_there_is_little_room(
    command: Command, log: Log, terminal: bool
) -> None:
    reader = log.read("t", group="a-group-of-a-long-name")
    log.append("t", value=b"a", partition=1)
    next(reader)
    env = {"CHRONOLINE_LOG": str(command.folder), "COLUMNS": "80", "TTY_COMPATIBLE": "0"}
    env |= {"TTY_COMPATIBLE": "1", "NO_COLOR": "1"} if terminal else {}
    printed = CliRunner().invoke(app, ["groups", "t"], env=env).stdout
    held = log.groups("t")[0]
    assert held.holder is not None
    assert held.until_ms is not None
    first = cells(printed)[:1]
    if terminal:
        assert len(printed.splitlines()[0]) <= 80
        first = list(itertools.takewhile(lambda row: row[1] in ("0", ""), cells(printed)))
    texts = ["".join(row[place] for row in first) for place in (0, 4, 5)]
    assert texts[:2] == ["a-group-of-a-long-name", held.holder]
    assert texts[2].endswith("Z")
    assert len(texts[2]) == len(show_moment(held.until_ms))


def test_groups_as_json(command: Command, log: Log) -> None:
    log.append("t", value=b"a", partition=1)
    log.seek("t", "g", "earliest", partition=1)
    assert json.loads(command("groups", "t", "--json")) == [
        {"group": "g", "partition": 1, "sequence": 0, "lag": 1, "holder": None, "until": None}
    ]
    reader = log.read("t", group="g")
    next(reader)
    held = json.loads(command("groups", "t", "--json"))[1]
    assert held["holder"]
    assert held["until"].endswith("Z")


def test_where_there_is_nothing_it_is_said(command: Command, log: Log) -> None:
    assert command("groups", "t") == (
        "No group reads 't' yet: `chronoline log read t --group G` makes one.\n"
    )
    assert json.loads(command("groups", "t", "--json")) == []
    assert "no topic named 'x'" in command.refusal("groups", "x")


def test_a_hold_that_is_over_is_told_apart() -> None:
    assert _hold_end(None, 5) == ""
    assert _hold_end(6, 5) == "1970-01-01T00:00:00.006Z"
    assert _hold_end(5, 5) == "over since 1970-01-01T00:00:00.005Z"
