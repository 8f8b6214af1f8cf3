"""`chronoline pipe run`, before and after Spark, with a pipe that only waits; and `chronoline pipe check`."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chronoline.cli.pipe import run as run_module
from chronoline.cli.pipe.run import _is_news  # the rule of the log lines, without a pipe
from chronoline.log import Log
from chronoline.pipe.counters import Counters
from chronoline.pipe.kafka import KafkaTopic
from chronoline.pipe.settings import PipeSettings
from chronoline.runtime.service import Closable
from tests.cli.pipe.command import pipe, refusal, store_url


def nothing() -> None: ...


class FakePipe(Closable):
    """Does at its start, while it is watched, and at its end what a test says."""

    node = "a-node"
    failed: str | None = None
    starting: Callable[[], None] = nothing
    watched: Callable[[], None] = nothing
    closing: Callable[[], None] = nothing

    def __init__(self, _: PipeSettings) -> None:
        self.counters = Counters()
        self.stopped = _Watched(type(self).watched)
        type(self).starting()

    def close(self) -> None:
        type(self).closing()


class _Watched(threading.Event):
    """Does something while its lock is held, as it is in the middle of `wait`."""

    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__()
        self._do = do

    def is_set(self) -> bool:
        with self._cond:  # type: ignore[attr-defined]  # how it is made, which matters here
            self._do()
        return super().is_set()

    def wait(self, timeout: float | None = None) -> bool:
        self.is_set()
        return super().wait(timeout)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> type[FakePipe]:
    class Fake(FakePipe): ...

    # A pipe without Spark.
    monkeypatch.setattr(run_module, "_import_pipe", lambda: Fake)
    # It would change the logging of the tests.
    monkeypatch.setattr(run_module, "_log_to_stderr", lambda: None)
    return Fake


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    with Log((tmp_path / "log").as_uri()) as log:
        log.create_topic("in")
        log.create_topic("out")
    places = [f"--input=in@{tmp_path}/log", f"--output=out@{tmp_path}/log"]
    return ["run", "--name=p", f"--store={store_url(tmp_path)}", *places]


@pytest.fixture
def usual() -> Iterator[list[int]]:
    """The signals that reach the earlier handler of SIGTERM."""
    reached: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: reached.append(number))
    yield reached
    signal.signal(signal.SIGTERM, before)


def raising(number: int) -> Callable[[], None]:
    return lambda: signal.raise_signal(number)


# Before Spark


def test_problems_are_reported_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: type[FakePipe]
) -> None:
    monkeypatch.chdir(tmp_path)
    fake.starting = lambda: pytest.fail("Spark was started")
    said = refusal("run", "--name=p", "--input=in@log", "--output=out@log")
    first, *lines = said.splitlines()
    assert first == "the pipe cannot run:"
    assert [line.partition(" there is no")[0] for line in lines] == ["- input:", "- output:"]
    assert list(tmp_path.iterdir()) == []


def test_run_waits_for_an_unreachable_output(
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    fake: type[FakePipe],
    caplog: pytest.LogCaptureFixture,
) -> None:
    defaults = KafkaTopic.__init__.__kwdefaults__
    assert defaults is not None
    monkeypatch.setitem(defaults, "timeout_s", 0.2)
    fake.watched = raising(signal.SIGTERM)
    answer = pipe(*arguments, "--output=kafka://127.0.0.1:1/out")
    assert answer.exit_code == 0, answer.exception
    assert "starting all the same: output: Kafka at 127.0.0.1:1 cannot be asked" in caplog.text


# Signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_ends_a_running_pipe(
    arguments: list[str], fake: type[FakePipe], number: int
) -> None:
    fake.watched = raising(number)
    answer = pipe(*arguments)
    assert answer.exit_code == 0, answer.exception
    assert "stopping: firing due messages" in answer.stderr


def test_signal_during_the_start_ends_the_pipe_afterwards(
    arguments: list[str], fake: type[FakePipe]
) -> None:
    fake.starting = raising(signal.SIGINT)
    fake.watched = lambda: pytest.fail("it was told before")
    answer = pipe(*arguments)
    assert answer.exit_code == 0, answer.exception
    assert "running as node a-node" in answer.stderr


def test_interrupt_by_spark_shows_no_traceback(arguments: list[str], fake: type[FakePipe]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    fake.starting = interrupt
    assert refusal(*arguments) == "ended while starting"


def test_second_signal_ends_a_stopping_process(
    arguments: list[str], fake: type[FakePipe], usual: list[int]
) -> None:
    fake.watched = raising(signal.SIGINT)
    fake.closing = raising(signal.SIGTERM)  # whichever of the two comes second
    assert pipe(*arguments).exit_code == 0
    assert usual == [signal.SIGTERM]


def test_stopped_or_failed_pipe_ends(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, fake: type[FakePipe]
) -> None:
    def stopped(self: _Watched) -> bool:
        return True

    fake.failed = "Spark has died"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Watched, "is_set", stopped)
        assert refusal(*arguments) == "Spark has died; start the pipe again"


def test_traceback_of_ctrl_c_is_not_logged() -> None:
    def record(error: BaseException | None) -> logging.LogRecord:
        info = None if error is None else (type(error), error, None)
        return logging.LogRecord("root", logging.ERROR, "", 1, "x", None, info)

    assert not _is_news(record(KeyboardInterrupt()))
    assert _is_news(record(None))
    assert _is_news(record(ValueError()))


# Checking


def test_check_creates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["--name=p", "--input=in@mistyped", "--output=out@log"]
    answer = pipe("check", *arguments, JAVA_HOME=str(tmp_path))
    assert answer.exit_code == 1
    file = tmp_path / "chronoline-data" / "pipe.db"
    lines = answer.stdout.splitlines()
    assert lines[:2] == [
        "p: in (log) → sqlite → out (log)",
        f"✓ store: '{file}' is not there yet: the pipe will make it, and its folder",
    ]
    assert lines[2] == (
        f"✗ input: there is no '{tmp_path}/mistyped', and so there is no topic 'in' in the log; "
        f"create it: chronoline log create in --log {(tmp_path / 'mistyped').as_uri()}"
    )
    assert lines[3].startswith("✗ output: there is no ")
    assert list(tmp_path.iterdir()) == []
