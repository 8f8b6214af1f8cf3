"""Contents of messages cannot drive the terminal that shows them."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from chronoline.client import Client
from chronoline.log import Log
from tests.cli.command import Command
from tests.node.processes import COMMAND, environment

_HOSTILE = "\x1b]0;title\x07 \x1b[2J \x9b31m \u202egnp.exe \u2066 \x7f \u200b é 🙂"
"""Escape sequences of both kinds, a bell, and characters that turn or hide text."""


def _at_terminal(*arguments: str, **env: str) -> str:
    """All that a command writes to a terminal, on stdout and stderr."""
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            [*COMMAND, *arguments],
            env=environment(TERM="dumb", COLUMNS="1000", **env),
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        ) as process:
            os.close(theirs)
            theirs = -1
            shown = bytearray()
            while data := _read(ours):
                shown += data
            process.wait(60)
    finally:
        os.close(ours)
        if theirs >= 0:
            os.close(theirs)
    return shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""


def _drives(shown: str) -> list[str]:
    return [each for each in shown if not each.isprintable() and each != "\n"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "TOPIC", "ID", "--body"),
        ("show", "TOPIC", "ID"),
        ("list", "TOPIC"),
        ("list", "TOPIC", "--json"),
        ("export", "TOPIC", "-"),
        ("receive", "TOPIC", "--timeout", "10s"),
        ("receive", "TOPIC", "--json", "--timeout", "10s"),
        ("cancel", "TOPIC", "ID", "--group", _HOSTILE),
        ("topic", "show", _HOSTILE),
    ],
    ids=range(9),
)
def test_terminal_gets_no_control_characters(
    client: Client, topic: str, address: str, arguments: Sequence[str]
) -> None:
    headers = [(_HOSTILE, _HOSTILE.encode())]
    client.send(
        topic, _HOSTILE.encode(), id=_HOSTILE, delay=0.0, key=_HOSTILE.encode(), headers=headers
    )
    places = {"TOPIC": topic, "ID": _HOSTILE}
    given = [places.get(argument, argument) for argument in arguments]
    shown = _at_terminal(*given, CHRONOLINE_ADDRESS=address)
    assert "é 🙂" in shown
    assert _drives(shown) == []


def test_json_for_terminals_has_the_whole_content(
    command: Command, client: Client, topic: str
) -> None:
    client.send(topic, _HOSTILE.encode(), id=_HOSTILE, delay=timedelta(hours=1))
    lines = command("export", topic, "-")
    assert _drives(lines) == []
    saved = json.loads(lines)
    assert (saved["id"], saved["body"]) == (_HOSTILE, _HOSTILE)
    assert json.loads(command("list", topic, "--json"))["id"] == _HOSTILE


def test_body_is_shown_as_it_is_where_no_terminal_reads(
    command: Command, client: Client, topic: str
) -> None:
    body = b"\x1b[31m\xff\0"
    client.send(topic, body, id="a", delay=timedelta(hours=1))
    assert command.result("show", topic, "a", "--body").stdout_bytes == body


def test_parquet_is_refused_at_a_terminal(client: Client, topic: str, address: str) -> None:
    shown = _at_terminal("export", topic, "-", "--format", "parquet", CHRONOLINE_ADDRESS=address)
    assert "redirect stdout" in shown


@pytest.mark.parametrize("output", ["json", "values"])
def test_events_of_a_log_drive_no_terminal(tmp_path: Path, output: str) -> None:
    with Log(tmp_path.as_uri()) as log:
        log.create_topic("t", partitions=1)
        log.append("t", value=_HOSTILE.encode(), key=_HOSTILE.encode())
    shown = _at_terminal("log", "read", "t", "--format", output, "--log", str(tmp_path))
    assert "é 🙂" in shown
    assert _drives(shown) == []
