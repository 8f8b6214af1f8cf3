"""The command as a process: pipes, signals, one line for an error."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from chronoline.log import Log, NewEvent
from tests.cli.log.command import Command


@contextmanager
def started(command: Command, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    with command.start(*arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def fill(log: Log, count: int) -> None:
    log.append_many("t", [NewEvent(value=b"%0100d" % n, partition=0) for n in range(count)])


def test_error_is_one_line(command: Command, log: Log) -> None:
    with started(command, "read", "missing") as process:
        out, err = process.communicate()
        assert process.returncode == 1
    assert (out, err) == (b"", b"chronoline: there is no topic named 'missing'; create it first\n")


@pytest.mark.parametrize("arguments", [(), ("--follow",), ("--group", "g")])
def test_closed_stdout_ends_read_quietly(
    command: Command, log: Log, arguments: tuple[str, ...]
) -> None:
    fill(log, 5_000)  # more than a pipe takes
    with started(command, "read", "t", *arguments) as process:
        assert process.stdout
        assert process.stderr
        assert json.loads(process.stdout.readline())["sequence"] == 0
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == b""
    assert all(each.holder is None for each in log.groups("t"))
    assert all(0 < each.lag < 5_000 for each in log.groups("t") if each.partition == 0)


@pytest.mark.parametrize(
    ("arguments", "number"),
    [
        (("tail", "t", "--last", "1"), signal.SIGINT),
        (("read", "t", "--follow"), signal.SIGTERM),
        (("read", "t", "--follow", "--group", "g"), signal.SIGINT),
        (("read", "t", "--follow", "--group", "g"), signal.SIGTERM),
    ],
)
def test_signal_ends_a_follower(
    command: Command, log: Log, arguments: tuple[str, ...], number: signal.Signals
) -> None:
    log.append("t", value=b"v")
    with started(command, *arguments) as process:
        assert process.stdout
        assert json.loads(process.stdout.readline())["value"] == "v"
        log.append("t", value=b"w")
        assert json.loads(process.stdout.readline())["value"] == "w"
        process.send_signal(number)
        out, err = process.communicate()
        assert process.returncode == 128 + number
    assert (out, err) == (b"", b"")
    assert all(each.holder is None for each in log.groups("t"))


def test_lines_are_appended_as_they_arrive(command: Command, log: Log) -> None:
    events = log.read("t")
    with started(command, "append", "t", "-", "--format", "lines") as process:
        assert process.stdin
        for line in (b"one", b"two"):
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            assert next(events).value == line
        process.stdin.write(b"three")
        out, err = process.communicate()
        assert process.returncode == 0
    assert (out, err) == (b"appended 3 events\n", b"")


def test_interrupted_append_reports_its_progress(command: Command, log: Log) -> None:
    events = log.read("t")
    with started(command, "append", "t", "-", "--format", "lines") as process:
        assert process.stdin
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert next(events).value == b"one"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
        assert process.returncode == 130
    assert (out, err) == (b"", b"chronoline: ended; appended 1 event\n")


def test_read_pipes_into_append(command: Command, log: Log) -> None:
    log.create_topic("copy", partitions=4)
    values = [os.urandom(size) for size in range(300)]
    log.append_many("t", [NewEvent(value=value) for value in values])
    with started(command, "read", "t") as reader, started(command, "append", "copy") as appender:
        assert reader.stdout
        assert appender.stdin
        while block := reader.stdout.read1(10_000):  # type: ignore[attr-defined]  # it is buffered
            appender.stdin.write(block)
        assert appender.communicate() == (b"appended 300 events\n", b"")
    assert sorted(each.value or b"" for each in log.read("copy", follow=False)) == sorted(values)
