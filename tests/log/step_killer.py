"""Forks writers; each is killed some lines later in its append than the one before, until one ends.

`python -m tests.log.step_killer URL LINES` prints the answered events and the number of killed writers.
"""

import itertools
import json
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

from chronoline.log import Log, NewEvent

STEPS = ("/log/objects/", "/log/index/", "/databases/", "/chronoline/log/writer.py", "/log/log.py")


class Killer:
    """Kills its process at the n-th line of the modules that write, once it is armed."""

    def __init__(self, lines: int) -> None:
        self.left = lines
        self.armed = False

    def __call__(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not any(step in frame.f_code.co_filename for step in STEPS):
            return None
        if event == "line" and self.armed:
            self.left -= 1
            if not self.left:
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
        os.write(answers, json.dumps([f"{step}-{n}" for n in range(7)]).encode())


def main(url: str, lines: int) -> None:
    for kills in itertools.count():
        step = 1 + kills * lines
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            write(url, step, writing)
            os._exit(0)
        os.close(writing)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reading) as answer:
            if status == 0:
                print(json.dumps([json.load(answer), kills]))
                return
            assert os.WTERMSIG(status) == signal.SIGKILL, status


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
