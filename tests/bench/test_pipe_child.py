"""Processes of a bench."""

from pathlib import Path

import pytest

from chronoline.core.errors import ChronolineError
from chronoline_bench.pipes.child import Child


def test_a_child_says_that_it_is_ready_and_ends_when_told(tmp_path: Path) -> None:
    program = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3));"
    program += "print('noise'); print('ready 7', flush=True); signal.pause()"
    (tmp_path / "waits.py").write_text(program)
    with started(tmp_path, "waits") as child:
        assert child.await_line("ready", 30) == "ready 7"
        assert child.lives
        assert child.stop() == 3
        assert not child.lives
        assert child.stop() == 3


def test_what_a_child_said_is_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("raise SystemExit('no luck today')")
    with (
        started(tmp_path, "fails") as child,
        pytest.raises(ChronolineError, match=r"fails ended(?s:.*)no luck today"),
    ):
        child.await_line("ready", 30)


def test_a_child_that_says_nothing_is_not_waited_for_forever(tmp_path: Path) -> None:
    (tmp_path / "mute.py").write_text("import signal; signal.pause()")
    with (
        started(tmp_path, "mute") as child,
        pytest.raises(ChronolineError, match="mute took more than"),
    ):
        child.await_line("ready", 0.05)


def started(folder: Path, module: str) -> Child:
    return Child(module, log_path=folder / "said", environment={"PYTHONPATH": str(folder)})
