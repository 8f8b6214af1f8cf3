"""`chronoline` as a process, in a folder of its own, as a new user runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "chronoline")
FREE = ("--grpc=127.0.0.1:0", "--http=127.0.0.1:0")


def environment(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("CHRONOLINE_")}
    return {**own, "PYTHONWARNINGS": "error", **more}


def run(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command, from its start to its end."""
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def refusal(folder: Path, *arguments: str, **env: str) -> str:
    """What is said of a command that cannot do what it is asked for."""
    done = run(folder, *arguments, **env)
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
        """The next line of it, when it is there."""
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
