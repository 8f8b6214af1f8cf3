import os
import signal
import subprocess
import sys
import time

from chronoline.runtime.control import Control


def test_control_measures_its_wakeup_lateness() -> None:
    with Control(longest_sleep_ms=1) as control:
        during = control.values_ms
    after = control.values_ms
    assert after[: len(during)] == during
    assert during
    assert all(late_ms >= 0 for late_ms in after)
    assert control.lateness.count == len(after)
    assert control.lateness.max_ms == max(after)


def test_wake_ups_are_placed_in_time() -> None:
    before_s = time.time()
    with Control(longest_sleep_ms=1) as control:
        pass
    moments_s = [moment_s for moment_s, _ in control.samples]
    assert moments_s == sorted(moments_s)
    assert before_s <= moments_s[0] <= moments_s[-1] <= time.time()


def test_stopping_twice_or_before_the_start_is_fine() -> None:
    control = Control()
    control.stop()
    assert control.lateness.count == 0
    control.start()
    control.stop()
    control.stop()
    assert control.lateness.count > 0


def test_restart_begins_a_new_measurement() -> None:
    control = Control(longest_sleep_ms=0.1)
    with control:
        while len(control.values_ms) < 100:
            os.sched_yield()
    before = control.values_ms
    with control:
        begun = control.values_ms
    assert begun
    assert begun[0] != before[0]


PARENT = """
import os
from chronoline.runtime.control import Control
control = Control()
control.start()
print(control.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_control_ends_with_its_parent() -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, check=False
    )
    assert parent.returncode == -signal.SIGKILL
    pid = int(parent.stdout)
    give_up = time.monotonic() + 30
    while _lives(pid) and time.monotonic() < give_up:
        time.sleep(0.01)  # no signal tells of the end of a grandchild
    assert not _lives(pid)


def _lives(pid: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
