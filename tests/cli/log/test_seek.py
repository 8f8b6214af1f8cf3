"""`seek` and `skip-to-end`."""

import pytest

from chronoline.log import Log, NewEvent
from tests.cli.log.command import Command


@pytest.fixture(autouse=True)
def events(log: Log) -> None:
    log.append_many("t", [NewEvent(value=b"v", partition=n % 2) for n in range(10)])


def progress(log: Log) -> dict[int, int]:
    return {each.partition: each.sequence for each in log.groups("t")}


def test_group_continues_at_the_given_place(command: Command, log: Log) -> None:
    for to, left, where in (
        ("latest", "0 events", 5),
        ("earliest", "10 events", 0),
        ("3", "4 events", 3),
        ("-10m", "10 events", 0),
        ("9000-01-01T00:00:00Z", "0 events", 5),
    ):
        assert command("seek", "t", "g", "--to", to) == f"'g' has {left} of 't' to read\n"
        assert progress(log) == {0: where, 1: where, 2: 0, 3: 0}


def test_seek_may_move_one_partition(command: Command, log: Log) -> None:
    command("seek", "t", "g", "--to", "4", "--partition", "1")
    assert progress(log) == {1: 4}


def test_seek_beyond_the_end_is_refused(command: Command, log: Log) -> None:
    refusal = command.refusal("seek", "t", "g", "--to", "99999")
    assert "sequence 99999 is beyond the end" in refusal
    assert "of partition 0, the longest, gets sequence 5" in refusal
    assert "of partition 2 gets sequence 0" in command.refusal(
        "seek", "t", "g", "--to", "1", "--partition", "2"
    )
    assert "milliseconds" in command.refusal("seek", "t", "g", "--to", "1700000000000")
    assert progress(log) == {}
    assert command.warning("seek", "t", "g", "--to", "3") == (
        "chronoline: 2 partitions end before 3, where it goes on at the end\n"
    )
    assert command.warning("seek", "t", "g", "--to", "3", "--partition", "1") == ""


def test_skip_to_end_skips_every_partition(command: Command, log: Log) -> None:
    assert command("skip-to-end", "t", "g") == "'g' goes on with the next events of 't'\n"
    assert progress(log) == {0: 5, 1: 5, 2: 0, 3: 0}


def test_bad_input_is_refused(command: Command, log: Log) -> None:
    assert "--to 'x' is not a start" in command.refusal("seek", "t", "g", "--to", "x")
    assert "partition 9" in command.refusal("seek", "t", "g", "--to", "0", "--partition", "9")
    assert "no topic named 'x'" in command.refusal("seek", "x", "g", "--to", "0")
    assert "group is empty" in command.refusal("seek", "t", "", "--to", "0")
    assert "--to" in command.misuse("seek", "t", "g")
    assert "no topic named 'x'" in command.refusal("skip-to-end", "x", "g")
    assert "group is empty" in command.refusal("skip-to-end", "t", "")
    assert progress(log) == {}
