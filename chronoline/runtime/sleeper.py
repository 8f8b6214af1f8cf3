"""The program of the control process: it sleeps until random moments and writes its lateness.

It is run by its path, without the package, so that it is as light as a Python process can be: `python -I -S
sleeper.py LONGEST_S PARENT_PID`. Each wake-up adds two C doubles to its output: the wall clock's time in
seconds, and its lateness in milliseconds. It ends when its parent has ended.
"""

from __future__ import annotations

import os
import random
import struct
import sys
import time

SAMPLE = struct.Struct("dd")


def sleep_and_wake(longest_s: float, parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        pause_s = random.uniform(0, longest_s)
        moment = time.monotonic() + pause_s
        time.sleep(pause_s)
        late_s = time.monotonic() - moment
        os.write(sys.stdout.fileno(), SAMPLE.pack(time.time(), late_s * 1000))


if __name__ == "__main__":
    sleep_and_wake(float(sys.argv[1]), int(sys.argv[2]))
