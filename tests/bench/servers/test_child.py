"""Child processes of benches and tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it ships no types
import pytest

from chronoline.core.errors import ChronolineError
from chronoline_bench.servers.child import Child

WAITS = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
print("noise"); print("ready 7", flush=True)
print(sys.stdin.readline(), end="", flush=True)
signal.pause()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    with started(tmp_path, WAITS) as child:
        yield child


def test_child_is_heard_and_ends_by_sigterm(child: Child) -> None:
    assert child.hear("ready") == "ready 7"
    child.say("hello")
    assert child.hear() == "hello"
    assert child.lives
    assert child.stop() == 3
    assert not child.lives
    assert child.stop() == child.wait() == 3


def test_killed_child_has_ended(child: Child) -> None:
    assert child.kill() == -9
    assert not child.lives
    with pytest.raises(ChronolineError, match="ended"):
        child.say("hello")


def test_paused_child_goes_on_when_it_is_resumed(child: Child) -> None:
    child.hear("ready")
    child.pause()
    assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
    child.say("hello")
    child.resume()
    assert child.hear() == "hello"


def test_log_of_a_failed_child_is_in_the_error(tmp_path: Path) -> None:
    with (
        started(tmp_path, "raise SystemExit('no luck today')") as child,
        pytest.raises(ChronolineError, match=r"ended(?s:.*)no luck today"),
    ):
        child.hear("ready")


def test_silent_child_is_not_awaited_forever(tmp_path: Path) -> None:
    with (
        started(tmp_path, "import signal; signal.pause()") as child,
        pytest.raises(ChronolineError, match="took more than"),
    ):
        child.hear("ready", 0.05)


def test_unheard_output_goes_to_the_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import os; print('both', os.environ['WHO'], os.getcwd())"]
    environment = {"WHO": "me"}
    with Child(
        command, log_path=tmp_path / "log", environment=environment, cwd=tmp_path, hear=False
    ) as child:
        assert child.wait() == 0
        assert child.log == f"both me {tmp_path}\n"


def started(folder: Path, program: str) -> Child:
    return Child([sys.executable, "-c", program], log_path=folder / "log")
