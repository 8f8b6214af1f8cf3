"""`chronoline` in a folder of its own, as a new user runs it: as a process, or in this one."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chronoline.cli import main

COMMAND = (sys.executable, "-m", "chronoline")
FREE = ("--grpc=127.0.0.1:0", "--http=127.0.0.1:0")


def environment(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("CHRONOLINE_")}
    return {**own, "PYTHONWARNINGS": "error", **more}


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command as a process, from its start to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def call(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in this process, which spares the start of another."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        chdir(folder),
        patch.dict(os.environ, environment(**env), clear=True),
        patch.object(sys, "argv", ["chronoline", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        _logging_kept(),
    ):
        try:
            main.run()
        except SystemExit as ended:
            code = int(ended.code or 0)
        else:
            code = 0
    said, told = (each.buffer.getvalue().decode() for each in (out, err))
    return subprocess.CompletedProcess(arguments, code, said, told)


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Restore the logging set-up, which a node in this process replaces."""
    root, own = logging.getLogger(), logging.getLogger("chronoline")
    before, level, own_level = root.handlers[:], root.level, own.level
    # Else the node would close them.
    root.handlers = []
    try:
        with warnings.catch_warnings():
            yield
    finally:
        logging.captureWarnings(False)
        root.handlers = before
        root.setLevel(level)
        own.setLevel(own_level)


def refusal(folder: Path, *arguments: str, **env: str) -> str:
    """Run a command that is refused; returns the error text."""
    done = call(folder, *arguments, **env)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert done.stderr.startswith("chronoline: ")
    return done.stderr.removeprefix("chronoline: ").removesuffix("\n")


@dataclass(frozen=True)
class Up:
    """A node that is up, and logs JSON."""

    process: subprocess.Popen[str]
    started: dict[str, Any]

    @property
    def grpc(self) -> str:
        return str(self.started["grpc"])

    @property
    def http(self) -> str:
        return str(self.started["http"])

    def log(self) -> dict[str, Any]:
        """Wait for the next line of the log."""
        assert self.process.stderr
        line: dict[str, Any] = json.loads(self.process.stderr.readline())
        return line

    def end(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """The exit code after a signal, and what was logged until then."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        assert out == ""
        return self.process.returncode, [json.loads(line) for line in err.splitlines()]


@contextmanager
def started(folder: Path, *arguments: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    """A node in a session of its own, as at a terminal of its own."""
    with subprocess.Popen(
        [*COMMAND, "up", *arguments],
        cwd=folder,
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def up(folder: Path, *arguments: str, **env: str) -> Iterator[Up]:
    """A node on ports that were free, unless others are named."""
    with started(folder, *FREE, "--log-format=json", *arguments, **env) as process:
        assert process.stderr
        line = process.stderr.readline()
        assert line.startswith("{"), line + process.stderr.read()
        yield Up(process, json.loads(line))
