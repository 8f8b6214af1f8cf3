"""Forks writers; each is killed some lines later in its append than the one before, until one ends.

`python -m tests.log.step_killer URL KILLS` prints the answered events and the number of killed writers. A
first writer ends by itself; the others are killed at about this number of its lines, or at each for 0.
"""

import importlib
import itertools
import json
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from chronoline.log import Log, NewEvent

STEPS = (
    "/log/objects/",
    "/log/index/",
    "/databases/",
    "/chronoline/log/appender.py",
    "/log/log.py",
)

ENGINES = (
    "chronoline.log.index.dynamodb",
    "chronoline.log.index.postgres",
    "chronoline.log.index.sqlite",
    "chronoline.log.objects.aws",
    "chronoline.log.objects.local",
    "chronoline.log.objects.remote",
)
"""Imported before the forks: else each writer would import its own."""


class Killer:
    """Kills its process at the n-th line of the modules that write, once it is armed; never at line 0."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0
        self.armed = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not any(step in frame.f_code.co_filename for step in STEPS):
            return None
        if event == "line" and self.armed:
            self.lines += 1
            if self.lines == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
        return self


def write(url: str, step: int, answers: int) -> None:
    killer = Killer(step)
    threading.settrace(killer)  # the committer's thread, which begins with the log
    with Log(url) as log:
        events = [NewEvent(value=f"{step}-{n}".encode()) for n in range(7)]
        log.topic("t")
        killer.armed = True
        log.append_many("t", events)
        killer.armed = False
        answered = [f"{step}-{n}" for n in range(7)]
        os.write(answers, json.dumps([answered, killer.lines]).encode())


def run(url: str, step: int) -> tuple[list[str], int] | None:
    """Returns the events of a writer that came to its end, and the number of its lines."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        write(url, step, writing)
        os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as answer:
        if status == 0:
            answered, lines = json.load(answer)
            return answered, lines
    assert os.WTERMSIG(status) == signal.SIGKILL, status
    return None


def main(url: str, wanted: int) -> None:
    for name in ENGINES:
        importlib.import_module(name)
    first = run(url, 0)
    assert first is not None
    lines = max(1, first[1] // wanted) if wanted else 1
    for kills in itertools.count():
        ended = run(url, 1 + kills * lines)
        if ended is not None:
            print(json.dumps([first[0] + ended[0], kills]))
            return


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
